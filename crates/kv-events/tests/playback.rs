//! Whole recordings of real servers, published again: the same batches arrive, in order.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

use std::path::Path;
use std::time::Duration;

use kvasir_inventory::Trust;
use kvasir_kv_events::{Address, Batch, Subscriber, SubscriberConfig, Update, decode, parse_live};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions, ReplayForm};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(30);

/// The payloads that a recorded server published, numbered from 0.
fn recorded(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let mut payloads = Vec::new();
    for line in text.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        if entry["kind"] != "frames" {
            continue;
        }
        let frames: Vec<Vec<u8>> =
            entry["frames_hex"].as_array().unwrap().iter().map(unhex).collect();
        let message = parse_live(&frames).unwrap();
        assert_eq!(message.seq, payloads.len() as u64);
        payloads.push(message.payload.to_vec());
    }
    payloads
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Publishes the first part before the subscriber comes and the rest after; loses some live.
fn play(name: &str, form: ReplayForm, lost: &[usize]) {
    let payloads = recorded(name);
    let expected: Vec<Batch> = payloads.iter().map(|payload| decode(payload).unwrap()).collect();
    let options = PublisherOptions { replay: Some(form), ..Default::default() };
    let publisher = FakePublisher::start(options).unwrap();
    let (before, after) = payloads.split_at(payloads.len() / 3);
    for payload in before {
        publisher.publish(payload.clone());
    }
    let mut subscriber = Subscriber::spawn(SubscriberConfig {
        replay: Some(Address::parse(&publisher.replay_endpoint().unwrap()).unwrap()),
        ..SubscriberConfig::new(Address::parse(&publisher.endpoint()).unwrap())
    })
    .unwrap();
    publisher.wait_for_subscribers(1, DEADLINE);
    for (at, payload) in (before.len()..).zip(after) {
        if lost.contains(&at) {
            publisher.publish_lost(payload.clone());
        } else {
            publisher.publish(payload.clone());
        }
    }
    let (mut got, mut trust) = (Vec::new(), None);
    kvasir_testkit::eventually(DEADLINE, || {
        while let Some(update) = subscriber.try_recv() {
            match update {
                Update::Forget { .. } => got.clear(),
                Update::Trust { trust: now, .. } => trust = Some(now),
                Update::Batch { seq, batch, .. } => {
                    assert_eq!(seq, got.len() as u64);
                    got.push(batch);
                }
            }
        }
        got.len() == expected.len() && trust == Some(Trust::Exact)
    });
    assert_eq!(got, expected, "{name}");
    let stats = subscriber.stats().snapshot();
    let events: usize = expected.iter().map(|batch| batch.events.len()).sum();
    assert_eq!((stats.batches, stats.events), (expected.len() as u64, events as u64));
    assert_eq!((stats.schema_errors, stats.unknown_events, stats.restarts), (0, 0, 0));
}

#[test]
fn vllm_0_20_2() {
    play("0.20.2-sha256_cbor-int.jsonl", ReplayForm::WithoutTopic, &[]);
    play("0.20.2-sha256_cbor-bytes.jsonl", ReplayForm::WithoutTopic, &[12, 13, 20]);
}

#[test]
fn vllm_0_32_0() {
    play("0.32.0-sha256-int.jsonl", ReplayForm::WithTopic, &[]);
    play("0.32.0-sha256_cbor-int-lora.jsonl", ReplayForm::WithTopic, &[10, 15, 16]);
}
