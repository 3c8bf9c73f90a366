//! Digests of vLLM's and LoxiLB's contracts, and the two forms in which they are shown to others.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::buffer::put_big_endian;
use crate::hex;
use crate::shown::shown;

/// The full hash of one block: 32 bytes of SHA-256, 16 of XXH3-128, or 8 of `sha256_cbor_64bit`.
///
/// Parses from hex of 1 to 32 bytes, and prints as such.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest {
    /// The first `len` bytes, and then zeros.
    bytes: [u8; 32],
    len: u8,
}

impl Digest {
    /// The most bytes a digest has.
    pub const MAX_LEN: usize = 32;

    /// A digest of these bytes, for example from an event in bytes form.
    ///
    /// # Errors
    /// [`BadDigest`] unless there are 1 to 32 of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadDigest> {
        let mut digest = Self { bytes: [0; 32], len: bytes.len() as u8 };
        match digest.bytes.get_mut(..bytes.len()) {
            Some(out) if !bytes.is_empty() => out.copy_from_slice(bytes),
            _ => return Err(BadDigest { text: format!("{} bytes", bytes.len()) }),
        }
        Ok(digest)
    }

    #[inline]
    pub(crate) fn new32(bytes: [u8; 32]) -> Self {
        Self { bytes, len: 32 }
    }

    /// A SHA-256 digest from the function's state.
    #[inline]
    pub(crate) fn of_words(words: &[u32; 8]) -> Self {
        let mut digest = Self { bytes: [0; 32], len: 32 };
        put_big_endian(&mut digest.bytes, words);
        digest
    }

    #[inline]
    pub(crate) fn new16(half: [u8; 16]) -> Self {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&half);
        Self { bytes, len: 16 }
    }

    #[inline]
    pub(crate) fn new8(quarter: [u8; 8]) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&quarter);
        Self { bytes, len: 8 }
    }

    /// The digest as events carry it when `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0`.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }

    /// The digest as events carry it by default: its last 8 bytes, big-endian, unsigned.
    #[inline]
    #[must_use]
    pub fn to_u64(&self) -> u64 {
        last_eight(self.as_bytes())
    }

    /// The engine's internal cache key: the digest and the KV-cache group id, 4 bytes big-endian.
    ///
    /// Events never carry it; from 0.20.0 they name the group in `group_idx`.
    #[must_use]
    pub fn with_group_id(&self, group: u32) -> Vec<u8> {
        [self.as_bytes(), &group.to_be_bytes()].concat()
    }
}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(")?;
        hex::write(f, self.as_bytes())?;
        f.write_str(")")
    }
}

impl fmt::Display for Digest {
    /// Lower-case hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, self.as_bytes())
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    /// # Errors
    /// [`BadDigest`] unless the text is hex of 1 to 32 whole bytes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; Self::MAX_LEN];
        match hex::read(text, &mut bytes) {
            Some(len @ 1..) => Ok(Self { bytes, len: len as u8 }),
            _ => Err(BadDigest { text: shown(text) }),
        }
    }
}

/// The text or bytes are no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a digest (expected 1 to 32 bytes, written in hex)")]
pub struct BadDigest {
    /// What was given, shortened.
    pub text: String,
}

/// The hash of a block of a KV-cache group whose block is a multiple of the hashed block.
///
/// Made by [`Contract::group_hashes`](crate::vllm::Contract::group_hashes).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GroupHash(Box<[u8]>);

impl GroupHash {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
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
        hex::write(f, &self.0)?;
        f.write_str(")")
    }
}

/// The last 8 bytes as a big-endian integer; shorter input counts as if led by zeros.
#[inline]
pub(crate) fn last_eight(bytes: &[u8]) -> u64 {
    match bytes.last_chunk::<8>() {
        Some(tail) => u64::from_be_bytes(*tail),
        None => bytes.iter().fold(0, |n, &b| (n << 8) | u64::from(b)),
    }
}

/// The first 8 bytes of a SHA-256 digest as a big-endian integer.
#[inline]
pub(crate) fn first_eight(digest: &[u8; 32]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
