//! Policies by name.

use std::fmt;
use std::str::FromStr;

use crate::policy::Policy;
use crate::spec::PolicySpec;

/// The policies a pool can be configured with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// [`Latency`](crate::Latency), the default.
    #[default]
    Latency,
    /// [`Ttft`](crate::Ttft).
    Ttft,
    /// [`PreciseCacheAware`](crate::PreciseCacheAware).
    PreciseCacheAware,
    /// [`PrecisePipeline`](crate::PrecisePipeline).
    PrecisePipeline,
    /// [`CacheAware`](crate::CacheAware).
    CacheAware,
    /// [`LmcacheAware`](crate::LmcacheAware).
    LmcacheAware,
    /// [`LeastLoad`](crate::LeastLoad).
    LeastLoad,
    /// [`PowerOfTwo`](crate::PowerOfTwo).
    PowerOfTwo,
    /// [`RoundRobin`](crate::RoundRobin).
    RoundRobin,
    /// [`Weighted`](crate::Weighted).
    Weighted,
    /// [`Random`](crate::Random).
    Random,
    /// [`ConsistentHash`](crate::ConsistentHash).
    ConsistentHash,
    /// [`Chwbl`](crate::Chwbl).
    Chwbl,
    /// [`Session`](crate::Session).
    Session,
}

/// A policy name that is not known; its message lists the ones that are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    name: String,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown policy `{}`, expected one of ", self.name)?;
        for (i, kind) in PolicyKind::ALL.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}`{}`", kind.name())?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

impl PolicyKind {
    /// Every policy.
    pub const ALL: [Self; 14] = [
        Self::Latency,
        Self::Ttft,
        Self::PreciseCacheAware,
        Self::PrecisePipeline,
        Self::CacheAware,
        Self::LmcacheAware,
        Self::LeastLoad,
        Self::PowerOfTwo,
        Self::RoundRobin,
        Self::Weighted,
        Self::Random,
        Self::ConsistentHash,
        Self::Chwbl,
        Self::Session,
    ];

    /// The policy's name in configuration, headers and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Ttft => "ttft",
            Self::PreciseCacheAware => "precise_cache_aware",
            Self::PrecisePipeline => "precise_pipeline",
            Self::CacheAware => "cache_aware",
            Self::LmcacheAware => "lmcache_aware",
            Self::LeastLoad => "least_load",
            Self::PowerOfTwo => "power_of_two",
            Self::RoundRobin => "round_robin",
            Self::Weighted => "weighted",
            Self::Random => "random",
            Self::ConsistentHash => "consistent_hash",
            Self::Chwbl => "chwbl",
            Self::Session => "session",
        }
    }

    /// The policy itself, with its default options and nothing remembered.
    #[must_use]
    pub fn build(self) -> Box<dyn Policy> {
        PolicySpec::from(self).build()
    }
}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownPolicy { name: name.to_owned() })
    }
}
