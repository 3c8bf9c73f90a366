//! vLLM's version numbers and the generations of its block-hash contract.

use std::fmt;
use std::str::FromStr;

use super::error::ContractError;
use crate::release::{Release, Stage};
use crate::shown::shown;

/// A vLLM version, as `GET /version` or `vllm --version` prints it.
///
/// Accepts a leading `v`, pre-releases (`0.19.0rc1`), development builds
/// (`0.33.1.dev5+gabcdef`), post-releases and local labels (`0.32.0+cpu`). Versions are ordered as
/// Python orders them, except that post-releases and local labels equal their release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(Release);

impl Version {
    /// The release `major.minor.patch`.
    #[must_use]
    pub const fn release(major: u16, minor: u16, patch: u16) -> Self {
        Self(Release::new(major, minor, patch))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Version {
    type Err = ContractError;

    /// # Errors
    /// [`ContractError::BadVersion`] unless the text has two to four numbers below 65,536,
    /// followed by nothing but what the type's documentation names.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Release::parse(text)
            .map(Self)
            .ok_or_else(|| ContractError::BadVersion { text: shown(text) })
    }
}

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

const GENERATIONS: [(Generation, Version); 8] = [
    (Generation::A, Version::release(0, 9, 0)),
    (Generation::B, Version::release(0, 10, 2)),
    (Generation::C, Version::release(0, 11, 1)),
    (Generation::D, Version::release(0, 17, 0)),
    (Generation::E, Version::release(0, 19, 0)),
    (Generation::F, Version::release(0, 29, 0)),
    (Generation::G, Version::release(0, 31, 0)),
    (Generation::H, Version::release(0, 33, 0)),
];

/// Releases that changed something else this module branches on.
const OTHER_BOUNDARIES: [Version; 4] = [
    Version::release(0, 10, 0), // sha256_cbor_64bit
    Version::release(0, 12, 0), // group view
    Version::release(0, 13, 0), // xxhash
    Version::release(0, 24, 0), // group view is the last digest
];

/// The newest release whose hashes were compared with the engine's own code.
const NEWEST: Version = Version::release(0, 33, 0);

impl Generation {
    /// The generation of a version.
    ///
    /// # Errors
    /// [`ContractError::UnverifiedVersion`] for versions before 0.9 or after 0.33.0, for
    /// development builds (they may hold any later change), and for pre-releases of a release
    /// that changed the contract.
    pub fn of(version: Version) -> Result<Self, ContractError> {
        let unverified = |why| Err(ContractError::UnverifiedVersion { version, why });
        match version.0.stage {
            Stage::Dev => return unverified("a development build may hold any later change"),
            Stage::Pre => {
                let release = Version(Release { stage: Stage::Release, ..version.0 });
                let mut changes = GENERATIONS.iter().map(|(_, first)| first);
                if changes.any(|v| *v == release) || OTHER_BOUNDARIES.contains(&release) {
                    return unverified("a pre-release of a release that changed the contract");
                }
            }
            Stage::Release => {}
        }
        if version > NEWEST {
            return unverified("it is newer than 0.33.0, the newest one verified");
        }
        let found = GENERATIONS.iter().rev().find(|(_, first)| version >= *first);
        found.map_or_else(|| unverified("it is older than 0.9"), |(generation, _)| Ok(*generation))
    }

    /// The first release of this generation, to build a [`Contract`](super::Contract) for a
    /// version that is not known by number.
    #[must_use]
    pub const fn first_release(self) -> Version {
        GENERATIONS[self as usize].1
    }
}

#[cfg(test)]
mod tests;
