//! Hashing of single blocks.

use super::algorithm::{Algorithm, Function, Serialiser};
use super::cbor::Cbor;
use super::contract::Contract;
use super::encode::{Encode, ExtraKey, Shape};
use super::error::ContractError;
use super::pickle::{Pickle, Seen};
use super::pipeline::{self, Frame};
use crate::buffer::Buffer;
use crate::digest::Digest;

/// Hashes blocks one by one, each after a parent the caller names.
///
/// For those who follow an engine's events: parent, tokens and extra keys of a block are at hand
/// there. To hash a request from its beginning, a [`Chain`](super::Chain) is simpler. Buffers are
/// reused: a block costs no allocation.
///
/// ```
/// use kvasir_kv_hash::vllm::{Algorithm, Block, Contract, ExtraKey};
///
/// let contract = Contract::new("0.32.0".parse()?, Algorithm::Sha256, Some("0"))?;
/// let mut hasher = contract.hasher();
/// let salted = Block { tokens: &[1, 2, 3], keys: &[ExtraKey::CacheSalt("a")], ahead: &[] };
/// let first = hasher.hash(&contract.none_hash(), &salted)?;
/// let second = hasher.hash(&first, &Block { tokens: &[4, 5, 6], ..Block::default() })?;
/// assert_ne!(first, second);
/// # Ok::<(), kvasir_kv_hash::vllm::ContractError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BlockHasher {
    pub(super) shape: Shape,
    pub(super) algorithm: Algorithm,
    pub(super) preimage: Buffer,
    /// The preimage of the block after this one, where it is written early.
    pub(super) ahead: Buffer,
    pub(super) seen: Vec<Seen>,
    /// What surrounds the tokens of plain blocks of the size hashed last.
    pub(super) frame: Option<Frame>,
}

/// The inputs of one block's hash, besides its parent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block<'a> {
    /// The block's tokens.
    pub tokens: &'a [u32],
    /// Its extra keys, in the order [`ExtraKey`] lists them.
    pub keys: &'a [ExtraKey<'a>],
    /// The tokens after the block, where the engine hashes lookahead (`lookahead_token_ids`).
    pub ahead: &'a [u32],
}

impl BlockHasher {
    pub(super) fn new(contract: &Contract) -> Self {
        let (shape, algorithm) = (contract.shape(), contract.algorithm());
        let (preimage, ahead) = (Buffer::default(), Buffer::default());
        Self { shape, algorithm, preimage, ahead, seen: Vec::new(), frame: None }
    }

    /// The hash of the block that follows `parent`; a request's first block follows
    /// [`Contract::none_hash`].
    ///
    /// # Errors
    /// [`ContractError::LoraPartMissing`].
    pub fn hash(&mut self, parent: &Digest, block: &Block<'_>) -> Result<Digest, ContractError> {
        block.keys.iter().try_for_each(|key| self.shape.check(key))?;
        Ok(self.hash_checked(parent, block))
    }

    /// [`hash`](Self::hash) of a block whose keys this generation can hash.
    pub(super) fn hash_checked(&mut self, parent: &Digest, block: &Block<'_>) -> Digest {
        let keys = KeySlice { shape: self.shape, keys: block.keys };
        self.hash_with(parent, (block.tokens, block.ahead), block.keys.len(), &keys)
    }

    /// The exact bytes that were hashed last; empty before the first block.
    #[must_use]
    pub fn preimage(&self) -> &[u8] {
        self.preimage.as_slice()
    }

    #[inline]
    pub(super) fn hash_with(
        &mut self,
        parent: &Digest,
        tokens: (&[u32], &[u32]),
        key_count: usize,
        keys: &impl WriteKeys,
    ) -> Digest {
        self.write(parent.as_bytes(), tokens, key_count, keys);
        digest(self.algorithm, &mut self.preimage)
    }

    /// Writes the block to the preimage.
    #[inline]
    fn write(
        &mut self,
        parent: &[u8],
        tokens: (&[u32], &[u32]),
        key_count: usize,
        keys: &impl WriteKeys,
    ) {
        self.preimage.clear();
        match self.algorithm.serialiser() {
            Serialiser::Cbor => {
                let out = Cbor::new(&mut self.preimage);
                self.shape.write_block(out, parent, tokens, key_count, |out| keys.write(out));
            }
            Serialiser::Pickle => {
                let out = Pickle::new(&mut self.preimage, &mut self.seen);
                self.shape.write_block(out, parent, tokens, key_count, |out| keys.write(out));
            }
        }
    }

    /// Hashes the plain blocks that `tokens` begins with, after `parent`, and pushes their digests.
    pub(super) fn hash_plain_blocks(
        &mut self,
        mut parent: Digest,
        mut tokens: &[u32],
        block_size: usize,
        digests: &mut Vec<Digest>,
    ) {
        // A parent of another size, drawn at random, stands in front of the first block only.
        while let Some((block, rest)) = tokens.split_at_checked(block_size) {
            if parent.as_bytes().len() == self.algorithm.digest_len()
                && pipeline::hash_blocks(self, &parent, tokens, block_size, digests).is_some()
            {
                return;
            }
            parent = self.hash_with(&parent, (block, &[]), 0, &NoKeys);
            digests.push(parent);
            tokens = rest;
        }
    }
}

/// A plain block's keys.
struct NoKeys;

impl WriteKeys for NoKeys {
    fn write<E: Encode>(&self, _out: &mut E) {}
}

/// Something that can write a block's extra keys to either serialiser.
pub(super) trait WriteKeys {
    fn write<E: Encode>(&self, out: &mut E);
}

struct KeySlice<'a> {
    shape: Shape,
    keys: &'a [ExtraKey<'a>],
}

impl WriteKeys for KeySlice<'_> {
    fn write<E: Encode>(&self, out: &mut E) {
        self.keys.iter().for_each(|key| self.shape.write_key(out, *key));
    }
}

/// The algorithm's digest of a serialised object.
#[inline]
fn digest(algorithm: Algorithm, preimage: &mut Buffer) -> Digest {
    match algorithm.function() {
        Function::Sha256 => Digest::new32(preimage.sha256()),
        Function::Sha256Low64 => {
            let [.., a, b, c, d, e, f, g, h] = preimage.sha256();
            Digest::new8([a, b, c, d, e, f, g, h])
        }
        Function::Xxh3 => Digest::new16(preimage.xxh3_128()),
    }
}

/// The hash of a single string, which is how `NONE_HASH` comes from a seed.
pub(crate) fn hash_text(algorithm: Algorithm, text: &str) -> Digest {
    use super::encode::Sharing::Own;
    let mut preimage = Buffer::default();
    match algorithm.serialiser() {
        Serialiser::Cbor => {
            let mut out = Cbor::new(&mut preimage);
            out.text(text, Own);
            out.finish();
        }
        Serialiser::Pickle => {
            let mut seen = Vec::new();
            let mut out = Pickle::new(&mut preimage, &mut seen);
            out.text(text, Own);
            out.finish();
        }
    }
    digest(algorithm, &mut preimage)
}
