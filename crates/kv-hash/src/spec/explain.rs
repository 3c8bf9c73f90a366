//! What a contract hashed for each block of a request, byte for byte, for those who search why two
//! sides disagree.

use super::{Blocks, Chain, Spec, SpecError};
use crate::vllm::RequestExtras;

/// A request's blocks with all that led to their hashes.
///
/// Made by [`Spec::explain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What the contract puts in front of every request's first block: vLLM's `NONE_HASH`, or what
    /// takes its place in LoxiLB's gateway (zeros without a usable seed). `None` for contracts
    /// that have no such thing: SGLang's, TensorRT-LLM's and LoxiLB's without CBOR. What the
    /// request itself puts there, such as a salt's digest, is in the first block's preimage.
    pub none_hash: Option<Vec<u8>>,
    /// The full blocks, in prompt order.
    pub blocks: Vec<ExplainedBlock>,
}

/// One block of an [`Explained`] request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedBlock {
    /// The full digest, as [`Blocks::digest`]; `None` if the engine's hash has 64 bits.
    pub digest: Option<Vec<u8>>,
    /// The 64-bit hash, as [`Blocks::keys`].
    pub key: u64,
    /// The exact bytes the contract hashes for the block, parent and extra keys included: CBOR,
    /// a pickle, or parent digest and token words. Their SHA-256 (`xxhash*`: XXH3-128, high half
    /// first) is the digest; where that is `None`, the key is its last 8 bytes
    /// (`sha256_cbor_64bit`) or its first 8 (`v2_sha256_64`).
    ///
    /// `None` where no byte string is hashed: the tuple hashes of SGLang up to 0.5.5 and
    /// TensorRT-LLM's `v1_block_key` mix integers.
    pub preimage: Option<Vec<u8>>,
}

impl Spec<'_> {
    /// The blocks of a request as [`blocks_with`](Self::blocks_with) names them, each with the
    /// bytes that were hashed. Copies those bytes: to hash, use `blocks_with`.
    ///
    /// SGLang publishes the hashes of some requests in a namespace (adapters from 0.5.23, the
    /// `dynamo` format): then the key is a hash of namespace and digest, and not of the preimage.
    ///
    /// ```
    /// use kvasir_kv_hash::vllm::RequestExtras;
    /// use kvasir_kv_hash::{Engine, Spec};
    ///
    /// let spec = Spec {
    ///     engine: Engine::Vllm,
    ///     version: "0.32.0",
    ///     algorithm: "sha256_cbor",
    ///     seed: Some("0"),
    ///     block_size: 3,
    /// };
    /// let explained = spec.explain(&RequestExtras::default(), &[5, 300, 70_000, 23])?;
    /// let [block] = &explained.blocks[..] else { panic!("one full block") };
    /// assert_eq!(block.key, 7_648_633_150_179_582_710);
    ///
    /// // CBOR: an array of the parent (32 bytes), the array of tokens, and null.
    /// let preimage = block.preimage.as_deref().unwrap();
    /// assert_eq!(preimage[..3], [0x83, 0x58, 32]);
    /// assert_eq!(preimage[3..35], explained.none_hash.unwrap());
    /// assert_eq!(preimage[35..], [0x83, 5, 0x19, 1, 44, 0x1a, 0, 1, 17, 112, 0xf6]);
    /// # Ok::<(), kvasir_kv_hash::SpecError>(())
    /// ```
    ///
    /// # Errors
    /// As [`blocks_with`](Self::blocks_with).
    pub fn explain(&self, request: &RequestExtras, tokens: &[u32]) -> Result<Explained, SpecError> {
        let mut blocks = self.blocks_with(request)?;
        let none_hash = blocks.none_hash();
        let mut explained = Vec::new();
        // As many tokens at a time as complete one block at most.
        for piece in tokens.chunks(self.block_size) {
            if let &[key] = blocks.append(piece) {
                explained.push(ExplainedBlock {
                    digest: blocks.digest(explained.len()).map(<[u8]>::to_vec),
                    key,
                    preimage: blocks.preimage().map(<[u8]>::to_vec),
                });
            }
        }
        Ok(Explained { none_hash, blocks: explained })
    }
}

impl Blocks {
    fn none_hash(&self) -> Option<Vec<u8>> {
        let digest = match &self.chain {
            Chain::Vllm(chain) => Some(chain.contract().none_hash()),
            Chain::LoxiLb(chain) => chain.contract().first_parent().digest(),
            Chain::Sglang(_) | Chain::TrtLlm(_) => None,
        };
        digest.map(|digest| digest.as_bytes().to_vec())
    }

    /// The bytes that were hashed for the newest block.
    fn preimage(&self) -> Option<&[u8]> {
        match &self.chain {
            Chain::Vllm(chain) => chain.preimage(),
            Chain::Sglang(chain) => chain.preimage(),
            Chain::TrtLlm(chain) => chain.preimage(),
            Chain::LoxiLb(chain) => chain.preimage(),
        }
    }
}
