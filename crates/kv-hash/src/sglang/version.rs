//! SGLang's version numbers and the generations of its page-hash contract.

use std::fmt;
use std::str::FromStr;

use super::error::ContractError;
use crate::release::{Release, Stage};
use crate::shown::shown;

/// An SGLang version, as `GET /get_server_info` or `sglang.__version__` gives it.
///
/// Spelled and ordered as [`vllm::Version`](crate::vllm::Version).
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
    /// [`ContractError::BadVersion`] unless the text is a version number.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Release::parse(text)
            .map(Self)
            .ok_or_else(|| ContractError::BadVersion { text: shown(text) })
    }
}

/// A range of SGLang releases with one page-hash contract. Later ones compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generation {
    /// 0.5.1 to 0.5.5: `hash()` of a tuple, unchained.
    TupleHash,
    /// 0.5.6 to 0.5.17: a SHA-256 chain over tokens alone.
    Chained,
    /// 0.5.18 to 0.5.21: a salt seeds the chain.
    Salted,
    /// 0.5.22: the Dynamo format namespaces what is published.
    DynamoFormat,
    /// 0.5.23: the default format namespaces adapters; wide token ids.
    NamedAdapters,
}

const GENERATIONS: [(Generation, Version); 5] = [
    (Generation::TupleHash, Version::release(0, 5, 1)),
    (Generation::Chained, Version::release(0, 5, 6)),
    (Generation::Salted, Version::release(0, 5, 18)),
    (Generation::DynamoFormat, Version::release(0, 5, 22)),
    (Generation::NamedAdapters, Version::release(0, 5, 23)),
];

/// The newest release whose hashes were compared with the engine's own code.
const NEWEST: Version = Version::release(0, 5, 23);

impl Generation {
    /// The generation of a version.
    ///
    /// # Errors
    /// [`ContractError::UnverifiedVersion`] for versions before 0.5.1 or after 0.5.23, for
    /// development builds, and for pre-releases of a release that changed the contract.
    pub fn of(version: Version) -> Result<Self, ContractError> {
        let unverified = |why| Err(ContractError::UnverifiedVersion { version, why });
        match version.0.stage {
            Stage::Dev => return unverified("a development build may hold any later change"),
            Stage::Pre => {
                let release = Version(Release { stage: Stage::Release, ..version.0 });
                if GENERATIONS.iter().any(|(_, first)| *first == release) {
                    return unverified("a pre-release of a release that changed the contract");
                }
            }
            Stage::Release => {}
        }
        if version > NEWEST {
            return unverified("it is newer than 0.5.23, the newest one verified");
        }
        let found = GENERATIONS.iter().rev().find(|(_, first)| version >= *first);
        found
            .map_or_else(|| unverified("it is older than 0.5.1"), |(generation, _)| Ok(*generation))
    }

    /// The first release of this generation.
    #[must_use]
    pub const fn first_release(self) -> Version {
        GENERATIONS[self as usize].1
    }
}
