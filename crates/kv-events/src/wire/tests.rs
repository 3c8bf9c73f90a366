use kvasir_inventory::{EngineHash, Tier};
use kvasir_testkit::publisher::payload::{self, EventSpec, Form};
use proptest::prelude::*;
use rmpv::Value;

use super::*;
use crate::event::{BlockRemoved, BlockStored, Medium};

const FORMS: [Form; 2] = [Form::Array, Form::Map];

fn one(form: Form, event: EventSpec) -> Result<Event, DecodeError> {
    let batch = decode(&payload::batch(form, 1.5, &[event]))?;
    Ok(batch.events.into_iter().next().expect("one event"))
}

fn stored(form: Form, event: EventSpec) -> BlockStored {
    match one(form, event) {
        Ok(Event::Stored(stored)) => stored,
        other => panic!("{other:?}"),
    }
}

fn place(form: Form, event: EventSpec) -> (String, Problem) {
    let error = one(form, event).expect_err("malformed");
    (error.place, error.problem)
}

fn sample() -> EventSpec {
    payload::stored(&[1, 2], Some(9), &[10, 200, 70_000, 5])
}

#[test]
fn both_forms_say_the_same() {
    for form in FORMS {
        let event = stored(form, sample().field("group_idx", 3));
        assert_eq!(event.block_hashes, [EngineHash(1), EngineHash(2)]);
        assert_eq!(event.parent, Some(EngineHash(9)));
        assert_eq!(event.token_ids, [10, 200, 70_000, 5]);
        assert_eq!((event.block_size, event.group), (2, Some(3)));
        assert_eq!(event.medium, Medium::Known(Tier::Device));
        let removed = BlockRemoved {
            block_hashes: vec![EngineHash(7)],
            medium: Medium::Known(Tier::Host),
            group: None,
        };
        let event = payload::removed(&[7]).field("medium", "cpu_pinned");
        assert_eq!(one(form, event), Ok(Event::Removed(removed)));
        assert_eq!(one(form, payload::cleared()), Ok(Event::Cleared));
    }
}

#[test]
fn hashes_come_as_unsigned_signed_or_bytes() {
    let digest: Vec<u8> = (0..32).collect();
    let hashes = vec![Value::from(u64::MAX), Value::from(-5), Value::Binary(digest.clone())];
    for form in FORMS {
        let event = sample()
            .field("block_hashes", Value::Array(hashes.clone()))
            .field("parent_block_hash", i64::MIN);
        let event = stored(form, event);
        let expected =
            [EngineHash(u64::MAX), EngineHash(u64::MAX - 4), EngineHash::from_digest(&digest)];
        assert_eq!(event.block_hashes, expected);
        assert_eq!(event.parent, Some(EngineHash(1 << 63)));
    }
}

#[test]
fn media_in_any_case_and_unknown_ones_kept() {
    for (word, tier) in [
        ("gpu", Some(Tier::Device)),
        ("GPU", Some(Tier::Device)),
        ("cpu", Some(Tier::Host)),
        ("CPU_PINNED", Some(Tier::Host)),
        ("Disk", Some(Tier::Disk)),
        ("STORAGE", Some(Tier::Disk)),
        ("EXTERNAL", Some(Tier::Remote)),
        ("tape", None),
        ("", None),
    ] {
        let event = stored(Form::Map, sample().field("medium", word));
        assert_eq!(event.medium.tier(), tier, "{word}");
    }
    let remote = stored(Form::Map, sample().field("locality", "REMOTE"));
    assert_eq!(remote.medium, Medium::Known(Tier::Remote));
    let local = stored(Form::Map, sample().field("locality", "LOCAL"));
    assert_eq!(local.medium, Medium::Known(Tier::Device));
    let odd = stored(Form::Map, sample().field("locality", "ORBITAL"));
    assert_eq!(odd.medium.tier(), None);
    let none = stored(Form::Map, sample().field("medium", Value::Nil));
    assert_eq!(none.medium, Medium::Known(Tier::Device));
}

#[test]
fn what_newer_versions_may_add_is_tolerated() {
    // Longer arrays.
    let Value::Array(mut values) =
        sample().field("lookahead_token_ids", Value::Nil).value(Form::Array)
    else {
        panic!("no array")
    };
    values.push(Value::Array(vec![Value::from("new"); 3]));
    let bytes = payload::encode(&Value::Array(vec![
        Value::F64(0.0),
        Value::Array(vec![Value::Array(values)]),
        Value::Nil,
        Value::from("a fourth element"),
    ]));
    let batch = decode(&bytes).expect("tolerated");
    assert_eq!((batch.events.len(), batch.rank), (1, None));
    // Unknown keys, keys that are no text, the type not first.
    let Value::Map(mut pairs) = sample().field("novelty", Value::Map(vec![])).value(Form::Map)
    else {
        panic!("no map")
    };
    pairs.push((Value::from(7), Value::Nil));
    pairs.rotate_left(3);
    let batch = Value::Array(vec![Value::F64(0.0), Value::Array(vec![Value::Map(pairs)])]);
    assert_eq!(decode(&payload::encode(&batch)).expect("tolerated").events.len(), 1);
    // Unknown kinds are counted.
    for form in FORMS {
        let events = [payload::unknown(), sample(), payload::unknown()];
        let batch = decode(&payload::batch(form, 0.0, &events)).expect("tolerated");
        assert_eq!((batch.events.len(), batch.unknown_events), (1, 2));
    }
}

#[test]
fn malformed_known_events_name_their_field_and_show_their_bytes() {
    for form in FORMS {
        let cases = [
            (sample().field("token_ids", "text"), "BlockStored.token_ids", Problem::Type),
            (sample().field("token_ids", Value::Nil), "BlockStored.token_ids", Problem::Type),
            (sample().field("block_size", -1), "BlockStored.block_size", Problem::Range),
            (sample().field("block_size", 1_u64 << 32), "BlockStored.block_size", Problem::Range),
            (
                sample().field("parent_block_hash", "x"),
                "BlockStored.parent_block_hash",
                Problem::Type,
            ),
            (sample().field("medium", 3), "BlockStored.medium", Problem::Type),
            (sample().field("extra_keys", 3), "BlockStored.extra_keys", Problem::Type),
            (sample().field("group_idx", "0"), "BlockStored.group_idx", Problem::Type),
            (payload::malformed(), "BlockRemoved.block_hashes", Problem::Type),
        ];
        for (event, field, problem) in cases {
            assert_eq!(place(form, event), (field.to_owned(), problem), "{form:?}");
        }
    }
    for field in ["block_hashes", "parent_block_hash", "token_ids", "block_size"] {
        let expected = (format!("BlockStored.{field}"), Problem::Missing);
        assert_eq!(place(Form::Map, sample().without(field)), expected);
    }
    let gone = payload::removed(&[1]).without("block_hashes");
    assert_eq!(place(Form::Map, gone), ("BlockRemoved.block_hashes".to_owned(), Problem::Missing));
    let wide = sample().field("token_ids", Value::Array(vec![Value::from(1_u64 << 32)]));
    assert_eq!(place(Form::Map, wide), ("BlockStored.token_ids".to_owned(), Problem::Range));
    let long = "x".repeat(1000);
    let event = sample().field("medium", 1).field("novelty", long.as_str());
    let error = one(Form::Map, event).expect_err("malformed");
    assert_eq!(error.excerpt.as_bytes().len(), 256);
    assert!(error.to_string().starts_with("BlockStored.medium: has an unexpected type; bytes 8"));
}

#[test]
fn events_that_do_not_say_what_they_are_are_errors() {
    let of = |event: Value| {
        let batch = Value::Array(vec![Value::F64(0.0), Value::Array(vec![event])]);
        decode(&payload::encode(&batch)).expect_err("malformed").problem
    };
    assert_eq!(of(Value::Nil), Problem::Type);
    assert_eq!(of(Value::Array(vec![])), Problem::Missing);
    assert_eq!(of(Value::Array(vec![Value::from(3)])), Problem::Missing);
    assert_eq!(of(Value::Map(vec![(Value::from("kind"), Value::from("x"))])), Problem::Missing);
}

#[test]
fn sglang_pairs_become_tokens_and_lookahead() {
    let pairs = |ids: &[(u32, u32)]| {
        let pair = |(a, b): &(u32, u32)| Value::Array(vec![Value::from(*a), Value::from(*b)]);
        Value::Array(ids.iter().map(pair).collect())
    };
    let event = sample().field("token_ids", pairs(&[(1, 2), (2, 3), (3, 4), (4, 5)]));
    let event = stored(Form::Map, event);
    assert_eq!(event.token_ids, [1, 2, 3, 4]);
    assert_eq!(event.lookahead_token_ids, Some(vec![vec![3], vec![5]]));
    let mixed =
        Value::Array(vec![Value::from(1), Value::Array(vec![Value::from(1), Value::from(2)])]);
    let event = sample().field("token_ids", mixed);
    assert_eq!(place(Form::Map, event), ("BlockStored.token_ids".to_owned(), Problem::Type));
}

#[test]
fn sglang_salts_come_in_a_map_or_under_a_key() {
    let salt = Value::Map(vec![
        (Value::from("other"), Value::from(1)),
        (Value::from("cache_salt"), Value::from("tenant")),
    ]);
    let event = stored(Form::Array, sample().field("lora_name", salt));
    assert_eq!((event.cache_salt.as_deref(), event.lora_name), (Some("tenant"), None));
    let event = stored(Form::Map, sample().field("cache_salt", "tenant"));
    assert_eq!(event.cache_salt.as_deref(), Some("tenant"));
}

#[test]
fn unknown_extra_keys_do_not_make_the_event_malformed() {
    let tagged = Value::Array(vec![Value::from("lora"), Value::from("name"), Value::from("path")]);
    let odd = Value::Array(vec![Value::Array(vec![tagged, Value::from(3), Value::from("salt")])]);
    let event =
        sample().field("block_hashes", Value::Array(vec![Value::from(1)])).field("extra_keys", odd);
    let event = stored(Form::Map, event);
    assert!(event.extras().is_err());
    assert_eq!(event.extra_keys.expect("kept")[0].len(), 3);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(data in prop::collection::vec(any::<u8>(), 0..512)) {
        fuzz_one(&data);
    }

    #[test]
    fn damaged_batches_are_survived(
        form in prop::sample::select(&FORMS[..]),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let key = Value::Array(vec![Value::from("id"), Value::from(-3)]);
        let keys = Value::Array(vec![Value::Array(vec![key, Value::from("salt")]), Value::Nil]);
        let events = [sample().field("extra_keys", keys), payload::removed(&[3]), payload::cleared()];
        let mut bytes = payload::batch(form, 0.0, &events);
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fuzz_one(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        fuzz_one(&bytes);
    }

    #[test]
    fn what_is_written_is_read(
        form in prop::sample::select(&FORMS[..]),
        hashes in prop::collection::vec(any::<u64>(), 0..20),
        parent in prop::option::of(any::<u64>()),
        tokens in prop::collection::vec(any::<u32>(), 0..200),
    ) {
        let event = stored(form, payload::stored(&hashes, parent, &tokens));
        prop_assert_eq!(event.block_hashes.iter().map(|h| h.0).collect::<Vec<_>>(), hashes);
        prop_assert_eq!(event.parent.map(|h| h.0), parent);
        prop_assert_eq!(event.token_ids, tokens);
    }
}

#[test]
fn published_hashes_are_kept_whole() {
    use crate::event::PublishedHash;
    let digest: Vec<u8> = (0..32).collect();
    let mut payload = vec![0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x91, 0x95, 0xac];
    payload.extend(b"BlockRemoved");
    payload.extend([0x93, 0xc4, 32]);
    payload.extend(&digest);
    payload.extend([0xff, 0x07, 0xc0, 0xc0, 0xc0]);
    let batch = super::decode_published(&payload).unwrap();
    let [crate::event::Event::Removed(removed)] = batch.events.as_slice() else { panic!() };
    assert_eq!(
        removed.block_hashes,
        [PublishedHash::Bytes(digest), PublishedHash::Int(u64::MAX), PublishedHash::Int(7)]
    );
}
