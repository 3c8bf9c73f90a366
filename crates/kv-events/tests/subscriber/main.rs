//! The subscriber over real sockets, against a publisher with every fault.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use kvasir_inventory::{AbsentReason, PartialReason, SuspectReason, Trust};
use kvasir_kv_events::{Subscriber, SubscriberConfig, Update, Why, decode};
use kvasir_testkit::publisher::payload::{self, Form};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions, ReplayFault, ReplayForm};

use self::follower::{DEADLINE, Follower, config, payload_of, publisher};

mod addresses;
mod follower;

fn cleared() -> Vec<u8> {
    payload::batch(Form::Map, 0.5, &[payload::cleared()])
}

#[test]
fn history_and_live_batches_join_in_both_forms_of_replay() {
    for form in [ReplayForm::WithoutTopic, ReplayForm::WithTopic] {
        let options = PublisherOptions { replay: Some(form), ..Default::default() };
        let publisher = FakePublisher::start(options).unwrap();
        for mark in 0..50 {
            publisher.publish(payload_of(mark));
        }
        let mut follower = Follower::new(config(&publisher));
        follower.says(&["forget absent(connecting) start", "forget catching_up connected"]);
        follower.until("trust exact joined");
        publisher.wait_for_subscribers(1, DEADLINE);
        publisher.publish(payload_of(50));
        follower.says(&["batch 50"]);
        assert_eq!(follower.seqs(), (0..=50).collect::<Vec<_>>());
        for (seq, batch) in &follower.batches {
            assert_eq!(*batch, decode(&payload_of(*seq)).unwrap());
        }
        let stats = follower.stats();
        assert_eq!((stats.batches, stats.events, stats.replayed_batches), (51, 51, 50));
        assert_eq!((stats.last_seq, stats.trust), (Some(50), Trust::Exact));
        assert!(stats.last_event_age.unwrap() < DEADLINE);
    }
}

#[test]
fn batches_published_while_history_is_replayed_come_once_and_in_order() {
    let publisher = publisher();
    for mark in 0..500 {
        publisher.publish(payload_of(mark));
    }
    let mut follower = Follower::new(config(&publisher));
    // A publisher in full flight: some of these are replayed, some live, some both.
    for mark in 500..1500 {
        publisher.publish(payload_of(mark));
    }
    publisher.wait_for_subscribers(1, DEADLINE);
    follower.until("trust exact joined");
    publisher.publish(payload_of(1500));
    follower.until_batch(1500);
    assert_eq!(follower.seqs(), (0..=1500).collect::<Vec<_>>());
    assert_eq!(follower.stats().restarts, 0);
}

#[test]
fn a_shortened_history_is_partial_until_cleared() {
    let options = PublisherOptions { buffer_steps: 3, ..Default::default() };
    let publisher = FakePublisher::start(options).unwrap();
    for mark in 0..9 {
        publisher.publish(payload_of(mark));
    }
    let mut follower = Follower::new(config(&publisher));
    follower.until("trust partial(joined_late) joined");
    assert_eq!(follower.seqs(), [6, 7, 8]);
    publisher.wait_for_subscribers(1, DEADLINE);
    publisher.publish(cleared());
    follower.says(&["batch 9", "trust exact cleared"]);
}

#[test]
fn without_a_replay_socket_a_gap_forgets() {
    let options = PublisherOptions { replay: None, ..Default::default() };
    let publisher = FakePublisher::start(options).unwrap();
    assert_eq!(publisher.replay_endpoint(), None);
    let mut follower = Follower::new(config(&publisher));
    follower.until("forget partial(joined_late) connected");
    publisher.wait_for_subscribers(1, DEADLINE);
    publisher.publish(payload_of(0));
    follower.says(&["batch 0", "trust exact from_start"]);
    publisher.publish_lost(payload_of(1));
    publisher.publish(payload_of(2));
    follower.says(&["forget partial(lost_batch) gap", "batch 2"]);
    assert_eq!(follower.stats().gaps, 1);
}

#[test]
fn a_lost_batch_is_replayed() {
    let publisher = publisher();
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    publisher.publish(payload_of(0));
    follower.says(&["batch 0"]);
    publisher.publish_lost(payload_of(1));
    publisher.publish_lost(payload_of(2));
    publisher.publish(payload_of(3));
    follower.until("trust catching_up gap");
    follower.until("trust exact repaired");
    assert_eq!(follower.seqs(), [0, 1, 2, 3]);
}

#[test]
fn a_number_that_was_skipped_is_a_lost_batch() {
    let publisher = publisher();
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    publisher.publish(payload_of(0));
    publisher.skip();
    publisher.publish(payload_of(2));
    let said = follower.until("trust partial(lost_batch) repaired");
    assert!(said.contains(&"forget catching_up unrepaired".to_owned()), "{said:?}");
    assert_eq!(follower.seqs(), [2]);
}

#[test]
fn answers_lost_once_are_asked_for_again() {
    let publisher = publisher();
    for mark in 0..10 {
        publisher.publish(payload_of(mark));
    }
    publisher.set_replay_fault(ReplayFault::LoseOnce(vec![4, 5, 8]));
    let mut follower = Follower::new(config(&publisher));
    follower.until("trust exact joined");
    assert_eq!(follower.seqs(), (0..10).collect::<Vec<_>>());
    assert_eq!(publisher.requests()[..2], [0, 3]);
}

#[test]
fn a_lost_batch_at_the_end_is_found_by_the_idle_check() {
    let publisher = publisher();
    let often = SubscriberConfig { idle_check: Duration::from_millis(50), ..config(&publisher) };
    let mut follower = Follower::new(often);
    follower.join(&publisher);
    publisher.publish(payload_of(0));
    follower.until_batch(0);
    publisher.publish_lost(payload_of(1));
    follower.says(&["replayed 1"]);
    publisher.publish(payload_of(2));
    follower.says(&["batch 2"]);
    assert_eq!(follower.stats().gaps, 0);
}

#[test]
fn a_batch_lost_before_the_subscription_took_effect_is_found_soon_after_the_join() {
    let publisher = publisher();
    // Published after the history is answered; the idle check is far away, so only the check
    // after the join can find it.
    let mut follower = Follower::new(config(&publisher));
    follower.until("trust exact joined");
    publisher.publish_lost(payload_of(0));
    follower.says(&["replayed 0"]);
}

#[test]
fn a_restart_forgets_at_once_and_the_new_life_is_followed() {
    let publisher = publisher();
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    for mark in 0..5 {
        publisher.publish(payload_of(mark));
    }
    follower.until("batch 4");
    // The new life goes on from the old one's numbers: nothing in them tells.
    publisher.restart(5);
    publisher.publish(payload_of(100));
    // Whether the life ended or its last batch was only pushed out of the buffer, nothing tells.
    let said = follower.until_trust("partial");
    assert_eq!(said[0], "trust absent(disconnected) disconnected");
    assert!(said.iter().any(|said| said.starts_with("forget catching_up")), "{said:?}");
    assert_eq!(follower.seqs(), [5]);
    publisher.wait_for_subscribers(1, DEADLINE);
    publisher.restart(0);
    follower.until("trust exact joined");
    assert!(follower.batches.is_empty());
    assert_eq!(follower.stats().disconnects, 2);
}

#[test]
fn a_publisher_that_goes_down_is_absent_and_comes_back_exact() {
    let publisher = publisher();
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    publisher.publish(payload_of(0));
    follower.says(&["batch 0"]);
    publisher.go_down();
    follower.says(&["trust absent(disconnected) disconnected"]);
    publisher.publish(payload_of(1));
    publisher.come_up();
    follower.says(&[
        "trust suspect(life_in_doubt) connected",
        "trust catching_up same_life",
        "replayed 1",
        "trust exact repaired",
    ]);
    assert_eq!(follower.seqs(), [0, 1]);
}

#[test]
fn without_a_replay_socket_the_engines_process_is_the_witness() {
    let options = PublisherOptions { replay: None, ..Default::default() };
    let publisher = FakePublisher::start(options).unwrap();
    let mut follower = Follower::new(config(&publisher));
    let witness = follower.witness();
    follower.until("forget partial(joined_late) connected");
    publisher.wait_for_subscribers(1, DEADLINE);
    publisher.publish(payload_of(0));
    follower.says(&["batch 0", "trust exact from_start"]);
    let reconnect = |follower: &mut Follower| {
        publisher.go_down();
        publisher.come_up();
        follower.until("trust suspect(life_in_doubt) connected");
        publisher.wait_for_subscribers(1, DEADLINE);
    };
    witness.process_started(Instant::now(), 1.25);
    reconnect(&mut follower);
    publisher.publish(payload_of(1));
    follower.says(&["batch 1"]);
    witness.process_started(Instant::now(), 1.25);
    follower.says(&["trust exact same_life"]);
    assert_eq!(follower.seqs(), [0, 1]);
    reconnect(&mut follower);
    publisher.publish(payload_of(2));
    witness.process_started(Instant::now(), 2.5);
    follower.until("forget partial(joined_late) restart");
}

/// Subscribers share libzmq's I/O thread: the end of one's connection must never stop it.
#[test]
fn connections_that_end_again_and_again_disturb_nobody() {
    let (first, second) = (publisher(), publisher());
    let mut followers = [Follower::new(config(&first)), Follower::new(config(&second))];
    for _ in 0..25 {
        for (follower, publisher) in followers.iter_mut().zip([&first, &second]) {
            follower.until("trust exact joined");
            publisher.go_down();
            publisher.come_up();
            follower.until("forget absent(disconnected) disconnected");
        }
    }
    for follower in &mut followers {
        follower.until("trust exact joined");
        assert_eq!(follower.stats().disconnects, 25);
    }
}

#[test]
fn a_publisher_that_is_not_there_yet_is_waited_for() {
    let publisher = publisher();
    let config = config(&publisher);
    publisher.go_down();
    let mut follower = Follower::new(config);
    follower.says(&["forget absent(connecting) start"]);
    publisher.come_up();
    follower.until("trust exact joined");
}

#[test]
fn a_server_of_another_kind_is_tried_again() {
    let publisher = publisher();
    let config = config(&publisher);
    publisher.go_down();
    let port = publisher.endpoint().replace("tcp://", "");
    let mut stranger = None;
    kvasir_testkit::eventually(DEADLINE, || {
        stranger = TcpListener::bind(&port).ok();
        stranger.is_some()
    });
    let stranger = stranger.unwrap();
    let mut follower = Follower::new(config);
    for _ in 0..3 {
        let (mut client, _) = stranger.accept().unwrap();
        client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
    }
    drop(stranger);
    follower.says(&["forget absent(connecting) start"]);
    publisher.come_up();
    follower.until("trust exact joined");
}

#[test]
fn a_life_that_changes_unseen_is_found_by_its_numbers_or_by_the_idle_check() {
    let publisher = publisher();
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    for mark in 0..3 {
        publisher.publish(payload_of(mark));
    }
    follower.until("batch 2");
    publisher.restart_unseen(0);
    publisher.publish(payload_of(100));
    follower.until("forget catching_up restart");
    follower.until("trust exact joined");
    assert_eq!(follower.batches, [(0, decode(&payload_of(100)).unwrap())]);

    let often = SubscriberConfig { idle_check: Duration::from_millis(50), ..config(&publisher) };
    let mut follower = Follower::new(often);
    follower.until("trust exact joined");
    assert_eq!(follower.seqs(), [0]);
    publisher.restart_unseen(0);
    follower.until("forget catching_up restart");
    follower.until("trust exact joined");
    assert!(follower.batches.is_empty());
}

#[test]
fn repetitions_are_dropped_and_numbers_that_go_back_start_over() {
    let publisher = publisher();
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    publisher.publish(payload_of(0));
    publisher.publish(payload_of(1));
    publisher.repeat_last();
    publisher.publish(payload_of(2));
    follower.says(&["batch 0", "batch 1", "batch 2"]);
    assert_eq!(follower.stats().duplicates, 1);
    // Out of order.
    publisher.send_numbered(1, payload_of(1));
    follower.until("forget catching_up restart");
    follower.until("trust exact joined");
    assert_eq!(follower.seqs(), [0, 1, 2]);
    // The last number with other contents.
    publisher.send_numbered(2, payload_of(99));
    follower.until("forget catching_up restart");
}

#[test]
fn a_malformed_event_is_suspect_until_cleared_and_unknown_ones_are_counted() {
    let publisher = publisher();
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    let events = [payload::unknown(), payload::removed(&[7])];
    publisher.publish(payload::batch(Form::Array, 0.0, &events));
    follower.says(&["batch 0"]);
    publisher.publish(payload::batch(Form::Array, 0.0, &[payload::malformed()]));
    publisher.publish(payload_of(2));
    publisher.publish(cleared());
    follower.says(&["forget suspect(schema) schema", "batch 3", "trust exact cleared"]);
    let mut cut = payload_of(4);
    cut.truncate(20);
    publisher.publish(cut);
    follower.says(&["forget suspect(schema) schema"]);
    assert_eq!(follower.trust, Trust::Suspect(SuspectReason::Schema));
    // A new connection starts from nothing, and meets the same batches.
    publisher.go_down();
    publisher.come_up();
    follower.until("forget catching_up connected");
    follower.until("forget suspect(schema) schema");
    let stats = follower.stats();
    assert_eq!(stats.unknown_events, 2);
    assert!(stats.schema_errors >= 3, "{stats:?}");
}

#[test]
fn messages_that_are_no_batch_are_counted() {
    let publisher = publisher();
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    publisher.send_frames(vec![b"alone".to_vec()]);
    publisher.send_frames(vec![vec![], b"short".to_vec(), payload_of(0)]);
    publisher.send_frames(vec![vec![]; 40]);
    publisher.publish(payload_of(0));
    follower.says(&["batch 0"]);
    assert_eq!(follower.stats().malformed_messages, 3);
}

#[test]
fn a_replay_socket_that_hangs_is_given_up() {
    let publisher = publisher();
    publisher.publish(payload_of(0));
    publisher.set_replay_fault(ReplayFault::Hang);
    let mut follower = Follower::new(config(&publisher));
    follower.until("forget partial(joined_late) replay_silent");
    publisher.wait_for_subscribers(1, DEADLINE);
    assert_eq!(publisher.requests(), [0, 0, 0]);
    publisher.publish(payload_of(1));
    follower.until_batch(1);
    assert_eq!(follower.seqs(), [1]);
    assert!(follower.stats().replay_failures >= 3);
}

#[test]
fn a_lost_end_marker_costs_time_only() {
    let publisher = publisher();
    for mark in 0..3 {
        publisher.publish(payload_of(mark));
    }
    publisher.set_replay_fault(ReplayFault::LoseEnd);
    let mut follower = Follower::new(config(&publisher));
    follower.until("trust exact joined");
    assert_eq!(follower.seqs(), [0, 1, 2]);
    assert_eq!(publisher.requests()[..2], [0, 2]);
}

#[test]
fn a_replay_socket_that_keeps_nothing_is_no_help() {
    let publisher = publisher();
    publisher.set_replay_fault(ReplayFault::Empty);
    let mut follower = Follower::new(config(&publisher));
    follower.join(&publisher);
    publisher.skip();
    publisher.publish(payload_of(1));
    follower.until("trust partial(joined_late) unrepaired");
    assert_eq!(follower.seqs(), [1]);
    publisher.skip();
    publisher.publish(payload_of(3));
    follower.says(&["forget partial(lost_batch) gap", "batch 3"]);
    assert_eq!(follower.trust, Trust::Partial(PartialReason::LostBatch));
}

#[test]
fn a_slow_consumer_loses_nothing_that_can_be_had_again() {
    let publisher = publisher();
    let mut follower = Follower::new(SubscriberConfig { queue: 2, ..config(&publisher) });
    follower.join(&publisher);
    for mark in 0..3000 {
        publisher.publish(payload_of(mark));
    }
    follower.until_batch(2999);
    assert_eq!(follower.seqs(), (0..3000).collect::<Vec<_>>());
}

#[tokio::test]
async fn updates_are_awaited() {
    let publisher = publisher();
    publisher.publish(payload_of(0));
    let mut subscriber = Subscriber::spawn(config(&publisher)).unwrap();
    let first = subscriber.recv().await;
    let trust = Trust::Absent(AbsentReason::Connecting);
    assert_eq!(first, Some(Update::Forget { trust, why: Why::Start }));
    let mut updates = Vec::new();
    while !matches!(updates.last(), Some(Update::Trust { trust: Trust::Exact, .. })) {
        assert!(subscriber.recv_many(&mut updates, 64).await > 0);
    }
    assert!(updates.iter().any(|u| matches!(u, Update::Batch { seq: 0, replayed: true, .. })));
}
