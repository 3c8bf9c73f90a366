//! Histories, repairs and checks: what is asked of the replay socket, and what follows.

use std::time::Duration;

use super::*;

#[test]
fn a_history_from_the_beginning_is_exact_and_live_batches_wait_behind_it() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.says(&["ask 0", "forget catching_up connected"]);
    rig.answers(0..2);
    rig.live(2, 2);
    rig.live(3, 3);
    rig.answers(2..3);
    rig.says(&["replayed 0", "replayed 1", "replayed 2"]);
    rig.end();
    rig.says(&["batch 3", "trust exact joined"]);
    assert_eq!(rig.stats().replayed_batches, 3);
    assert_eq!(rig.stats().last_seq, Some(3));
}

#[test]
fn a_history_that_begins_later_is_partial_until_the_cache_is_emptied() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.answers(7..9);
    rig.end();
    rig.says(&[
        "ask 0",
        "forget catching_up connected",
        "replayed 7",
        "replayed 8",
        "trust partial(joined_late) joined",
    ]);
    rig.stream.live(rig.now, 9, cleared());
    rig.says(&["batch 9", "trust exact cleared"]);
}

#[test]
fn a_gap_beyond_the_publishers_buffer_starts_over_as_partial() {
    let mut rig = Rig::exact_up_to(1);
    rig.live(9, 9);
    rig.says(&["ask 1", "trust catching_up gap"]);
    rig.answer(7, 7);
    rig.says(&["abandon", "forget catching_up unrepaired"]);
    rig.pass();
    rig.says(&["ask 0"]);
    rig.answers(7..10);
    rig.end();
    rig.says(&["replayed 7", "replayed 8", "replayed 9", "trust partial(lost_batch) joined"]);
    // The live copy was among them.
    rig.live(10, 10);
    rig.says(&["batch 10"]);
}

#[test]
fn what_is_left_of_an_earlier_answer_is_no_answer_to_the_next_question() {
    let mut rig = Rig::exact_up_to(1);
    rig.now += Duration::from_secs(10);
    rig.live(9, 9);
    rig.says(&["ask 1", "trust catching_up gap"]);
    // All of this has arrived before the next question can go out.
    for seq in 7..10 {
        rig.stream.replay_batch(rig.now, seq, payload_of(seq));
    }
    rig.stream.replay_end(rig.now);
    rig.says(&["abandon", "ask 0", "forget catching_up unrepaired"]);
    rig.answers([7, 8, 9]);
    rig.end();
    rig.says(&["replayed 7", "replayed 8", "replayed 9", "trust partial(lost_batch) joined"]);
}

#[test]
fn a_hole_in_a_replay_is_asked_for_again() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.answers([0, 1, 3, 4]);
    rig.says(&["ask 0", "forget catching_up connected", "replayed 0", "replayed 1"]);
    rig.end();
    rig.says(&["ask 1"]);
    rig.answers([1, 2, 3, 4]);
    rig.end();
    rig.says(&["replayed 2", "replayed 3", "replayed 4", "trust exact joined"]);
}

#[test]
fn a_hole_that_persists_is_a_lost_batch() {
    let mut rig = Rig::exact_up_to(1);
    rig.live(5, 5);
    rig.says(&["ask 1", "trust catching_up gap"]);
    rig.answers([1, 3, 4, 5]);
    rig.end();
    rig.says(&["ask 1"]);
    rig.answers([1, 3, 4, 5]);
    rig.says(&["forget catching_up unrepaired", "replayed 3", "replayed 4", "replayed 5"]);
    rig.end();
    rig.says(&["trust partial(lost_batch) repaired"]);
}

#[test]
fn a_publisher_that_does_not_have_what_is_missing_loses_it() {
    let mut rig = Rig::exact_up_to(1);
    rig.live(5, 5);
    rig.says(&["ask 1", "trust catching_up gap"]);
    rig.answers([1]);
    rig.end();
    rig.says(&["forget catching_up unrepaired", "batch 5", "trust partial(lost_batch) repaired"]);
}

#[test]
fn a_replay_socket_that_holds_nothing_is_given_up() {
    let mut rig = Rig::exact();
    rig.live(4, 4);
    rig.says(&["ask 0", "trust catching_up gap"]);
    rig.end();
    rig.says(&["batch 4", "trust partial(joined_late) unrepaired"]);
    rig.live(7, 7);
    rig.says(&["forget partial(lost_batch) gap", "batch 7"]);
    // It is asked now and then; that it still holds nothing says nothing.
    rig.pass();
    rig.end();
    rig.says(&["ask 7"]);
    rig.pass();
    rig.answer(7, 97);
    rig.says(&["ask 7", "abandon", "ask 0", "forget catching_up restart"]);
}

#[test]
fn what_is_published_between_an_empty_answer_and_its_end_is_asked_for_again() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.says(&["ask 0", "forget catching_up connected"]);
    // Number 0 was published after the answer and before the subscription took effect.
    rig.live(1, 1);
    rig.end();
    rig.says(&["ask 0"]);
    rig.answers([0, 1]);
    rig.end();
    rig.says(&["replayed 0", "replayed 1", "trust exact joined"]);
}

#[test]
fn silence_is_checked_and_what_was_lost_is_applied() {
    let mut rig = Rig::exact_up_to(1);
    rig.pass();
    rig.says(&["ask 1"]);
    rig.answers([1]);
    rig.end();
    rig.says(&[]);
    rig.pass();
    rig.says(&["ask 1"]);
    rig.answers([1, 2, 3]);
    rig.end();
    rig.says(&["replayed 2", "replayed 3"]);
    // The live copy was late, not lost.
    rig.live(3, 3);
    rig.live(4, 4);
    rig.says(&["batch 4"]);
    assert_eq!((rig.stats().restarts, rig.stats().gaps, rig.stats().duplicates), (0, 0, 0));
}

#[test]
fn a_check_does_not_hold_live_batches_back() {
    let mut rig = Rig::exact_up_to(1);
    rig.pass();
    rig.says(&["ask 1"]);
    rig.live(2, 2);
    rig.says(&["batch 2"]);
    rig.answers([1, 2, 3]);
    rig.end();
    rig.says(&["replayed 3"]);
    // A gap during a check turns it into a repair.
    rig.pass();
    rig.says(&["ask 3"]);
    rig.live(6, 6);
    rig.says(&["abandon", "ask 3", "trust catching_up gap"]);
}

#[test]
fn a_check_that_meets_another_life_starts_over() {
    // Other bytes; nothing at all; nothing published before and still nothing.
    let mut rig = Rig::exact_up_to(1);
    rig.pass();
    rig.says(&["ask 1"]);
    rig.answer(1, 91);
    rig.says(&["abandon", "ask 0", "forget catching_up restart"]);
    assert_eq!(rig.stats().restarts, 1);

    let mut rig = Rig::exact_up_to(1);
    rig.pass();
    rig.end();
    rig.says(&["ask 1", "abandon", "ask 0", "forget catching_up restart"]);
    rig.end();
    rig.says(&["trust exact joined"]);
    // The new life's first batch has a number seen before.
    rig.live(0, 90);
    rig.says(&["batch 0"]);

    let mut rig = Rig::exact();
    rig.pass();
    rig.end();
    rig.says(&["ask 0"]);
}

#[test]
fn a_live_copy_with_other_bytes_than_the_replay_is_a_new_life() {
    let mut rig = Rig::exact_up_to(1);
    rig.pass();
    rig.answers([1, 2]);
    rig.end();
    rig.says(&["ask 1", "replayed 2"]);
    rig.live(2, 92);
    rig.says(&["ask 0", "forget catching_up restart"]);

    // Also while it waits behind the replay.
    let mut rig = Rig::new(true);
    rig.connect();
    rig.says(&["ask 0", "forget catching_up connected"]);
    rig.live(1, 91);
    rig.answers([0, 1]);
    rig.says(&["replayed 0", "abandon", "forget catching_up restart"]);
}

#[test]
fn a_lost_end_marker_costs_time_only() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.answers(0..3);
    rig.says(&["ask 0", "forget catching_up connected", "replayed 0", "replayed 1", "replayed 2"]);
    rig.pass();
    rig.says(&["abandon"]);
    rig.pass();
    rig.says(&["ask 2"]);
    rig.answers([2]);
    rig.pass();
    rig.says(&["trust exact joined"]);
    // A check needs no end marker either.
    rig.pass();
    rig.answers([2, 3]);
    rig.says(&["ask 2", "replayed 3"]);
    rig.pass();
    rig.says(&[]);
    assert_eq!(rig.stream.trust(), Trust::Exact);
}

#[test]
fn a_silent_replay_socket_is_given_up_and_tried_again_later() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.says(&["ask 0", "forget catching_up connected"]);
    rig.live(5, 5);
    rig.pass();
    rig.pass();
    rig.says(&["abandon", "ask 0"]);
    rig.pass();
    rig.pass();
    rig.says(&["abandon", "ask 0"]);
    rig.pass();
    rig.says(&["abandon", "forget partial(joined_late) replay_silent", "batch 5"]);
    // A gap now costs one question, not three.
    rig.live(7, 7);
    rig.says(&["ask 5", "trust catching_up gap"]);
    rig.pass();
    rig.says(&["abandon", "forget partial(lost_batch) replay_silent", "batch 7"]);
    // It answers again: the whole history is fetched.
    rig.pass();
    rig.answers([7]);
    rig.end();
    rig.says(&["ask 7", "ask 0", "forget catching_up repaired"]);
    rig.answers(0..8);
    rig.end();
    assert_eq!(rig.stream.trust(), Trust::Exact);
    assert_eq!(rig.stats().replay_failures, 4);
}

#[test]
fn a_silent_replay_socket_does_not_matter_if_all_came_live() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.live(0, 0);
    rig.live(1, 1);
    while rig.stream.trust() == Trust::CatchingUp {
        rig.pass();
    }
    rig.says(&[
        "ask 0",
        "forget catching_up connected",
        "abandon",
        "ask 0",
        "abandon",
        "ask 0",
        "abandon",
        "batch 0",
        "batch 1",
        "trust exact replay_silent",
    ]);
}

#[test]
fn a_replay_cut_short_is_not_believed() {
    // The sender dropped the rest, with the end marker, and then went silent.
    let mut rig = Rig::new(true);
    rig.connect();
    rig.answers(0..3);
    while rig.stream.trust() == Trust::CatchingUp {
        rig.pass();
    }
    rig.says(&[
        "ask 0",
        "forget catching_up connected",
        "replayed 0",
        "replayed 1",
        "replayed 2",
        "abandon",
        "ask 2",
        "abandon",
        "ask 2",
        "abandon",
        "ask 2",
        "abandon",
        "forget partial(joined_late) replay_silent",
    ]);
}

#[test]
fn a_history_with_an_undecodable_event_is_suspect_after_the_join() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.answers(0..1);
    rig.stream.replay_batch(rig.now, 1, broken());
    rig.answers(2..3);
    rig.end();
    rig.says(&[
        "ask 0",
        "forget catching_up connected",
        "replayed 0",
        "forget suspect(schema) schema",
    ]);
    rig.live(3, 3);
    rig.says(&[]);
}

#[test]
fn too_many_waiting_batches_are_a_gap_that_is_repaired() {
    let mut rig = Rig::new(true);
    rig.connect();
    rig.answers(0..2);
    for seq in 2..10 {
        rig.live(seq, seq);
    }
    rig.end();
    assert_eq!(rig.stats().overflows, 3);
    rig.says(&["ask 0", "forget catching_up connected", "replayed 0", "replayed 1", "ask 1"]);
    rig.answers(1..10);
    rig.end();
    let applied: Vec<String> = (2..10).map(|seq| format!("replayed {seq}")).collect();
    let mut expected: Vec<&str> = applied.iter().map(String::as_str).collect();
    expected.push("trust exact joined");
    rig.says(&expected);
}

#[test]
fn answers_nobody_waits_for_are_ignored() {
    let mut rig = Rig::exact_up_to(1);
    rig.answer(2, 2);
    rig.end();
    rig.says(&[]);
    rig.stream.malformed();
    assert_eq!((rig.stats().malformed_messages, rig.stats().last_seq), (1, Some(1)));
}

#[test]
fn a_hole_that_persists_is_accepted_also_without_end_markers() {
    let mut rig = Rig::exact_up_to(1);
    rig.live(4, 4);
    rig.says(&["ask 1", "trust catching_up gap"]);
    rig.answers([1, 3, 4]);
    rig.pass();
    rig.pass();
    rig.says(&["abandon", "ask 1"]);
    rig.answers([1, 3, 4]);
    rig.says(&["forget catching_up unrepaired", "replayed 3", "replayed 4"]);
    rig.end();
    rig.says(&["trust partial(lost_batch) repaired"]);
}
