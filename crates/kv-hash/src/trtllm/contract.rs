//! One engine's way of hashing blocks.

use std::fmt;

use super::chain::{Chain, Seeds};
use super::error::{ContractError, Unknowable};
use super::request::{Request, Salt, salt_id};
use super::v2;
use crate::spelled::spelled;

/// `hash_algo` of KV-cache events. Parses from and prints as TensorRT-LLM's own spelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `auto`, which means `v1_block_key`.
    #[default]
    Auto,
    /// `v1_block_key`: 64-bit mixing.
    V1BlockKey,
    /// `v2_sha256`: SHA-256, shown as 64 hex digits.
    V2Sha256,
    /// `v2_sha256_64`: its first 8 bytes, big-endian, unsigned.
    V2Sha256First64,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 4] =
        [Self::Auto, Self::V1BlockKey, Self::V2Sha256, Self::V2Sha256First64];

    /// TensorRT-LLM's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::V1BlockKey => "v1_block_key",
            Self::V2Sha256 => "v2_sha256",
            Self::V2Sha256First64 => "v2_sha256_64",
        }
    }

    pub(super) fn is_v1(self) -> bool {
        matches!(self, Self::Auto | Self::V1BlockKey)
    }
}

spelled!(Algorithm, ContractError::BadAlgorithm);

/// Which KV-cache manager the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manager {
    /// The C++ manager (`BlockKey`), the default.
    V1,
    /// `KVCacheManagerV2` (`use_kv_cache_manager_v2`).
    V2,
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "first",
            Self::V2 => "second",
        })
    }
}

/// How one TensorRT-LLM engine hashes blocks. Nothing of a request is in it; small and `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contract {
    algorithm: Algorithm,
    manager: Manager,
}

impl Contract {
    /// The contract of an engine.
    ///
    /// # Errors
    /// [`ContractError::NotOffered`]: the first cache manager has `v1_block_key` only.
    pub fn new(algorithm: Algorithm, manager: Manager) -> Result<Self, ContractError> {
        if manager == Manager::V1 && !algorithm.is_v1() {
            return Err(ContractError::NotOffered { algorithm, manager });
        }
        Ok(Self { algorithm, manager })
    }

    /// The event hash algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The cache manager.
    #[must_use]
    pub fn manager(&self) -> Manager {
        self.manager
    }

    /// An empty chain for a plain text request, in blocks of `tokens_per_block`.
    ///
    /// # Errors
    /// [`ContractError::ZeroBlockSize`].
    pub fn chain(&self, tokens_per_block: usize) -> Result<Chain, ContractError> {
        self.chain_with(tokens_per_block, Request::default())
    }

    /// An empty chain for a request with an adapter, a salt or images.
    ///
    /// # Errors
    /// [`ContractError::ZeroBlockSize`]; [`ContractError::Unknowable`] for a salt's text under the
    /// first cache manager; [`ContractError::NoVocabularySize`],
    /// [`ContractError::BadItemLength`], [`ContractError::ItemsOutOfOrder`] for the items.
    pub fn chain_with(
        &self,
        tokens_per_block: usize,
        request: Request,
    ) -> Result<Chain, ContractError> {
        if tokens_per_block == 0 {
            return Err(ContractError::ZeroBlockSize);
        }
        if !request.items.is_empty() && self.manager == Manager::V2 && request.vocab_size.is_none()
        {
            return Err(ContractError::NoVocabularySize);
        }
        let mut end = 0;
        for (index, item) in request.items.iter().enumerate() {
            let length = item.length;
            if length == 0 || item.start.checked_add(length).is_none() {
                return Err(ContractError::BadItemLength { index, length });
            }
            if item.start < end {
                return Err(ContractError::ItemsOutOfOrder { index });
            }
            end = item.end();
        }
        let salt_id = match (&request.salt, self.manager) {
            (None, _) => None,
            (Some(Salt::Id(id)), _) => Some(*id),
            (Some(Salt::Text(text)), Manager::V2) => Some(salt_id(text)),
            (Some(Salt::Text(_)), Manager::V1) => return Err(Unknowable::StdHashSalt.into()),
        };
        let root = v2::root(request.lora_task_id, salt_id);
        Ok(Chain::new(*self, tokens_per_block, request, Seeds { salt_id, root }))
    }
}
