//! The block hashes of one request, grown as tokens arrive.

use std::mem;
use std::ops::Range;

use super::contract::Contract;
use super::encode::Encode;
use super::error::ContractError;
use super::extras::{Extras, Key};
use super::hasher::{Block, BlockHasher, WriteKeys};
use crate::digest::Digest;
use crate::windows::Windows;

/// The block hashes of one request under one [`Contract`].
///
/// [`append`](Chain::append) takes tokens in pieces of any size; the digests are the same as for
/// all of them at once, and each block is hashed once. Clone a chain to branch from it. Buffers
/// are reused: a block costs no allocation of its own.
///
/// These are the hashes a new request looks up. Up to 0.18, an engine that *decodes* a block
/// which starts exactly where the prompt's last image ended adds that image's key to it, and so
/// names it differently from its own next lookup; chains follow the lookup.
#[derive(Clone, Debug)]
pub struct Chain {
    contract: Contract,
    block_size: usize,
    extras: Extras,
    digests: Vec<Digest>,
    /// Blocks and their lookahead.
    windows: Windows<u32>,
    hasher: BlockHasher,
    keys: Vec<Key>,
}

impl Chain {
    pub(super) fn new(contract: Contract, block_size: usize, extras: Extras) -> Self {
        Self {
            contract,
            block_size,
            extras,
            digests: Vec::new(),
            windows: Windows::new(block_size, contract.lookahead()),
            hasher: contract.hasher(),
            keys: Vec::new(),
        }
    }

    /// Adds tokens and returns the digests of the blocks they complete.
    ///
    /// With lookahead hashing a block is complete only once its lookahead tokens are there.
    pub fn append(&mut self, tokens: &[u32]) -> &[Digest] {
        let first_new = self.digests.len();
        let mut windows = mem::take(&mut self.windows);
        let tail = windows.tail().len();
        self.digests.reserve((tail + tokens.len()) / self.block_size);
        let mut rest = windows.fill(tokens, |window| self.hash_block(window));
        if self.extras.is_empty() && self.contract.lookahead() == 0 {
            let parent = self.parent();
            self.hasher.hash_plain_blocks(parent, rest, self.block_size, &mut self.digests);
            rest = &rest[rest.len() - rest.len() % self.block_size..];
        }
        while let Some(window) = windows.first_of(rest) {
            self.hash_block(window);
            rest = &rest[self.block_size..];
        }
        windows.keep(rest);
        self.windows = windows;
        &self.digests[first_new..]
    }

    /// The digests of all blocks so far.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// How many tokens have been appended, hashed or not.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.digests.len() * self.block_size + self.windows.tail().len()
    }

    /// Tokens per block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// The contract this chain follows.
    #[must_use]
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// The exact bytes that were hashed for the newest block; none before the first.
    ///
    /// When a digest differs from an engine's, these are what to compare.
    #[must_use]
    pub fn preimage(&self) -> Option<&[u8]> {
        (!self.digests.is_empty()).then(|| self.hasher.preimage())
    }

    /// The hash of the tokens after the last block as if they were one.
    pub(crate) fn partial(&self) -> Option<Digest> {
        let tokens = self.windows.tail();
        let block = Block { tokens, ..Block::default() };
        (!tokens.is_empty()).then(|| self.hasher.clone().hash_checked(&self.parent(), &block))
    }

    fn parent(&self) -> Digest {
        self.digests.last().copied().unwrap_or(self.contract.none_hash())
    }

    /// Hashes the next block: `window` is its tokens and then its lookahead tokens.
    #[inline]
    fn hash_block(&mut self, window: &[u32]) {
        let start = self.digests.len() * self.block_size;
        let covered = start..start + window.len();
        if !self.extras.is_empty() {
            self.extras.collect(&mut self.keys, &covered, start + self.block_size);
        }
        let parent = self.parent();
        let keys = WindowKeys { extras: &self.extras, keys: &self.keys, covered };
        let tokens = window.split_at(self.block_size);
        let digest = self.hasher.hash_with(&parent, tokens, self.keys.len(), &keys);
        self.digests.push(digest);
    }
}

/// The extra keys of one block of a request.
struct WindowKeys<'a> {
    extras: &'a Extras,
    keys: &'a [Key],
    covered: Range<usize>,
}

impl WriteKeys for WindowKeys<'_> {
    fn write<E: Encode>(&self, out: &mut E) {
        self.keys.iter().for_each(|&key| self.extras.write(out, key, &self.covered));
    }
}

/// Signed ids, as JSON and many tokenizers give them, as the ids a [`Chain`] takes.
///
/// # Errors
/// [`ContractError::TokenOutOfRange`] with the first id below 0 or above 4294967295.
pub fn token_ids(ids: &[i64]) -> Result<Vec<u32>, ContractError> {
    let check = |(index, &token): (usize, &i64)| {
        u32::try_from(token).map_err(|_| ContractError::TokenOutOfRange { index, token })
    };
    ids.iter().enumerate().map(check).collect()
}
