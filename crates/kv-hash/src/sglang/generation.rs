//! The generations of SGLang's page-hash contract.
//!
//! How a new release gets here: `testdata/golden/README.md`, "A new release".

use super::error::ContractError;
use crate::version::{History, Version};

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

const HISTORY: History<Generation> = History {
    generations: &[
        (Generation::TupleHash, Version::release(0, 5, 1)),
        (Generation::Chained, Version::release(0, 5, 6)),
        (Generation::Salted, Version::release(0, 5, 18)),
        (Generation::DynamoFormat, Version::release(0, 5, 22)),
        (Generation::NamedAdapters, Version::release(0, 5, 23)),
    ],
    other_changes: &[],
    newest: Version::release(0, 5, 23),
    too_new: "it is newer than 0.5.23, the newest one verified",
    too_old: "it is older than 0.5.1",
};

impl Generation {
    /// The generation of a version.
    ///
    /// # Errors
    /// [`ContractError::UnverifiedVersion`] for versions before 0.5.1 or after 0.5.23, for
    /// development builds, and for pre-releases of a release that changed the contract.
    pub fn of(version: Version) -> Result<Self, ContractError> {
        HISTORY.place(version).map_err(|why| ContractError::UnverifiedVersion { version, why })
    }

    /// The first release of this generation.
    #[must_use]
    pub const fn first_release(self) -> Version {
        HISTORY.generations[self as usize].1
    }

    /// The newest generation.
    pub(crate) const fn newest() -> Self {
        HISTORY.generations[HISTORY.generations.len() - 1].0
    }

    /// The newest release whose hashes were compared with the engine's own code: what to assume of
    /// an engine that does not say what it is, or is newer than all that is known.
    #[must_use]
    pub const fn newest_release() -> Version {
        HISTORY.newest
    }
}
