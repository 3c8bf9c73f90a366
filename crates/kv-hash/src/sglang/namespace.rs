//! Salts and namespaces: what keeps equal tokens of different owners apart.

use sha2::{Digest as _, Sha256};

use crate::digest::first_eight;

/// What stands for the parent's digest in the first page of a salted request (from 0.5.18).
pub(super) fn salt_digest(salt: &str) -> [u8; 32] {
    Sha256::new()
        .chain_update(b"sglang-cache-salt-v1\0")
        .chain_update(salt.as_bytes())
        .finalize()
        .into()
}

/// A namespace of published hashes (Dynamo format from 0.5.22, adapters from 0.5.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespace([u8; 32]);

impl Namespace {
    /// The namespace of an extra key and a salt; none if there is neither.
    pub(super) fn new(extra_key: Option<&str>, salt: Option<&str>) -> Option<Self> {
        if extra_key.is_none() && salt.is_none() {
            return None;
        }
        let mut hasher = Sha256::new_with_prefix(b"sglang-kv-event-namespace-v1");
        for part in [extra_key, salt] {
            match part {
                None => hasher.update([0]),
                Some(text) => {
                    hasher.update([1]);
                    hasher.update((text.len() as u64).to_le_bytes());
                    hasher.update(text.as_bytes());
                }
            }
        }
        Some(Self(hasher.finalize().into()))
    }

    /// A published value as it appears in this namespace.
    pub(super) fn apply(&self, value: u64) -> u64 {
        let digest =
            Sha256::new().chain_update(self.0).chain_update(value.to_be_bytes()).finalize();
        first_eight(&digest.into())
    }
}
