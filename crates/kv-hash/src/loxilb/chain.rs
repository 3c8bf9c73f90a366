//! The block hashes of one request, grown as tokens arrive.

use super::contract::{Contract, ContractError};
use crate::digest::{Digest, first_eight};
use crate::{sglang, vllm};

/// The hash of one block: the digest the next one is chained to, and the key that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockHash {
    digest: Digest,
    key: u64,
}

impl BlockHash {
    fn of_cbor(digest: Digest) -> Self {
        Self { digest, key: digest.to_u64() }
    }

    fn of_page(digest: &[u8; 32]) -> Self {
        Self { digest: Digest::new32(*digest), key: first_eight(digest) }
    }

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
    like: Like,
    blocks: Vec<BlockHash>,
}

/// The chain of the engine that hashes plain text requests alike.
#[derive(Clone, Debug)]
enum Like {
    Vllm(Box<vllm::Chain>),
    Sglang(Box<sglang::Chain>),
}

impl Chain {
    /// The most tokens of a request that are hashed.
    pub const MAX_TOKENS: usize = 4096;
    /// The most blocks of a request that are hashed.
    pub const MAX_BLOCKS: usize = 256;

    pub(super) fn new(contract: Contract, block_size: usize) -> Result<Self, ContractError> {
        let like = match (contract.algorithm().vllm(), contract.first_parent().digest()) {
            (Some(algorithm), Some(none_hash)) => {
                let vllm = vllm::Contract::of_plain_blocks(algorithm, none_hash);
                Like::Vllm(Box::new(
                    vllm.chain(block_size).map_err(|_| ContractError::ZeroBlockSize)?,
                ))
            }
            _ => {
                let sglang = sglang::Contract::of_plain_pages();
                Like::Sglang(Box::new(
                    sglang.chain(block_size).map_err(|_| ContractError::ZeroBlockSize)?,
                ))
            }
        };
        Ok(Self { contract, block_size, like, blocks: Vec::new() })
    }

    /// Adds tokens and returns the hashes of the full blocks they complete. Tokens beyond the
    /// gateway's limits are left out.
    pub fn append(&mut self, tokens: &[u32]) -> &[BlockHash] {
        let first_new = self.blocks.len();
        let blocks_end = self.block_size.saturating_mul(Self::MAX_BLOCKS);
        let room = Self::MAX_TOKENS.min(blocks_end) - self.token_count();
        let tokens = &tokens[..tokens.len().min(room)];
        match &mut self.like {
            Like::Vllm(chain) => {
                self.blocks.extend(chain.append(tokens).iter().copied().map(BlockHash::of_cbor));
            }
            Like::Sglang(chain) => {
                let digests = chain.append(tokens).iter().filter_map(sglang::PageHash::digest);
                self.blocks.extend(digests.map(BlockHash::of_page));
            }
        }
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
        match &self.like {
            Like::Vllm(chain) => chain.partial().map(BlockHash::of_cbor),
            Like::Sglang(chain) => chain.partial()?.digest().map(BlockHash::of_page),
        }
    }

    /// How many tokens have been taken in, hashed or not.
    #[must_use]
    pub fn token_count(&self) -> usize {
        match &self.like {
            Like::Vllm(chain) => chain.token_count(),
            Like::Sglang(chain) => chain.token_count(),
        }
    }

    /// The exact bytes that were hashed for the newest full block: CBOR, or the parent's digest
    /// and the tokens. None before the first block.
    #[must_use]
    pub fn preimage(&self) -> Option<&[u8]> {
        match &self.like {
            Like::Vllm(chain) => chain.preimage(),
            Like::Sglang(chain) => chain.preimage(),
        }
    }

    /// The contract this chain follows.
    #[must_use]
    pub fn contract(&self) -> &Contract {
        &self.contract
    }
}
