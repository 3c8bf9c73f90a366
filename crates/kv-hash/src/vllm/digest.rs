//! Digests, and the two forms in which an engine shows them to others.

use std::fmt;

/// The engine's full hash of one block: 32 bytes for `sha256_cbor`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    pub(super) fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest as events carry it when `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The digest as events carry it by default: its last 8 bytes, big-endian, unsigned.
    #[must_use]
    pub fn to_u64(&self) -> u64 {
        last_eight(&self.0)
    }

    /// The engine's internal cache key: the digest and the KV-cache group id, 4 bytes big-endian.
    ///
    /// Events never carry it; from 0.20.0 they name the group in `group_idx`.
    #[must_use]
    pub fn with_group_id(&self, group: u32) -> Vec<u8> {
        [self.as_bytes(), &group.to_be_bytes()].concat()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(")?;
        write_hex(f, &self.0)?;
        f.write_str(")")
    }
}

impl fmt::Display for Digest {
    /// Lower-case hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// The hash of a block of a KV-cache group whose block is a multiple of the hashed block.
///
/// Made by [`Contract::group_hashes`](super::Contract::group_hashes).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GroupHash(Box<[u8]>);

impl GroupHash {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// The hash as events carry it when `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The hash as events carry it by default: its last 8 bytes, big-endian, unsigned.
    #[must_use]
    pub fn to_u64(&self) -> u64 {
        last_eight(&self.0)
    }
}

impl fmt::Debug for GroupHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupHash(")?;
        write_hex(f, &self.0)?;
        f.write_str(")")
    }
}

/// The last 8 bytes as a big-endian integer; shorter input counts as if led by zeros.
fn last_eight(bytes: &[u8]) -> u64 {
    let tail = &bytes[bytes.len().saturating_sub(8)..];
    tail.iter().fold(0, |n, &b| (n << 8) | u64::from(b))
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}
