//! What is kept, and that it is bounded.

use std::sync::Arc;

use kvasir_inventory::PartialReason;
use kvasir_kv_events::decode;
use kvasir_testkit::publisher::payload::{EventSpec, Form, batch, stored};

use super::*;

fn take(heard: &mut Collected, seq: u64, replayed: bool, events: &[EventSpec]) {
    let payload = batch(Form::Map, 1.0, events);
    let batch = decode(&payload).unwrap();
    heard.take(&Update::Batch { seq, replayed, batch, payload: Arc::new(payload) });
}

#[test]
fn the_latest_chains_are_kept_and_strangers_few() {
    let mut heard = Collected::default();
    for hash in 0..3000 {
        let chain = [stored(&[hash], None, &[1; 4]), stored(&[hash + 10_000], Some(hash), &[2; 4])];
        take(&mut heard, hash, false, &chain);
        take(&mut heard, hash, false, &[stored(&[hash + 50_000], Some(90_000), &[3; 4])]);
    }
    assert_eq!((heard.kept.len(), heard.loose.len()), (MAX_EVENTS, MAX_LOOSE));
    assert_eq!(heard.known.len(), MAX_EVENTS);
    assert_eq!(heard.kept.back().unwrap().block_hashes, [PublishedHash::Int(12_999)]);
    assert_eq!((heard.batches, heard.shapes.stored), (6000, 9000));
}

#[test]
fn long_events_are_cut_and_others_left_out() {
    let mut heard = Collected::default();
    let hashes: Vec<u64> = (0..40).collect();
    take(&mut heard, 0, false, &[stored(&hashes, None, &[5; 160])]);
    let kept = heard.kept.front().unwrap();
    assert_eq!((kept.block_hashes.len(), kept.token_ids.len()), (MAX_BLOCKS, 64));
    // Other tiers and groups, and blocks that do not line up.
    let event = || stored(&[100], None, &[6; 4]);
    let odd = [
        event().field("medium", "CPU"),
        event().field("medium", "Moon"),
        event().field("group_idx", 1),
        event().field("block_size", 3),
        event().field("block_size", 0),
    ];
    take(&mut heard, 1, false, &odd);
    assert_eq!(heard.kept.len(), 1);
    let places: Vec<&str> = heard.shapes.places.iter().map(String::as_str).collect();
    assert_eq!(places, ["Unknown(\"Moon\")", "host"]);
    assert_eq!(heard.shapes.groups, BTreeSet::from([0, 1]));
}

#[test]
fn long_keys_do_not_add_up() {
    let mut heard = Collected::default();
    let key = rmpv::Value::Array(vec!["x".repeat(8 << 20).into()]);
    let event = |hash: u64, parent| {
        let keys = rmpv::Value::Array(vec![key.clone()]);
        stored(&[hash], parent, &[1; 4]).field("extra_keys", keys)
    };
    for hash in 0..12 {
        take(&mut heard, hash, false, &[event(hash, None)]);
        take(&mut heard, hash, false, &[event(hash + 100, Some(90_000))]);
        assert!(heard.held <= MAX_BYTES, "{}", heard.held);
    }
    // The newest of chains stay, and what begins none goes first.
    assert_eq!((heard.kept.len(), heard.loose.len(), heard.known.len()), (7, 0, 7));
    assert_eq!(heard.held, heard.kept.iter().map(bytes).sum::<usize>());
}

#[test]
fn another_life_is_another_engine() {
    let mut heard = Collected::default();
    take(&mut heard, 3, true, &[stored(&[1], None, &[1; 4])]);
    take(&mut heard, 4, true, &[stored(&[2], Some(1), &[1; 4])]);
    take(&mut heard, 5, false, &[stored(&[3], Some(2), &[1; 4])]);
    assert_eq!(heard.history, Some((3, 4)));
    assert_eq!(heard.count(), "3 batches, 2 of them replayed");
    let trust = Trust::Partial(PartialReason::LostBatch);
    heard.take(&Update::Forget { trust, why: Why::Unrepaired });
    assert_eq!((heard.kept.len(), heard.stream_trust), (3, trust));
    heard.take(&Update::Forget { trust, why: Why::Restart });
    assert_eq!((heard.kept.len(), heard.known.len()), (0, 0));
}
