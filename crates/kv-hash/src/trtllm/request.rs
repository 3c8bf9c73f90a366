//! What a request brings besides tokens.

use sha2::{Digest as _, Sha256};

/// What a request brings besides tokens. The default is a plain text request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The adapter's `lora_task_id`.
    pub lora_task_id: Option<u64>,
    /// The request's cache salt.
    pub salt: Option<Salt>,
    /// Images and the like, in prompt order.
    pub items: Vec<MmItem>,
    /// The model's vocabulary size: the second cache manager names an item's tokens from there on.
    pub vocab_size: Option<u32>,
}

/// A cache salt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Salt {
    /// The text of the request's `cache_salt`; the second cache manager takes [`salt_id`] of it.
    Text(String),
    /// A number, as older C++ releases take (`cacheSaltID`).
    Id(u64),
}

/// The id of a salt in the second cache manager and in the engine's own router: the first 8 bytes
/// of its SHA-256, little-endian.
#[must_use]
pub fn salt_id(salt: &str) -> u64 {
    let digest: [u8; 32] = Sha256::digest(salt).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// One stretch of a multimodal item in the prompt; an item in several stretches is several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmItem {
    /// The item's content hash, most significant byte of each word first, as events carry it.
    pub hash: [u8; 32],
    /// Index of its first token in the prompt.
    pub start: usize,
    /// Its number of tokens, at least 1.
    pub length: usize,
    /// How many of the item's tokens earlier stretches hold.
    pub skipped: usize,
}

impl MmItem {
    pub(super) fn end(&self) -> usize {
        self.start.saturating_add(self.length)
    }
}
