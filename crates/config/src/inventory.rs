//! What the picture of the engines' caches may take of the gateway's memory.

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use crate::bounds::{MOST_MEMORY_BYTES, within};

/// Below this the picture of a single engine would be worth nothing.
const LEAST_BYTES: usize = 1 << 20;
/// The same for one endpoint's share.
const LEAST_ENDPOINT_BYTES: usize = 64 << 10;

/// Bounds on the bytes of the inventory of cached blocks. What does not fit is given up, which
/// costs routing quality and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InventoryConfig {
    /// Bytes in all. Default 4 GiB, some 10^8 blocks; 1 MiB to 16 TiB.
    #[serde(deserialize_with = "bytes")]
    pub max_bytes: usize,
    /// Bytes that one endpoint (a rank of an engine, where it has several) may be charged for, at
    /// least 64 KiB. Default: all of `max_bytes`.
    #[serde(deserialize_with = "endpoint_bytes")]
    pub max_endpoint_bytes: Option<usize>,
}

impl Default for InventoryConfig {
    fn default() -> Self {
        Self { max_bytes: 4 << 30, max_endpoint_bytes: None }
    }
}

impl InventoryConfig {
    /// What one endpoint may be charged for.
    #[must_use]
    pub fn endpoint_bytes(&self) -> usize {
        self.max_endpoint_bytes.unwrap_or(self.max_bytes)
    }

    pub(crate) fn check(&self) -> Result<(), (String, String)> {
        within("max_bytes", &self.max_bytes, &LEAST_BYTES, &MOST_MEMORY_BYTES)?;
        if self.endpoint_bytes() > self.max_bytes {
            let message = format!("must not be above `max_bytes` ({})", self.max_bytes);
            return Err(("max_endpoint_bytes".to_owned(), message));
        }
        Ok(())
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    at_least(LEAST_BYTES, usize::deserialize(deserializer)?)
}

fn endpoint_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    at_least(LEAST_ENDPOINT_BYTES, usize::deserialize(deserializer)?).map(Some)
}

fn at_least<E: de::Error>(least: usize, bytes: usize) -> Result<usize, E> {
    if bytes < least {
        return Err(E::custom(format!("{bytes} bytes are too few: at least {least}")));
    }
    Ok(bytes)
}
