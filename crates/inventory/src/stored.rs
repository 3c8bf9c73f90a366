//! What an engine says it stored, and what became of it.

use kvasir_kv_hash::{BlockExtra, BlockKey};

use crate::terms::{EngineHash, Tier};

/// What kind of attention a cache group serves, and thereby when it holds a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Holds a prefix when every block of it is there.
    FullAttention,
    /// Any other kind: endpoints with such a group get no credit yet.
    Unsupported,
}

/// One KV-cache group of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The engine's number for it; 0 where it has only one.
    pub index: u8,
    /// Its kind.
    pub kind: GroupKind,
}

/// Consecutive blocks that an engine says it stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredBlocks<'a> {
    /// The block before the first one; `None` at the start of a prompt.
    pub parent: Option<EngineHash>,
    /// The chain's root, used where there is no parent.
    pub root: BlockKey,
    /// The engine's handles, in prompt order.
    pub hashes: &'a [EngineHash],
    /// The tokens of all blocks, in order; empty where the engine sends none.
    pub tokens: &'a [u32],
    /// Tokens per block.
    pub block_size: u32,
    /// Non-token identities per block; empty, or one list a block.
    pub extras: &'a [Vec<BlockExtra<'a>>],
    /// Where the blocks live.
    pub tier: Tier,
    /// The cache group they belong to.
    pub group: Group,
}

impl<'a> StoredBlocks<'a> {
    /// The blocks in order, when tokens and extras line up with the handles; `None` otherwise.
    pub(crate) fn contents(&self) -> Option<impl Iterator<Item = Content<'a>> + use<'a>> {
        let size = usize::try_from(self.block_size).ok().filter(|size| *size > 0)?;
        let (hashes, extras) = (self.hashes, self.extras);
        if hashes.len().checked_mul(size)? != self.tokens.len() {
            return None;
        }
        if !extras.is_empty() && extras.len() != hashes.len() {
            return None;
        }
        let blocks = hashes.iter().zip(self.tokens.chunks_exact(size)).enumerate();
        Some(blocks.map(move |(at, (hash, tokens))| Content {
            hash: *hash,
            tokens,
            extras: extras.get(at).map_or(&[], Vec::as_slice),
        }))
    }
}

/// One block of a [`StoredBlocks`] that lines up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) hash: EngineHash,
    pub(crate) tokens: &'a [u32],
    pub(crate) extras: &'a [BlockExtra<'a>],
}

/// What became of a [`StoredBlocks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Blocks now credited.
    pub stored: usize,
    /// Blocks kept aside because their parent is unknown.
    pub orphaned: usize,
    /// Blocks that could not be understood and were left out.
    pub refused: usize,
}
