//! Dropping a subscriber. In a process of its own: it counts threads.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

use std::time::{Duration, Instant};

use kvasir_kv_events::{Address, Subscriber, SubscriberConfig};
use kvasir_testkit::publisher::payload::{self, Form};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions, ReplayFault};

const DEADLINE: Duration = Duration::from_secs(30);

fn config(publisher: &FakePublisher) -> SubscriberConfig {
    SubscriberConfig {
        replay: Some(Address::parse(&publisher.replay_endpoint().unwrap()).unwrap()),
        ..SubscriberConfig::new(Address::parse(&publisher.endpoint()).unwrap())
    }
}

/// The subscribers' threads among those of this process, libzmq's with them: they inherit the
/// name.
fn threads() -> usize {
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.filter_map(name).filter(|name| name.trim() == "kv-events").count()
}

#[test]
fn dropping_it_stops_its_thread_at_once_whatever_it_does() {
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    for mark in 0..100 {
        let event = payload::stored(&[mark], None, &[1, 2]);
        publisher.publish(payload::batch(Form::Map, 0.0, &[event]));
    }
    let idle = Subscriber::spawn(config(&publisher)).unwrap();
    let nobody = Address::parse("tcp://127.0.0.1:9").unwrap();
    let waiting = Subscriber::spawn(SubscriberConfig::new(nobody)).unwrap();
    let full = SubscriberConfig { queue: 1, ..config(&publisher) };
    let blocked = Subscriber::spawn(full).unwrap();
    kvasir_testkit::eventually(DEADLINE, || publisher.requests().len() >= 2);
    publisher.set_replay_fault(ReplayFault::Hang);
    let asking = Subscriber::spawn(config(&publisher)).unwrap();
    publisher.wait_for_subscribers(3, DEADLINE);
    kvasir_testkit::eventually(DEADLINE, || threads() >= 4);
    let start = Instant::now();
    drop((idle, waiting, blocked, asking));
    kvasir_testkit::eventually(DEADLINE, || threads() == 0);
    // The promise is 200 ms; a busy machine gets more.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}
