//! Builders of event batches, in both encodings engines use.

use rmpv::Value;

/// How events are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Arrays, by position: vLLM up to 0.23.
    Array,
    /// Maps, by name: vLLM 0.24 and newer.
    Map,
}

/// One event to be published. Fields not set are left out where the form allows it.
#[derive(Clone, Debug, PartialEq)]
pub struct EventSpec {
    tag: String,
    order: &'static [&'static str],
    /// Fields a map always has.
    required: usize,
    fields: Vec<(String, Value)>,
}

const STORED: [&str; 15] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
    "ownership",
    "session_id",
    "lookahead_token_ids",
];
const REMOVED: [&str; 5] = ["block_hashes", "medium", "group_idx", "locality", "ownership"];

/// Blocks stored on the device, numbered as given: `tokens.len() / hashes.len()` tokens a block.
#[must_use]
pub fn stored(hashes: &[u64], parent: Option<u64>, tokens: &[u32]) -> EventSpec {
    let block_size = tokens.len().checked_div(hashes.len()).unwrap_or(0);
    EventSpec::new("BlockStored", &STORED, 7)
        .field("block_hashes", integers(hashes))
        .field("parent_block_hash", parent.map_or(Value::Nil, Value::from))
        .field("token_ids", Value::Array(tokens.iter().map(|t| Value::from(*t)).collect()))
        .field("block_size", block_size)
        .field("lora_id", Value::Nil)
        .field("medium", "GPU")
        .field("lora_name", Value::Nil)
}

/// Blocks removed from the device.
#[must_use]
pub fn removed(hashes: &[u64]) -> EventSpec {
    EventSpec::new("BlockRemoved", &REMOVED, 2)
        .field("block_hashes", integers(hashes))
        .field("medium", "GPU")
}

/// The whole cache emptied.
#[must_use]
pub fn cleared() -> EventSpec {
    EventSpec::new("AllBlocksCleared", &[], 0)
}

/// An event of a kind no engine publishes.
#[must_use]
pub fn unknown() -> EventSpec {
    EventSpec::new("BlockPolished", &["shine"], 0).field("shine", 7)
}

/// A known event that lacks what it needs.
#[must_use]
pub fn malformed() -> EventSpec {
    EventSpec::new("BlockRemoved", &REMOVED, 0).field("block_hashes", "none")
}

/// The payload of one batch of rank 0.
#[must_use]
pub fn batch(form: Form, ts: f64, events: &[EventSpec]) -> Vec<u8> {
    encode(&Value::Array(vec![
        Value::F64(ts),
        Value::Array(events.iter().map(|event| event.value(form)).collect()),
        Value::from(0),
    ]))
}

/// Any value as `MessagePack`.
#[must_use]
pub fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = rmpv::encode::write_value(&mut bytes, value);
    bytes
}

impl EventSpec {
    fn new(tag: &str, order: &'static [&'static str], required: usize) -> Self {
        Self { tag: tag.to_owned(), order, required, fields: Vec::new() }
    }

    /// Sets a field by its name, also one that no engine has (maps only).
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        match self.fields.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.fields.push((name.to_owned(), value)),
        }
        self
    }

    /// Leaves a field out of the map form, as if the engine did not have it.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.required = 0;
        self.fields.retain(|(known, _)| known != name);
        self
    }

    /// The event as a value.
    #[must_use]
    pub fn value(&self, form: Form) -> Value {
        match form {
            Form::Array => self.array(),
            Form::Map => self.map(),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn array(&self) -> Value {
        let width = self.order.iter().rposition(|name| self.get(name).is_some());
        let mut values = vec![Value::from(self.tag.as_str())];
        for name in self.order.iter().take(width.map_or(0, |last| last + 1)) {
            values.push(self.get(name).cloned().unwrap_or(Value::Nil));
        }
        Value::Array(values)
    }

    fn map(&self) -> Value {
        let mut pairs = vec![(Value::from("type"), Value::from(self.tag.as_str()))];
        for name in self.order.iter().take(self.required) {
            let value = self.get(name).cloned().unwrap_or(Value::Nil);
            pairs.push((Value::from(*name), value));
        }
        let rest = self.fields.iter().filter(|(name, _)| {
            !self.order.iter().take(self.required).any(|required| required == name)
        });
        pairs.extend(rest.map(|(name, value)| (Value::from(name.as_str()), value.clone())));
        Value::Map(pairs)
    }
}

fn integers(hashes: &[u64]) -> Value {
    Value::Array(hashes.iter().map(|hash| Value::from(*hash)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_as_long_as_the_last_field_set() {
        let event = stored(&[1], None, &[1, 2]);
        let Value::Array(values) = event.value(Form::Array) else { panic!("no array") };
        assert_eq!(values.len(), 8);
        let event = event.field("group_idx", 3);
        let Value::Array(values) = event.value(Form::Array) else { panic!("no array") };
        assert_eq!((values.len(), &values[8], &values[9]), (10, &Value::Nil, &Value::from(3)));
    }

    #[test]
    fn maps_begin_with_the_type_and_have_the_required_fields() {
        let Value::Map(pairs) = removed(&[7]).value(Form::Map) else { panic!("no map") };
        let names: Vec<&str> = pairs.iter().filter_map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["type", "block_hashes", "medium"]);
        // fixmap of one pair, as the engine writes it.
        assert_eq!(encode(&cleared().value(Form::Map))[..6], [0x81, 0xa4, b't', b'y', b'p', b'e']);
    }
}
