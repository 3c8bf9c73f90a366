//! What a pool's blocks are known by: their tokens, or the engine's own hashes.

use std::fmt;

use kvasir_kv_hash::vllm;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::secret::mask;
use crate::suggest::hint;

/// The name of SGLang's page hashes among the algorithms.
const SGLANG: &str = "sha256_sglang";

/// What a pool's blocks are known by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BlockIdentity {
    /// The tokens in the engines' events: nothing has to agree with the engines.
    #[default]
    Tokens,
    /// The engines' own hashes, computed here as they do: events need no tokens.
    Engine(EngineHashing),
}

/// How the engines of a pool hash blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineHashing {
    /// The algorithm, as the engine spells it; `sha256_sglang` for SGLang.
    #[serde(deserialize_with = "algorithm", serialize_with = "written")]
    pub algorithm: HashAlgorithm,
    /// The engines' `PYTHONHASHSEED`, letter by letter; not set by default.
    #[serde(default, serialize_with = "mask")]
    pub seed: Option<String>,
    /// The release whose contract they follow. Default: what each engine says it is.
    #[serde(default, deserialize_with = "version", serialize_with = "written_version")]
    pub version: Option<vllm::Version>,
}

/// A way of hashing that can be reproduced outside the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashAlgorithm {
    /// A value of vLLM's `--prefix-caching-hash-algo`.
    Vllm(vllm::Algorithm),
    /// SGLang's page hashes.
    Sglang,
}

impl fmt::Display for HashAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vllm(algorithm) => algorithm.fmt(f),
            Self::Sglang => f.write_str(SGLANG),
        }
    }
}

impl Serialize for BlockIdentity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Tokens => serializer.serialize_str("tokens"),
            Self::Engine(hashing) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("engine", hashing)?;
                map.end()
            }
        }
    }
}

fn written<S: Serializer>(algorithm: &HashAlgorithm, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(algorithm)
}

fn written_version<S: Serializer>(
    version: &Option<vllm::Version>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    version.as_ref().map(ToString::to_string).serialize(serializer)
}

impl<'de> Deserialize<'de> for BlockIdentity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrMap)
    }
}

/// `tokens`, or a map of the key `engine`.
struct WordOrMap;

impl<'de> Visitor<'de> for WordOrMap {
    type Value = BlockIdentity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`tokens`, or `engine` with its `algorithm` and `seed`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<BlockIdentity, E> {
        match text {
            "tokens" => Ok(BlockIdentity::Tokens),
            "engine" => Err(E::custom(
                "`engine` needs the engines' `algorithm`, and their `seed` where they have one: \
                 `identity: {engine: {algorithm: sha256_cbor, seed: '0'}}`",
            )),
            _ => {
                let hint = hint(text, ["tokens", "engine"]);
                Err(E::custom(format!("`{text}` is neither `tokens` nor `engine`{hint}")))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BlockIdentity, A::Error> {
        let mut hashing = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "engine" if hashing.is_none() => hashing = Some(map.next_value()?),
                "engine" => return Err(de::Error::duplicate_field("engine")),
                _ => return Err(de::Error::unknown_field(&key, &["engine"])),
            }
        }
        hashing.map(BlockIdentity::Engine).ok_or_else(|| de::Error::missing_field("engine"))
    }
}

fn algorithm<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HashAlgorithm, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == SGLANG {
        return Ok(HashAlgorithm::Sglang);
    }
    let reproducible = |algorithm: &vllm::Algorithm| *algorithm != vllm::Algorithm::Builtin;
    match text.parse() {
        Ok(found) if reproducible(&found) => Ok(HashAlgorithm::Vllm(found)),
        Ok(_) => Err(de::Error::custom(format!(
            "`{text}` hashes cannot be computed outside the engine's process: use `identity: tokens`"
        ))),
        Err(_) => {
            let names = vllm::Algorithm::ALL.into_iter().filter(reproducible);
            let names: Vec<&str> = names.map(vllm::Algorithm::as_str).chain([SGLANG]).collect();
            let hint = hint(&text, names.iter().copied());
            let names = names.join(", ");
            Err(de::Error::custom(format!(
                "`{text}` is no hash algorithm{hint} ({names}); for TensorRT-LLM use \
                 `identity: tokens`"
            )))
        }
    }
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<vllm::Version>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
}

impl BlockIdentity {
    /// Whether the parts fit together; the key and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        match self {
            Self::Tokens => Ok(()),
            Self::Engine(hashing) => {
                hashing.check().map_err(|(key, why)| (format!("identity.engine.{key}"), why))
            }
        }
    }
}

impl EngineHashing {
    fn check(&self) -> Result<(), (&'static str, String)> {
        match self.algorithm {
            HashAlgorithm::Sglang => self.check_sglang(),
            HashAlgorithm::Vllm(algorithm) => self.check_vllm(algorithm),
        }
    }

    fn check_sglang(&self) -> Result<(), (&'static str, String)> {
        if self.seed.is_some() {
            return Err(("seed", "SGLang's hashes have no seed".to_owned()));
        }
        let Some(version) = self.version else { return Ok(()) };
        match kvasir_kv_hash::sglang::Generation::of(version) {
            Ok(_) => Ok(()),
            Err(error) => Err(("version", error.to_string())),
        }
    }

    fn check_vllm(&self, algorithm: vllm::Algorithm) -> Result<(), (&'static str, String)> {
        use vllm::ContractError as E;
        let seed = self.seed.as_deref();
        if let Some(text) = seed.filter(|text| !vllm::python_accepts(text)) {
            let why = "Python starts with no such PYTHONHASHSEED: it takes an integer from 0 to \
                       4294967295, or `random`";
            return Err(("seed", format!("{text:?}: {why}")));
        }
        let drawn =
            |algorithm| matches!(algorithm, vllm::Algorithm::Xxhash | vllm::Algorithm::XxhashCbor);
        // Without a version, the newest decides what can be known at all.
        let newest = vllm::Generation::newest_release();
        let assumed = match algorithm {
            vllm::Algorithm::Sha256Cbor64Bit => vllm::Version::release(0, 10, 0),
            _ => newest,
        };
        match vllm::Contract::new(self.version.unwrap_or(assumed), algorithm, seed) {
            Ok(_) => Ok(()),
            Err(E::Unknowable(_)) => {
                let when = match self.version {
                    Some(_) if !drawn(algorithm) => "in this version",
                    _ => "with this algorithm",
                };
                Err((
                    "seed",
                    format!(
                        "missing: {when} engines without PYTHONHASHSEED start from random bytes; \
                         set it on the engines and here, or use `identity: tokens`"
                    ),
                ))
            }
            Err(error @ E::NotOffered { .. }) => Err(("algorithm", error.to_string())),
            Err(error) => Err(("version", error.to_string())),
        }
    }
}
