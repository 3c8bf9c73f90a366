use kvasir_testkit::publisher::payload::{self, EventSpec, Form};
use serde_json::{Value, json};

use super::*;
use crate::capture::hex;

/// Tokens of block `n`, two a block.
fn tokens(n: u32) -> Vec<u32> {
    vec![2 * n, 2 * n + 1]
}

/// Stores block `n` after block `n − 1`; block 1 is the first.
fn store(n: u32) -> EventSpec {
    let parent = (n > 1).then(|| u64::from(n - 1));
    payload::stored(&[n.into()], parent, &tokens(n))
        .field("extra_keys", rmpv::Value::Array(vec![rmpv::Value::Nil]))
}

fn batch(at: u32, events: &[EventSpec]) -> Vec<u8> {
    payload::batch(Form::Map, f64::from(at), events)
}

fn frames(step: &str, seq: u64, payload: &[u8]) -> Value {
    json!({"kind": "frames", "step": step, "t": 1000.0 + seq as f64,
        "frames_hex": ["", hex(&seq.to_be_bytes()), hex(payload)]})
}

fn replay(label: &str, from: u64, batches: &[(u64, &[u8])]) -> Value {
    let mut replies: Vec<Value> = batches
        .iter()
        .map(|(seq, payload)| json!({"frames_hex": ["", hex(&seq.to_be_bytes()), hex(payload)]}))
        .collect();
    replies.push(json!({"frames_hex": ["", "ffffffffffffffff", ""]}));
    json!({"kind": "replay", "label": label, "request_frames_hex": ["", hex(&from.to_be_bytes())],
        "replies": replies})
}

/// A prompt of the first `blocks` blocks and one token more.
fn request(step: &str, blocks: u32, cached: &Value, more: &Value) -> Value {
    let mut prompt: Vec<u32> = (1..=blocks).flat_map(tokens).collect();
    prompt.push(0);
    let mut body = json!({"model": "m", "prompt": prompt});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"kind": "request", "step": step, "path": "/v1/completions", "status": 200, "body": body,
        "response": {"usage": {"prompt_tokens": prompt.len(),
            "prompt_tokens_details": {"cached_tokens": cached}}}})
}

fn plain(step: &str, blocks: u32, cached: u64) -> Value {
    request(step, blocks, &json!(cached), &json!({}))
}

fn played(lines: &[Value]) -> Residency {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    residency(&Capture::read(text.as_bytes()).unwrap()).unwrap()
}

fn state<'a>(found: &'a Residency, step: &str) -> (&'a str, usize) {
    let found = found.steps.iter().find(|known| known.step == step).unwrap();
    (&found.trust, found.resident_blocks.device)
}

fn predicted(found: &Residency) -> Vec<u64> {
    found.requests.iter().map(|request| request.predicted_cached_tokens).collect()
}

#[test]
fn a_request_is_predicted_before_its_own_events() {
    let [a, b] = [batch(0, &[store(1), store(2)]), batch(1, &[store(3)])];
    let found = played(&[
        plain("cold", 2, 0),
        frames("cold", 0, &a),
        plain("longer", 3, 4),
        frames("longer", 1, &b),
        plain("warm", 3, 6),
    ]);
    assert_eq!(predicted(&found), [0, 4, 6]);
    assert_eq!(state(&found, "cold"), ("exact", 2));
    assert_eq!(state(&found, "warm"), ("exact", 3));
    assert_eq!(found.steps.len(), 3);
    assert!(found.left_out.is_empty());
}

#[test]
fn replays_are_no_live_events() {
    let [a, b] = [batch(0, &[store(1)]), batch(1, &[payload::removed(&[1]), store(2)])];
    let c = batch(2, &[payload::cleared(), store(1)]);
    let found = played(&[
        plain("cold", 1, 0),
        frames("cold", 0, &a),
        frames("more", 1, &b),
        frames("reset", 2, &c),
        replay("from_zero", 0, &[(0, &a), (1, &b), (2, &c)]),
        replay("last_two", 1, &[(1, &b), (2, &c)]),
        replay("beyond_end", 102, &[]),
        plain("warm", 1, 2),
    ]);
    for step in ["cold", "reset", "from_zero", "last_two", "beyond_end", "warm"] {
        assert_eq!(state(&found, step), ("exact", 1), "{step}");
    }
    assert!(found.steps.iter().all(|step| step.changes.is_empty()), "{found:?}");
    let replays: Vec<&ReplayFound> = found.steps.iter().flat_map(|step| &step.replays).collect();
    let [zero, two, beyond] = replays[..] else { panic!("{replays:?}") };
    assert_eq!((zero.batches, zero.as_live, zero.ended), (3, 3, true));
    let rebuilt = zero.rebuilt.as_ref().unwrap();
    assert_eq!((rebuilt.trust.as_str(), rebuilt.resident_blocks.device), ("exact", 1));
    assert_eq!((two.batches, two.as_live, two.rebuilt.is_none()), (2, 2, true));
    assert_eq!((beyond.batches, beyond.ended), (0, true));
    assert_eq!(predicted(&found), [0, 2]);
}

#[test]
fn a_recorder_that_joined_late_knows_what_was_replayed() {
    let [a, b] = [batch(0, &[store(1)]), batch(1, &[store(2)])];
    let late = [plain("before", 1, 2), frames("more", 1, &b), plain("warm", 2, 4)];
    let found = played(&late);
    assert_eq!(state(&found, "more"), ("partial(joined_late)", 0), "an orphan, no credit");
    assert_eq!(predicted(&found), [0, 0]);
    // Asked at the end or at the beginning: the batch was there before all that was heard.
    let asked = replay("from_zero", 0, &[(0, &a), (1, &b)]);
    let found = played(&[&late[..], std::slice::from_ref(&asked)].concat());
    assert_eq!(predicted(&found), [2, 4]);
    let found = played(&[&[asked], &late[..]].concat());
    assert_eq!(predicted(&found), [2, 4]);
    assert_eq!(state(&found, "from_zero"), ("exact", 2), "with what came live later");
}

#[test]
fn a_gap_is_repaired_where_a_replay_shows_what_was_lost() {
    let [a, b, c] = [1, 2, 3].map(|n| batch(n, &[store(n)]));
    let heard = [frames("a", 0, &a), frames("c", 2, &c), plain("warm", 3, 6)];
    let found = played(&heard);
    assert_eq!(state(&found, "c").0, "partial(lost_batch)");
    assert_eq!(predicted(&found), [0]);
    let repaired = [&heard[..], &[replay("from_zero", 0, &[(0, &a), (1, &b), (2, &c)])]].concat();
    let found = played(&repaired);
    assert_eq!(state(&found, "c"), ("exact", 3));
    assert_eq!(predicted(&found), [6]);
    let replay = &found.steps[3].replays[0];
    assert_eq!((replay.as_live, replay.not_live), (2, 1));
}

#[test]
fn a_last_batch_that_was_lost_comes_with_the_replay() {
    let [a, b] = [1, 2].map(|n| batch(n, &[store(n)]));
    let found = played(&[
        frames("a", 0, &a),
        plain("short", 2, 2),
        replay("at_end", 0, &[(0, &a), (1, &b)]),
        plain("warm", 2, 4),
    ]);
    assert_eq!(predicted(&found), [2, 4]);
    let replay = &found.steps[2].replays[0];
    assert_eq!((replay.as_live, replay.not_live), (1, 1));
}

#[test]
fn a_new_life_forgets_the_old_one() {
    let [a, b] = [batch(0, &[store(1), store(2)]), batch(9, &[store(1)])];
    let mut restarted = frames("restarted", 0, &b);
    restarted["t"] = json!(1020.0);
    for asked in [vec![], vec![replay("at_end", 0, &[(0, &b)])]] {
        let lines =
            [plain("cold", 2, 0), frames("cold", 0, &a), restarted.clone(), plain("warm", 2, 2)];
        let found = played(&[&lines[..], &asked[..]].concat());
        assert_eq!(state(&found, "cold"), ("exact", 2));
        assert_eq!(state(&found, "restarted"), ("exact", 1));
        assert_eq!(predicted(&found), [0, 2]);
        let changes = &found.steps[1].changes;
        assert!(changes.iter().any(|change| change.forgot && change.why == "restart"));
    }
}

#[test]
fn a_restart_that_numbers_hide_shows_in_a_replay() {
    // The engine restarted unheard and has published two batches since.
    let [a, b, c] = [batch(0, &[store(1)]), batch(8, &[store(1)]), batch(9, &[store(2)])];
    let link = |state: &str| json!({"kind": "link", "state": state});
    let found = played(&[
        link("connected"),
        frames("cold", 0, &a),
        link("disconnected"),
        plain("down", 1, 0),
        link("connected"),
        replay("reconnected", 0, &[(0, &b), (1, &c)]),
        plain("warm", 2, 4),
    ]);
    // Links belong to the step; blocks stay without credit until the life is known.
    assert_eq!(state(&found, "cold"), ("absent(disconnected)", 1));
    assert_eq!(state(&found, "reconnected").1, 2);
    assert_eq!(predicted(&found), [0, 4]);
    assert_eq!(found.steps[3].replays[0].differing, 1);
}

#[test]
fn malformed_events_cost_all_credit() {
    let [a, b] = [batch(0, &[store(1)]), batch(1, &[payload::malformed()])];
    let found = played(&[frames("a", 0, &a), frames("b", 1, &b), plain("warm", 1, 2)]);
    assert_eq!(state(&found, "b"), ("suspect(schema)", 0));
    assert_eq!(predicted(&found), [0]);
}

#[test]
fn null_is_nothing_only_where_the_engine_tells_at_all() {
    let a = batch(0, &[store(1)]);
    let untold = |step| request(step, 1, &Value::Null, &json!({}));
    let found = played(&[untold("cold"), frames("cold", 0, &a), plain("warm", 1, 2)]);
    assert_eq!(predicted(&found), [0, 2]);
    assert_eq!(found.requests[0].reported_cached_tokens, 0);
    let found = played(&[untold("cold"), frames("cold", 0, &a), untold("warm")]);
    assert!(found.requests.is_empty());
    assert!(found.left_out.iter().all(|left| left.why == "cached_tokens_not_told"));
}

#[test]
fn engines_that_hide_salts_are_not_believed_after_one() {
    let plain_looking = payload::stored(&[1], None, &tokens(1));
    let a = batch(0, &[plain_looking]);
    let found = played(&[
        frames("a", 0, &a),
        plain("warm", 1, 2),
        request("salted", 1, &json!(0), &json!({"cache_salt": "s"})),
        plain("after", 1, 0),
    ]);
    assert_eq!(state(&found, "a").0, "exact");
    assert_eq!(state(&found, "salted").0, "suspect(extra_keys_unpublished)");
    assert_eq!(predicted(&found), [2, 0, 0]);
}

#[test]
fn several_publishers_are_kept_apart() {
    let a = batch(0, &[store(1)]);
    let of = |rank: u32| {
        let mut line = frames("a", 0, &a);
        line["endpoint"] = format!("tcp://h:{rank}").into();
        line["dp_rank"] = rank.into();
        line
    };
    let to = |rank: Option<u32>| {
        let mut line = plain("ask", 1, 2);
        if let Some(rank) = rank {
            line["headers"] = json!({"X-data-parallel-rank": rank.to_string()});
        }
        line
    };
    let found =
        played(&[of(0), to(Some(0)), to(Some(1)), of(1), to(Some(1)), to(None), to(Some(7))]);
    assert_eq!(predicted(&found), [2, 0, 2]);
    assert_eq!(found.left_out.len(), 2);
    assert_eq!(found.left_out[0].why, "rank_not_told");
    let last = found.steps.last().unwrap();
    assert_eq!(last.sources.len(), 2);
    assert_eq!(last.resident_blocks.device, 2);
    // Rank 1 had said nothing yet at the first step.
    assert_eq!(state(&found, "a"), ("partial(joined_late)", 1));
}

#[test]
fn a_recording_without_events_shows_nothing() {
    let found = played(&[plain("alone", 1, 0)]);
    assert_eq!(state(&found, "alone"), ("absent(no_stream)", 0));
    assert_eq!(found.left_out[0].why, "no_events");
}

#[test]
fn a_replay_that_differs_makes_no_live_batch_unheard() {
    let [a, b, other] = [batch(0, &[store(1)]), batch(1, &[store(2)]), batch(1, &[store(3)])];
    let c = batch(2, &[store(3)]);
    let found = played(&[
        frames("live", 0, &a),
        frames("live", 1, &b),
        replay("differs", 0, &[(0, &a), (1, &other)]),
        replay("as live", 0, &[(0, &a), (1, &b)]),
        frames("more", 2, &c),
        replay("all as live", 0, &[(0, &a), (1, &b), (2, &c)]),
    ]);
    let replays = found.steps.iter().flat_map(|step| &step.replays);
    let counted: Vec<_> = replays.map(|r| (r.as_live, r.differing, r.not_live)).collect();
    assert_eq!(counted, [(1, 1, 0), (2, 0, 0), (3, 0, 0)]);
}

#[test]
fn a_recording_of_nothing_is_an_error() {
    for text in ["", "\n\n"] {
        let capture = Capture::read(text.as_bytes()).unwrap();
        assert!(matches!(residency(&capture), Err(ResidencyError::Empty)), "{text:?}");
    }
}
