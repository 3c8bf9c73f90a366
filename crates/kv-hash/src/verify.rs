//! Plain blocks against one contract, one by one as events bring them.
//!
//! A [`Verifier`] computes a block's hash from its tokens and its parent and compares. It remembers
//! the digests of blocks that fit, since events by default carry only 8 bytes of the digest that
//! the next block's hash covers. A block without extra keys that fits is proved to be plain where
//! the contract [covers extras](Contract::covers_extras).
//!
//! ```
//! use kvasir_kv_hash::verify::{Contract, PublishedBlock, Verdict, Verifier};
//! use kvasir_kv_hash::vllm;
//!
//! let engine = vllm::Contract::new("0.32.0".parse()?, vllm::Algorithm::Sha256Cbor, Some("0"))?;
//! let mut verifier = Verifier::new(Contract::Vllm(engine), 1024);
//! let first = PublishedBlock { hash: 7_648_633_150_179_582_710, parent: None,
//!     tokens: &[5, 300, 70_000], ahead: &[] };
//! let second = PublishedBlock { hash: 1, parent: Some(first.hash), tokens: &[1, 2, 3], ahead: &[] };
//! let orphan = PublishedBlock { parent: Some(2), ..second };
//! assert_eq!(verifier.check(&first), Verdict::Fits);
//! assert_eq!(verifier.check(&second), Verdict::Differs);
//! assert_eq!(verifier.check(&orphan), Verdict::NoParent);
//! # Ok::<(), kvasir_kv_hash::vllm::ContractError>(())
//! ```

use std::collections::{HashMap, VecDeque};
use std::fmt;

use crate::detect::Found;
use crate::digest::Digest;
use crate::vllm::{Algorithm, Block, BlockHasher, Generation};
use crate::{sglang, trtllm, vllm};

/// One engine's way of hashing, whichever engine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// vLLM's.
    Vllm(vllm::Contract),
    /// SGLang's.
    Sglang(sglang::Contract),
    /// TensorRT-LLM's `v1_block_key`.
    TrtLlmV1,
}

impl Contract {
    /// The contract that detection found, for plain blocks; `None` where it was not found in full
    /// (a seed that is not among the candidates) or cannot be followed block by block (hybrid
    /// models that publish several hashed blocks as one, TensorRT-LLM's V2 manager).
    #[must_use]
    pub fn of_plain_blocks(found: &Found) -> Option<Self> {
        match found {
            Found::Vllm { algorithm, seed, generations: (_, last), hash_block_size: None } => {
                let version = match algorithm {
                    Algorithm::Sha256Cbor64Bit => vllm::Version::release(0, 10, 0),
                    _ => last.first_release(),
                };
                let seed = seed.as_ref()?.as_option();
                vllm::Contract::new(version, *algorithm, seed).ok().map(Self::Vllm)
            }
            Found::Sglang { generations: (_, last), .. } => {
                let format = sglang::EventFormat::Default;
                sglang::Contract::new(last.first_release(), format).ok().map(Self::Sglang)
            }
            Found::TrtLlm { algorithm: trtllm::Algorithm::V1BlockKey } => Some(Self::TrtLlmV1),
            Found::Vllm { .. } | Found::TrtLlm { .. } => None,
        }
    }

    /// Whether the hash of a block covers all that makes it another block: adapter, salt, images.
    /// SGLang's does not cover the adapter or `extra_key` of a request.
    #[must_use]
    pub fn covers_extras(&self) -> bool {
        !matches!(self, Self::Sglang(_))
    }
}

impl fmt::Display for Contract {
    /// Engine and algorithm, without the seed: `vllm sha256_cbor`, `sglang`, `trtllm v1_block_key`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vllm(contract) => write!(f, "vllm {}", contract.algorithm()),
            Self::Sglang(_) => f.write_str("sglang"),
            Self::TrtLlmV1 => write!(f, "trtllm {}", trtllm::Algorithm::V1BlockKey),
        }
    }
}

/// A plain block as events publish it: no adapter, salt, image or embedding.
#[derive(Clone, Copy, Debug)]
pub struct PublishedBlock<'a> {
    /// Its hash: the last 8 bytes of vLLM's digest, big-endian; the bits of SGLang's and
    /// TensorRT-LLM's integer.
    pub hash: u64,
    /// The hash of the block before it, likewise; `None` at the start of a prompt.
    pub parent: Option<u64>,
    /// Its tokens.
    pub tokens: &'a [u32],
    /// The tokens after it that enter its hash.
    pub ahead: &'a [u32],
}

/// What a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The contract computes this hash.
    Fits,
    /// It computes another.
    Differs,
    /// The parent is not among the blocks that fitted and are remembered: nothing can be said.
    NoParent,
}

/// Checks plain blocks against one contract.
#[derive(Clone, Debug)]
pub struct Verifier {
    contract: Contract,
    hasher: Option<BlockHasher>,
    /// With the moment each was learned.
    digests: HashMap<u64, (Digest, u64)>,
    /// In the order learned, with that moment. May name what was forgotten since.
    order: VecDeque<(u64, u64)>,
    learned: u64,
    room: usize,
}

impl Verifier {
    /// A verifier that remembers the digests of so many blocks, the latest.
    #[must_use]
    pub fn new(contract: Contract, room: usize) -> Self {
        let hasher = match &contract {
            Contract::Vllm(contract) => Some(contract.hasher()),
            Contract::Sglang(_) | Contract::TrtLlmV1 => None,
        };
        let (digests, order) = (HashMap::new(), VecDeque::new());
        Self { contract, hasher, digests, order, learned: 0, room: room.max(1) }
    }

    /// The contract.
    #[must_use]
    pub fn contract(&self) -> &Contract {
        &self.contract
    }

    /// Checks one block, and remembers it if it fits.
    pub fn check(&mut self, block: &PublishedBlock<'_>) -> Verdict {
        match self.contract {
            Contract::Vllm(contract) => self.check_vllm(contract, block),
            Contract::Sglang(contract) => self.check_sglang(contract, block),
            Contract::TrtLlmV1 => {
                let v1 = trtllm::V1Block { tokens: block.tokens, ..Default::default() };
                let hash = trtllm::v1_block_key(block.parent.unwrap_or(0), &v1);
                verdict(hash == block.hash)
            }
        }
    }

    /// A block is gone: its digest is not needed before it is stored again.
    pub fn removed(&mut self, hash: u64) {
        self.digests.remove(&hash);
    }

    /// Forgets all digests.
    pub fn forget(&mut self) {
        self.digests = HashMap::new();
        self.order = VecDeque::new();
    }

    /// How many digests are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.digests.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    fn check_vllm(&mut self, contract: vllm::Contract, block: &PublishedBlock<'_>) -> Verdict {
        let parent = match block.parent {
            None => Some(contract.none_hash()),
            // These hashes are all of the digest.
            Some(parent) if contract.algorithm() == Algorithm::Sha256Cbor64Bit => {
                Some(Digest::new8(parent.to_be_bytes()))
            }
            Some(parent) => self.digests.get(&parent).map(|(digest, _)| *digest),
        };
        let (Some(parent), Some(hasher)) = (parent, &mut self.hasher) else {
            return Verdict::NoParent;
        };
        if !block.ahead.is_empty() && contract.generation() < Generation::H {
            return Verdict::Differs;
        }
        let plain = Block { tokens: block.tokens, keys: &[], ahead: block.ahead };
        match hasher.hash(&parent, &plain) {
            Ok(digest) if digest.to_u64() == block.hash => {
                self.learn(block.hash, digest);
                Verdict::Fits
            }
            _ => Verdict::Differs,
        }
    }

    fn check_sglang(&mut self, contract: sglang::Contract, block: &PublishedBlock<'_>) -> Verdict {
        let chained = contract.generation() > sglang::Generation::TupleHash;
        let parent = match block.parent.filter(|_| chained) {
            None => None,
            Some(parent) => match self.digests.get(&parent) {
                Some((digest, _)) => Some(digest.as_bytes()),
                None => return Verdict::NoParent,
            },
        };
        let Some(page) = contract.page_after(parent, block.tokens, block.ahead) else {
            return Verdict::Differs;
        };
        if page.to_u64() != block.hash {
            return Verdict::Differs;
        }
        if let Some(digest) = page.digest() {
            self.learn(block.hash, Digest::new32(*digest));
        }
        Verdict::Fits
    }

    fn learn(&mut self, hash: u64, digest: Digest) {
        self.learned += 1;
        let moment = self.learned;
        if let Some(known) = self.digests.get_mut(&hash) {
            known.0 = digest;
            return;
        }
        self.digests.insert(hash, (digest, moment));
        self.order.push_back((hash, moment));
        while self.digests.len() > self.room || self.order.len() > 2 * self.room {
            let Some((oldest, moment)) = self.order.pop_front() else { return };
            if self.digests.get(&oldest).is_some_and(|(_, learned)| *learned == moment) {
                self.digests.remove(&oldest);
            }
        }
    }
}

fn verdict(fits: bool) -> Verdict {
    if fits { Verdict::Fits } else { Verdict::Differs }
}

#[cfg(test)]
mod tests;
