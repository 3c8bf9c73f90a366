//! The vocabulary of residency: where a block lives, and what an engine calls it.

use std::fmt;

/// An engine's opaque handle of a block: it resolves removals and parents, never content.
///
/// vLLM's integer form is the last 8 bytes of its digest, big-endian; handles that come as bytes
/// are cut to the same 8 bytes, so that one block has one handle in both forms (offload events of
/// vLLM 0.11.1–0.23 carry bytes even where device events carry integers). SGLang's signed numbers
/// are taken as their two's complement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineHash(pub u64);

impl EngineHash {
    /// The handle of a digest given as bytes; shorter digests are taken whole.
    #[must_use]
    pub fn from_digest(digest: &[u8]) -> Self {
        let tail = &digest[digest.len().saturating_sub(8)..];
        Self(tail.iter().fold(0, |acc, byte| acc << 8 | u64::from(*byte)))
    }
}

impl fmt::Debug for EngineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineHash({:016x})", self.0)
    }
}

/// Where a block lives, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Accelerator memory.
    Device,
    /// Host memory.
    Host,
    /// Local storage.
    Disk,
    /// Another machine's memory or a shared store.
    Remote,
}

impl Tier {
    /// Every tier, fastest first.
    pub const ALL: [Self; 4] = [Self::Device, Self::Host, Self::Disk, Self::Remote];

    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
            Self::Disk => "disk",
            Self::Remote => "remote",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_and_its_integer_form_are_one_handle() {
        let digest: Vec<u8> = (1..=32).collect();
        assert_eq!(EngineHash::from_digest(&digest), EngineHash(0x191a_1b1c_1d1e_1f20));
        assert_eq!(EngineHash::from_digest(&[1, 2]), EngineHash(0x0102));
        assert_eq!(EngineHash::from_digest(&[]), EngineHash(0));
    }
}
