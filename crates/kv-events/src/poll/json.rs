//! The JSON list that TensorRT-LLM answers `POST /kv_cache_events` with.
//!
//! Hashes exceed 2^53 and are read as 64-bit integers. Kinds of events and fields that are not known
//! are skipped; a known event that is malformed is not.

use std::borrow::Cow;

use kvasir_inventory::EngineHash;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::event::Medium;
use kvasir_inventory::Tier;

/// One event of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Polled {
    /// Its number; each rank counts its own from 0.
    pub id: u64,
    /// The attention data-parallel rank; 0 where the engine has none.
    pub rank: u32,
    /// The attention window of its cache group, in tokens, where the engine says so.
    pub window: Option<u64>,
    /// What happened.
    pub change: Change,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A cache was created, empty.
    Created,
    /// Consecutive blocks of one prompt became reusable.
    Stored {
        /// The block before the first one; `None` at the start of a prompt.
        parent: Option<EngineHash>,
        /// The blocks; the last one may be partial.
        blocks: Vec<PolledBlock>,
    },
    /// Blocks were evicted.
    Removed(Vec<EngineHash>),
    /// A block moved to another level.
    Moved {
        /// The block.
        hash: EngineHash,
        /// Where it was.
        from: Medium,
        /// Where it is.
        to: Medium,
    },
    /// Something that changes no residency, or of an unknown kind.
    Other,
    /// A known kind that could not be read: why.
    Malformed(String),
}

/// A stored block.
#[derive(Clone, Debug, PartialEq)]
pub struct PolledBlock {
    /// The engine's handle.
    pub hash: EngineHash,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Where it lives.
    pub medium: Medium,
    /// The request's cache salt.
    pub salt: Option<String>,
    /// Something besides tokens, salt and adapter is part of it: an image, or extra ids.
    pub special: bool,
}

/// An answer that is no list of numbered events.
#[derive(Debug, thiserror::Error)]
#[error("not a list of events: {0}")]
pub struct PollError(serde_json::Error);

impl From<serde_json::Error> for PollError {
    fn from(error: serde_json::Error) -> Self {
        Self(error)
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    event_id: u64,
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(default)]
    window_size: Option<u64>,
    #[serde(default)]
    attention_dp_rank: Option<u32>,
}

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Hash {
    Unsigned(u64),
    Signed(i64),
    Text(String),
}

#[derive(Deserialize)]
struct Stored {
    parent_hash: Option<Hash>,
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    block_hash: Hash,
    tokens: Vec<Token>,
    #[serde(default)]
    cache_level: u64,
    #[serde(default)]
    mm_keys: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    cache_salt: Option<String>,
}

#[derive(Deserialize)]
struct Token {
    token_id: u32,
    #[serde(default)]
    token_extra_id: Option<u64>,
}

#[derive(Deserialize)]
struct Removed {
    block_hashes: Vec<Hash>,
}

#[derive(Deserialize)]
struct Updated {
    block_hash: Hash,
    #[serde(default)]
    cache_level: Option<Level>,
}

#[derive(Deserialize)]
struct Level {
    new_value: u64,
    old_value: u64,
}

/// Reads one answer.
///
/// # Errors
/// The body is no list of numbered events: what it held is lost.
pub fn decode_polled(body: &[u8]) -> Result<Vec<Polled>, PollError> {
    let events: Vec<Envelope<'_>> = serde_json::from_slice(body)?;
    Ok(events.iter().map(Envelope::read).collect())
}

impl Envelope<'_> {
    fn read(&self) -> Polled {
        let change = change(self.data.get()).unwrap_or_else(|e| Change::Malformed(e.to_string()));
        let rank = self.attention_dp_rank.unwrap_or(0);
        Polled { id: self.event_id, rank, window: self.window_size, change }
    }
}

fn change(data: &str) -> Result<Change, serde_json::Error> {
    // An event that does not say what it is may be anything, a removal too.
    let tag: Tag<'_> = serde_json::from_str(data)?;
    match &*tag.kind {
        "created" => Ok(Change::Created),
        "stored" => {
            let stored: Stored = serde_json::from_str(data)?;
            let blocks: Result<_, _> = stored.blocks.into_iter().map(Block::read).collect();
            let parent = stored.parent_hash.map(Hash::read).transpose()?;
            Ok(Change::Stored { parent, blocks: blocks? })
        }
        "removed" => {
            let removed: Removed = serde_json::from_str(data)?;
            let hashes: Result<_, _> = removed.block_hashes.into_iter().map(Hash::read).collect();
            Ok(Change::Removed(hashes?))
        }
        "updated" => {
            let updated: Updated = serde_json::from_str(data)?;
            let hash = updated.block_hash.read()?;
            Ok(updated.cache_level.map_or(Change::Other, |level| Change::Moved {
                hash,
                from: medium(level.old_value),
                to: medium(level.new_value),
            }))
        }
        _ => Ok(Change::Other),
    }
}

impl Hash {
    fn read(self) -> Result<EngineHash, serde_json::Error> {
        match self {
            Self::Unsigned(value) => Ok(EngineHash(value)),
            Self::Signed(value) => Ok(EngineHash(value.cast_unsigned())),
            // `v2_sha256`: the digest in hexadecimal.
            Self::Text(text) => unhex(&text)
                .map(|digest| EngineHash::from_digest(&digest))
                .ok_or_else(|| serde::de::Error::custom("a hash that is no hexadecimal digest")),
        }
    }
}

impl Block {
    fn read(self) -> Result<PolledBlock, serde_json::Error> {
        let extra = self.tokens.iter().any(|token| token.token_extra_id.is_some_and(|id| id != 0));
        Ok(PolledBlock {
            hash: self.block_hash.read()?,
            special: extra || self.mm_keys.is_some_and(|keys| !keys.is_empty()),
            tokens: self.tokens.into_iter().map(|token| token.token_id).collect(),
            medium: medium(self.cache_level),
            salt: self.cache_salt.filter(|salt| !salt.is_empty()),
        })
    }
}

/// Level 0 is the device, level 1 the host.
fn medium(level: u64) -> Medium {
    match level {
        0 => Medium::Known(Tier::Device),
        1 => Medium::Known(Tier::Host),
        other => Medium::Unknown(format!("level {other}")),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    // Parsing alone would take a sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.is_empty() || !text.len().is_multiple_of(2) || !digits {
        return None;
    }
    let pairs = text.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).ok());
    pairs.map(|two| u8::from_str_radix(two?, 16).ok()).collect()
}
