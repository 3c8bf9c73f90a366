//! How an endpoint is selected: the stages of a pool, run in order.
//!
//! A stage either narrows the candidates or chooses one of them. Which stages there are, and in
//! what order, is data ([`Selection::new`]); what each of them did to a request is part of its
//! [`Decision`].

mod split;
mod stages;

use std::borrow::Cow;

use self::stages::{Narrowing, apply};

use crate::choice::{Choice, Reason};
use crate::exclusion::Exclusion;
use crate::miss::Miss;
use crate::pair::{Cut, PairPlan, PairSelect, Pairing};
use crate::policies::latency_cost;
use crate::policy::{Moment, Outcome, Policy};
use crate::query::{Needs, Query};
use crate::rng::Rng;
use crate::slo::Slo;
use crate::sticky::Pins;
use crate::view::{Candidate, EndpointId, FleetView};

/// One step of a selection.
#[derive(Debug)]
pub enum Stage {
    /// Leaves the endpoints nothing speaks against; where there is none, those with the least
    /// against them ([`Exclusion::resort`]).
    Eligibility,
    /// Leaves the endpoints that keep the pool's limit for the time to first token.
    Slo(Slo),
    /// A conversation goes where it went before, unless that costs too much: see [`Selection`].
    Stickiness(Pins),
    /// A policy chooses. One that has no say in a request leaves it to the next stage.
    Policy(Box<dyn Policy>),
}

/// Every endpoint of a pool at one moment; both slices are in the pool's order.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// What is known of each.
    pub candidates: &'a [Candidate],
    /// Why it may not be chosen; `None` where nothing speaks against it, as for places beyond the
    /// slice's end.
    pub exclusions: &'a [Option<Exclusion>],
    /// Whether the request was sent nowhere before: an attempt that found no connection sent nothing.
    pub first_attempt: bool,
}

/// What one stage did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The stage, a policy by its name.
    pub stage: &'static str,
    /// What it did.
    pub outcome: &'static str,
    /// How many candidates were left after it.
    pub left: usize,
    /// Why a policy had no say, where it can tell; else empty.
    pub miss: &'static str,
}

/// A chosen endpoint and how it came to that.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Its place in the pool.
    pub index: usize,
    /// The policy (or `sticky`) that chose it.
    pub policy: &'static str,
    /// Why.
    pub reason: Reason,
    /// The places in the pool of the candidates compared in the end.
    pub considered: Vec<usize>,
    /// Their scores, in the policy's own unit, lower is better; empty where nothing was compared.
    pub scores: Vec<f64>,
    /// The place of the second best, where candidates were compared.
    pub runner_up: Option<usize>,
    /// What every stage did, in order.
    pub notes: Vec<Note>,
    /// What was special about it, in the policy's own words; empty for nothing.
    pub detail: &'static str,
    /// What the shadow policy would have chosen: the place of who would compute the prompt.
    pub shadow: Option<usize>,
    /// How the request is served, where the pool splits requests.
    pub plan: Option<PairPlan>,
    /// The place of the endpoint that computes the prompt, where `index` only answers.
    pub prefill: Option<usize>,
    /// How `index` was chosen, where it only answers: not by the policy, but where that has costs.
    pub decode_by: Option<PairSelect>,
}

impl Decision {
    /// The place of the endpoint that computes the prompt.
    #[must_use]
    pub fn computes(&self) -> usize {
        self.prefill.unwrap_or(self.index)
    }
}

/// The stages of one pool, with what they remember.
///
/// A pinned conversation is moved when the least added latency elsewhere ([`crate::Latency`]'s cost)
/// is less than half of what it is where the conversation is pinned, and less by 50 ms at least.
#[derive(Debug)]
pub struct Selection {
    stages: Vec<Stage>,
    shadow: Option<(Box<dyn Policy>, Rng)>,
}

/// A pin is kept while its cost in seconds is at most `KEEP_RATIO` times the least plus
/// `KEEP_SECONDS`.
const KEEP_RATIO: f64 = 2.0;
const KEEP_SECONDS: f64 = 0.05;

/// The name of the stickiness stage, in the place of a policy's.
const STICKY: &str = "sticky";

// === impl Members ===

impl Members<'_> {
    /// Why the one at this place may not be chosen.
    pub(crate) fn exclusion(&self, place: usize) -> Option<Exclusion> {
        self.exclusions.get(place).copied().flatten()
    }

    /// How much speaks against it ([`Exclusion::resort`]): 0 for nothing, `None` for too much.
    pub(crate) fn resort(&self, place: usize) -> Option<u8> {
        self.exclusion(place).map_or(Some(0), |exclusion| exclusion.resort(self.first_attempt))
    }
}

/// The word for what eligibility left: those with the least against them, be it nothing (0), and
/// whether these are all there are.
pub(crate) fn eligible_word(least: u8, all: bool) -> &'static str {
    match (least, all) {
        (0, true) => "all",
        (0, false) => "some",
        _ => "last_resort",
    }
}

// === impl Selection ===

impl Selection {
    /// These stages, in this order. Without [`Stage::Eligibility`] every member is a candidate.
    #[must_use]
    pub fn new(stages: Vec<Stage>) -> Self {
        Self { stages, shadow: None }
    }

    /// Lets another policy choose beside it, without effect. It draws from a random source of its
    /// own, so that choices are the same with and without it.
    #[must_use]
    pub fn with_shadow(mut self, policy: Box<dyn Policy>, seed: u64) -> Self {
        self.shadow = Some((policy, Rng::new(seed)));
        self
    }

    /// The shadow policy's name.
    #[must_use]
    pub fn shadow(&self) -> Option<&'static str> {
        self.shadow.as_ref().map(|(policy, _)| policy.name())
    }

    /// What its stages read of a request.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let stages = self.stages.iter().map(|stage| match stage {
            Stage::Policy(policy) => policy.needs(),
            Stage::Stickiness(_) => Needs { session: true, ..Needs::default() },
            Stage::Eligibility | Stage::Slo(_) => Needs::default(),
        });
        let shadow = self.shadow.iter().map(|(policy, _)| policy.needs());
        stages.chain(shadow).fold(Needs::default(), |all, one| Needs {
            session: all.session || one.session,
            keys: all.keys || one.keys,
            head: all.head || one.head,
            images: all.images || one.images,
            blocks: all.blocks || one.blocks,
        })
    }

    /// [`select`](Self::select) where requests may be split, and who is in `cut` hands over nothing.
    /// A conversation is pinned to the endpoint that computes its prompts; to a decode endpoint only
    /// where the request is not split, or the pool has no others.
    pub fn select_pair(
        &mut self,
        query: &Query<'_>,
        members: &Members<'_>,
        pairing: &Pairing,
        cut: &[Cut],
        moment: &mut Moment<'_>,
    ) -> Option<Decision> {
        split::select(self, query, members, (pairing, cut), moment)
    }

    /// Runs the stages; `None` when no endpoint can be chosen.
    pub fn select(
        &mut self,
        query: &Query<'_>,
        members: &Members<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Decision> {
        let Self { stages, shadow } = self;
        let mut run = Run {
            query,
            members,
            places: (0..members.candidates.len()).collect(),
            notes: Vec::new(),
        };
        let (policy, found) = stages.iter_mut().find_map(|stage| apply(stage, &mut run, moment))?;
        let beside = shadow.as_mut().and_then(|(policy, rng)| {
            run.choose(policy.as_mut(), &mut Moment { now: moment.now, rng })
        });
        let index = *run.places.get(found.index)?;
        pin(stages, query, members.candidates.get(index)?.id, moment);
        let place = |at: usize| run.places.get(at).copied();
        let runner_up = found.runner_up().and_then(place);
        let shadow = beside.and_then(|choice| place(choice.index));
        let Choice { reason, scores, detail, .. } = found;
        let Run { places: considered, notes, .. } = run;
        Some(Decision {
            index,
            policy,
            reason,
            considered,
            scores,
            runner_up,
            notes,
            detail,
            shadow,
            plan: None,
            prefill: None,
            decode_by: None,
        })
    }

    /// The stages as they are now, for one choice about `query` that is not to be made but foreseen:
    /// it comes out as it would here, and nothing of it gets back. To be dropped before anything else
    /// happens here.
    #[must_use]
    pub fn fork(&self, query: &Query<'_>) -> Self {
        let stage = |stage: &Stage| match stage {
            Stage::Eligibility => Stage::Eligibility,
            Stage::Slo(slo) => Stage::Slo(slo.clone()),
            Stage::Stickiness(pins) => Stage::Stickiness(pins.only(query.pin())),
            Stage::Policy(policy) => Stage::Policy(policy.fork(query)),
        };
        let shadow = self.shadow.as_ref().map(|(policy, rng)| (policy.fork(query), rng.clone()));
        Self { stages: self.stages.iter().map(stage).collect(), shadow }
    }

    /// Tells every stage what became of a request.
    pub fn observe(&mut self, outcome: &Outcome<'_>) {
        for stage in &mut self.stages {
            match stage {
                Stage::Policy(policy) => policy.observe(outcome),
                Stage::Stickiness(pins) => pins.observe(outcome),
                Stage::Eligibility | Stage::Slo(_) => {}
            }
        }
        if let Some((policy, _)) = &mut self.shadow {
            policy.observe(outcome);
        }
    }

    /// Tells every stage that an endpoint has lost its cache, or is gone.
    pub fn forget(&mut self, endpoint: EndpointId) {
        for stage in &mut self.stages {
            match stage {
                Stage::Policy(policy) => policy.forget(endpoint),
                Stage::Stickiness(pins) => pins.forget(endpoint),
                Stage::Slo(slo) => slo.forget(endpoint),
                Stage::Eligibility => {}
            }
        }
        if let Some((policy, _)) = &mut self.shadow {
            policy.forget(endpoint);
        }
    }
}

/// The conversation is at that endpoint now.
fn pin(stages: &mut [Stage], query: &Query<'_>, endpoint: EndpointId, moment: &Moment<'_>) {
    let Some(session) = query.pin() else { return };
    for stage in stages {
        if let Stage::Stickiness(pins) = stage {
            pins.set(session, endpoint, moment.now);
        }
    }
}

/// One request on its way through the stages.
struct Run<'a> {
    query: &'a Query<'a>,
    members: &'a Members<'a>,
    places: Vec<usize>,
    notes: Vec<Note>,
}

// === impl Run ===

impl Run<'_> {
    fn note(&mut self, stage: &'static str, outcome: &'static str) {
        self.notes.push(Note { stage, outcome, left: self.places.len(), miss: "" });
    }

    /// Adds to the last note why that policy had no say, as far as it can tell.
    fn note_policy_miss(&mut self, policy: &mut dyn Policy) {
        let miss = match policy.miss() {
            Some(Miss::NoHolder) if self.is_held_elsewhere() => Some(Miss::Excluded),
            Some(Miss::NoHolder) => Some(policy.nobody_holds()),
            miss => miss,
        };
        self.note_miss(miss);
    }

    /// Adds to the last note why that policy had no say.
    fn note_miss(&mut self, miss: Option<Miss>) {
        if let Some(note) = self.notes.last_mut() {
            note.miss = miss.map_or("", Miss::as_str);
        }
    }

    /// Whether an endpoint that is no candidate any more holds some of the prompt.
    fn is_held_elsewhere(&self) -> bool {
        let all = self.members.candidates.iter().enumerate();
        all.filter(|(_, candidate)| candidate.overlap.resident() > 0)
            .any(|(place, _)| !self.places.contains(&place))
    }
}

impl<'a> Narrowing<'a> for Run<'a> {
    type Found = Choice;

    fn run(&mut self) -> &mut Self {
        self
    }

    fn leave_eligible(&mut self) -> &'static str {
        let resort = |place: &usize| self.members.resort(*place);
        let Some(best) = self.places.iter().filter_map(resort).min() else {
            self.places.clear();
            return "none";
        };
        let left: Vec<usize> =
            self.places.iter().copied().filter(|place| resort(place) == Some(best)).collect();
        let all = left.len() == self.places.len();
        self.places = left;
        eligible_word(best, all)
    }

    fn narrow(&mut self, slo: &mut Slo) -> &'static str {
        slo.narrow(self.members.candidates, &mut self.places).as_str()
    }

    /// The endpoint a conversation is pinned to. One that is draining still takes it.
    fn pinned(&mut self, pins: &Pins, moment: &mut Moment<'_>) -> (Option<Choice>, &'static str) {
        let Some(session) = self.query.pin() else { return (None, "no_session") };
        let Some(endpoint) = pins.get(session, moment.now) else { return (None, "not_pinned") };
        let candidates = self.members.candidates;
        let Some(place) = candidates.iter().position(|candidate| candidate.id == endpoint) else {
            return (None, "gone");
        };
        let draining = self.members.exclusion(place).is_some_and(Exclusion::is_draining);
        if !draining && !self.places.contains(&place) {
            return (None, "excluded");
        }
        let cost = |place: &usize| latency_cost(self.query, &candidates[*place]);
        let least = self.places.iter().map(cost).fold(f64::INFINITY, f64::min);
        if cost(&place) > KEEP_RATIO * least + KEEP_SECONDS {
            return (None, "outweighed");
        }
        if draining {
            self.places.push(place);
        }
        let index = self.places.iter().position(|known| *known == place);
        (index.map(|index| Choice::plain(index, Reason::Pinned)), Reason::Pinned.as_str())
    }

    fn choose(&mut self, policy: &mut dyn Policy, moment: &mut Moment<'_>) -> Option<Choice> {
        let all = self.members.candidates;
        let left: Cow<'_, [Candidate]> = if self.places.len() == all.len() {
            Cow::Borrowed(all)
        } else {
            Cow::Owned(self.places.iter().map(|place| all[*place]).collect())
        };
        if left.is_empty() {
            return None;
        }
        policy.choose(self.query, &FleetView { candidates: &left }, moment)
    }

    fn reason(found: &Choice) -> Reason {
        found.reason
    }
}
