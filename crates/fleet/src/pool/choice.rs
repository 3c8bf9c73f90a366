//! The decision among a pool's endpoints, and its grounds: chosen and committed in one step.

use std::sync::Arc;
use std::time::Instant;

use kvasir_balance::{Candidate, Legs, Members, Miss, Note, PairPlan, PairSelect, Pairing, Reason};
use kvasir_inventory::{Overlap, Trust};

use super::Pool;
use super::asking::Asking;
use super::candidates::median_rate;
use super::side::Side;
use super::trials::Trials;
use crate::admission::NoRoom;
use crate::decision_log::Noted;
use crate::endpoint::Endpoint;
use crate::evidence::Evidence;
use crate::load::Reservation;
use crate::parity::{Prediction, Unjudged};
use crate::stage::Stage;

/// An endpoint chosen for a request, and the claim on it.
#[derive(Debug)]
pub struct Chosen {
    /// Keeps the endpoint's load accounted for until it is dropped.
    pub reservation: Reservation,
    /// The claim on the endpoint that computes the prompt, where another one answers: then
    /// `reservation` is the decode leg's. To be dropped when the prefill leg is over, and followed by a
    /// [`Lease`](crate::Lease) ([`Reservation::lease`]) while its blocks are kept for the decode leg.
    pub prefill: Option<Reservation>,
    /// What was decided and on what grounds.
    pub decision: Decision,
}

/// The grounds of one decision.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Its number in the decision log, where there is one.
    pub id: Option<u64>,
    /// The policy that chose: the pool's, `sticky`, or the fallback.
    pub policy: &'static str,
    /// Why this endpoint.
    pub reason: Reason,
    /// What was special about it, in the policy's own words; empty for nothing.
    pub detail: &'static str,
    /// What every stage of the selection did.
    pub stages: Vec<Note>,
    /// What the shadow policy would have done.
    pub shadow: Option<Shadow>,
    /// What it is credited with holding of the prompt.
    pub overlap: Overlap,
    /// Tokens of the prompt beyond that which it was computing for others, or had just computed.
    pub pending: u32,
    /// How far its events were believed.
    pub trust: Trust,
    /// Prompt tokens, all prompts together.
    pub prompt_tokens: u64,
    /// How many endpoints could have been chosen.
    pub candidates: usize,
    /// How much the engine is expected to hit, to be held against what it reports
    /// ([`Endpoint::judge`]); or why it is not.
    /// Of a split request that is the prefill endpoint's ([`PrefillSide::prediction`]), and here
    /// there is none.
    pub prediction: Result<Prediction, Unjudged>,
    /// How the request is served where the pool splits; `None` in other pools.
    pub plan: Option<PairPlan>,
    /// How the endpoint that answers was chosen, of a split request: `reason` is that of the prefill
    /// endpoint, but where both were chosen by cost.
    pub decode_by: Option<PairSelect>,
    /// Where the prompt is computed, of a split request. What stands above is the decode endpoint's.
    pub prefill: Option<PrefillSide>,
}

/// What a pool's shadow policy would have decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Its name.
    pub policy: &'static str,
    /// Whether it would have chosen the same endpoint to compute the prompt.
    pub agrees: bool,
    /// Tokens of the prompt that its endpoint is credited with holding; `None` where it had no say.
    pub overlap: Option<u32>,
}

/// Where the prompt of a split request is computed, and on what grounds.
#[derive(Clone, Debug)]
pub struct PrefillSide {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// What it is credited with holding of the prompt.
    pub overlap: Overlap,
    /// Tokens of the prompt beyond that which it was computing for others, or had just computed.
    pub pending: u32,
    /// How far its events were believed.
    pub trust: Trust,
    /// What the pair costs, in the policy's own unit; `None` where nothing was compared.
    pub cost: Option<f64>,
    /// How much the engine is expected to hit, to be held against what the prefill leg's answer
    /// reports ([`Endpoint::judge`]); or why it is not.
    pub prediction: Result<Prediction, Unjudged>,
}

impl Decision {
    /// The policies that had no say, each with why, where it can tell.
    pub fn misses(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let told = self.stages.iter().filter(|note| !note.miss.is_empty());
        told.map(|note| (note.stage, note.miss))
    }
}

impl Pool {
    /// Chooses an endpoint for a request for `model` (the pool's, or an adapter) and commits the
    /// request's load and its prompt, as pending there, to it, in one step: the pool's next request
    /// sees both. Pools that share an engine have a lock each: of what others commit while it is made
    /// a choice may miss something, so that an engine's load exceeds what this pool took it for by at
    /// most as many requests as they decide in that time (microseconds).
    ///
    /// `tried` are endpoints where this request already failed: other ranks of their engines are
    /// not better. Endpoints that fail or stay silent
    /// are taken only where there is no other; one that is known to be unreachable only while no
    /// engine got the request ([`Evidence::sent_nowhere`]), since it may just have come back.
    ///
    /// # Errors
    /// Why there is none: those that could serve it are at their limits, or there are none.
    pub fn choose(
        &self,
        model: &str,
        evidence: &Evidence,
        tried: &[Arc<Endpoint>],
    ) -> Result<Chosen, NoRoom> {
        let legs = if evidence.not_split { Legs::Whole } else { Legs::Any };
        self.choose_among(model, evidence, tried, (None, legs))
    }

    /// [`choose`](Self::choose) among the ranks of the engine that has stored what the request goes
    /// on from.
    ///
    /// # Errors
    /// As there. Nobody, and no decision, where the request already failed there.
    pub fn choose_owner(
        &self,
        model: &str,
        evidence: &Evidence,
        tried: &[Arc<Endpoint>],
        owner: &Endpoint,
    ) -> Result<Chosen, NoRoom> {
        let has_failed = tried.iter().any(|known| known.same_engine(owner));
        if has_failed {
            return Err(NoRoom::Nobody);
        }
        self.choose_among(model, evidence, tried, (Some(owner), Legs::Whole))
    }

    /// [`choose`](Self::choose) among the decode endpoints, for a prompt that is computed already at
    /// `from`, and whose KV the endpoint fetches: `reservation` is the decode leg's. Nothing is learned of it by
    /// policies, and no conversation pinned.
    ///
    /// # Errors
    /// As there. Nobody in pools that do not split requests.
    pub fn choose_decode(
        &self,
        model: &str,
        evidence: &Evidence,
        tried: &[Arc<Endpoint>],
        from: &Endpoint,
    ) -> Result<Chosen, NoRoom> {
        if !self.has_sides() {
            return Err(NoRoom::Nobody);
        }
        self.choose_among(model, evidence, tried, (Some(from), Legs::Decode))
    }

    fn choose_among(
        &self,
        model: &str,
        evidence: &Evidence,
        tried: &[Arc<Endpoint>],
        (other, legs): (Option<&Endpoint>, Legs),
    ) -> Result<Chosen, NoRoom> {
        let asking = Asking::new(self, model, evidence, tried, other, legs);
        let excluded = |member: &Arc<Endpoint>| asking.excludes(member);
        let first_attempt = tried.is_empty() || evidence.sent_nowhere;
        self.commit(evidence, &excluded, first_attempt, asking.pairing)
    }

    fn commit(
        &self,
        evidence: &Evidence,
        excluded: &dyn Fn(&Arc<Endpoint>) -> Option<kvasir_balance::Exclusion>,
        first_attempt: bool,
        pairing: Option<Pairing>,
    ) -> Result<Chosen, NoRoom> {
        let start = Instant::now();
        let keys = evidence.query_keys();
        let (tokens, blind) = (evidence.prompt_tokens, evidence.blind());
        let query = evidence.traits.query(tokens, keys.map(|keys| &**keys), blind);
        let mut exclusions: Vec<_> = evidence.endpoints.iter().map(excluded).collect();
        let clock = self.state.selecting.now();
        let mut state = self.state.selecting.lock();
        let mut trials = Trials::hold(&evidence.endpoints, &mut exclusions, excluded);
        self.state.selecting.note_lives(&mut state, &evidence.endpoints);
        let (candidates, room) = self.weigh(evidence, pairing, &mut exclusions);
        room?;
        let members = Members { candidates: &candidates, exclusions: &exclusions, first_attempt };
        let cut = self.cuts(&evidence.endpoints, pairing.as_ref());
        let pairing = pairing.as_ref().map(|pairing| (pairing, &cut[..]));
        let chosen = state.select(&query, &members, pairing, clock);
        let id = state.decisions();
        state.note(|made| {
            let logged = keys.filter(|_| self.state.selecting.reads_keys()).cloned();
            Noted::new(made, evidence, &query, logged, &members, pairing, chosen.as_ref())
        });
        let chosen = chosen.ok_or(NoRoom::Nobody)?;
        let side = |place: usize| Side::of(place, evidence, &candidates).ok_or(NoRoom::Nobody);
        let (answers, computes) = (side(chosen.index)?, chosen.prefill.map(side).transpose()?);
        let fetches = chosen.plan == Some(PairPlan::Split);
        if let Some(computes) = &computes {
            self.shared.hand_overs.tries(computes.member, answers.member);
        }
        let (reservation, prefill) = self.claim(&answers, computes.as_ref(), fetches, &mut trials);
        for side in computes.iter().chain([&answers]) {
            state.forget_if_gone(side.member);
        }
        drop(state);
        Stage::Choose.since(start);
        trials.give_back();
        self.warn_of(&chosen.notes);
        let selecting = &self.state.selecting;
        let watch = |side: &Side<'_>| {
            selecting.watch(id, side.member, tokens, &evidence.traits, keys.cloned())
        };
        // Policies learn where prompts are computed.
        let (reservation, prefill) = match prefill {
            Some(prefill) => {
                let watch = computes.as_ref().and_then(watch);
                (reservation, Some(prefill.watched_by(watch)))
            }
            None if fetches => (reservation, None),
            None => (reservation.watched_by(watch(&answers)), None),
        };
        let id = selecting.log().map(|_| id);
        let shadow = selecting.shadow().map(|policy| Shadow {
            policy,
            agrees: chosen.shadow == Some(chosen.computes()),
            overlap: chosen
                .shadow
                .and_then(|place| Some(candidates.get(place)?.overlap.resident())),
        });
        let decision = self.decision(id, chosen, shadow, &answers, computes.as_ref());
        Ok(Chosen { reservation, prefill, decision })
    }

    /// The candidates as they are at this moment, and whether there is room: those at their limits are
    /// excluded. To be asked under the lock of the pool's selection.
    pub(super) fn weigh(
        &self,
        evidence: &Evidence,
        pairing: Option<Pairing>,
        exclusions: &mut [Option<kvasir_balance::Exclusion>],
    ) -> (Vec<Candidate>, Result<(), NoRoom>) {
        let rate = median_rate(&evidence.endpoints);
        let candidates = self.candidates(evidence, rate, Instant::now(), pairing.is_some());
        let Some(limits) = self.limits() else { return (candidates, Ok(())) };
        let legs = pairing.map_or(Legs::Whole, |pairing| pairing.legs);
        let (members, tokens) = (&evidence.endpoints, evidence.prompt_tokens);
        let room = limits.exclude(members, &candidates, tokens, legs, exclusions);
        (candidates, room)
    }

    /// The claim on the endpoint that answers, and that on the one that computes where it is another.
    fn claim(
        &self,
        answers: &Side<'_>,
        computes: Option<&Side<'_>>,
        fetches: bool,
        trials: &mut Trials<'_>,
    ) -> (Reservation, Option<Reservation>) {
        let mut standing =
            |side: &Side<'_>| trials.take(side.member).unwrap_or_else(|| side.member.send());
        let prefill = computes.map(|side| side.reserve_prefill(standing(side)));
        let reservation = match &self.split {
            Some(split) if fetches => {
                answers.reserve_decode(standing(answers), split.transfer_time)
            }
            _ => answers.reserve(standing(answers)),
        };
        (reservation, prefill)
    }

    fn decision(
        &self,
        id: Option<u64>,
        chosen: kvasir_balance::Decision,
        shadow: Option<Shadow>,
        answers: &Side<'_>,
        computes: Option<&Side<'_>>,
    ) -> Decision {
        let score = |place: usize| {
            let at = chosen.considered.iter().position(|known| *known == place)?;
            chosen.scores.get(at).copied()
        };
        let fetches = chosen.plan == Some(PairPlan::Split);
        Decision {
            id,
            shadow,
            prefill: computes.map(|side| side.prefill(score(side.place))),
            policy: chosen.policy,
            reason: chosen.reason,
            detail: chosen.detail,
            candidates: chosen.considered.len(),
            stages: chosen.notes,
            overlap: answers.candidate.overlap,
            pending: answers.candidate.pending,
            trust: answers.candidate.trust,
            prompt_tokens: answers.evidence.prompt_tokens,
            prediction: if fetches { Err(Unjudged::Split) } else { answers.prediction() },
            plan: chosen.plan,
            decode_by: chosen.decode_by,
        }
    }

    /// A policy found nobody holding anything for long.
    fn warn_of(&self, notes: &[Note]) {
        for note in notes.iter().filter(|note| note.miss == Miss::ZeroHits.as_str()) {
            tracing::warn!(
                model = self.model,
                policy = note.stage,
                "no endpoint held anything of many prompts in a row: are prompts and events keyed \
                 alike?"
            );
        }
    }
}
