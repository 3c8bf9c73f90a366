//! A connection that was lost, and what shows whether the publisher is still the same.

use std::time::Duration;

use super::*;

/// Exact with batches 0 to 2, then disconnected and connected again.
fn reconnected() -> Rig {
    let mut rig = Rig::exact_up_to(2);
    rig.stream.disconnected();
    rig.says(&["trust absent(disconnected) disconnected"]);
    rig.connect();
    rig.says(&["ask 2", "trust suspect(life_in_doubt) connected"]);
    rig
}

#[test]
fn the_last_batch_byte_for_byte_proves_the_life_and_what_was_missed_follows() {
    let mut rig = reconnected();
    rig.live(5, 5);
    rig.answers([2]);
    rig.says(&["trust catching_up same_life"]);
    rig.answers([3, 4, 5]);
    rig.end();
    rig.says(&["replayed 3", "replayed 4", "replayed 5", "trust exact repaired"]);
    assert_eq!((rig.stats().restarts, rig.stats().disconnects), (0, 1));
    rig.live(6, 6);
    rig.says(&["batch 6"]);
}

#[test]
fn nothing_missed_is_exact_at_once() {
    let mut rig = reconnected();
    rig.answers([2]);
    rig.end();
    rig.says(&["trust catching_up same_life", "trust exact repaired"]);
}

#[test]
fn other_bytes_or_none_are_another_life() {
    let mut rig = reconnected();
    rig.answer(2, 92);
    rig.says(&["abandon", "ask 0", "forget catching_up restart"]);
    for mark in 0..4 {
        rig.answer(mark, 90 + mark);
    }
    rig.end();
    rig.says(&["replayed 0", "replayed 1", "replayed 2", "replayed 3", "trust exact joined"]);

    let mut rig = reconnected();
    rig.live(0, 90);
    rig.end();
    rig.says(&["abandon", "ask 0", "forget catching_up restart"]);
    rig.answer(0, 90);
    rig.end();
    rig.says(&["replayed 0", "trust exact joined"]);

    // Fallen out of the publisher's buffer: what it has kept begins later.
    let mut rig = reconnected();
    rig.answer(7, 7);
    rig.says(&["abandon", "ask 0", "forget catching_up unrepaired"]);
    rig.answers([7, 8]);
    rig.end();
    rig.says(&["replayed 7", "replayed 8", "trust partial(lost_batch) joined"]);
}

#[test]
fn a_replay_socket_that_is_silent_proves_nothing() {
    let mut rig = reconnected();
    rig.live(3, 3);
    for _ in 0..2 {
        rig.pass();
        rig.pass();
        rig.says(&["abandon", "ask 2"]);
    }
    rig.pass();
    // The number would fit, and the process may even be the same: nothing else is known.
    rig.says(&["abandon", "forget partial(joined_late) replay_silent", "batch 3"]);
}

#[test]
fn a_doubt_survives_another_disconnect() {
    let mut rig = reconnected();
    rig.stream.disconnected();
    rig.says(&["abandon", "trust absent(disconnected) disconnected"]);
    rig.connect();
    rig.says(&["ask 2", "trust suspect(life_in_doubt) connected"]);
    rig.answers([2]);
    rig.end();
    rig.says(&["trust catching_up same_life", "trust exact repaired"]);
}

/// Without a replay socket, exact up to batch 1, of a process that started at 7.5 s; disconnected.
fn witnessed() -> Rig {
    let mut rig = Rig::new(false);
    rig.connect();
    rig.process(7.5);
    rig.live(0, 0);
    rig.live(1, 1);
    rig.stream.disconnected();
    rig.says(&[
        "forget partial(joined_late) connected",
        "batch 0",
        "trust exact from_start",
        "batch 1",
        "trust absent(disconnected) disconnected",
    ]);
    rig
}

#[test]
fn without_a_replay_socket_the_process_and_the_next_number_together_prove_the_life() {
    for process_first in [true, false] {
        let mut rig = witnessed();
        rig.now += Duration::from_secs(1);
        rig.connect();
        rig.says(&["trust suspect(life_in_doubt) connected"]);
        if process_first {
            rig.process(7.5);
            // An idle engine is waited for: a batch may have been lost with the connection.
            assert_eq!(rig.stream.deadline(), None);
            rig.says(&[]);
            rig.live(2, 2);
        } else {
            rig.live(2, 2);
            rig.says(&["batch 2"]);
            rig.process(7.5);
        }
        let expected = ["batch 2", "trust exact same_life"];
        rig.says(&expected[usize::from(!process_first)..]);
    }
}

#[test]
fn without_a_replay_socket_anything_else_forgets() {
    let again = || {
        let mut rig = witnessed();
        rig.now += Duration::from_secs(1);
        rig.connect();
        rig.says(&["trust suspect(life_in_doubt) connected"]);
        rig
    };
    // A number too far.
    let mut rig = again();
    rig.process(7.5);
    rig.live(3, 3);
    rig.says(&["forget partial(lost_batch) gap", "batch 3"]);
    // A lower number.
    let mut rig = again();
    rig.process(7.5);
    rig.live(0, 9);
    rig.says(&["forget partial(joined_late) restart", "batch 0", "trust exact from_start"]);
    // Another process, although the number fits.
    let mut rig = again();
    rig.live(2, 2);
    rig.process(8.5);
    rig.says(&["batch 2", "forget partial(joined_late) restart"]);
    // An answer to a question from before the connection proves nothing, and in time the doubt
    // ends.
    let mut rig = again();
    rig.live(2, 2);
    let before = rig.now.checked_sub(Duration::from_millis(500)).expect("a second has passed");
    rig.stream.process_started(rig.now, before, 7.5);
    rig.says(&["batch 2"]);
    rig.pass();
    rig.says(&["forget partial(joined_late) unproven"]);
}

#[test]
fn another_process_is_another_life_whatever_the_connection_says() {
    let mut rig = Rig::exact_up_to(1);
    rig.process(7.5);
    rig.process(7.5);
    rig.says(&[]);
    rig.process(8.5);
    rig.says(&["forget catching_up restart"]);
    // While nothing is connected, too.
    let mut rig = Rig::exact_up_to(1);
    rig.process(7.5);
    rig.stream.disconnected();
    rig.process(8.5);
    rig.says(&["trust absent(disconnected) disconnected", "forget absent(disconnected) restart"]);
    rig.connect();
    rig.says(&["ask 0", "forget catching_up connected"]);
    // A life that was found out already is not ended again by its own process.
    rig.answer(0, 90);
    rig.end();
    rig.process(8.5);
    rig.process(8.5);
    rig.says(&["replayed 0", "trust exact joined"]);
}
