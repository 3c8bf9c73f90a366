//! Connections, numbers, lives and events that cannot be decoded.

use std::time::Duration;

use super::*;

#[test]
fn without_a_replay_socket_only_number_zero_is_exact() {
    let mut rig = Rig::new(false);
    rig.connect();
    rig.says(&["forget partial(joined_late) connected"]);
    rig.live(0, 0);
    rig.says(&["batch 0", "trust exact from_start"]);
    rig.live(1, 1);
    rig.says(&["batch 1"]);

    let mut rig = Rig::new(false);
    rig.connect();
    rig.live(4, 4);
    rig.says(&["forget partial(joined_late) connected", "batch 4"]);
    rig.live(6, 6);
    rig.says(&["forget partial(lost_batch) gap", "batch 6"]);
    rig.stream.live(rig.now, 7, cleared());
    rig.says(&["batch 7", "trust exact cleared"]);
    assert_eq!(rig.stats().gaps, 1);
}

#[test]
fn without_a_replay_socket_silence_wants_no_attention() {
    let mut rig = Rig::new(false);
    rig.connect();
    rig.live(0, 0);
    rig.now += Duration::from_secs(60);
    rig.stream.tick(rig.now);
    assert_eq!(rig.stream.deadline(), None);
}

#[test]
fn what_cannot_be_proved_later_is_forgotten_with_the_connection() {
    let mut rig = Rig::exact();
    rig.stream.disconnected();
    rig.says(&["forget absent(disconnected) disconnected"]);
    rig.stream.disconnected();
    rig.says(&[]);
    rig.connect();
    rig.says(&["ask 0", "forget catching_up connected"]);
    rig.stream.disconnected();
    rig.says(&["abandon", "forget absent(disconnected) disconnected"]);
    assert_eq!(rig.stats().disconnects, 2);
    // A batch is proof of a connection.
    rig.live(0, 0);
    rig.says(&["ask 0", "forget catching_up connected"]);
    // Without a replay socket and a word of the engine's process.
    let mut rig = Rig::new(false);
    rig.connect();
    rig.live(0, 0);
    rig.stream.disconnected();
    rig.says(&[
        "forget partial(joined_late) connected",
        "batch 0",
        "trust exact from_start",
        "forget absent(disconnected) disconnected",
    ]);
}

#[test]
fn repetitions_are_dropped_and_other_contents_or_lower_numbers_are_a_new_life() {
    for replay in [true, false] {
        let mut rig = Rig::new(replay);
        rig.connect();
        if replay {
            rig.end();
        }
        rig.live(0, 0);
        rig.live(1, 1);
        rig.ignore();
        rig.live(1, 1);
        rig.says(&[]);
        assert_eq!((rig.stats().duplicates, rig.stats().restarts), (1, 0));
        rig.live(1, 99);
        if replay {
            rig.says(&["forget catching_up restart"]);
            rig.pass();
            rig.says(&["ask 0"]);
            rig.answer(0, 98);
            rig.answer(1, 99);
            rig.end();
            rig.says(&["replayed 0", "replayed 1", "trust exact joined"]);
        } else {
            rig.says(&["forget partial(joined_late) restart", "batch 1"]);
        }
        rig.live(0, 50);
        if replay {
            rig.says(&["forget catching_up restart"]);
        } else {
            rig.says(&["forget partial(joined_late) restart", "batch 0", "trust exact from_start"]);
        }
        assert_eq!(rig.stats().restarts, 2);
    }
}

#[test]
fn a_gap_is_repaired_from_the_last_batch_applied() {
    let mut rig = Rig::exact_up_to(1);
    rig.live(4, 4);
    rig.says(&["ask 1", "trust catching_up gap"]);
    rig.live(5, 5);
    rig.answers([1, 2, 3]);
    rig.says(&["replayed 2", "replayed 3"]);
    rig.end();
    rig.says(&["batch 4", "batch 5", "trust exact repaired"]);
    assert_eq!((rig.stats().gaps, rig.stats().restarts), (1, 0));
}

#[test]
fn a_gap_whose_last_batch_has_other_bytes_is_a_new_life() {
    let mut rig = Rig::exact_up_to(1);
    rig.live(4, 94);
    rig.says(&["ask 1", "trust catching_up gap"]);
    rig.answer(1, 91);
    rig.says(&["abandon", "forget catching_up restart"]);
    // The same life's earlier answers do not count.
    rig.answer(2, 92);
    rig.says(&[]);
    rig.pass();
    rig.says(&["ask 0"]);
    for seq in 0..4 {
        rig.answer(seq, 90 + seq);
    }
    rig.end();
    rig.says(&[
        "replayed 0",
        "replayed 1",
        "replayed 2",
        "replayed 3",
        "batch 4",
        "trust exact joined",
    ]);
    assert_eq!(rig.stats().restarts, 1);
}

#[test]
fn an_event_that_cannot_be_decoded_poisons_the_stream_until_cleared() {
    for replay in [true, false] {
        let mut rig = Rig::new(replay);
        rig.connect();
        if replay {
            rig.end();
        }
        rig.live(0, 0);
        rig.ignore();
        rig.stream.live(rig.now, 1, broken());
        rig.says(&["forget suspect(schema) schema"]);
        rig.live(2, 2);
        rig.stream.live(rig.now, 3, broken());
        rig.says(&[]);
        rig.stream.live(rig.now, 4, cleared());
        rig.says(&["batch 4", "trust exact cleared"]);
        assert_eq!(rig.stats().schema_errors, 2);
        let first = rig.stream.schema_error().cloned().unwrap();
        assert!(first.contains(": ") && !first.contains("bytes"), "{first}");
        rig.stream.live(rig.now, 5, b"junk".to_vec());
        rig.says(&["forget suspect(schema) schema"]);
        // A gap does not make the engine understood.
        rig.live(9, 9);
        if !replay {
            rig.says(&["forget suspect(schema) gap"]);
        }
        assert_eq!(rig.stream.trust(), Trust::Suspect(SuspectReason::Schema));
        assert_eq!(rig.stream.schema_error(), Some(&first), "the first, though another came");
        // A new connection does: it starts from nothing.
        rig.stream.disconnected();
        rig.connect();
        assert!(!matches!(rig.stream.trust(), Trust::Suspect(_)));
        assert_eq!(rig.stream.schema_error(), None);
    }
}

#[test]
fn two_publishers_are_not_believed() {
    let mut rig = Rig::exact_up_to(1);
    rig.stream.crowded();
    rig.says(&["forget suspect(crowded) two_publishers"]);
    rig.live(2, 2);
    rig.says(&[]);
    rig.stream.disconnected();
    rig.says(&["forget absent(disconnected) disconnected"]);
}

#[test]
fn starting_over_again_and_again_slows_down() {
    let mut rig = Rig::exact_up_to(1);
    let began = rig.now;
    for round in 0..6 {
        // Two publishers behind one address: numbers go back all the time.
        rig.live(0, 100 + round);
        rig.pass();
    }
    assert!(rig.now - began > Duration::from_millis(500), "{:?}", rig.now - began);
    assert_eq!(rig.stats().restarts, 6);
}
