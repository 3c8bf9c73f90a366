//! A message as people read it: what `decoded` holds in a recording. Nothing reads it back.

use std::str::from_utf8;

use rmpv::{Value as Pack, ValueRef};
use serde_json::{Map, Value, json};

use crate::capture::hex;

/// Deeper values are no batches.
const MAX_DEPTH: usize = 16;

/// Topic, number and payload of the last three parts; less where they are none.
pub(super) fn view(parts: &[Vec<u8>]) -> Value {
    let mut view = Map::new();
    let [before @ .., seq, payload] = parts else { return Value::Object(view) };
    let topic = before.last().map_or(&[][..], Vec::as_slice);
    view.insert("topic".to_owned(), from_utf8(topic).map_or_else(|_| bytes(topic), Value::from));
    if let Ok(seq) = <[u8; 8]>::try_from(seq.as_slice()) {
        view.insert("seq".to_owned(), i64::from_be_bytes(seq).into());
    }
    if let Some(payload) = unpacked(payload) {
        view.insert("payload".to_owned(), payload);
    }
    Value::Object(view)
}

fn unpacked(mut payload: &[u8]) -> Option<Value> {
    let value = rmpv::decode::read_value_ref_with_max_depth(&mut payload, MAX_DEPTH).ok()?;
    Some(json_of(&ValueRef::to_owned(&value)))
}

fn json_of(value: &Pack) -> Value {
    match value {
        Pack::Nil => Value::Null,
        Pack::Boolean(truth) => (*truth).into(),
        Pack::Integer(number) => {
            number.as_u64().map(Value::from).or_else(|| number.as_i64().map(Value::from)).into()
        }
        Pack::F32(number) => f64::from(*number).into(),
        Pack::F64(number) => (*number).into(),
        Pack::String(text) => text.as_str().map_or_else(|| bytes(text.as_bytes()), Value::from),
        Pack::Binary(digest) => bytes(digest),
        Pack::Array(items) => items.iter().map(json_of).collect(),
        Pack::Map(pairs) => {
            let pair = |(key, value): &(Pack, Pack)| {
                let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                (key, json_of(value))
            };
            Value::Object(pairs.iter().map(pair).collect())
        }
        Pack::Ext(kind, data) => json!({"$ext": kind, "$hex": hex(data)}),
    }
}

fn bytes(bytes: &[u8]) -> Value {
    json!({"$hex": hex(bytes)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_as_recordings_have_it() {
        // [1.0, [["AllBlocksCleared"], {"h": [2^64 - 1, -1, bin ff]}], nil]
        let payload = [
            &[0x93, 0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0x92, 0x91, 0xb0][..],
            b"AllBlocksCleared",
            &[0x81, 0xa1, b'h', 0x93, 0xcf],
            &[0xff; 8],
            &[0xff, 0xc4, 1, 0xff, 0xc0],
        ];
        let parts = [b"kv".to_vec(), 7_u64.to_be_bytes().to_vec(), payload.concat()];
        let events = json!([["AllBlocksCleared"], {"h": [u64::MAX, -1, {"$hex": "ff"}]}]);
        let expected = json!({"topic": "kv", "seq": 7, "payload": [1.0, events, null]});
        assert_eq!(view(&parts), expected);
        let end = [Vec::new(), vec![0xff; 8], Vec::new()];
        assert_eq!(view(&end), json!({"topic": "", "seq": -1}));
        assert_eq!(view(&[Vec::new()]), json!({}));
        assert_eq!(view(&[vec![1], vec![0x91]]), json!({"topic": ""}));
    }
}
