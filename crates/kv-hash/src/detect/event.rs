//! Stored events, as far as detection needs them.

use std::fmt;

use crate::digest::last_eight;

/// A block's hash as an event carries it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum EventHash {
    /// A 64-bit integer. Signed ones (SGLang) are given as the same bits, unsigned.
    Int(u64),
    /// A byte string.
    Bytes(Vec<u8>),
}

impl EventHash {
    /// Whether these bytes are this hash: all of them, or as an integer the last eight.
    pub(super) fn is_tail_of(&self, digest: &[u8]) -> bool {
        match self {
            Self::Int(int) => last_eight(digest) == *int,
            Self::Bytes(bytes) => bytes == digest,
        }
    }

    /// The same, where the integer is the first eight.
    pub(super) fn is_head_of(&self, digest: &[u8; 32]) -> bool {
        match self {
            Self::Int(int) => last_eight(&digest[..8]) == *int,
            Self::Bytes(bytes) => bytes == digest,
        }
    }

    pub(super) fn form(&self) -> Form {
        match self {
            Self::Int(_) => Form::Int,
            Self::Bytes(_) => Form::Bytes,
        }
    }
}

impl From<u64> for EventHash {
    fn from(int: u64) -> Self {
        Self::Int(int)
    }
}

impl From<i64> for EventHash {
    fn from(int: i64) -> Self {
        Self::Int(int.cast_unsigned())
    }
}

impl fmt::Debug for EventHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(int) => write!(f, "Int({int})"),
            Self::Bytes(bytes) => {
                f.write_str("Bytes(")?;
                crate::hex::write(f, bytes)?;
                f.write_str(")")
            }
        }
    }
}

/// Whether hashes are published as integers or as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// 64-bit integers.
    Int,
    /// Byte strings.
    Bytes,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int => "integer",
            Self::Bytes => "byte string",
        })
    }
}

/// One entry of an event's `extra_keys`, for one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKey<'a> {
    /// An integer: `lora_int_id` (vLLM up to 0.11.0).
    Int(i64),
    /// A string: an adapter's name, a salt, or up to 0.18 the identifier of an item.
    Text(&'a str),
    /// A pair: an item's identifier and offset.
    Item(&'a str, i64),
    /// A byte string: prompt embeddings.
    Bytes(&'a [u8]),
}

/// A `BlockStored` event. The default is empty, and any field but the first four may stay so.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredEvent<'a> {
    /// `block_hashes`.
    pub hashes: &'a [EventHash],
    /// `parent_block_hash`; `None` if the first block begins a chain.
    pub parent: Option<&'a EventHash>,
    /// `token_ids`.
    pub tokens: &'a [u32],
    /// `block_size`.
    pub block_size: usize,
    /// `lora_name`, or the name of the adapter that `lora_id` is.
    pub lora_name: Option<&'a str>,
    /// `extra_keys`: one list per block. Empty if the event has none.
    pub extra_keys: &'a [&'a [EventKey<'a>]],
    /// `cache_salt` (SGLang, TensorRT-LLM).
    pub cache_salt: Option<&'a str>,
    /// `lookahead_token_ids`: one list per block. Empty if the event has none.
    pub lookahead: &'a [&'a [u32]],
}

/// One block of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventBlock<'a> {
    pub(super) hash: &'a EventHash,
    pub(super) parent: Option<&'a EventHash>,
    pub(super) tokens: &'a [u32],
    pub(super) keys: &'a [EventKey<'a>],
    pub(super) ahead: &'a [u32],
    pub(super) event: &'a StoredEvent<'a>,
}

impl<'a> StoredEvent<'a> {
    /// The blocks, if there are as many as the tokens fill: where an engine left blocks out
    /// (sliding windows, offloading), tokens cannot be told apart.
    pub(super) fn blocks(&'a self) -> impl Iterator<Item = EventBlock<'a>> {
        let size = self.block_size.max(1);
        let aligned = self.block_size > 0 && self.hashes.len() == self.tokens.len() / size;
        let hashes = if aligned { self.hashes } else { &[] };
        let blocks = self.tokens.chunks_exact(size).zip(hashes).enumerate();
        blocks.map(move |(index, (tokens, hash))| EventBlock {
            hash,
            parent: match index.checked_sub(1) {
                None => self.parent,
                Some(before) => self.hashes.get(before),
            },
            tokens,
            keys: self.extra_keys.get(index).copied().unwrap_or_default(),
            ahead: self.lookahead.get(index).copied().unwrap_or_default(),
            event: self,
        })
    }
}

impl EventBlock<'_> {
    /// The kinds of extra keys the block carries.
    pub(super) fn key_kinds(&self) -> impl Iterator<Item = &'static str> {
        let adapter = self.event.lora_name.is_some();
        let keys = self.keys.iter().enumerate().map(move |(index, key)| match key {
            EventKey::Int(_) => "lora",
            EventKey::Text(_) if adapter && index == 0 => "lora",
            EventKey::Text(_) => "cache_salt",
            EventKey::Item(..) => "multimodal",
            EventKey::Bytes(_) => "prompt_embeds",
        });
        let salt = self.event.cache_salt.map(|_| "cache_salt");
        let lora = self.event.lora_name.map(|_| "lora");
        keys.chain(salt).chain(lora)
    }
}
