//! The policies that can be simulated: all of `kvasir-balance`, and other routers' for comparison.
//!
//! Those are given Kvasir's own knowledge of residency and load, exact and current, so that only
//! the decisions are compared. They are written from descriptions of their formulas.

mod dynamo;
mod llm_d;
mod lmetric;
mod longest_prefix;
mod smg;
mod written;

use std::time::Duration;

use kvasir_balance::record::Start;
use kvasir_balance::{
    EndpointId, FleetView, Members, Moment, Outcome, PairPlan, Pairing, PolicyKind, PolicySpec,
    Query, Rng, Selection, SelectionSpec,
};

pub use self::written::UnknownSimPolicy;
use crate::decisions::{DecisionLog, Sink};
use crate::gateway::Extra;

/// A policy that can be simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum SimPolicy {
    /// One of Kvasir's own, with its options.
    Own(PolicySpec),
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

impl Peer {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
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
    /// Every policy with its default options, Kvasir's first.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = PolicyKind::ALL.into_iter().map(Self::from);
        // A name of Kvasir's own means Kvasir's own.
        let peers = Peer::ALL.into_iter().filter(|peer| peer.name().parse::<PolicyKind>().is_err());
        own.chain(peers.map(Self::Peer))
    }

    /// The policy with what it remembers, for one gateway.
    pub(crate) fn build(&self, seed: u64) -> Player {
        let own = match self {
            Self::Own(spec) => Some(SelectionSpec::of(spec.clone()).build(seed)),
            Self::Peer(_) => None,
        };
        Player { policy: self.clone(), own, rng: Rng::new(seed), decisions: 0, log: None }
    }
}

impl From<PolicyKind> for SimPolicy {
    /// Kvasir's own policy with its default options.
    fn from(kind: PolicyKind) -> Self {
        Self::Own(kind.into())
    }
}

/// A policy at play.
#[derive(Debug)]
pub(crate) struct Player {
    policy: SimPolicy,
    /// Kvasir's own stages, with the fallback a pool has.
    own: Option<Selection>,
    rng: Rng,
    /// Decisions so far.
    decisions: u64,
    log: Option<DecisionLog>,
}

/// Who serves a request: places of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    /// Who answers.
    pub(crate) index: usize,
    /// Who computes the prompt, where that is another.
    pub(crate) prefill: Option<usize>,
    /// How, where requests are split.
    pub(crate) plan: Option<PairPlan>,
}

impl Player {
    /// Whether caches are to be counted: for its policy, or for others to be tried on its log.
    pub(crate) fn gathers_blocks(&self) -> bool {
        self.log.is_some() || self.own.as_ref().is_some_and(|own| own.needs().blocks)
    }

    /// Logs its decisions from now on. Other routers' policies have no log.
    pub(crate) fn log_to(&mut self, sink: &Sink, names: Vec<String>) {
        let SimPolicy::Own(policy) = &self.policy else { return };
        // Nothing was drawn yet: the state is the seed.
        let spec = SelectionSpec::of(policy.clone());
        let start = Start::new("simulated".to_owned(), spec, self.rng.state());
        let needs = self.own.as_ref().map(Selection::needs).unwrap_or_default();
        self.log = Some(DecisionLog::begin(sink, start, names, needs));
    }

    /// The number of the last decision.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Who serves the request; `None` when there is nobody. `pairing` says how it may be split.
    pub(crate) fn choose(
        &mut self,
        query: &Query<'_>,
        members: &Members<'_>,
        pairing: Option<&Pairing>,
        extras: &[Extra],
        now: Duration,
    ) -> Option<Picked> {
        self.decisions += 1;
        let Some(selection) = &mut self.own else {
            let index = self.as_peer(query, members, extras)?;
            return Some(Picked { index, prefill: None, plan: None });
        };
        let seed = self.rng.state();
        let moment = &mut Moment { now, rng: &mut self.rng };
        let decision = match pairing {
            Some(pairing) => selection.select_pair(query, members, pairing, &[], moment),
            None => selection.select(query, members, moment),
        };
        if let Some(log) = &self.log {
            let made = (self.decisions, now, seed);
            log.decision(made, query, members, pairing, decision.as_ref());
        }
        decision.map(|made| Picked { index: made.index, prefill: made.prefill, plan: made.plan })
    }

    fn as_peer(
        &mut self,
        query: &Query<'_>,
        members: &Members<'_>,
        extras: &[Extra],
    ) -> Option<usize> {
        let SimPolicy::Peer(peer) = self.policy else { return None };
        let places = eligible(members);
        let candidates: Vec<_> =
            places.iter().filter_map(|place| members.candidates.get(*place).copied()).collect();
        let extras: Vec<_> =
            places.iter().filter_map(|place| extras.get(*place).copied()).collect();
        let (view, extras, rng) = (&FleetView { candidates: &candidates }, &extras, &mut self.rng);
        let chosen = match peer {
            Peer::Lmetric => lmetric::choose(query, view, rng),
            Peer::LlmD => llm_d::choose(query, view, extras, rng),
            Peer::Dynamo => dynamo::choose(query, view, extras, rng),
            Peer::SmgCacheAware => smg::choose(view, rng),
            Peer::LongestPrefix => longest_prefix::choose(view),
        };
        places.get(chosen?).copied()
    }

    /// A request was answered by an engine, or not.
    pub(crate) fn observe(&mut self, decision: u64, outcome: &Outcome<'_>) {
        if let Some(selection) = &mut self.own {
            selection.observe(outcome);
        }
        if let Some(log) = &self.log {
            log.outcome(decision, outcome);
        }
    }

    /// An engine has lost its cache.
    pub(crate) fn forget(&mut self, place: usize, endpoint: EndpointId) {
        if let Some(selection) = &mut self.own {
            selection.forget(endpoint);
        }
        if let Some(log) = &self.log {
            log.forget(place);
        }
    }
}

/// The places of members that may be chosen: those nothing speaks against, else those with the
/// least against them, as the stages of a pool have it.
pub(crate) fn eligible(members: &Members<'_>) -> Vec<usize> {
    let against = |place: &usize| match members.exclusions.get(*place).copied().flatten() {
        None => Some(0),
        Some(exclusion) => exclusion.resort(members.first_attempt),
    };
    let places = 0..members.candidates.len();
    let least = places.clone().filter_map(|place| against(&place)).min();
    places.filter(|place| least.is_some() && against(place) == least).collect()
}

/// The place with the lowest cost; one of them at random where several have it.
fn cheapest(costs: &[f64], rng: &mut Rng) -> Option<usize> {
    let lowest = costs.iter().copied().reduce(f64::min)?;
    let tied: Vec<usize> = (0..costs.len()).filter(|place| costs[*place] <= lowest).collect();
    let at = if tied.len() > 1 { rng.below(tied.len()) } else { 0 };
    tied.get(at).copied()
}

#[cfg(test)]
mod tests;
