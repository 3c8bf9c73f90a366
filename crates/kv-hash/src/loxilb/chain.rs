//! The block hashes of one request, grown as tokens arrive.

use std::mem;

use super::contract::{Contract, FirstParent};
use crate::buffer::Buffer;
use crate::digest::Digest;
use crate::vllm::{Block, BlockHasher};

/// The hash of one block: the digest the next one is chained to, and the key that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockHash {
    digest: Digest,
    key: u64,
}

impl BlockHash {
    /// The key the gateway looks up: the last 8 bytes of the digest with the CBOR algorithms, the
    /// first 8 with the others, big-endian.
    #[must_use]
    pub fn to_u64(&self) -> u64 {
        self.key
    }

    /// The full digest.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }
}

/// The block hashes of one request under one [`Contract`].
///
/// The gateway looks at 4,096 tokens and 256 blocks at most, and so does a chain.
#[derive(Clone, Debug)]
pub struct Chain {
    contract: Contract,
    block_size: usize,
    hasher: Hasher,
    blocks: Vec<BlockHash>,
    tail: Vec<u32>,
    token_count: usize,
}

#[derive(Clone, Debug)]
enum Hasher {
    Cbor(Box<BlockHasher>),
    Sglang(Buffer),
}

impl Chain {
    /// The most tokens of a request that are hashed.
    pub const MAX_TOKENS: usize = 4096;
    /// The most blocks of a request that are hashed.
    pub const MAX_BLOCKS: usize = 256;

    pub(super) fn new(contract: Contract, block_size: usize) -> Self {
        let hasher = match contract.algorithm().vllm() {
            Some(algorithm) => Hasher::Cbor(Box::new(BlockHasher::plain(algorithm))),
            None => Hasher::Sglang(Buffer::default()),
        };
        Self { contract, block_size, hasher, blocks: Vec::new(), tail: Vec::new(), token_count: 0 }
    }

    /// Adds tokens and returns the hashes of the full blocks they complete. Tokens beyond the
    /// gateway's limits are left out.
    pub fn append(&mut self, tokens: &[u32]) -> &[BlockHash] {
        let first_new = self.blocks.len();
        let blocks_end = self.block_size.saturating_mul(Self::MAX_BLOCKS);
        let room = Self::MAX_TOKENS.min(blocks_end) - self.token_count;
        let mut tokens = &tokens[..tokens.len().min(room)];
        self.token_count += tokens.len();
        if !self.tail.is_empty()
            && let Some((head, rest)) = tokens.split_at_checked(self.block_size - self.tail.len())
        {
            let mut window = mem::take(&mut self.tail);
            window.extend_from_slice(head);
            self.push_block(&window);
            window.clear();
            self.tail = window;
            tokens = rest;
        }
        if self.tail.is_empty() {
            while let Some((window, rest)) = tokens.split_at_checked(self.block_size) {
                self.push_block(window);
                tokens = rest;
            }
        }
        self.tail.extend_from_slice(tokens);
        &self.blocks[first_new..]
    }

    /// The hashes of all full blocks so far.
    #[must_use]
    pub fn blocks(&self) -> &[BlockHash] {
        &self.blocks
    }

    /// The hash of the block that is not yet full, if it holds anything. The gateway looks it up
    /// too; no engine stores it.
    #[must_use]
    pub fn partial(&self) -> Option<BlockHash> {
        if self.tail.is_empty() {
            return None;
        }
        let mut hasher = self.hasher.clone();
        Some(block_hash(&mut hasher, self.parent(), &self.tail))
    }

    /// How many tokens have been taken in, hashed or not.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.token_count
    }

    /// The exact bytes that were hashed for the newest full block: CBOR, or the parent's digest
    /// and the tokens. None before the first block.
    #[must_use]
    pub fn preimage(&self) -> Option<&[u8]> {
        let bytes = match &self.hasher {
            Hasher::Cbor(hasher) => hasher.preimage(),
            Hasher::Sglang(buffer) => buffer.as_slice(),
        };
        (!self.blocks.is_empty()).then_some(bytes)
    }

    /// The contract this chain follows.
    #[must_use]
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    fn parent(&self) -> Option<Digest> {
        self.blocks.last().map(|block| block.digest).or(match self.contract.first_parent() {
            FirstParent::Seed(digest)
            | FirstParent::ZerosWithoutSeed(digest)
            | FirstParent::ZerosForLongSeed(digest) => Some(digest),
            FirstParent::Nothing => None,
        })
    }

    fn push_block(&mut self, window: &[u32]) {
        let parent = self.parent();
        let block = block_hash(&mut self.hasher, parent, window);
        self.blocks.push(block);
    }
}

fn block_hash(hasher: &mut Hasher, parent: Option<Digest>, tokens: &[u32]) -> BlockHash {
    match hasher {
        Hasher::Cbor(hasher) => {
            let parent = parent.unwrap_or(Digest::new32([0; 32]));
            let block = Block { tokens, ..Block::default() };
            let digest = hasher.hash_checked(&parent, &block);
            BlockHash { digest, key: digest.to_u64() }
        }
        Hasher::Sglang(buffer) => {
            buffer.clear();
            if let Some(parent) = parent {
                buffer.put(parent.as_bytes());
            }
            buffer.put_words(tokens);
            let digest = buffer.sha256();
            let [a, b, c, d, e, f, g, h, ..] = digest;
            let key = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
            BlockHash { digest: Digest::new32(digest), key }
        }
    }
}
