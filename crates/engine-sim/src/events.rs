//! KV events: what a step changed in the prefix cache.
//!
//! Fields are those of vLLM 0.33; [`EventFormat`] leaves out what a release does not have. The
//! model itself never sets `sliding_window`, `locality`, `ownership` and `lookahead_token_ids`.

mod encode;
mod msgpack;

use std::sync::Arc;

use crate::block_hash::BlockHash;

pub use self::encode::{EventFormat, HashForm};

/// One change of the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Blocks became reusable.
    Stored(Box<BlockStored>),
    /// Blocks were evicted.
    Removed(BlockRemoved),
    /// The whole cache was emptied.
    Cleared,
}

/// Consecutive blocks of one request that became reusable (`BlockStored`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockStored {
    /// The blocks, in prompt order.
    pub block_hashes: Vec<BlockHash>,
    /// The block before the first one; `None` at the start of a prompt.
    pub parent_block_hash: Option<BlockHash>,
    /// The tokens of all blocks.
    pub token_ids: Vec<u32>,
    /// Tokens per block.
    pub block_size: u32,
    /// The adapter's `lora_int_id`.
    pub lora_id: Option<u64>,
    /// Where the blocks live: `GPU`.
    pub medium: Option<&'static str>,
    /// The adapter's name.
    pub lora_name: Option<Arc<str>>,
    /// What was hashed besides the tokens, one list a block; an empty list is published as nil.
    pub extra_keys: Option<Vec<Vec<ExtraKey>>>,
    /// The cache group: 0.
    pub group_idx: Option<u32>,
    /// The kind of attention of the group: `full_attention`.
    pub kv_cache_spec_kind: Option<&'static str>,
    /// The group's window in tokens.
    pub kv_cache_spec_sliding_window: Option<u64>,
    /// `LOCAL` or `REMOTE`.
    pub locality: Option<&'static str>,
    /// The offload tier.
    pub ownership: Option<Arc<str>>,
    /// The session whose request stored the blocks.
    pub session_id: Option<Arc<str>>,
    /// The tokens after each block that entered its hash.
    pub lookahead_token_ids: Option<Vec<Vec<u32>>>,
}

/// Evicted blocks (`BlockRemoved`); vLLM's pool publishes one event for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRemoved {
    /// The blocks.
    pub block_hashes: Vec<BlockHash>,
    /// Where they lived.
    pub medium: Option<&'static str>,
    /// The cache group.
    pub group_idx: Option<u32>,
    /// `LOCAL` or `REMOTE`.
    pub locality: Option<&'static str>,
    /// The offload tier.
    pub ownership: Option<Arc<str>>,
}

/// One extra key of a block, as published: without the tags that are hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraKey {
    /// An adapter's name or a cache salt; before 0.19 also the identifier of an item.
    Text(Arc<str>),
    /// An image or the like.
    Item {
        /// vLLM's identifier of the item.
        identifier: Arc<str>,
        /// Its start less the block's start.
        offset: i64,
    },
    /// The digest of prompt embeddings.
    Bytes(Vec<u8>),
}

/// `medium` of blocks in device memory.
pub(crate) const GPU: &str = "GPU";
/// `kv_cache_spec_kind` of the one group there is.
pub(crate) const FULL_ATTENTION: &str = "full_attention";
