//! One gateway's way of hashing blocks.

use super::chain::Chain;
use crate::digest::Digest;
use crate::spelled::spelled;
use crate::vllm;

/// `kvHashAlgo` of a rule. Parses from and prints as LoxiLB's own spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `sha256_cbor`, the default of vLLM rules.
    Sha256Cbor,
    /// `xxhash_cbor`.
    XxhashCbor,
    /// `sha256_sglang`, the default of SGLang rules.
    Sha256Sglang,
    /// `blockhash_trtllm`, the default of TensorRT-LLM rules.
    BlockhashTrtllm,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 4] =
        [Self::Sha256Cbor, Self::XxhashCbor, Self::Sha256Sglang, Self::BlockhashTrtllm];

    /// LoxiLB's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256Cbor => "sha256_cbor",
            Self::XxhashCbor => "xxhash_cbor",
            Self::Sha256Sglang => "sha256_sglang",
            Self::BlockhashTrtllm => "blockhash_trtllm",
        }
    }

    pub(super) fn vllm(self) -> Option<vllm::Algorithm> {
        match self {
            Self::Sha256Cbor => Some(vllm::Algorithm::Sha256Cbor),
            Self::XxhashCbor => Some(vllm::Algorithm::XxhashCbor),
            Self::Sha256Sglang | Self::BlockhashTrtllm => None,
        }
    }
}

spelled!(Algorithm, ContractError::BadAlgorithm);

/// Why a contract cannot be built or applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The text is no value of `kvHashAlgo`.
    #[error(
        "{text:?} is not a LoxiLB hash algorithm (sha256_cbor, xxhash_cbor, sha256_sglang, \
         blockhash_trtllm)"
    )]
    BadAlgorithm {
        /// The text, shortened.
        text: String,
    },
    /// A block has at least one token.
    #[error("block size 0: a block has at least one token")]
    ZeroBlockSize,
}

/// The longest `LLB_KV_NONE_HASH_SEED` that the gateway uses, in bytes.
const MAX_SEED: usize = 23;

/// What the first block of a chain follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FirstParent {
    /// The hash of the seed, as in vLLM.
    Seed(Digest),
    /// Zero bytes, because there is no seed: no vLLM engine has such hashes.
    ZerosWithoutSeed(Digest),
    /// Zero bytes, because the seed is longer than 23 bytes: no vLLM engine has such hashes.
    ZerosForLongSeed(Digest),
    /// None: the algorithm knows no seed.
    Nothing,
}

impl FirstParent {
    /// The bytes themselves.
    #[must_use]
    pub fn digest(self) -> Option<Digest> {
        match self {
            Self::Seed(digest)
            | Self::ZerosWithoutSeed(digest)
            | Self::ZerosForLongSeed(digest) => Some(digest),
            Self::Nothing => None,
        }
    }
}

/// How one gateway hashes blocks: a rule's algorithm and the process's seed. Small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    algorithm: Algorithm,
    first_parent: FirstParent,
}

impl Contract {
    /// The contract of a rule.
    ///
    /// `seed` is the gateway's `LLB_KV_NONE_HASH_SEED`, letter by letter; `None` means that the
    /// variable is not set. Any seed makes a contract, but not always one that some engine shares:
    /// see [`first_parent`](Self::first_parent).
    #[must_use]
    pub fn new(algorithm: Algorithm, seed: Option<&str>) -> Self {
        let first_parent = match (algorithm.vllm(), seed) {
            (None, _) => FirstParent::Nothing,
            (Some(vllm), None) => FirstParent::ZerosWithoutSeed(zeros(vllm)),
            (Some(vllm), Some(seed)) if seed.len() > MAX_SEED => {
                FirstParent::ZerosForLongSeed(zeros(vllm))
            }
            (Some(vllm), Some(seed)) => FirstParent::Seed(vllm::hash_text(vllm, seed)),
        };
        Self { algorithm, first_parent }
    }

    /// The rule's algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// What the first block follows, and why.
    #[must_use]
    pub fn first_parent(&self) -> FirstParent {
        self.first_parent
    }

    /// An empty chain, in blocks of `kvBlockSize` tokens.
    ///
    /// # Errors
    /// [`ContractError::ZeroBlockSize`].
    pub fn chain(&self, block_size: usize) -> Result<Chain, ContractError> {
        Chain::new(*self, block_size)
    }
}

fn zeros(algorithm: vllm::Algorithm) -> Digest {
    match algorithm.digest_len() {
        16 => Digest::new16([0; 16]),
        _ => Digest::new32([0; 32]),
    }
}
