//! Where publishers are: at addresses of theirs and of ours, alone and with others.

use std::net::TcpListener;
use std::time::Duration;

use kvasir_kv_events::{Address, Subscriber, SubscriberConfig, decode};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions};

use crate::follower::{DEADLINE, Follower, address, config, payload_of, publisher};

#[test]
fn a_publisher_that_connects_to_us_is_followed() {
    let ours = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("tcp://{}", listener.local_addr().unwrap())
    };
    let options = PublisherOptions { connect_to: Some(ours.clone()), ..Default::default() };
    let publisher = FakePublisher::start(options.clone()).unwrap();
    publisher.publish(payload_of(0));
    let config = SubscriberConfig { bind: true, address: address(&ours), ..config(&publisher) };
    let mut follower = Follower::new(config);
    follower.until("trust exact joined");
    publisher.wait_for_subscribers(1, DEADLINE);
    publisher.publish(payload_of(1));
    follower.until_batch(1);
    assert_eq!(follower.seqs(), [0, 1]);
    // A second one: whose batches come is unknown.
    let second = FakePublisher::start(options).unwrap();
    follower.until("forget suspect(crowded) two_publishers");
    drop(second);
    follower.until("forget absent(disconnected) disconnected");
    follower.until("trust exact joined");
}

#[test]
fn several_publishers_at_one_address_of_ours_are_told_apart_by_topic() {
    let ours = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("tcp://{}", listener.local_addr().unwrap())
    };
    // One topic begins with the other.
    let topics = ["kv@10.0.0.1:80", "kv@10.0.0.1:8000"];
    let publishers = topics.map(|topic| {
        let connect_to = Some(ours.clone());
        let options =
            PublisherOptions { connect_to, topic: topic.to_owned(), ..Default::default() };
        FakePublisher::start(options).unwrap()
    });
    publishers[0].publish(payload_of(0));
    let mut followers: Vec<Follower> = publishers
        .iter()
        .zip(topics)
        .map(|(publisher, topic)| {
            let address = address(&ours);
            Follower::new(SubscriberConfig {
                bind: true,
                address,
                topic: topic.to_owned(),
                // A batch may be on its way while a subscription takes effect.
                idle_check: Duration::from_millis(50),
                ..config(publisher)
            })
        })
        .collect();
    for follower in &mut followers {
        follower.until("trust exact joined");
    }
    for round in 1..20 {
        publishers[0].publish(payload_of(100 + round));
        publishers[1].publish(payload_of(200 + round));
    }
    followers[0].until_batch(19);
    followers[1].until_batch(18);
    assert_eq!(followers[0].seqs(), (0..20).collect::<Vec<_>>());
    assert_eq!(followers[1].batches[3].1, decode(&payload_of(204)).unwrap());
    // One engine restarts: the other is made sure of, and keeps what it had.
    publishers[0].restart(0);
    followers[0].until("trust exact joined");
    assert!(followers[0].batches.is_empty());
    publishers[1].publish(payload_of(300));
    followers[1].until_batch(19);
    let kept = followers[1].batches.len();
    assert_eq!(kept, 20, "{:?}", followers[1].stats());
    assert_eq!(followers[1].stats().restarts, 0);
    // The address is free again when nobody listens there any more.
    drop(followers);
    kvasir_testkit::eventually(DEADLINE, || TcpListener::bind(&ours[6..]).is_ok());
}

#[test]
fn a_topic_is_a_filter() {
    let options = PublisherOptions { topic: "kv".to_owned(), ..Default::default() };
    let publisher = FakePublisher::start(options).unwrap();
    let config = SubscriberConfig { topic: "kv".to_owned(), ..config(&publisher) };
    let mut follower = Follower::new(config);
    follower.join(&publisher);
    publisher.send_frames(vec![b"other".to_vec(), 0_u64.to_be_bytes().to_vec(), payload_of(9)]);
    publisher.publish(payload_of(0));
    follower.says(&["batch 0"]);
}

#[test]
fn mapped_addresses_connect() {
    let publisher = publisher();
    let mapped = publisher.endpoint().replace("127.0.0.1", "[::ffff:127.0.0.1]");
    let config = SubscriberConfig { address: address(&mapped), ..config(&publisher) };
    Follower::new(config).until("trust exact joined");
}

#[test]
fn what_can_never_work_is_an_error_before_anything_starts() {
    let wild = Address::parse("tcp://*:5557").unwrap();
    let plain = Address::parse("tcp://127.0.0.1:5557").unwrap();
    assert!(Subscriber::spawn(SubscriberConfig::new(wild.clone())).is_err());
    let config = SubscriberConfig { replay: Some(wild), ..SubscriberConfig::new(plain) };
    assert!(Subscriber::spawn(config).is_err());
}
