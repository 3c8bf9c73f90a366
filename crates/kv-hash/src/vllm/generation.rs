//! The generations of vLLM's block-hash contract.
//!
//! How a new release gets here: `testdata/golden/README.md`, "A new release".

use super::error::ContractError;
use crate::version::{History, Version};

/// A range of vLLM releases with one block-hash contract.
///
/// Later generations compare greater. Plain text requests (no adapter, salt, image or lookahead)
/// have one formula in B to H.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generation {
    /// 0.9.0 to 0.10.1.1: digests are Python integers.
    A,
    /// 0.10.2 to 0.11.0: digests are bytes; a LoRA adapter is its integer id.
    B,
    /// 0.11.1 to 0.16: a LoRA adapter is its name; prompt embeddings enter as raw bytes.
    C,
    /// 0.17.0 to 0.18: prompt embeddings enter as their SHA-256.
    D,
    /// 0.19.0 to 0.28: multimodal items enter with their offset in the block.
    E,
    /// 0.29.0 to 0.30: a fixed first parent where no seed is set.
    F,
    /// 0.31.0 to 0.32: extra keys are tagged; a LoRA adapter is its name and path.
    G,
    /// 0.33.0: lookahead tokens enter the hash under EAGLE and MTP.
    H,
}

const HISTORY: History<Generation> = History {
    generations: &[
        (Generation::A, Version::release(0, 9, 0)),
        (Generation::B, Version::release(0, 10, 2)),
        (Generation::C, Version::release(0, 11, 1)),
        (Generation::D, Version::release(0, 17, 0)),
        (Generation::E, Version::release(0, 19, 0)),
        (Generation::F, Version::release(0, 29, 0)),
        (Generation::G, Version::release(0, 31, 0)),
        (Generation::H, Version::release(0, 33, 0)),
    ],
    other_changes: &[
        Version::release(0, 10, 0), // sha256_cbor_64bit
        Version::release(0, 12, 0), // group view
        Version::release(0, 13, 0), // xxhash
        Version::release(0, 24, 0), // group view is the last digest
    ],
    newest: Version::release(0, 33, 0),
    too_new: "it is newer than 0.33.0, the newest one verified",
    too_old: "it is older than 0.9",
};

impl Generation {
    /// The generation of a version.
    ///
    /// # Errors
    /// [`ContractError::UnverifiedVersion`] for versions before 0.9 or after 0.33.0, for
    /// development builds (they may hold any later change), and for pre-releases of a release
    /// that changed the contract.
    pub fn of(version: Version) -> Result<Self, ContractError> {
        HISTORY.place(version).map_err(|why| ContractError::UnverifiedVersion { version, why })
    }

    /// The first release of this generation, to build a [`Contract`](super::Contract) for a
    /// version that is not known by number.
    #[must_use]
    pub const fn first_release(self) -> Version {
        HISTORY.generations[self as usize].1
    }

    /// The newest release whose hashes were compared with the engine's own code: what to assume of
    /// an engine that does not say what it is, or is newer than all that is known.
    #[must_use]
    pub const fn newest_release() -> Version {
        HISTORY.newest
    }
}

#[cfg(test)]
mod tests;
