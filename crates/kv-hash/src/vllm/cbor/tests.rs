//! The encoder against ciborium, an independent implementation.

use ciborium::Value;
use proptest::prelude::*;

use super::*;

fn reference(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    ciborium::into_writer(value, &mut out).unwrap();
    out
}

/// Writes a value tree with this crate's encoder.
fn write(out: &mut Cbor<'_>, value: &Value) {
    match value {
        Value::Null => out.none(),
        Value::Bytes(b) => out.bytes(b),
        Value::Text(t) => out.text(t, Sharing::Own),
        Value::Integer(n) => match (u64::try_from(*n), i64::try_from(*n)) {
            (Ok(n), _) => out.uint(n),
            (_, Ok(n)) => out.int(n),
            _ => panic!("not a 64-bit integer: {n:?}"),
        },
        Value::Array(items) => {
            out.begin_tuple(items.len());
            items.iter().for_each(|item| write(out, item));
            out.end_tuple(items.len());
        }
        other => panic!("not part of a preimage: {other:?}"),
    }
}

fn encoded(write: impl FnOnce(&mut Cbor<'_>)) -> Vec<u8> {
    let mut buffer = Buffer::default();
    write(&mut Cbor::new(&mut buffer));
    buffer.as_slice().to_vec()
}

fn ours(value: &Value) -> Vec<u8> {
    encoded(|out| write(out, value))
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
        prop_assert_eq!(ours(&value), reference(&value));
    }

    #[test]
    fn signed_and_unsigned_agree(value in integers()) {
        prop_assert_eq!(encoded(|out| out.int(value)), reference(&Value::from(value)));
    }

    #[test]
    fn tokens_are_integers(
        tokens in prop::collection::vec(
            prop_oneof![0u32..300, 65_000u32..66_000, any::<u32>()], 0..50
        )
    ) {
        let expected: Vec<u8> =
            tokens.iter().flat_map(|&token| reference(&Value::from(token))).collect();
        prop_assert_eq!(encoded(|out| out.tokens(&tokens)), expected);
    }

    #[test]
    fn big_integers(bytes in prop::collection::vec(any::<u8>(), 0..33), zeros in 0usize..30) {
        let mut big = vec![0; zeros.min(32 - bytes.len().min(32))];
        big.extend_from_slice(&bytes);
        let significant: Vec<u8> = big.iter().copied().skip_while(|b| *b == 0).collect();
        let expected = match <[u8; 8]>::try_from(pad(&significant)) {
            Ok(small) => Value::from(u64::from_be_bytes(small)),
            Err(_) => Value::Tag(2, Box::new(Value::Bytes(significant))),
        };
        prop_assert_eq!(encoded(|out| out.big_uint(&big)), reference(&expected));
    }
}

/// At least eight bytes, led by zeros.
fn pad(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 8usize.saturating_sub(bytes.len())];
    out.extend_from_slice(bytes);
    out
}

#[test]
fn long_lengths() {
    for len in [23, 24, 255, 256, 65_535, 65_536] {
        for value in [
            Value::Bytes(vec![7; len]),
            Value::Text("x".repeat(len)),
            Value::Array(vec![Value::Null; len]),
        ] {
            assert_eq!(ours(&value), reference(&value), "length {len}");
        }
    }
}
