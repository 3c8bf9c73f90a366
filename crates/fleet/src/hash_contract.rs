//! What is known of the contract by which an engine hashes its blocks.

use std::fmt;

/// Whether the hashes in an engine's events were computed from their tokens, and by which contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HashContract {
    /// How it stands.
    pub state: HashState,
    /// Engine and algorithm, such as `vllm sha256_cbor`: the one that fits, or the one configured
    /// and not found. Empty where neither is known.
    pub contract: String,
    /// Why it is not verified, in words for metrics, separated by commas: `seed`, `algorithm`,
    /// `engine`, `generation`, `hash_block_size`, `unseeded`, `seed_not_found`, `nothing_fits`,
    /// `unexplained`, ... Empty where it is, or nothing was checked.
    pub cause: String,
    /// The same in a sentence, with seeds: for logs.
    pub detail: String,
}

/// How the verification stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashState {
    /// No event has come that could be checked: one with tokens, that begins a prompt.
    #[default]
    Unchecked,
    /// The contract computes the hashes of all plain blocks that were checked.
    Verified,
    /// No contract is known that does, and none was promised: the engine's seed is random, or not
    /// among those that are tried.
    Unreproducible,
    /// The configured contract does not, or a verified one does not any more.
    Mismatch,
}

impl HashState {
    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unchecked => "unchecked",
            Self::Verified => "verified",
            Self::Unreproducible => "unreproducible",
            Self::Mismatch => "mismatch",
        }
    }
}

impl fmt::Display for HashContract {
    /// `verified(vllm sha256_cbor)`, `mismatch(vllm sha256: seed)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state.as_str())?;
        match (self.contract.as_str(), self.cause.as_str()) {
            ("", "") => Ok(()),
            (one, "") | ("", one) => write!(f, "({one})"),
            (contract, cause) => write!(f, "({contract}: {cause})"),
        }
    }
}
