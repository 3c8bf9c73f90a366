//! The decision among a pool's endpoints, and its grounds: chosen and committed in one step.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvasir_balance::{
    Candidate, Load, Members, Miss, Note, PairPlan, Reason, even_out, expected_rate,
};
use kvasir_inventory::{Overlap, Trust};

use super::Pool;
use super::trials::Trials;
use crate::admission::NoRoom;
use crate::decision_log::Noted;
use crate::endpoint::Endpoint;
use crate::engine::Exclusion;
use crate::evidence::Evidence;
use crate::load::{LoadNow, Reservation, Work};
use crate::parity::{Prediction, Unjudged};

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
    /// The shadow policy, and whether it would have chosen the same endpoint.
    pub shadow: Option<(&'static str, bool)>,
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
    /// Where the prompt is computed, of a split request. What stands above is the decode endpoint's.
    pub prefill: Option<PrefillSide>,
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
    /// are taken only where there is no other; one that is known to be unreachable only by a first
    /// attempt, since it may just have come back.
    ///
    /// # Errors
    /// Why there is none: those that could serve it are at their limits, or there are none.
    pub fn choose(
        &self,
        model: &str,
        evidence: &Evidence,
        tried: &[Arc<Endpoint>],
    ) -> Result<Chosen, NoRoom> {
        self.choose_among(model, evidence, tried, None)
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
        self.choose_among(model, evidence, tried, Some(owner))
    }

    /// [`choose`](Self::choose) among the decode endpoints, for a prompt that is computed already and
    /// whose KV the endpoint fetches.
    ///
    /// # Errors
    /// As there.
    pub fn choose_decode(
        &self,
        model: &str,
        evidence: &Evidence,
        tried: &[Arc<Endpoint>],
    ) -> Result<Chosen, NoRoom> {
        self.choose_among(model, evidence, tried, None)
    }

    fn choose_among(
        &self,
        model: &str,
        evidence: &Evidence,
        tried: &[Arc<Endpoint>],
        owner: Option<&Endpoint>,
    ) -> Result<Chosen, NoRoom> {
        let exclusion = |member: &Arc<Endpoint>| {
            if tried.iter().any(|known| known.same_engine(member)) {
                return Some(Exclusion::Tried);
            }
            if owner.is_some_and(|owner| !member.same_engine(owner)) {
                return Some(Exclusion::NotOwner);
            }
            let card = member.card();
            // That it serves the pool's model, the configuration says; an adapter, only the engine.
            if model != self.model && card.is_none() {
                return Some(Exclusion::ModelNotServed);
            }
            let longest = card.and_then(|card| card.longest_prompt(model));
            if evidence.is_one_exact() && longest.is_some_and(|most| evidence.prompt_tokens > most)
            {
                return Some(Exclusion::ContextTooLong);
            }
            self.exclusion_of(member, model, owner.is_some())
        };
        let excluded = |member: &Arc<Endpoint>| exclusion(member).as_ref().map(Into::into);
        self.commit(evidence, &excluded, tried.is_empty())
    }

    fn commit(
        &self,
        evidence: &Evidence,
        excluded: &dyn Fn(&Arc<Endpoint>) -> Option<kvasir_balance::Exclusion>,
        first_attempt: bool,
    ) -> Result<Chosen, NoRoom> {
        let keys = evidence.query_keys();
        let (tokens, blind) = (evidence.prompt_tokens, evidence.blind());
        let query = evidence.traits.query(tokens, keys.map(|keys| &**keys), blind);
        let median_rate = median_rate(&evidence.endpoints);
        let mut exclusions: Vec<_> = evidence.endpoints.iter().map(excluded).collect();
        let (now, clock) = (Instant::now(), self.state.selecting.now());
        let mut state = self.state.selecting.lock();
        let trials = Trials::hold(&evidence.endpoints, &mut exclusions, excluded);
        self.state.selecting.note_lives(&mut state, &evidence.endpoints);
        let pending = evidence.pending(&self.shared.pending, now);
        let loads: Vec<LoadNow> =
            evidence.endpoints.iter().map(|member| member.load().at(now)).collect();
        let candidate = |place: usize| Candidate {
            pending: pending[place],
            ..self.candidate(place, evidence, &loads[place], median_rate, now)
        };
        let mut candidates: Vec<Candidate> = (0..evidence.endpoints.len()).map(candidate).collect();
        let recent: Vec<(f64, f64)> = loads.iter().map(|load| load.recent).collect();
        even_out(&mut candidates, &recent);
        if let Some(limits) = self.limits() {
            limits.exclude(&evidence.endpoints, &candidates, tokens, &mut exclusions)?;
        }
        let members = Members { candidates: &candidates, exclusions: &exclusions, first_attempt };
        let chosen = state.select(&query, &members, clock);
        let id = state.decisions();
        state.note(|made| {
            let logged = keys.filter(|_| self.state.selecting.reads_keys()).cloned();
            Noted::new(made, evidence, &query, logged, &members, chosen.as_ref())
        });
        let chosen = chosen.ok_or(NoRoom::Nobody)?;
        let place = chosen.index;
        let candidate = candidates.get(place).ok_or(NoRoom::Nobody)?;
        let member = evidence.endpoints.get(place).ok_or(NoRoom::Nobody)?;
        let work = Work {
            computed: candidate.uncached(evidence.prompt_tokens),
            prompt: evidence.prompt_tokens,
            fetched: candidate.fetched(),
            // How much of what is pending it will still wait for is not known.
            measured: evidence.exact && candidate.trust == Trust::Exact && candidate.pending == 0,
            prefill_ends_after: evidence.answered_whole.then(|| prefill_takes(candidate, evidence)),
        };
        let claim = evidence.keys(place).and_then(|keys| member.pending().begin(keys));
        let prediction = evidence.members.get(place).ok_or(NoRoom::Nobody)?.prediction;
        let standing = trials.take(member).unwrap_or_else(|| member.send());
        let reserved = Arc::clone(member);
        let reservation = Reservation::new(reserved, work, claim, prediction.ok(), standing);
        state.forget_if_gone(member);
        drop(state);
        self.warn_of(&chosen.notes);
        let traits = &evidence.traits;
        let watch = self.state.selecting.watch(id, member, tokens, traits, keys.cloned());
        let decision = Decision {
            id: self.state.selecting.log().map(|_| id),
            policy: chosen.policy,
            reason: chosen.reason,
            detail: chosen.detail,
            candidates: chosen.considered.len(),
            stages: chosen.notes,
            shadow: self.state.selecting.shadow().map(|name| (name, chosen.shadow == Some(place))),
            overlap: candidate.overlap,
            pending: candidate.pending,
            trust: candidate.trust,
            prompt_tokens: evidence.prompt_tokens,
            prediction,
            plan: None,
            prefill: None,
        };
        Ok(Chosen { reservation: reservation.watched_by(watch), prefill: None, decision })
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

    fn candidate(
        &self,
        place: usize,
        evidence: &Evidence,
        load: &LoadNow,
        median_rate: f64,
        now: Instant,
    ) -> Candidate {
        let member = &evidence.endpoints[place];
        let known = evidence.members[place];
        let foreign = u64::from(member.foreign_waiting())
            .saturating_mul(self.state.typical_prompt.load(Ordering::Relaxed));
        let signals = member.signals();
        let blocks = self.state.selecting.gathers().blocks;
        let expected = expected_rate(median_rate, member.weight());
        let (prefill_rate, fetch_rate) = member.rates().against(expected, member.load().age(now));
        Candidate {
            id: member.id(),
            overlap: known.overlap,
            pending: 0,
            trust: known.trust,
            load: Load {
                in_flight: load.in_flight,
                queued_prefill_tokens: load.queued_prefill_tokens.saturating_add(foreign),
                recent_work: 0.0,
                waiting: signals.waiting_requests(),
                kv_usage: signals.kv_usage,
            },
            prefill_rate,
            fetch_rate,
            ttft_ms: member.first_tokens().get(now),
            weight: member.weight(),
            capacity_blocks: if blocks { member.card().and_then(|card| card.blocks) } else { None },
            resident_blocks: if blocks { member.resident_blocks() } else { None },
            lmcache_occupancy: None,
        }
    }
}

/// How long its queue and the prompt itself take an endpoint, as predicted.
#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn prefill_takes(candidate: &Candidate, evidence: &Evidence) -> Duration {
    let computed = candidate.uncached(evidence.prompt_tokens);
    let tokens = candidate.load.queued_prefill_tokens.saturating_add(computed);
    let fetching = f64::from(candidate.fetched()) / candidate.fetch_rate.max(1.0);
    let seconds = tokens as f64 / candidate.prefill_rate.max(1.0) + fetching;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Its rate and capacity weight, if it was timed.
fn timed(member: &Arc<Endpoint>) -> Option<(f64, u32)> {
    Some((member.learned_prefill_rate()?, member.weight()))
}

/// What a full endpoint does.
fn median_rate(members: &[Arc<Endpoint>]) -> f64 {
    kvasir_balance::median_rate(members.iter().filter_map(timed))
}
