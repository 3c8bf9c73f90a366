//! Each rule of the state machine, by what it puts out.

use kvasir_testkit::publisher::payload::{self, Form};

use super::*;

/// A payload that is unlike any other with another mark.
fn payload_of(mark: u64) -> Vec<u8> {
    payload::batch(Form::Map, 0.0, &[payload::stored(&[mark], None, &[1, 2])])
}

fn cleared() -> Vec<u8> {
    payload::batch(Form::Array, 0.0, &[payload::cleared()])
}

fn broken() -> Vec<u8> {
    payload::batch(Form::Array, 0.0, &[payload::malformed()])
}

struct Rig {
    stream: Stream,
    now: Instant,
}

impl Rig {
    fn new(replay: bool) -> Self {
        let config = StreamConfig { replay, pending_batches: 5, ..StreamConfig::default() };
        let mut rig = Self { stream: Stream::new(config, 7), now: Instant::now() };
        rig.says(&["forget absent(connecting) start"]);
        rig
    }

    /// Connected, with nothing published yet.
    fn exact() -> Self {
        let mut rig = Self::new(true);
        rig.connect();
        rig.says(&["ask 0", "forget catching_up connected"]);
        rig.end();
        rig.says(&["trust exact joined"]);
        rig
    }

    /// Exact, with batches 0 to `last` applied live.
    fn exact_up_to(last: u64) -> Self {
        let mut rig = Self::exact();
        for seq in 0..=last {
            rig.live(seq, seq);
            rig.says(&[&format!("batch {seq}")]);
        }
        rig
    }

    fn connect(&mut self) {
        self.stream.connected(self.now);
    }

    fn live(&mut self, seq: u64, mark: u64) {
        self.stream.live(self.now, seq, payload_of(mark));
    }

    fn answer(&mut self, seq: u64, mark: u64) {
        self.stream.replay_batch(self.now, seq, payload_of(mark));
    }

    fn answers(&mut self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.answer(seq, seq);
        }
    }

    fn end(&mut self) {
        self.stream.replay_end(self.now);
    }

    /// Lets time pass, as far as the stream's next deadline.
    fn pass(&mut self) {
        self.now = self.stream.deadline().expect("something is due");
        self.stream.tick(self.now);
    }

    #[track_caller]
    fn says(&mut self, expected: &[&str]) {
        let mut said = Vec::new();
        while let Some(output) = self.stream.next_output() {
            said.push(match output {
                Output::Ask(start) => format!("ask {start}"),
                Output::Abandon => "abandon".to_owned(),
                Output::Update(Update::Forget { trust, why }) => format!("forget {trust} {why}"),
                Output::Update(Update::Trust { trust, why }) => format!("trust {trust} {why}"),
                Output::Update(Update::Batch { seq, replayed: false, .. }) => {
                    format!("batch {seq}")
                }
                Output::Update(Update::Batch { seq, .. }) => format!("replayed {seq}"),
            });
        }
        assert_eq!(said, expected);
    }

    fn stats(&self) -> StreamStats {
        self.stream.stats().0
    }
}

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
fn a_lost_connection_forgets_at_once_and_a_new_one_starts_over() {
    let mut rig = Rig::exact_up_to(2);
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
        while rig.stream.next_output().is_some() {}
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
    assert_eq!(rig.stream.deadline().map(|_| ()), Some(()));
    rig.pass();
    rig.says(&[]);
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
fn an_event_that_cannot_be_decoded_poisons_the_stream_until_cleared() {
    for replay in [true, false] {
        let mut rig = Rig::new(replay);
        rig.connect();
        if replay {
            rig.end();
        }
        rig.live(0, 0);
        while rig.stream.next_output().is_some() {}
        rig.stream.live(rig.now, 1, broken());
        rig.says(&["forget suspect(schema) schema"]);
        rig.live(2, 2);
        rig.stream.live(rig.now, 3, broken());
        rig.says(&[]);
        rig.stream.live(rig.now, 4, cleared());
        rig.says(&["batch 4", "trust exact cleared"]);
        assert_eq!(rig.stats().schema_errors, 2);
        rig.stream.live(rig.now, 5, b"junk".to_vec());
        rig.says(&["forget suspect(schema) schema"]);
        // A gap does not make the engine understood.
        rig.live(9, 9);
        if !replay {
            rig.says(&["forget suspect(schema) gap"]);
        }
        assert_eq!(rig.stream.trust(), Trust::Suspect(SuspectReason::Schema));
        // A new connection does: it starts from nothing.
        rig.stream.disconnected();
        rig.connect();
        assert!(!matches!(rig.stream.trust(), Trust::Suspect(_)));
    }
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
fn two_publishers_are_not_believed() {
    let mut rig = Rig::exact_up_to(1);
    rig.stream.crowded();
    rig.says(&["forget suspect(life_in_doubt) two_publishers"]);
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

#[test]
fn answers_nobody_waits_for_are_ignored() {
    let mut rig = Rig::exact_up_to(1);
    rig.answer(2, 2);
    rig.end();
    rig.says(&[]);
    rig.stream.malformed();
    assert_eq!((rig.stats().malformed_messages, rig.stats().last_seq), (1, Some(1)));
}
