//! The encoder against ciborium, an independent implementation.

use ciborium::Value;
use proptest::prelude::*;

fn reference(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    ciborium::into_writer(value, &mut out).unwrap();
    out
}

/// Writes a value tree with this crate's encoder.
fn ours(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => super::null(out),
        Value::Bytes(b) => super::bytes(out, b),
        Value::Text(t) => super::text(out, t),
        Value::Integer(n) => match (u64::try_from(*n), i64::try_from(*n)) {
            (Ok(n), _) => super::uint(out, n),
            (_, Ok(n)) => super::int(out, n),
            _ => panic!("not a 64-bit integer: {n:?}"),
        },
        Value::Array(items) => {
            super::array(out, items.len());
            items.iter().for_each(|item| ours(out, item));
        }
        other => panic!("not part of a preimage: {other:?}"),
    }
}

/// Integers near every width's edge as often as in between.
fn integers() -> impl Strategy<Value = i64> {
    let edges = prop::sample::select(vec![24, 256, 65_536, 1 << 32, i64::MAX]);
    let near = (edges, -2i64..=2, any::<bool>()).prop_map(|(edge, d, negative)| {
        let n = edge.saturating_add(d);
        if negative { -n } else { n }
    });
    prop_oneof![near, any::<i64>(), any::<u32>().prop_map(i64::from)]
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        integers().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Value::Bytes),
        ".{0,90}".prop_map(Value::Text),
    ];
    leaf.prop_recursive(3, 400, 40, |inner| {
        prop::collection::vec(inner, 0..40).prop_map(Value::Array)
    })
}

proptest! {
    #[test]
    fn same_bytes_as_ciborium(value in values()) {
        let mut out = Vec::new();
        ours(&mut out, &value);
        prop_assert_eq!(out, reference(&value));
    }

    #[test]
    fn signed_and_unsigned_agree(value in integers()) {
        let mut out = Vec::new();
        super::int(&mut out, value);
        prop_assert_eq!(out, reference(&Value::from(value)));
    }
}

#[test]
fn long_lengths() {
    for len in [23, 24, 255, 256, 65_535, 65_536] {
        for value in [
            Value::Bytes(vec![7; len]),
            Value::Text("x".repeat(len)),
            Value::Array(vec![Value::Null; len]),
        ] {
            let mut out = Vec::new();
            ours(&mut out, &value);
            assert_eq!(out, reference(&value), "length {len}");
        }
    }
}
