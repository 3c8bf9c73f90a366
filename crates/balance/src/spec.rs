//! A pool's selection as it is configured, and written into decision logs.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kind::PolicyKind;
use crate::policies::{
    CacheAware, CacheAwareOptions, Chwbl, ConsistentHash, Latency, LeastLoad, LmcacheAware,
    PowerOfTwo, PreciseCacheAware, PreciseOptions, PrecisePipeline, Random, RoundRobin, Session,
    Ttft, Weighted,
};
use crate::policy::Policy;
use crate::select::{Selection, Stage};
use crate::sessions::SessionSource;
use crate::slo::Slo;
use crate::sticky::{Pins, StickyOptions};

/// A policy with its options: written as its name alone, or as a map of `name` and options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
// `remote`: the derived functions read and write the map; the traits below add the bare name.
#[serde(remote = "Self", tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicySpec {
    /// [`Latency`].
    #[serde(deserialize_with = "no_options")]
    Latency,
    /// [`Ttft`].
    #[serde(deserialize_with = "no_options")]
    Ttft,
    /// [`PreciseCacheAware`].
    PreciseCacheAware(PreciseOptions),
    /// [`PrecisePipeline`].
    #[serde(deserialize_with = "no_options")]
    PrecisePipeline,
    /// [`CacheAware`].
    CacheAware(CacheAwareOptions),
    /// [`LmcacheAware`].
    #[serde(deserialize_with = "no_options")]
    LmcacheAware,
    /// [`LeastLoad`].
    LeastLoad(LeastLoad),
    /// [`PowerOfTwo`].
    #[serde(deserialize_with = "no_options")]
    PowerOfTwo,
    /// [`RoundRobin`].
    #[serde(deserialize_with = "no_options")]
    RoundRobin,
    /// [`Weighted`].
    #[serde(deserialize_with = "no_options")]
    Weighted,
    /// [`Random`].
    #[serde(deserialize_with = "no_options")]
    Random,
    /// [`ConsistentHash`].
    ConsistentHash(ConsistentHash),
    /// [`Chwbl`].
    Chwbl(Chwbl),
    /// [`Session`].
    Session(StickyOptions),
}

/// How a pool selects an endpoint: eligibility, the limit for the time to first token, conversations
/// that stick, the policy, and another one where the policy has no say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SelectionSpec {
    /// The policy.
    pub policy: PolicySpec,
    /// What chooses where the policy has no say.
    pub fallback: PolicySpec,
    /// The time to first token above which an endpoint is avoided, in milliseconds.
    pub slo_ttft_ms: Option<f64>,
    /// Whether conversations stay where they are, and for how long; not at all by default.
    pub sticky: Option<StickyOptions>,
    /// Where a conversation's name is looked for, in this order.
    pub sessions: Vec<SessionSource>,
    /// A policy that chooses beside the pool's, without effect.
    pub shadow: Option<PolicySpec>,
}

// === impl PolicySpec ===

impl PolicySpec {
    /// Which policy it is.
    #[must_use]
    pub fn kind(&self) -> PolicyKind {
        match self {
            Self::Latency => PolicyKind::Latency,
            Self::Ttft => PolicyKind::Ttft,
            Self::PreciseCacheAware(_) => PolicyKind::PreciseCacheAware,
            Self::PrecisePipeline => PolicyKind::PrecisePipeline,
            Self::CacheAware(_) => PolicyKind::CacheAware,
            Self::LmcacheAware => PolicyKind::LmcacheAware,
            Self::LeastLoad(_) => PolicyKind::LeastLoad,
            Self::PowerOfTwo => PolicyKind::PowerOfTwo,
            Self::RoundRobin => PolicyKind::RoundRobin,
            Self::Weighted => PolicyKind::Weighted,
            Self::Random => PolicyKind::Random,
            Self::ConsistentHash(_) => PolicyKind::ConsistentHash,
            Self::Chwbl(_) => PolicyKind::Chwbl,
            Self::Session(_) => PolicyKind::Session,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Whether its choices depend on the decisions before.
    #[must_use]
    pub fn remembers(&self) -> bool {
        match self {
            Self::PreciseCacheAware(_)
            | Self::CacheAware(_)
            | Self::RoundRobin
            | Self::Weighted
            | Self::Session(_) => true,
            Self::Latency
            | Self::Ttft
            | Self::PrecisePipeline
            | Self::LmcacheAware
            | Self::LeastLoad(_)
            | Self::PowerOfTwo
            | Self::Random
            | Self::ConsistentHash(_)
            | Self::Chwbl(_) => false,
        }
    }

    /// The policy itself, with nothing remembered.
    #[must_use]
    pub fn build(&self) -> Box<dyn Policy> {
        match self {
            Self::Latency => Box::new(Latency),
            Self::Ttft => Box::new(Ttft),
            Self::PreciseCacheAware(options) => Box::new(PreciseCacheAware::new(*options)),
            Self::PrecisePipeline => Box::new(PrecisePipeline),
            Self::CacheAware(options) => Box::new(CacheAware::new(*options)),
            Self::LmcacheAware => Box::new(LmcacheAware),
            Self::LeastLoad(policy) => Box::new(*policy),
            Self::PowerOfTwo => Box::new(PowerOfTwo),
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::Weighted => Box::new(Weighted::default()),
            Self::Random => Box::new(Random),
            Self::ConsistentHash(policy) => Box::new(*policy),
            Self::Chwbl(policy) => Box::new(*policy),
            Self::Session(options) => Box::new(Session::new(*options)),
        }
    }
}

impl Default for PolicySpec {
    fn default() -> Self {
        PolicyKind::default().into()
    }
}

impl From<PolicyKind> for PolicySpec {
    /// The policy with its default options.
    fn from(kind: PolicyKind) -> Self {
        match kind {
            PolicyKind::Latency => Self::Latency,
            PolicyKind::Ttft => Self::Ttft,
            PolicyKind::PreciseCacheAware => Self::PreciseCacheAware(PreciseOptions::default()),
            PolicyKind::PrecisePipeline => Self::PrecisePipeline,
            PolicyKind::CacheAware => Self::CacheAware(CacheAwareOptions::default()),
            PolicyKind::LmcacheAware => Self::LmcacheAware,
            PolicyKind::LeastLoad => Self::LeastLoad(LeastLoad::default()),
            PolicyKind::PowerOfTwo => Self::PowerOfTwo,
            PolicyKind::RoundRobin => Self::RoundRobin,
            PolicyKind::Weighted => Self::Weighted,
            PolicyKind::Random => Self::Random,
            PolicyKind::ConsistentHash => Self::ConsistentHash(ConsistentHash::default()),
            PolicyKind::Chwbl => Self::Chwbl(Chwbl::default()),
            PolicyKind::Session => Self::Session(StickyOptions::default()),
        }
    }
}

impl Serialize for PolicySpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrMap;

        impl<'de> Visitor<'de> for NameOrMap {
            type Value = PolicySpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a policy's name, or a map of `name` and its options")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<PolicySpec, E> {
                name.parse::<PolicyKind>().map(PolicySpec::from).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicySpec, A::Error> {
                PolicySpec::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(NameOrMap)
    }
}

/// A policy without options takes none.
fn no_options<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoOptions {}

    NoOptions::deserialize(deserializer).map(|NoOptions {}| ())
}

// === impl SelectionSpec ===

impl SelectionSpec {
    /// `policy` with nothing around it but eligibility and the usual fallback.
    #[must_use]
    pub fn of(policy: impl Into<PolicySpec>) -> Self {
        Self { policy: policy.into(), ..Self::default() }
    }

    /// Whether its choices depend on the decisions before; the shadow's are none of them.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.slo_ttft_ms.is_some()
            || self.sticky.is_some()
            || self.policy.remembers()
            || self.fallback.remembers()
    }

    /// The stages, with nothing remembered. `seed` is for the shadow policy's chance.
    #[must_use]
    pub fn build(&self, seed: u64) -> Selection {
        let slo = self.slo_ttft_ms.map(|limit| Stage::Slo(Slo::new(limit)));
        let sticky = self.sticky.map(|options| Stage::Stickiness(Pins::new(options)));
        let stages = [Some(Stage::Eligibility), slo, sticky];
        let policies = [&self.policy, &self.fallback].map(|spec| Stage::Policy(spec.build()));
        let selection = Selection::new(stages.into_iter().flatten().chain(policies).collect());
        match &self.shadow {
            Some(shadow) => selection.with_shadow(shadow.build(), seed),
            None => selection,
        }
    }
}

impl Default for SelectionSpec {
    fn default() -> Self {
        Self {
            policy: PolicySpec::default(),
            fallback: PolicySpec::LeastLoad(LeastLoad::default()),
            slo_ttft_ms: None,
            sticky: None,
            sessions: SessionSource::defaults(),
            shadow: None,
        }
    }
}
