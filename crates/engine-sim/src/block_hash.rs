//! The name of a block, and a map hasher that uses the randomness it already has.

use std::fmt;
use std::hash::{Hash, Hasher};

/// An engine's hash of one full block, 32 bytes; shorter digests are led by filler or zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockHash([u8; Self::LEN]);

impl BlockHash {
    /// Bytes of a hash.
    pub const LEN: usize = 32;

    /// A hash of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// All bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The last 8 bytes, big-endian: how events show a hash by default.
    #[must_use]
    pub fn to_u64(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl From<u64> for BlockHash {
    /// The hash whose last 8 bytes are `value` and whose other bytes are zero.
    fn from(value: u64) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[Self::LEN - 8..].copy_from_slice(&value.to_be_bytes());
        Self(bytes)
    }
}

impl Hash for BlockHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.to_u64());
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockHash(..{:016x})", self.to_u64())
    }
}

/// Passes the tail of a [`BlockHash`] through: it is uniform already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailHasher(u64);

impl Hasher for TailHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0.rotate_left(8) ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
