//! Numbers of 64 bits as text of 16 hexadecimal digits: many readers of JSON keep only 53 bits of a
//! number.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One number, for `#[serde(with)]`.
#[derive(Clone, Copy)]
struct Hex(u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = Hex;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("16 hexadecimal digits in a string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Hex, E> {
                let is_hex = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
                let number = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
                number.map(Hex).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_str(Digits)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    Hex(*number).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Hex::deserialize(deserializer).map(|hex| hex.0)
}

/// The same for a number that may be missing.
pub(super) mod option {
    use super::{Deserialize, Deserializer, Hex, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde's form")]
    pub(in super::super) fn serialize<S: Serializer>(
        number: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        number.map(Hex).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Hex>::deserialize(deserializer)?.map(|hex| hex.0))
    }
}

/// The same for several.
pub(super) mod list {
    use super::{Deserialize, Deserializer, Hex, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        numbers: &[u64],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(numbers.iter().copied().map(Hex))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u64>, D::Error> {
        Ok(Vec::<Hex>::deserialize(deserializer)?.into_iter().map(|hex| hex.0).collect())
    }
}
