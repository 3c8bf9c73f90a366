//! The policies that can be simulated: all of `kvasir-balance`, and other routers' for comparison.
//!
//! Those are given Kvasir's own knowledge of residency and load, exact and current, so that only
//! the decisions are compared. They are written from descriptions of their formulas.

mod dynamo;
mod llm_d;
mod lmetric;
mod longest_prefix;
mod smg;

use std::fmt;
use std::str::FromStr;

use kvasir_balance::{FleetView, PolicyKind, PolicyState, Query, Rng};

use crate::gateway::Extra;

/// A policy that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimPolicy {
    /// One of Kvasir's own.
    Own(PolicyKind),
    /// Another router's.
    Peer(Peer),
}

/// Other routers' policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// `LMetric`: uncached prefill tokens times batch size.
    Lmetric,
    /// llm-d with its precise profile: 2 x prefix + queue + KV use.
    LlmD,
    /// Dynamo's KV router: blocks to prefill and blocks in use.
    Dynamo,
    /// SMG's `cache_aware` with events.
    SmgCacheAware,
    /// The longest prefix, whatever the load.
    LongestPrefix,
    /// Any of them.
    Random,
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSimPolicy(String);

impl Peer {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Lmetric,
        Self::LlmD,
        Self::Dynamo,
        Self::SmgCacheAware,
        Self::LongestPrefix,
        Self::Random,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Lmetric => "lmetric",
            Self::LlmD => "llm_d",
            Self::Dynamo => "dynamo",
            Self::SmgCacheAware => "smg_cache_aware",
            Self::LongestPrefix => "longest_prefix",
            Self::Random => "random",
        }
    }
}

impl SimPolicy {
    /// Every policy, Kvasir's first.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = PolicyKind::ALL.into_iter().map(Self::Own);
        // A name of Kvasir's own means Kvasir's own.
        let peers = Peer::ALL.into_iter().filter(|peer| peer.name().parse::<PolicyKind>().is_err());
        own.chain(peers.map(Self::Peer))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Own(kind) => kind.name(),
            Self::Peer(peer) => peer.name(),
        }
    }

    /// The chosen candidate's place; `None` when there is none.
    pub(crate) fn choose(
        self,
        query: &Query,
        view: &FleetView<'_>,
        extras: &[Extra],
        state: &mut PolicyState,
    ) -> Option<usize> {
        match self {
            Self::Own(kind) => kind.build().choose(query, view, state).map(|choice| choice.index),
            Self::Peer(Peer::Lmetric) => lmetric::choose(query, view, &mut state.rng),
            Self::Peer(Peer::LlmD) => llm_d::choose(query, view, extras, &mut state.rng),
            Self::Peer(Peer::Dynamo) => dynamo::choose(query, view, extras, &mut state.rng),
            Self::Peer(Peer::SmgCacheAware) => smg::choose(view, &mut state.rng),
            Self::Peer(Peer::LongestPrefix) => longest_prefix::choose(view),
            Self::Peer(Peer::Random) => {
                let count = view.candidates.len();
                (count > 0).then(|| state.rng.below(count))
            }
        }
    }
}

impl FromStr for SimPolicy {
    type Err = UnknownSimPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownSimPolicy> {
        Self::all()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| UnknownSimPolicy(name.to_owned()))
    }
}

impl fmt::Display for UnknownSimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown policy `{}`, expected one of ", self.0)?;
        for (place, policy) in SimPolicy::all().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}`{}`", policy.name())?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownSimPolicy {}

/// The place with the lowest cost; one of them at random where several have it.
fn cheapest(costs: &[f64], rng: &mut Rng) -> Option<usize> {
    let lowest = costs.iter().copied().reduce(f64::min)?;
    let tied: Vec<usize> = (0..costs.len()).filter(|place| costs[*place] <= lowest).collect();
    let at = if tied.len() > 1 { rng.below(tied.len()) } else { 0 };
    tied.get(at).copied()
}

#[cfg(test)]
mod tests;
