//! The events themselves, in one shape for all engines and versions.

use kvasir_inventory::{EngineHash, Tier};

/// A block's hash as the publisher wrote it, whole: what [`crate::decode_published`] keeps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PublishedHash {
    /// A 64-bit integer; negative ones (SGLang) as the same bits.
    Int(u64),
    /// A digest of at least one byte.
    Bytes(Vec<u8>),
}

/// What a decoded event holds of a block's hash.
pub(crate) trait Handle: Sized {
    /// From an integer; negative ones as the same bits.
    fn from_int(int: u64) -> Self;
    /// From a digest, never empty.
    fn from_digest(digest: &[u8]) -> Self;
}

impl Handle for EngineHash {
    fn from_int(int: u64) -> Self {
        Self(int)
    }

    fn from_digest(digest: &[u8]) -> Self {
        Self::from_digest(digest)
    }
}

impl Handle for PublishedHash {
    fn from_int(int: u64) -> Self {
        Self::Int(int)
    }

    fn from_digest(digest: &[u8]) -> Self {
        Self::Bytes(digest.to_vec())
    }
}

/// One published batch: what one scheduler step changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch<H = EngineHash> {
    /// When the engine made it, seconds since the epoch by the engine's clock.
    pub ts: f64,
    /// The data-parallel rank that published it; `None` where the engine left it out.
    pub rank: Option<u32>,
    /// The events, in the order they happened.
    pub events: Vec<Event<H>>,
    /// Events of kinds this version of Kvasir does not know; they were skipped.
    pub unknown_events: u32,
}

/// One change of an engine's prefix cache.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<H = EngineHash> {
    /// Blocks became reusable (`BlockStored`).
    Stored(BlockStored<H>),
    /// Blocks were evicted (`BlockRemoved`).
    Removed(BlockRemoved<H>),
    /// The whole cache was emptied, every tier of it (`AllBlocksCleared`).
    Cleared,
}

/// Consecutive blocks of one prompt that became reusable.
///
/// Fields an engine does not publish are `None` or empty. `ownership` and `session_id` are
/// skipped: they say nothing about which request can use a block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockStored<H = EngineHash> {
    /// The engine's handles, in prompt order.
    pub block_hashes: Vec<H>,
    /// The block before the first one; `None` at the start of a prompt, and in offload events.
    pub parent: Option<H>,
    /// The tokens of all blocks; empty in offload events. May be longer than
    /// `block_hashes.len() * block_size` where the engine skips blocks (sliding window, Mamba):
    /// then tokens and hashes must not be zipped.
    pub token_ids: Vec<u32>,
    /// Tokens per block; 0 in placeholder events of offload connectors.
    pub block_size: u32,
    /// The engine's own number of the adapter (deprecated there; not comparable between engines).
    pub lora_id: Option<i64>,
    /// The adapter's name (vLLM 0.14, SGLang 0.5.22).
    pub lora_name: Option<String>,
    /// Where the blocks live.
    pub medium: Medium,
    /// What was hashed besides the tokens, one list a block, as published (vLLM 0.17); `None`
    /// where the engine does not say. Read it through [`BlockStored::extras`].
    pub extra_keys: Option<Vec<Vec<ExtraKey>>>,
    /// The request's `cache_salt`, where the engine gives it a field of its own (SGLang 0.5.18).
    pub cache_salt: Option<String>,
    /// The cache group (vLLM 0.20); `None` means the only one.
    pub group: Option<u32>,
    /// What kind of attention the group serves (vLLM 0.22).
    pub spec_kind: Option<SpecKind>,
    /// The group's window in tokens (vLLM 0.22).
    pub sliding_window: Option<u64>,
    /// The tokens after each block that entered its hash (vLLM 0.33 with EAGLE or MTP; the second
    /// halves of SGLang's token pairs).
    pub lookahead_token_ids: Option<Vec<Vec<u32>>>,
    /// Which readings of `extra_keys` the event's form allows.
    pub schema: Schema,
}

/// Blocks that were evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRemoved<H = EngineHash> {
    /// The engine's handles.
    pub block_hashes: Vec<H>,
    /// The tier they left.
    pub medium: Medium,
    /// The cache group they left (vLLM 0.20); `None` means the only one.
    pub group: Option<u32>,
}

/// Where blocks live, as far as Kvasir can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A tier Kvasir knows. Events without a medium (vLLM before 0.10.2) mean [`Tier::Device`].
    Known(Tier),
    /// Some other place, in the engine's word. A store there earns no credit; a removal from
    /// there must be applied to every tier.
    Unknown(String),
}

impl Medium {
    /// The tier, if it is one Kvasir knows.
    #[must_use]
    pub fn tier(&self) -> Option<Tier> {
        match self {
            Self::Known(tier) => Some(*tier),
            Self::Unknown(_) => None,
        }
    }

    /// Reads the fields `medium` and `locality`, in any case.
    pub(crate) fn read(medium: Option<&str>, locality: Option<&str>) -> Self {
        match locality {
            Some(l) if l.eq_ignore_ascii_case("remote") => return Self::Known(Tier::Remote),
            Some(l) if !l.eq_ignore_ascii_case("local") => {
                return Self::Unknown(format!("{} {l}", medium.unwrap_or("")));
            }
            _ => {}
        }
        let Some(word) = medium else { return Self::Known(Tier::Device) };
        const WORDS: [(&str, Tier); 6] = [
            ("gpu", Tier::Device),
            ("cpu", Tier::Host),
            ("cpu_pinned", Tier::Host),
            ("disk", Tier::Disk),
            ("storage", Tier::Disk),
            ("external", Tier::Remote),
        ];
        WORDS
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(word))
            .map_or_else(|| Self::Unknown(word.to_owned()), |(_, tier)| Self::Known(*tier))
    }
}

/// What kind of attention a cache group serves (`kv_cache_spec_kind`, vLLM 0.22 and newer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecKind {
    /// `full_attention`.
    FullAttention,
    /// `mla_attention`.
    MlaAttention,
    /// `sink_full_attention`.
    SinkFullAttention,
    /// `sliding_window`.
    SlidingWindow,
    /// `sliding_window_mla`.
    SlidingWindowMla,
    /// `chunked_local_attention`.
    ChunkedLocalAttention,
    /// `mamba`.
    Mamba,
    /// `encoder_only_attention`.
    EncoderOnlyAttention,
    /// `cross_attention`.
    CrossAttention,
    /// Any other word, `unknown` among them.
    Other(String),
}

impl SpecKind {
    pub(crate) fn read(word: &str) -> Self {
        match word {
            "full_attention" => Self::FullAttention,
            "mla_attention" => Self::MlaAttention,
            "sink_full_attention" => Self::SinkFullAttention,
            "sliding_window" => Self::SlidingWindow,
            "sliding_window_mla" => Self::SlidingWindowMla,
            "chunked_local_attention" => Self::ChunkedLocalAttention,
            "mamba" => Self::Mamba,
            "encoder_only_attention" => Self::EncoderOnlyAttention,
            "cross_attention" => Self::CrossAttention,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The engine's word for it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::FullAttention => "full_attention",
            Self::MlaAttention => "mla_attention",
            Self::SinkFullAttention => "sink_full_attention",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingWindowMla => "sliding_window_mla",
            Self::ChunkedLocalAttention => "chunked_local_attention",
            Self::Mamba => "mamba",
            Self::EncoderOnlyAttention => "encoder_only_attention",
            Self::CrossAttention => "cross_attention",
            Self::Other(word) => word,
        }
    }
}

/// One published extra key of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraKey {
    /// A bare string: an adapter's name, a salt, or (vLLM 0.17 and 0.18) an image's identifier.
    Text(String),
    /// Bytes: the digest of prompt embeddings.
    Bytes(Vec<u8>),
    /// An image, audio clip or video: its identifier and where it starts, relative to the block's
    /// first token (vLLM 0.19 and newer).
    Item {
        /// The identifier.
        identifier: String,
        /// Its start less the block's start; may be negative.
        offset: i64,
    },
    /// A shape this version of Kvasir does not know.
    Unknown,
}

/// What an event's form tells about the generation of its `extra_keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// An array of at most 9 elements (vLLM up to 0.19): a bare string may be an image's
    /// identifier.
    Early,
    /// A longer array or a map (vLLM 0.20 and newer): images are pairs, a bare string is not.
    Paired,
}
