//! The stages of a pool that splits requests.

use super::stages::{Narrowing, apply};
use super::{Decision, Members, Run, Selection, Stage, pin};
use crate::choice::Reason;
use crate::pair::{
    Cut, Legs, PairPlan, PairSelect, Paired, Pairing, Role, SidesLeft, least_loaded,
};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::slo::Slo;
use crate::sticky::Pins;
use crate::view::Candidate;

/// One request on its way through the stages.
struct Split<'a> {
    run: Run<'a>,
    pairing: &'a Pairing,
    cut: &'a [Cut],
    left: SidesLeft,
}

/// Runs the stages; `None` when nobody can answer.
pub(super) fn select(
    selection: &mut Selection,
    query: &Query<'_>,
    members: &Members<'_>,
    (pairing, cut): (&Pairing, &[Cut]),
    moment: &mut Moment<'_>,
) -> Option<Decision> {
    let Selection { stages, shadow } = selection;
    let places = (0..members.candidates.len()).collect();
    let run = Run { query, members, places, notes: Vec::new() };
    let mut split = Split { run, pairing, cut, left: SidesLeft::of_all(members) };
    let (policy, paired) = stages.iter_mut().find_map(|stage| apply(stage, &mut split, moment))?;
    let shadow = shadow.as_mut().and_then(|(policy, rng)| {
        split.choose(policy.as_mut(), &mut Moment { now: moment.now, rng })
    });
    let computes = members.candidates.get(paired.computes())?;
    if split.may_pin(computes)
        && !(computes.role == Role::Decode && split.is_pinned(stages, moment))
    {
        pin(stages, query, computes.id, moment);
    }
    let runner_up = paired.runner_up();
    let Paired { plan, index, prefill, decode_by, reason, detail, considered, scores } = paired;
    Some(Decision {
        index,
        policy,
        reason,
        considered,
        scores,
        runner_up,
        notes: split.run.notes,
        detail,
        shadow: shadow.map(|paired| paired.computes()),
        plan: Some(plan),
        prefill,
        decode_by,
    })
}

impl<'a> Narrowing<'a> for Split<'a> {
    type Found = Paired;

    fn run(&mut self) -> &mut Run<'a> {
        self.run.places = self.left.all();
        &mut self.run
    }

    fn leave_eligible(&mut self) -> &'static str {
        let (left, outcome) = SidesLeft::eligible(self.run.members, self.pairing, self.cut);
        self.left = left;
        outcome
    }

    fn narrow(&mut self, slo: &mut Slo) -> &'static str {
        self.left.narrow(slo, self.run.members.candidates).as_str()
    }

    /// The endpoint a conversation is pinned to, and one to answer where it only computes prompts.
    fn pinned(&mut self, pins: &Pins, moment: &mut Moment<'_>) -> (Option<Paired>, &'static str) {
        if self.pairing.legs == Legs::Decode {
            return (None, "not_asked");
        }
        let (choice, outcome) = self.run().pinned(pins, moment);
        let Some(choice) = choice else { return (None, outcome) };
        let place = self.run.places.get(choice.index).copied();
        let pinned = place.and_then(|place| self.run.members.candidates.get(place));
        if pinned.is_some_and(|pinned| !self.may_pin(pinned)) {
            return (None, "answers_only");
        }
        match place.and_then(|place| self.completed(place, moment)) {
            Some((plan, index, prefill)) => {
                let (considered, scores) = (vec![index], Vec::new());
                let (reason, detail) = (choice.reason, choice.detail);
                let decode_by = prefill.map(|_| self.pairing.by_load());
                let paired =
                    Paired { plan, index, prefill, decode_by, reason, detail, considered, scores };
                (Some(paired), outcome)
            }
            None => (None, "excluded"),
        }
    }

    fn choose(&mut self, policy: &mut dyn Policy, moment: &mut Moment<'_>) -> Option<Paired> {
        let sides = self.left.of(self.run.members.candidates, self.cut);
        if self.pairing.select == PairSelect::Cost
            && let Some(paired) = policy.pair(self.run.query, &sides, self.pairing, moment)
        {
            return Some(paired);
        }
        if self.pairing.legs == Legs::Decode {
            let index = least_loaded(&sides, self.pairing, None, moment.rng)?;
            let (considered, scores) = (self.left.decode.clone(), Vec::new());
            let (plan, reason) = (PairPlan::Split, Reason::LeastLoad);
            return Some(Paired {
                plan,
                index,
                prefill: None,
                decode_by: Some(self.pairing.by_load()),
                reason,
                detail: "",
                considered,
                scores,
            });
        }
        self.run.places = self.left.computing();
        let choice = self.run.choose(policy, moment)?;
        let place = *self.run.places.get(choice.index)?;
        let (plan, index, prefill) = self.completed(place, moment)?;
        let (reason, detail) = (choice.reason, choice.detail);
        let (considered, scores) = (std::mem::take(&mut self.run.places), choice.scores);
        let decode_by = prefill.map(|_| self.pairing.by_load());
        Some(Paired { plan, index, prefill, decode_by, reason, detail, considered, scores })
    }

    fn reason(found: &Paired) -> Reason {
        found.reason
    }
}

impl Split<'_> {
    /// Whether conversations may be pinned there: where their prompts are computed. That a decode
    /// endpoint computes is an exception, but for requests that are not split, and in pools that have
    /// nobody else.
    fn may_pin(&self, endpoint: &Candidate) -> bool {
        match self.pairing.legs {
            // Where the prompt of a decode leg alone was computed, is not known here.
            Legs::Decode => false,
            Legs::Whole => true,
            Legs::Any => endpoint.role != Role::Decode || !self.others_compute(),
        }
    }

    fn others_compute(&self) -> bool {
        self.run.members.candidates.iter().any(|candidate| candidate.role != Role::Decode)
    }

    /// Whether the conversation has its place at an endpoint that is no decode endpoint.
    fn is_pinned(&self, stages: &[Stage], moment: &Moment<'_>) -> bool {
        let Some(session) = self.run.query.pin() else { return false };
        let is_it = |id| {
            let mut all = self.run.members.candidates.iter();
            all.any(|candidate| candidate.id == id && candidate.role != Role::Decode)
        };
        stages.iter().any(|stage| match stage {
            Stage::Stickiness(pins) => pins.get(session, moment.now).is_some_and(is_it),
            _ => false,
        })
    }

    /// What is done where the endpoint at this place computes the prompt: the plan, who answers, and
    /// who computes the prompt where that is another.
    fn completed(
        &self,
        place: usize,
        moment: &mut Moment<'_>,
    ) -> Option<(PairPlan, usize, Option<usize>)> {
        let candidates = self.run.members.candidates;
        Some(match candidates.get(place)?.role {
            Role::Unified => (PairPlan::Unified, place, None),
            Role::Decode if !self.pairing.decode_computes() => return None,
            Role::Decode => (self.pairing.alone(!self.left.prefill.is_empty()), place, None),
            Role::Prefill if self.pairing.legs != Legs::Any => return None,
            Role::Prefill => {
                let sides = self.left.of(candidates, self.cut);
                let index = least_loaded(&sides, self.pairing, Some(place), moment.rng)?;
                (PairPlan::Split, index, Some(place))
            }
        })
    }
}
