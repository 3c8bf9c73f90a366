//! What a choice is told of each endpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvasir_balance::{Candidate, DEFAULT_TRANSFER_RATE, Load, Role, even_out, expected_rate};

use super::Pool;
use crate::endpoint::Endpoint;
use crate::evidence::Evidence;
use crate::load::LoadNow;

impl Pool {
    /// All endpoints as a choice sees them at this moment, in the order of the evidence. To be asked
    /// under the lock of the pool's selection; `splits` says whether requests are split.
    pub(super) fn candidates(
        &self,
        evidence: &Evidence,
        median_rate: f64,
        now: Instant,
        splits: bool,
    ) -> Vec<Candidate> {
        let pending = evidence.pending(&self.shared.pending, now);
        let loads: Vec<LoadNow> =
            evidence.endpoints.iter().map(|member| member.load().at(now)).collect();
        let candidate = |place: usize| Candidate {
            pending: pending[place],
            ..self.candidate(place, evidence, &loads[place], median_rate, now, splits)
        };
        let mut candidates: Vec<Candidate> = (0..evidence.endpoints.len()).map(candidate).collect();
        let recent: Vec<(f64, f64)> = loads.iter().map(|load| load.recent).collect();
        even_out(&mut candidates, &recent);
        candidates
    }

    fn candidate(
        &self,
        place: usize,
        evidence: &Evidence,
        load: &LoadNow,
        median_rate: f64,
        now: Instant,
        splits: bool,
    ) -> Candidate {
        let member = &evidence.endpoints[place];
        let known = evidence.members[place];
        let foreign = u64::from(member.foreign_waiting())
            .saturating_mul(self.state.typical_prompt.load(Ordering::Relaxed));
        let signals = member.signals();
        let blocks = self.state.selecting.gathers().blocks;
        // Advice has no say in what is measured: it would outlive what was seen of an endpoint that it
        // keeps busy.
        let expected = expected_rate(median_rate, member.configured_weight());
        let age = member.load().age(now);
        let (prefill_rate, fetch_rate) = member.rates().against(expected, age);
        let split = self.split.as_ref().filter(|_| splits);
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
            role: split.map_or(Role::Unified, |_| self.role(member)),
            transfer_rate: split.map_or(DEFAULT_TRANSFER_RATE, |split| {
                member.transfers().against(split.transfer_rate, age)
            }),
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
pub(super) fn prefill_takes(candidate: &Candidate, evidence: &Evidence) -> Duration {
    let computed = candidate.uncached(evidence.prompt_tokens);
    let tokens = candidate.load.queued_prefill_tokens.saturating_add(computed);
    let fetching = f64::from(candidate.fetched()) / candidate.fetch_rate.max(1.0);
    let seconds = tokens as f64 / candidate.prefill_rate.max(1.0) + fetching;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Its rate and configured weight, if it was timed.
fn timed(member: &Arc<Endpoint>) -> Option<(f64, u32)> {
    Some((member.learned_prefill_rate()?, member.configured_weight()))
}

/// What a full endpoint does.
pub(super) fn median_rate(members: &[Arc<Endpoint>]) -> f64 {
    kvasir_balance::median_rate(members.iter().filter_map(timed))
}
