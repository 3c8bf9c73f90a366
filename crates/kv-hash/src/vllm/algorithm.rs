//! The values of vLLM's `--prefix-caching-hash-algo`.

use super::error::ContractError;
use crate::spelled::spelled;
use crate::version::Version;

/// How a block becomes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serialiser {
    Pickle,
    Cbor,
}

/// How these bytes become a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Sha256,
    Sha256Low64,
    Xxh3,
}

/// A value of `--prefix-caching-hash-algo`. Parses from and prints as vLLM's own spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// `builtin`: `CPython`'s `hash()`; 0.9 to 0.10.1.1, where it is the default.
    Builtin,
    /// `sha256`: SHA-256 of pickle protocol 5; in every version, the default from 0.10.2.
    Sha256,
    /// `sha256_cbor_64bit`: low 64 bits of SHA-256 of canonical CBOR; 0.10.0 to 0.10.1.1.
    Sha256Cbor64Bit,
    /// `sha256_cbor`: SHA-256 of canonical CBOR; from 0.10.2.
    Sha256Cbor,
    /// `xxhash`: XXH3-128 of pickle protocol 5; from 0.13.0.
    Xxhash,
    /// `xxhash_cbor`: XXH3-128 of canonical CBOR; from 0.13.0.
    XxhashCbor,
}

impl Algorithm {
    /// Every algorithm a vLLM release has offered.
    pub const ALL: [Self; 6] = [
        Self::Builtin,
        Self::Sha256,
        Self::Sha256Cbor64Bit,
        Self::Sha256Cbor,
        Self::Xxhash,
        Self::XxhashCbor,
    ];

    /// vLLM's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Sha256 => "sha256",
            Self::Sha256Cbor64Bit => "sha256_cbor_64bit",
            Self::Sha256Cbor => "sha256_cbor",
            Self::Xxhash => "xxhash",
            Self::XxhashCbor => "xxhash_cbor",
        }
    }

    /// Whether vLLM `version` accepts this algorithm.
    #[must_use]
    pub fn offered_by(self, version: Version) -> bool {
        let bytes_since = Version::release(0, 10, 2);
        match self {
            Self::Builtin => version < bytes_since,
            Self::Sha256 => true,
            Self::Sha256Cbor64Bit => version >= Version::release(0, 10, 0) && version < bytes_since,
            Self::Sha256Cbor => version >= bytes_since,
            Self::Xxhash | Self::XxhashCbor => version >= Version::release(0, 13, 0),
        }
    }

    /// What gives a block its bytes. `builtin` has none: its contracts cannot be built.
    pub(super) fn serialiser(self) -> Serialiser {
        match self {
            Self::Sha256 | Self::Xxhash => Serialiser::Pickle,
            _ => Serialiser::Cbor,
        }
    }

    /// What digests these bytes.
    pub(super) fn function(self) -> Function {
        match self {
            Self::Xxhash | Self::XxhashCbor => Function::Xxh3,
            Self::Sha256Cbor64Bit => Function::Sha256Low64,
            _ => Function::Sha256,
        }
    }

    /// Bytes of a digest. `builtin` hashes are 64-bit integers.
    #[must_use]
    pub fn digest_len(self) -> usize {
        match self {
            Self::Builtin | Self::Sha256Cbor64Bit => 8,
            Self::Xxhash | Self::XxhashCbor => 16,
            Self::Sha256 | Self::Sha256Cbor => 32,
        }
    }

    /// Whether the engine trusts this algorithm with a public seed (decides `NONE_HASH` from 0.29).
    pub(super) fn is_cryptographic(self) -> bool {
        !matches!(self, Self::Builtin | Self::Xxhash | Self::XxhashCbor)
    }
}

spelled!(Algorithm, ContractError::BadAlgorithm);
