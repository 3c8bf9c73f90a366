//! rolter's keys of a provider in an endpoint: what has an equivalent is taken for it, the rest is
//! refused with what to use instead.
//!
//! An endpoint is read through a map of its own, so that the equivalents stand in the tree and an error
//! has the place of what was written.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, Visitor,
};
use serde::{Deserialize, Serialize, Serializer};

use crate::endpoint::EndpointConfig;

/// `kv_events` of a provider.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KvEvents {
    endpoint: String,
    #[serde(default)]
    topic: Option<String>,
    #[serde(default, deserialize_with = "max_blocks")]
    #[expect(dead_code, reason = "refused when it is read")]
    max_blocks: (),
    #[serde(default, deserialize_with = "stale_secs")]
    #[expect(dead_code, reason = "refused when it is read")]
    stale_secs: (),
}

fn max_blocks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer)?;
    let why = "`max_blocks` has no equivalent, since blocks differ in size: bytes are limited by \
               `inventory.max_endpoint_bytes`";
    Err(de::Error::custom(why))
}

fn stale_secs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer)?;
    let why = "`stale_secs` has no equivalent: a stream is believed by its sequence, however long \
               the engine is silent; leave it out";
    Err(de::Error::custom(why))
}

/// Why `lmcache` is not taken.
const LMCACHE: &str = "`lmcache` has no equivalent yet: LMCache's servers are not asked how full they \
                       are; leave it out, and use `policy: latency` with the engines' own `events`";

impl Serialize for EndpointConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for EndpointConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = EndpointConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an endpoint: a map with its `url`")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EndpointConfig, A::Error> {
                let keys =
                    Translated { map, waiting: Vec::new(), next: None, told: (false, false) };
                EndpointConfig::deserialize(MapAccessDeserializer::new(keys))
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// The map of an endpoint with rolter's keys in our words.
struct Translated<A> {
    map: A,
    /// Our keys and values for one of rolter's, the last one first.
    waiting: Vec<(&'static str, String)>,
    /// The value of the key that was just given, where it is one of those.
    next: Option<String>,
    /// Whether the events were told in our words, and in rolter's.
    told: (bool, bool),
}

impl<'de, A: MapAccess<'de>> Translated<A> {
    fn check(&self) -> Result<(), A::Error> {
        let why = "`kv_events` says what `events` and `topic` say: give it or these";
        if self.told == (true, true) { Err(de::Error::custom(why)) } else { Ok(()) }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Translated<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        if let Some((key, value)) = self.waiting.pop() {
            self.next = Some(value);
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        let seed = match self.map.next_key_seed(Key(seed))? {
            None => return Ok(None),
            Some(Told::Own(key, of_events)) => {
                self.told.0 |= of_events;
                self.check()?;
                return Ok(Some(key));
            }
            Some(Told::Rolters(seed)) => seed,
        };
        if std::mem::replace(&mut self.told.1, true) {
            return Err(de::Error::custom("`kv_events` is there twice"));
        }
        self.check()?;
        let KvEvents { endpoint, topic, .. } = self.map.next_value()?;
        self.waiting.extend(topic.map(|topic| ("topic", topic)));
        self.next = Some(endpoint);
        seed.deserialize("events".into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.next.take() {
            Some(value) => seed.deserialize(Text(value).into_deserializer()),
            None => self.map.next_value_seed(seed),
        }
    }
}

/// A text that is there, for a value that may be missing.
struct Text(String);

impl<'de, E: de::Error> IntoDeserializer<'de, E> for Text {
    type Deserializer = Present<E>;

    fn into_deserializer(self) -> Present<E> {
        Present(self.0.into_deserializer())
    }
}

struct Present<E>(de::value::StringDeserializer<E>);

impl<'de, E: de::Error> Deserializer<'de> for Present<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_some(self.0)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A key of an endpoint, or the wish for another one in place of rolter's.
enum Told<K, S> {
    /// And whether it is of those that rolter's stand for.
    Own(K, bool),
    Rolters(S),
}

struct Key<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Key<S> {
    type Value = Told<S::Value, S>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let key = String::deserialize(deserializer)?;
        match key.as_str() {
            "kv_events" => Ok(Told::Rolters(self.0)),
            "lmcache" => Err(de::Error::custom(LMCACHE)),
            _ => {
                let of_events = matches!(key.as_str(), "events" | "topic");
                let key = self.0.deserialize(key.into_deserializer())?;
                Ok(Told::Own(key, of_events))
            }
        }
    }
}
