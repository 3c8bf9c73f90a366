//! Which hashes an engine gives its blocks.

use kvasir_kv_hash::KeySpace;
use kvasir_kv_hash::vllm::{Algorithm, Contract, ContractError, Version};

use crate::tokens::splitmix64;

/// How an engine hashes its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashing {
    /// The engine's own hashes, bit for bit.
    Contract(Contract),
    /// Hashes that identify blocks just as well, but are no engine's own.
    Opaque(OpaqueHashing),
}

/// Chained 64-bit hashes, blown up to the size of a digest. Much faster than a real contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpaqueHashing {
    /// Engines of one seed give equal blocks equal hashes, like engines of one `PYTHONHASHSEED`.
    pub seed: u64,
    /// Whether a restart changes all hashes, as in an engine that draws its seed at random.
    pub per_life: bool,
}

impl Hashing {
    /// The hashing of a vLLM engine: its contract where `kvasir-kv-hash` has it, else opaque
    /// hashes that behave the same towards seeds and restarts.
    ///
    /// `seed` is the engine's `PYTHONHASHSEED`; `None` means not set.
    ///
    /// # Errors
    /// [`ContractError`] for versions without a known contract and for algorithms a version does
    /// not offer.
    pub fn of_engine(
        version: Version,
        algorithm: Algorithm,
        seed: Option<&str>,
    ) -> Result<Self, ContractError> {
        match Contract::new(version, algorithm, seed) {
            Ok(contract) => Ok(Self::Contract(contract)),
            Err(ContractError::Unsupported(_) | ContractError::Unknowable(_)) => {
                let number = seed.unwrap_or_default().bytes().fold(0, |number, byte| {
                    splitmix64(number ^ u64::from(byte)) // any mixing does
                });
                // Without a seed such an engine draws one at random.
                let per_life = seed.is_none();
                Ok(Self::Opaque(OpaqueHashing { seed: number, per_life }))
            }
            Err(other) => Err(other),
        }
    }
}

impl Default for Hashing {
    fn default() -> Self {
        Self::Opaque(OpaqueHashing::default())
    }
}

/// A [`Hashing`] made ready for one life of an engine.
#[derive(Debug)]
pub(crate) enum Hasher {
    Contract(Contract),
    Opaque(KeySpace),
}

impl Hasher {
    pub(crate) fn new(hashing: &Hashing, life: u64) -> Self {
        match hashing {
            Hashing::Contract(contract) => Self::Contract(*contract),
            Hashing::Opaque(opaque) => {
                let life = if opaque.per_life { life } else { 0 };
                let mut state = splitmix64(opaque.seed) ^ splitmix64(!life);
                let mut secret = [0; KeySpace::SECRET_LEN];
                for chunk in secret.chunks_exact_mut(8) {
                    state = splitmix64(state);
                    chunk.copy_from_slice(&state.to_le_bytes());
                }
                Self::Opaque(KeySpace::new(secret))
            }
        }
    }
}
