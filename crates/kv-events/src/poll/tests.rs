use kvasir_inventory::{AbsentReason, EngineHash, PartialReason, SuspectReason, Tier, Trust};
use serde_json::{Value, json};

use super::*;
use crate::event::{BlockStored, Event, SpecKind};

const BIG: u64 = 18_446_744_073_709_551_557;

fn block(hash: u64, tokens: &[u32]) -> Value {
    let tokens = tokens
        .iter()
        .map(|id| json!({"type": "unique_token", "token_id": id, "token_extra_id": 0}));
    json!({"type": "stored_block", "block_hash": hash, "tokens": tokens.collect::<Vec<_>>(),
        "cache_level": 0, "priority": 35})
}

fn stored(parent: Option<u64>, blocks: &[Value]) -> Value {
    json!({"type": "stored", "parent_hash": parent, "blocks": blocks})
}

fn removed(hashes: &[u64]) -> Value {
    json!({"type": "removed", "block_hashes": hashes})
}

fn created() -> Value {
    json!({"type": "created", "num_blocks_per_cache_level": [100, 0]})
}

fn numbered(id: u64, data: Value) -> Value {
    let mut event = json!({"event_id": id, "window_size": 4096});
    event["data"] = data;
    event
}

/// A stream of rank 0, and what it says.
struct Rig(PollStream);

impl Rig {
    fn new() -> Self {
        let (stream, updates) = PollStream::new(&[0]);
        assert_eq!(texts(&updates), ["forget absent(connecting) start"]);
        Self(stream)
    }

    fn answer(&mut self, events: &[Value]) -> Vec<RankUpdate> {
        self.0.answered(json!(events).to_string().as_bytes())
    }

    #[track_caller]
    fn says(&mut self, events: &[Value], expected: &[&str]) -> Vec<Event> {
        let updates = self.answer(events);
        assert_eq!(texts(&updates), expected);
        let batches = updates.into_iter().filter_map(|(_, update)| match update {
            Update::Batch { batch, .. } => Some(batch.events),
            _ => None,
        });
        batches.flatten().collect()
    }
}

fn texts(updates: &[RankUpdate]) -> Vec<String> {
    let text = |(_, update): &RankUpdate| match update {
        Update::Forget { trust, why } => format!("forget {trust} {why}"),
        Update::Trust { trust, why } => format!("trust {trust} {why}"),
        Update::Batch { seq, batch, .. } => format!("batch {seq} of {}", batch.events.len()),
    };
    updates.iter().map(text).collect()
}

fn only_stored(events: &[Event]) -> &BlockStored {
    match events {
        [Event::Stored(stored)] => stored,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_life_is_exact_and_partial_blocks_are_left_out() {
    let mut rig = Rig::new();
    let events = [
        numbered(0, created()),
        numbered(1, stored(None, &[block(BIG, &[1, 2]), block(7, &[3, 4]), block(8, &[5])])),
    ];
    let events = rig.says(&events, &["batch 1 of 2", "trust exact from_start"]);
    assert_eq!(events[0], Event::Cleared);
    let stored_event = only_stored(&events[1..]);
    assert_eq!(stored_event.block_hashes, [EngineHash(BIG), EngineHash(7)]);
    assert_eq!((&*stored_event.token_ids, stored_event.block_size), (&[1, 2, 3, 4][..], 2));
    assert_eq!((stored_event.group, &stored_event.extra_keys), (Some(0), &None));
    // The block that was partial is full now, under another name.
    let next = [numbered(2, stored(Some(7), &[block(9, &[5, 6])]))];
    let events = rig.says(&next, &["batch 2 of 1"]);
    assert_eq!(only_stored(&events).parent, Some(EngineHash(7)));
    rig.says(&[numbered(3, removed(&[9, 8]))], &["batch 3 of 1"]);
    rig.says(&[], &[]);
}

#[test]
fn until_the_block_size_is_known_events_wait() {
    let mut rig = Rig::new();
    let short = [numbered(0, created()), numbered(1, stored(None, &[block(1, &[1, 2])]))];
    rig.says(&short, &["batch 1 of 1", "trust partial(blocks_left_out) from_start"]);
    rig.says(&[numbered(2, removed(&[77]))], &[]);
    // A block with a successor is full: so is everything of its size that waits.
    let next = [numbered(3, stored(Some(1), &[block(2, &[3])]))];
    let events = rig.says(&next, &["batch 3 of 2", "trust exact from_start"]);
    assert_eq!(only_stored(&events[..1]).block_hashes, [EngineHash(1)]);
}

#[test]
fn numbers_tell_of_losses_and_of_other_lives() {
    let mut rig = Rig::new();
    let pair = |hash: u64| stored(None, &[block(hash, &[1, 2]), block(hash + 1, &[3, 4])]);
    rig.says(&[numbered(7, pair(1))], &["batch 7 of 1", "trust partial(joined_late) connected"]);
    rig.says(
        &[numbered(8, removed(&[2])), numbered(11, pair(5))],
        &["forget partial(lost_batch) gap", "batch 11 of 1"],
    );
    rig.says(&[numbered(3, pair(1))], &["forget partial(joined_late) restart", "batch 3 of 1"]);
    rig.says(
        &[numbered(0, created()), numbered(1, pair(1))],
        &["forget partial(joined_late) restart", "batch 1 of 2", "trust exact from_start"],
    );
}

#[test]
fn a_failed_question_leaves_a_doubt_until_the_next_number() {
    let mut rig = Rig::new();
    let pair = |hash: u64| stored(None, &[block(hash, &[1, 2]), block(hash + 1, &[3, 4])]);
    rig.says(&[numbered(0, pair(1))], &["batch 0 of 1", "trust exact from_start"]);
    assert_eq!(texts(&rig.0.failed()), ["trust absent(disconnected) disconnected"]);
    rig.says(&[], &["trust suspect(life_in_doubt) from_start"]);
    rig.says(&[numbered(1, pair(3))], &["trust exact same_life", "batch 1 of 1"]);
    assert_eq!(texts(&rig.0.failed()), ["trust absent(disconnected) disconnected"]);
    rig.says(&[numbered(3, pair(3))], &["forget partial(lost_batch) gap", "batch 3 of 1"]);
    assert_eq!(texts(&rig.0.refused()), ["trust absent(no_stream) disconnected"]);
}

#[test]
fn what_cannot_be_read_is_suspect_until_a_cache_is_created() {
    let pair = |hash: u64| stored(None, &[block(hash, &[1, 2]), block(hash + 1, &[3, 4])]);
    for broken in [
        json!({"type": "removed"}),
        json!({"type": "removed", "block_hashes": [1.5]}),
        json!({"type": "removed", "block_hashes": ["nothex"]}),
        json!({"type": "removed", "block_hashes": ["abc"]}),
        json!({"type": "removed", "block_hashes": ["+f"]}),
        json!({"type": "removed", "block_hashes": ["\u{e9}"]}),
        json!({"type": "removed", "block_hashes": [""]}),
        json!({"type": "stored", "parent_hash": null, "blocks": [{"block_hash": 1}]}),
        stored(None, &[block(1, &[1, 2, 3]), block(2, &[1])]),
        json!({"kind": "stored"}),
    ] {
        let mut rig = Rig::new();
        rig.says(&[numbered(0, pair(1))], &["batch 0 of 1", "trust exact from_start"]);
        rig.says(&[numbered(1, broken)], &["forget suspect(schema) schema"]);
        rig.says(&[numbered(2, pair(3))], &[]);
        rig.says(&[numbered(3, created())], &["batch 3 of 1", "trust exact from_start"]);
    }
    let mut rig = Rig::new();
    for body in ["", "{", "{}", "[1]", "[{\"data\":{}}]", "null", "[{\"event_id\":-1,\"data\":1}]"]
    {
        rig.0.answered(body.as_bytes());
        let trust = rig.answer(&[]);
        assert!(trust.is_empty(), "{body}: {trust:?}");
    }
}

#[test]
fn unknown_kinds_and_fields_are_skipped_and_moves_are_followed() {
    let mut rig = Rig::new();
    let pair = stored(None, &[block(1, &[1, 2]), block(2, &[3, 4])]);
    let moved = json!({"type": "updated", "block_hash": 1, "priority": null, "x": {"y": [1]},
        "cache_level": {"type": "event_diff", "new_value": 1, "old_value": 0}});
    let events = [
        numbered(0, pair),
        numbered(1, json!({"type": "polished", "block_hashes": "any"})),
        numbered(2, moved),
        numbered(3, json!({"type": "updated", "block_hash": 1})),
    ];
    let events = rig.says(&events, &["batch 3 of 3", "trust exact from_start"]);
    let Event::Stored(to) = &events[1] else { panic!("{events:?}") };
    assert_eq!((to.medium.tier(), to.token_ids.len()), (Some(Tier::Host), 0));
    let Event::Removed(from) = &events[2] else { panic!("{events:?}") };
    assert_eq!(from.medium.tier(), Some(Tier::Device));
}

#[test]
fn images_extra_ids_and_salts_do_not_look_plain() {
    let mut rig = Rig::new();
    let mut image = block(2, &[3, 4]);
    image["mm_keys"] = json!([{"type": "mm_key", "hash": "ab", "start_offset": 0}]);
    let mut extra = block(12, &[3, 4]);
    extra["tokens"][1]["token_extra_id"] = 5.into();
    let mut salted = block(21, &[1, 2]);
    salted["cache_salt"] = "tenant-a".into();
    let events = [
        numbered(0, stored(None, &[block(1, &[1, 2]), image, block(3, &[5, 6])])),
        numbered(1, stored(None, &[block(11, &[1, 2]), extra])),
        numbered(2, stored(None, &[salted, block(22, &[3, 4])])),
    ];
    let events = rig.says(&events, &["batch 2 of 3", "trust exact from_start"]);
    let hashes = |at: usize| match &events[at] {
        Event::Stored(stored) => (stored.block_hashes.len(), stored.cache_salt.as_deref()),
        other => panic!("{other:?}"),
    };
    assert_eq!([hashes(0), hashes(1), hashes(2)], [(1, None), (1, None), (2, Some("tenant-a"))]);
}

#[test]
fn smaller_windows_are_groups_of_their_own() {
    let mut rig = Rig::new();
    let event = |id: u64, window: u64, data: Value| json!({"event_id": id, "data": data, "window_size": window, "layer_group_id": 0});
    let pair = |hash: u64| stored(None, &[block(hash, &[1, 2]), block(hash + 1, &[3, 4])]);
    let events = [
        event(0, 512, created()),
        event(1, 4096, created()),
        event(2, 4096, pair(1)),
        event(3, 512, pair(1)),
    ];
    let events = rig.says(&events, &["batch 3 of 4", "trust exact from_start"]);
    let kinds: Vec<_> = events[2..]
        .iter()
        .map(|event| match event {
            Event::Stored(stored) => {
                (stored.group, stored.spec_kind.clone(), stored.sliding_window)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (Some(0), Some(SpecKind::FullAttention), None),
        (Some(1), Some(SpecKind::SlidingWindow), Some(512)),
    ];
    assert_eq!(kinds, expected);
    // A larger one that shows only later: what was taken for full attention was not.
    rig.says(&[event(4, 8192, pair(5))], &["forget partial(lost_batch) restart", "batch 4 of 1"]);
}

#[test]
fn each_rank_counts_for_itself_and_strangers_end_the_credit() {
    let (mut stream, first) = PollStream::new(&[0, 1]);
    assert_eq!(first.len(), 2);
    let event = |rank: u32, id: u64| {
        let pair = stored(None, &[block(1, &[1, 2]), block(2, &[3, 4])]);
        json!({"event_id": id, "data": pair, "attention_dp_rank": rank})
    };
    let body = json!([event(0, 0), event(1, 5), event(1, 6)]).to_string();
    let updates = stream.answered(body.as_bytes());
    let trusts: Vec<(u32, Trust)> = updates
        .iter()
        .filter_map(|(rank, update)| match update {
            Update::Trust { trust, .. } => Some((*rank, *trust)),
            _ => None,
        })
        .collect();
    assert_eq!(trusts, [(0, Trust::Exact), (1, Trust::Partial(PartialReason::JoinedLate))]);
    let updates = stream.answered(json!([event(2, 0)]).to_string().as_bytes());
    let absent = Trust::Absent(AbsentReason::RankUnknown);
    assert_eq!(updates.len(), 2);
    assert!(
        updates.iter().all(|(_, u)| matches!(u, Update::Trust { trust, .. } if *trust == absent))
    );
}

#[test]
fn what_happens_to_the_stream_is_counted() {
    let mut rig = Rig::new();
    let stats = rig.0.stats(0).unwrap();
    assert!(rig.0.stats(1).is_none());
    let counts = || {
        let now = stats.snapshot();
        let faults = [now.gaps, now.restarts, now.disconnects, now.schema_errors];
        (now.batches, now.events, now.unknown_events, faults, now.last_seq)
    };
    assert_eq!(counts(), (0, 0, 0, [0; 4], None));
    assert_eq!(stats.snapshot().last_event_age, None);
    let two = stored(None, &[block(1, &[1, 2]), block(2, &[3, 4])]);
    rig.answer(&[numbered(0, created()), numbered(1, two.clone())]);
    assert_eq!(counts(), (1, 2, 0, [0; 4], Some(1)));
    assert_eq!(stats.snapshot().trust, Trust::Exact);
    assert!(stats.snapshot().last_event_age.is_some());
    rig.answer(&[]);
    rig.answer(&[numbered(2, json!({"type": "news"}))]);
    assert_eq!(counts(), (2, 2, 1, [0; 4], Some(2)));
    rig.answer(&[numbered(5, two.clone())]);
    assert_eq!(counts(), (3, 3, 1, [1, 0, 0, 0], Some(5)));
    // One outage, however often it is asked meanwhile.
    for _ in 0..3 {
        rig.0.failed();
    }
    assert_eq!(counts(), (3, 3, 1, [1, 0, 1, 0], Some(5)));
    rig.0.refused();
    assert_eq!(counts().3, [1, 0, 1, 0]);
    rig.answer(&[numbered(0, created())]);
    assert_eq!(counts(), (4, 4, 1, [1, 1, 1, 0], Some(0)));
    rig.0.answered(b"no events");
    rig.answer(&[numbered(1, created()), numbered(2, json!({"type": "stored", "blocks": 7}))]);
    assert_eq!(counts().3, [1, 1, 1, 2]);
    assert_eq!(stats.snapshot().trust, Trust::Suspect(SuspectReason::Schema));
}
