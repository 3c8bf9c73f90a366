//! A tap hears everything a publisher sends, as it came.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use std::time::Duration;

use kvasir_kv_events::{Address, Answer, Heard, SubscriberConfig, Tap, parse_answer};
use kvasir_testkit::publisher::payload::{self, Form};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions};

const DEADLINE: Duration = Duration::from_secs(30);

fn payload_of(mark: u64) -> Vec<u8> {
    payload::batch(Form::Map, 0.5, &[payload::stored(&[mark], None, &[1, 2])])
}

async fn next(tap: &mut Tap) -> Heard {
    let heard = tokio::time::timeout(DEADLINE, tap.recv()).await.expect("something in time");
    heard.expect("a living thread").1
}

fn message(seq: u64, payload: Vec<u8>) -> Vec<Vec<u8>> {
    vec![Vec::new(), seq.to_be_bytes().to_vec(), payload]
}

/// The numbers of the answers to a question, up to the end marker.
async fn answers(tap: &mut Tap, start: u64) -> Vec<u64> {
    tap.ask(start);
    let mut numbers = Vec::new();
    loop {
        match next(tap).await {
            Heard::Answer(parts) => match parse_answer(&parts).unwrap() {
                Answer::Batch { seq, .. } => numbers.push(seq),
                Answer::End => return numbers,
            },
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn everything_is_heard_and_nothing_concluded() {
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    let config = SubscriberConfig {
        replay: Some(Address::parse(&publisher.replay_endpoint().unwrap()).unwrap()),
        ..SubscriberConfig::new(Address::parse(&publisher.endpoint()).unwrap())
    };
    let mut tap = Tap::spawn(config).unwrap();
    assert_eq!(next(&mut tap).await, Heard::Connected);
    publisher.wait_for_subscribers(1, DEADLINE);
    assert!(answers(&mut tap, 0).await.is_empty());

    // A batch, its repetition, a gap, what is no batch, a number that goes back.
    publisher.publish(payload_of(1));
    publisher.repeat_last();
    publisher.skip();
    publisher.publish(payload_of(2));
    publisher.send_frames(vec![b"no batch".to_vec()]);
    publisher.send_numbered(0, payload_of(3));
    let expected = [
        message(0, payload_of(1)),
        message(0, payload_of(1)),
        message(2, payload_of(2)),
        vec![b"no batch".to_vec()],
        message(0, payload_of(3)),
    ];
    for parts in expected {
        assert_eq!(next(&mut tap).await, Heard::Live(parts));
    }
    assert_eq!(answers(&mut tap, 1).await, [2]);
    assert_eq!(answers(&mut tap, 0).await, [0, 2]);
    assert_eq!(publisher.requests(), [0, 1, 0]);

    publisher.restart(0);
    assert_eq!(next(&mut tap).await, Heard::Disconnected);
    assert_eq!(next(&mut tap).await, Heard::Connected);
    publisher.wait_for_subscribers(1, DEADLINE);
    publisher.publish(payload_of(4));
    assert_eq!(next(&mut tap).await, Heard::Live(message(0, payload_of(4))));
}

#[test]
fn nowhere_to_connect_to_is_an_error() {
    let everywhere = Address::parse("tcp://*:5557").unwrap();
    assert!(Tap::spawn(SubscriberConfig::new(everywhere)).is_err());
}
