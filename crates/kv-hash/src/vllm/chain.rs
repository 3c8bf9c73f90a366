//! The block hashes of one request, grown as tokens arrive.

use std::mem;
use std::ops::Range;

use super::contract::Contract;
use super::encode::Encode;
use super::error::ContractError;
use super::extras::{Extras, Key};
use super::hasher::{BlockHasher, WriteKeys};
use crate::digest::Digest;

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
    /// Tokens after the last hashed block: fewer than a block and its lookahead.
    tail: Vec<u32>,
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
            tail: Vec::new(),
            hasher: contract.hasher(),
            keys: Vec::new(),
        }
    }

    /// Adds tokens and returns the digests of the blocks they complete.
    ///
    /// With lookahead hashing a block is complete only once its lookahead tokens are there.
    pub fn append(&mut self, tokens: &[u32]) -> &[Digest] {
        let first_new = self.digests.len();
        let need = self.block_size.saturating_add(self.contract.lookahead());
        self.digests.reserve((self.tail.len() + tokens.len()) / self.block_size);
        let mut rest = tokens;
        // Blocks that begin among the tokens kept from earlier calls.
        while !self.tail.is_empty() {
            let kept = self.tail.len();
            let Some((head, after)) = rest.split_at_checked(need - kept) else { break };
            let mut window = mem::take(&mut self.tail);
            window.extend_from_slice(head);
            self.hash_block(&window);
            match self.block_size.checked_sub(kept) {
                // The next block begins in `rest`: go on without copying.
                Some(used) => {
                    window.clear();
                    rest = &rest[used..];
                }
                None => {
                    window.drain(..self.block_size);
                    rest = after;
                }
            }
            self.tail = window;
        }
        if self.tail.is_empty() && self.extras.is_empty() && need == self.block_size {
            let parent = self.parent();
            self.hasher.hash_plain_blocks(parent, rest, need, &mut self.digests);
            rest = &rest[rest.len() - rest.len() % need..];
        } else if self.tail.is_empty() {
            while let Some(window) = rest.get(..need) {
                self.hash_block(window);
                rest = &rest[self.block_size..];
            }
        }
        self.tail.extend_from_slice(rest);
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
        self.digests.len() * self.block_size + self.tail.len()
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
