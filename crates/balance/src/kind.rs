//! Policies by name.

use std::fmt;
use std::str::FromStr;

use crate::policies::{Latency, LeastLoad, PreciseCacheAware, RoundRobin};
use crate::policy::Policy;

/// The policies a pool can be configured with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// [`RoundRobin`].
    RoundRobin,
    /// [`LeastLoad`].
    LeastLoad,
    /// [`PreciseCacheAware`].
    PreciseCacheAware,
    /// [`Latency`], the default.
    #[default]
    Latency,
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
    pub const ALL: [Self; 4] =
        [Self::Latency, Self::PreciseCacheAware, Self::LeastLoad, Self::RoundRobin];

    /// The policy's name in configuration, headers and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastLoad => "least_load",
            Self::PreciseCacheAware => "precise_cache_aware",
            Self::Latency => "latency",
        }
    }

    /// The policy itself, with its default options and nothing remembered.
    #[must_use]
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::LeastLoad => Box::new(LeastLoad),
            Self::PreciseCacheAware => Box::new(PreciseCacheAware),
            Self::Latency => Box::new(Latency),
        }
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
