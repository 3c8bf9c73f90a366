//! What an engine says it stored, and what became of it.

use std::cmp::Ordering;

use kvasir_kv_hash::{BlockExtra, BlockKey};

use crate::terms::{EngineHash, Tier};

/// What kind of attention a cache group serves, and thereby when it holds a prefix of b blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// When every block of the prefix is there.
    FullAttention,
    /// When the blocks of the last window before b are there: those of the `tokens` − 1 tokens
    /// that the token after the prefix looks back to (vLLM's `kv_cache_spec_sliding_window`).
    SlidingWindow {
        /// The window, in tokens.
        tokens: u32,
    },
    /// When the state at b is there, which comes with the last block (Mamba).
    State,
    /// Not known: endpoints with such a group get no credit.
    Unsupported,
}

impl GroupKind {
    /// How many blocks at the end of a prefix it needs.
    pub(crate) fn blocks(self, block_size: u32) -> u32 {
        match self {
            Self::FullAttention => u32::MAX,
            Self::SlidingWindow { tokens } => {
                tokens.saturating_sub(1).div_ceil(block_size.max(1)).max(1)
            }
            Self::State => 1,
            // Never asked: the gate of such an endpoint is closed.
            Self::Unsupported => u32::MAX,
        }
    }

    /// Whether events of such a group may leave out blocks of the tokens they carry.
    fn skips_blocks(self) -> bool {
        matches!(self, Self::SlidingWindow { .. } | Self::State)
    }
}

/// One KV-cache group of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The engine's number for it; 0 where it has only one.
    pub index: u8,
    /// Its kind.
    pub kind: GroupKind,
}

/// What a block is known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// Its tokens and extras: no hash, seed or flag has to agree with the engine's.
    #[default]
    Tokens,
    /// The engine's own hashes, of it and of all blocks before it: events need no tokens, and
    /// prompts are keyed by [`Inventory::engine_keys`](crate::Inventory::engine_keys).
    Engine,
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
    /// The tokens after each block that enter its identity (vLLM 0.33 with EAGLE or MTP); empty,
    /// or one list a block.
    pub lookahead: &'a [Vec<u32>],
    /// What the blocks are known by.
    pub identity: Identity,
    /// Where the blocks live.
    pub tier: Tier,
    /// The cache group they belong to.
    pub group: Group,
}

/// How the parts of a [`StoredBlocks`] fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each block follows the one before it.
    Chain,
    /// The blocks are told by their handles alone.
    Handles,
    /// Not at all.
    Broken,
}

impl<'a> StoredBlocks<'a> {
    pub(crate) fn shape(&self) -> Shape {
        if self.group.kind == GroupKind::Unsupported {
            return Shape::Broken;
        }
        let blocks = self.hashes.len();
        let size = self.block_size as usize;
        let tokens = blocks.checked_mul(size).filter(|_| size > 0);
        let tokens = tokens.map(|tokens| self.tokens.len().cmp(&tokens));
        if self.identity == Identity::Engine {
            // Offload events have no parent even in the middle of a prompt.
            let placed = self.parent.is_some() || self.tier == Tier::Device;
            let whole = !self.group.kind.skips_blocks() || tokens == Some(Ordering::Equal);
            return if placed && whole { Shape::Chain } else { Shape::Handles };
        }
        if self.tokens.is_empty() {
            return Shape::Handles;
        }
        let lists = [self.extras.len(), self.lookahead.len()];
        match tokens {
            Some(Ordering::Equal) if lists.iter().all(|n| *n == 0 || *n == blocks) => Shape::Chain,
            // Which blocks were left out is not said; other groups have told what the handles are.
            Some(Ordering::Greater) if self.group.kind.skips_blocks() => Shape::Handles,
            _ => Shape::Broken,
        }
    }

    /// The blocks of a [`Shape::Chain`], in order.
    pub(crate) fn contents(&self) -> impl Iterator<Item = Content<'a>> + use<'a> {
        let Self { hashes, tokens, block_size, extras, lookahead, identity, .. } = *self;
        let size = block_size as usize;
        hashes.iter().enumerate().map(move |(at, hash)| match identity {
            // The engine's hash covers all else.
            Identity::Engine => {
                Content { hash: *hash, tokens: Tokens::Engine, extras: &[], lookahead: &[] }
            }
            Identity::Tokens => Content {
                hash: *hash,
                tokens: Tokens::Read(tokens.get(at * size..(at + 1) * size).unwrap_or_default()),
                extras: extras.get(at).map_or(&[], Vec::as_slice),
                lookahead: lookahead.get(at).map_or(&[], Vec::as_slice),
            },
        })
    }
}

/// One block of a [`StoredBlocks`] that lines up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) hash: EngineHash,
    pub(crate) tokens: Tokens<'a>,
    pub(crate) extras: &'a [BlockExtra<'a>],
    pub(crate) lookahead: &'a [u32],
}

/// What a block is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tokens<'a> {
    Read(&'a [u32]),
    /// Nobody asks: its handle stands for it.
    Engine,
}

/// What became of a [`StoredBlocks`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Blocks now credited.
    pub stored: usize,
    /// Blocks kept aside because their parent is unknown, or what their handle stands for.
    pub orphaned: usize,
    /// Blocks that could not be understood and were left out.
    pub refused: usize,
    /// Blocks for which there was no room within the byte budget.
    pub given_up: usize,
}
