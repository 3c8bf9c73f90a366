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
use std::time::Duration;

use kvasir_balance::{
    Candidate, EndpointId, FleetView, Members, Moment, Needs, Outcome, PolicyKind, Query, Rng,
    Selection, SelectionSpec,
};

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
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSimPolicy(String);

impl Peer {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Lmetric, Self::LlmD, Self::Dynamo, Self::SmgCacheAware, Self::LongestPrefix];

    fn name(self) -> &'static str {
        match self {
            Self::Lmetric => "lmetric",
            Self::LlmD => "llm_d",
            Self::Dynamo => "dynamo",
            Self::SmgCacheAware => "smg_cache_aware",
            Self::LongestPrefix => "longest_prefix",
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

    /// The policy with what it remembers, for one gateway.
    pub(crate) fn build(self, seed: u64) -> Player {
        let own = match self {
            Self::Own(kind) => Some(SelectionSpec::of(kind).build(seed)),
            Self::Peer(_) => None,
        };
        Player { policy: self, own, rng: Rng::new(seed) }
    }
}

/// A policy at play.
#[derive(Debug)]
pub(crate) struct Player {
    policy: SimPolicy,
    /// Kvasir's own stages, with the fallback a pool has.
    own: Option<Selection>,
    rng: Rng,
}

impl Player {
    /// What it reads of requests and engines besides what all do.
    pub(crate) fn needs(&self) -> Needs {
        self.own.as_ref().map(Selection::needs).unwrap_or_default()
    }

    /// The chosen candidate's place; `None` when there is none.
    pub(crate) fn choose(
        &mut self,
        query: &Query<'_>,
        candidates: &[Candidate],
        extras: &[Extra],
        now: Duration,
    ) -> Option<usize> {
        let rng = &mut self.rng;
        if let Some(selection) = &mut self.own {
            let members = Members { candidates, exclusions: &[], first_attempt: true };
            let moment = &mut Moment { now, rng };
            return selection.select(query, &members, moment).map(|decision| decision.index);
        }
        let view = &FleetView { candidates };
        match self.policy {
            SimPolicy::Own(_) => None,
            SimPolicy::Peer(Peer::Lmetric) => lmetric::choose(query, view, rng),
            SimPolicy::Peer(Peer::LlmD) => llm_d::choose(query, view, extras, rng),
            SimPolicy::Peer(Peer::Dynamo) => dynamo::choose(query, view, extras, rng),
            SimPolicy::Peer(Peer::SmgCacheAware) => smg::choose(view, rng),
            SimPolicy::Peer(Peer::LongestPrefix) => longest_prefix::choose(view),
        }
    }

    /// A request was answered by an engine, or not.
    pub(crate) fn observe(&mut self, outcome: &Outcome<'_>) {
        if let Some(selection) = &mut self.own {
            selection.observe(outcome);
        }
    }

    /// An engine has lost its cache.
    pub(crate) fn forget(&mut self, endpoint: EndpointId) {
        if let Some(selection) = &mut self.own {
            selection.forget(endpoint);
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
