//! Prefill and decode: which pair, or whether one endpoint does all of it.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::time::Duration;

use kvasir_balance::{
    Candidate, Decision, EndpointId, Exclusion, Legs, Load, Members, Moment, Outcome, PairPlan,
    PairSelect, Pairing, PolicyKind, PolicySpec, Query, Reason, Rng, Role, SelectionSpec,
    StickyOptions,
};
use kvasir_inventory::{Overlap, Tier, Trust};

const NOW: Duration = Duration::from_secs(1);
const COST: Pairing =
    Pairing { select: PairSelect::Cost, transfer_s: 0.005, legs: Legs::Any, fetch_only: false };
use Role::{Decode as D, Prefill as P, Unified as U};

/// An endpoint with so many tokens of the prompt, that computes 8,000 a second.
fn holds(role: Role, tokens: u32) -> Candidate {
    let mut overlap = Overlap::default();
    overlap.add(Tier::Device, tokens);
    Candidate { role, overlap, trust: Trust::Exact, prefill_rate: 8_000.0, ..Candidate::default() }
}

fn busy(role: Role, in_flight: u32) -> Candidate {
    Candidate { load: Load { in_flight, ..Load::default() }, ..holds(role, 0) }
}

/// One pool's decisions about prompts of 8,000 tokens.
struct Pool {
    spec: SelectionSpec,
    pairing: Pairing,
    exclusions: Vec<Option<Exclusion>>,
}

impl Pool {
    fn of(policy: PolicyKind, pairing: Pairing) -> Self {
        Self { spec: SelectionSpec::of(policy), pairing, exclusions: Vec::new() }
    }

    fn without(exclusions: &[Option<Exclusion>]) -> Self {
        Self { exclusions: exclusions.to_vec(), ..Self::of(PolicyKind::Latency, COST) }
    }

    fn decide(&self, rows: &[Candidate]) -> Option<Decision> {
        let mut candidates = rows.to_vec();
        for (place, candidate) in (0..).zip(&mut candidates) {
            candidate.id = EndpointId(place);
        }
        let (exclusions, first_attempt) = (&self.exclusions[..], true);
        let members = Members { candidates: &candidates, exclusions, first_attempt };
        let query = Query { prompt_tokens: 8_000, ..Query::default() };
        let mut moment = Moment { now: NOW, rng: &mut Rng::new(3) };
        self.spec.build(1).select_pair(&query, &members, &self.pairing, &mut moment)
    }

    /// The plan, who computes the prompt, and who answers.
    fn plan(&self, rows: &[Candidate]) -> Option<(PairPlan, usize, usize)> {
        let decision = self.decide(rows)?;
        Some((decision.plan.unwrap(), decision.computes(), decision.index))
    }
}

fn plan(rows: &[Candidate]) -> Option<(PairPlan, usize, usize)> {
    Pool::of(PolicyKind::Latency, COST).plan(rows)
}

#[test]
fn a_cold_prompt_is_split_whoever_is_idle() {
    let rows = [holds(P, 0), holds(D, 0)];
    assert_eq!(plan(&rows), Some((PairPlan::Split, 0, 1)));
    let rows = [holds(P, 0), busy(D, 30)];
    assert_eq!(plan(&rows), Some((PairPlan::Split, 0, 1)));
}

#[test]
fn who_holds_the_prompt_computes_it() {
    let rows = [holds(P, 0), holds(P, 6_400), holds(D, 0), holds(D, 0)];
    let (plan, prefill, _) = plan(&rows).unwrap();
    assert_eq!((plan, prefill), (PairPlan::Split, 1));
    let decision = Pool::of(PolicyKind::Latency, COST).decide(&rows).unwrap();
    assert_eq!(decision.considered, [0, 1, 2, 3]);
    assert!(decision.scores[0] > decision.scores[1], "{:?}", decision.scores);
    // The best of those that have no part; and who computes says whether it was warm.
    let others = [0, 5 - decision.index];
    let best =
        others.into_iter().min_by(|a, b| decision.scores[*a].total_cmp(&decision.scores[*b]));
    assert_eq!(decision.runner_up, best);
    assert_eq!(decision.reason, Reason::LeastLatencyWarm);
    let cold = Pool::of(PolicyKind::Latency, COST).decide(&[holds(P, 0), holds(D, 0)]).unwrap();
    assert_eq!((cold.reason, cold.runner_up), (Reason::LeastLatencyCold, None));
}

#[test]
fn a_decode_endpoint_that_holds_it_needs_no_other() {
    let rows = [holds(P, 0), holds(D, 0), holds(D, 7_600)];
    assert_eq!(plan(&rows), Some((PairPlan::DecodeHolds, 2, 2)));
    // Not where that would keep many answers waiting.
    let crowded = Candidate { load: busy(D, 400).load, ..holds(D, 4_000) };
    assert_eq!(plan(&[holds(P, 0), holds(D, 0), crowded]), Some((PairPlan::Split, 0, 1)));
}

#[test]
fn a_slow_transfer_is_worth_computing_at_one_place() {
    let slow = Candidate { transfer_rate: 4_000.0, ..holds(D, 0) };
    assert_eq!(plan(&[holds(P, 0), slow]), Some((PairPlan::DecodeHolds, 1, 1)));
    assert_eq!(plan(&[holds(P, 0), slow, holds(U, 0)]), Some((PairPlan::Unified, 2, 2)));
    // Only what is not there is handed over.
    let warm = Candidate { load: busy(D, 9).load, overlap: holds(D, 4_000).overlap, ..slow };
    let cold = Candidate { load: busy(D, 9).load, ..slow };
    let decision = Pool::of(PolicyKind::Latency, COST).decide(&[holds(P, 7_900), cold, warm]);
    assert_eq!(decision.map(|d| d.index), Some(2));
}

#[test]
fn who_is_excluded_takes_no_part_on_either_side() {
    use Exclusion::{AtLimitRequests, BreakerOpen, Disabled, Tried};
    let rows = [holds(P, 8_000), holds(P, 0), holds(D, 0), holds(D, 0)];
    let split = |prefill, decode| Some((PairPlan::Split, prefill, decode));
    let down = |which: [Option<Exclusion>; 4]| Pool::without(&which).plan(&rows);
    assert_eq!(down([Some(Tried), None, None, Some(Disabled)]), split(1, 2));
    assert_eq!(down([None, None, Some(AtLimitRequests), None]), split(0, 3));
    // A prompt is not computed by one that fails while others can.
    let none = [Some(BreakerOpen), Some(BreakerOpen), None, Some(Tried)];
    assert_eq!(down(none), Some((PairPlan::NoPrefill, 2, 2)));
    // Where all that answer fail, one of them is tried.
    let last = [None, Some(Tried), Some(Disabled), Some(BreakerOpen)];
    assert_eq!(down(last), split(0, 3));
    assert_eq!(down([None, None, Some(Disabled), Some(AtLimitRequests)]), None);
}

#[test]
fn a_pool_of_one_side_does_what_it_can() {
    assert_eq!(plan(&[holds(D, 0)]), Some((PairPlan::NoPrefill, 0, 0)));
    assert_eq!(plan(&[holds(P, 0)]), None);
    assert_eq!(plan(&[]), None);
    assert_eq!(plan(&[holds(P, 8_000), holds(U, 0)]), Some((PairPlan::Unified, 1, 1)));
    assert_eq!(plan(&[holds(D, 0), busy(U, 90)]), Some((PairPlan::NoPrefill, 0, 0)));
}

#[test]
fn one_leg_can_be_asked_for() {
    let rows = [holds(P, 8_000), busy(D, 9), holds(D, 0)];
    let ask = |legs| Pool::of(PolicyKind::Latency, Pairing { legs, ..COST });
    assert_eq!(ask(Legs::Whole).plan(&rows), Some((PairPlan::NoPrefill, 2, 2)));
    let decision = ask(Legs::Decode).decide(&rows).unwrap();
    assert_eq!((decision.plan, decision.index), (Some(PairPlan::Split), 2));
    assert_eq!(decision.prefill, None);
    assert_eq!(decision.considered, [1, 2]);
    let by_turns = Pool::of(PolicyKind::RoundRobin, Pairing { legs: Legs::Decode, ..COST });
    assert_eq!(by_turns.plan(&rows), Some((PairPlan::Split, 2, 2)));
}

#[test]
fn other_policies_choose_who_computes_and_load_who_answers() {
    let kv = |role, in_flight, kv_usage, waiting| Candidate {
        load: Load { in_flight, kv_usage: Some(kv_usage), waiting, ..Load::default() },
        ..holds(role, 0)
    };
    // In flight and waiting 5 and 4; E4's scores 5.0 and 9.0.
    let decoding = [kv(D, 3, 0.3, Some(2)), kv(D, 4, 0.9, Some(0))];
    let rows = [busy(P, 3), busy(P, 1), decoding[0], decoding[1]];
    for (policy, select, wanted) in [
        (PolicyKind::LeastLoad, PairSelect::Cost, 3),
        (PolicyKind::LeastLoad, PairSelect::LeastLoad, 3),
        (PolicyKind::LeastLoad, PairSelect::E4, 2),
        (PolicyKind::Latency, PairSelect::LeastLoad, 3),
    ] {
        let pool = Pool::of(policy, Pairing { select, ..COST });
        assert_eq!(pool.plan(&rows), Some((PairPlan::Split, 1, wanted)), "{policy:?} {select:?}");
    }
    // Requests that wait count as those in flight do: 6 and 5.
    let waiting = [busy(P, 0), kv(D, 5, 0.1, Some(1)), kv(D, 2, 0.1, Some(3))];
    let pairing = Pairing { select: PairSelect::LeastLoad, ..COST };
    let pool = Pool::of(PolicyKind::LeastLoad, pairing);
    assert_eq!(pool.plan(&waiting), Some((PairPlan::Split, 0, 2)));
    let rows = [busy(P, 3), busy(U, 0), decoding[0]];
    let least = Pool::of(PolicyKind::LeastLoad, COST);
    assert_eq!(least.plan(&rows), Some((PairPlan::Unified, 1, 1)));
    // Nobody else is there.
    assert_eq!(least.plan(&decoding), Some((PairPlan::NoPrefill, 0, 0)));
}

#[test]
fn a_limit_for_the_first_token_holds_on_each_side() {
    let slow = |candidate: Candidate| Candidate { ttft_ms: Some(900.0), ..candidate };
    let rows = [slow(holds(P, 8_000)), holds(P, 0), holds(D, 0), slow(holds(D, 0))];
    let mut pool = Pool::of(PolicyKind::Latency, COST);
    pool.spec.slo_ttft_ms = Some(500.0);
    assert_eq!(pool.plan(&rows), Some((PairPlan::Split, 1, 2)));
    // The others of its side have none better.
    let rows = [slow(holds(P, 8_000)), holds(D, 0)];
    assert_eq!(pool.plan(&rows), Some((PairPlan::Split, 0, 1)));
}

#[test]
fn a_conversation_stays_where_its_prompts_are_computed() {
    let mut rows = vec![busy(P, 0), busy(P, 0), busy(D, 1), busy(D, 0)];
    for (place, candidate) in (0..).zip(&mut rows) {
        candidate.id = EndpointId(place);
    }
    let spec = SelectionSpec {
        sticky: Some(StickyOptions::default()),
        ..SelectionSpec::of(PolicySpec::RoundRobin)
    };
    let mut selection = spec.build(1);
    let query = Query { prompt_tokens: 8_000, session: Some(7), ..Query::default() };
    let mut ask = |exclusions: &[Option<Exclusion>]| {
        let members = Members { candidates: &rows, exclusions, first_attempt: true };
        let mut moment = Moment { now: NOW, rng: &mut Rng::new(1) };
        let decision = selection.select_pair(&query, &members, &COST, &mut moment).unwrap();
        let endpoint = EndpointId(decision.computes() as u64);
        selection.observe(&Outcome { query: &query, endpoint, answered: true, now: NOW });
        (decision.policy, decision.prefill, decision.index)
    };
    assert_eq!(ask(&[]), ("round_robin", Some(0), 3));
    assert_eq!(ask(&[]), ("sticky", Some(0), 3));
    assert_eq!(ask(&[Some(Exclusion::Draining)]), ("sticky", Some(0), 3));
    // Without anybody to answer it is no good.
    let (disabled, gone) = (Some(Exclusion::Disabled), Some(Exclusion::Tried));
    assert_eq!(ask(&[None, None, disabled, None]), ("sticky", Some(0), 3));
    assert_eq!(ask(&[gone, None, None, None]), ("round_robin", Some(1), 3));
}

mod model {
    //! The costs, pair by pair, as the documentation has them.

    use kvasir_balance::{Candidate, Exclusion, Load, Pairing, Role};
    use proptest::prelude::*;

    use super::{COST, Overlap, Pool, Tier, Trust};

    /// (wait, own, whole, pressure, work) in seconds.
    fn terms(c: &Candidate) -> (f64, f64, f64, f64, f64) {
        let cached = f64::from(c.overlap.resident() + c.pending).min(8_000.0);
        let own = (8_000.0 - cached) / c.prefill_rate;
        let over = (c.load.kv_usage.unwrap_or(0.0) - 0.9) / 0.1;
        let wait = c.load.queued_prefill_tokens as f64 / c.prefill_rate;
        let work = c.load.recent_work / c.prefill_rate;
        (wait, own, 8_000.0 / c.prefill_rate, 1.0 + over.clamp(0.0, 1.0), work)
    }

    fn turn(c: &Candidate, share: f64, mean: f64) -> f64 {
        let (_, _, whole, _, work) = terms(c);
        let shares = (4.0 * (work - mean) / (mean + 2.0)).clamp(-1.0, 4.0) * share;
        shares + (0.05 * (work - mean).max(0.0)).min(2.5 * whole)
    }

    fn whole(c: &Candidate, mean: f64) -> f64 {
        let (wait, own, whole, pressure, _) = terms(c);
        let (share, n) = (own + 0.1 * whole, f64::from(c.load.in_flight));
        let bypass = if c.role == Role::Decode { 0.6 * own } else { 0.0 };
        pressure * (1.75 * wait + 2.5 * own) + 0.6 * n * share + turn(c, share, mean) + bypass
    }

    fn split(p: &Candidate, d: &Candidate, means: (f64, f64), pairing: &Pairing) -> f64 {
        let (wait, own, whole, pressure, _) = terms(p);
        let prefill = pressure * (1.75 * wait + 2.5 * own) + turn(p, own + 0.1 * whole, means.0);
        let (wait, own, whole, pressure, _) = terms(d);
        let lacks = own * d.prefill_rate;
        let transfer = pairing.transfer_s + lacks / d.transfer_rate;
        let (share, n) = (0.1 * whole, f64::from(d.load.in_flight));
        let room = (pressure - 1.0) * 2.5 * own;
        prefill
            + transfer
            + pressure * 1.75 * wait
            + room
            + 0.6 * n * share
            + turn(d, share, means.1)
    }

    /// What every plan costs: who answers, and who computes the prompt for it.
    pub(super) fn plans(
        rows: &[Candidate],
        exclusions: &[Option<Exclusion>],
    ) -> Vec<(f64, usize, Option<usize>)> {
        let of = |role| -> Vec<usize> {
            (0..rows.len())
                .filter(|at| rows[*at].role == role && exclusions[*at].is_none())
                .collect()
        };
        let mean = |side: &[usize]| {
            side.iter().map(|at| terms(&rows[*at]).4).sum::<f64>() / side.len().max(1) as f64
        };
        let (prefill, decode, unified) = (of(Role::Prefill), of(Role::Decode), of(Role::Unified));
        let means = (mean(&prefill), mean(&decode));
        let mut plans = Vec::new();
        plans.extend(decode.iter().map(|d| (whole(&rows[*d], means.1), *d, None)));
        plans.extend(unified.iter().map(|u| (whole(&rows[*u], mean(&unified)), *u, None)));
        for p in &prefill {
            let cost = |d: usize| split(&rows[*p], &rows[d], means, &COST);
            plans.extend(decode.iter().map(|d| (cost(*d), *d, Some(*p))));
        }
        plans
    }

    prop_compose! {
        fn endpoint()(
            role in prop::sample::select(&Role::ALL[..]),
            (resident, pending) in (0_u32..8_000, 0_u32..2_000),
            (in_flight, queued) in (0_u32..40, 0_u64..30_000),
            (recent_work, kv_usage) in (0.0..200_000.0, prop::option::of(0.0..1.0)),
            prefill_rate in 2_000.0..20_000.0,
            transfer_rate in 5_000.0..400_000.0,
        ) -> Candidate {
            let mut overlap = Overlap::default();
            overlap.add(Tier::Device, resident);
            let queued_prefill_tokens = queued;
            let load = Load { in_flight, queued_prefill_tokens, recent_work, waiting: None, kv_usage };
            let trust = Trust::Exact;
            Candidate {
                role, overlap, pending, trust, load, prefill_rate, transfer_rate,
                ..Candidate::default()
            }
        }
    }

    proptest! {
        #[test]
        fn the_choice_is_the_least_of_all_plans(
            rows in prop::collection::vec(endpoint(), 0..9),
            out in prop::collection::vec(prop::bool::weighted(0.2), 9),
        ) {
            let exclusions: Vec<Option<Exclusion>> =
                out.iter().map(|out| out.then_some(Exclusion::Disabled)).collect();
            let found = Pool::without(&exclusions).decide(&rows);
            let plans = plans(&rows, &exclusions);
            let least = plans.iter().map(|plan| plan.0).fold(f64::INFINITY, f64::min);
            let Some(found) = found else {
                prop_assert!(plans.is_empty());
                return Ok(());
            };
            let limit = least + (0.05 * least).max(0.005) + 1e-9;
            let tied: Vec<_> = plans.iter().filter(|plan| plan.0 <= limit).collect();
            let is_it = |plan: &&&(f64, usize, Option<usize>)| {
                (plan.1, plan.2) == (found.index, found.prefill)
            };
            prop_assert!(tied.iter().any(|plan| is_it(&plan)), "{found:?} of {plans:?}");
            // What stands beside an endpoint is the best plan it is part of.
            for (place, score) in found.considered.iter().zip(&found.scores) {
                let part = plans.iter().filter(|plan| plan.1 == *place || plan.2 == Some(*place));
                let best = part.map(|plan| plan.0).fold(f64::INFINITY, f64::min);
                prop_assert!((best - score).abs() < 1e-6, "{place}: {score}, {best}");
            }
        }
    }
}

#[test]
fn decode_endpoints_that_only_fetch_serve_nothing_alone() {
    let fetching = Pairing { fetch_only: true, ..COST };
    for policy in [PolicyKind::Latency, PolicyKind::RoundRobin] {
        let pool = Pool::of(policy, fetching);
        // It holds everything, and cannot use it by itself.
        let rows = [holds(P, 0), holds(D, 7_984)];
        assert_eq!(pool.plan(&rows), Some((PairPlan::Split, 0, 1)));
        assert_eq!(pool.plan(&[holds(D, 7_984)]), None);
        // Nobody else can compute: one that fails is worth a try.
        let failing = Pool {
            exclusions: vec![Some(Exclusion::BreakerOpen), None],
            ..Pool::of(policy, fetching)
        };
        assert_eq!(failing.plan(&rows), Some((PairPlan::Split, 0, 1)));
        assert_eq!(pool.plan(&[holds(D, 7_984), holds(U, 0)]), Some((PairPlan::Unified, 1, 1)));
        // What is not split is sent to somebody, who will say what is wrong with it.
        let whole = Pool::of(policy, Pairing { legs: Legs::Whole, ..fetching });
        assert!(whole.plan(&[holds(D, 0)]).is_some());
        let decode = Pool::of(policy, Pairing { legs: Legs::Decode, ..fetching });
        assert!(decode.plan(&[holds(P, 0), holds(D, 0)]).is_some());
    }
}

#[test]
fn what_eligibility_left_of_both_sides_has_a_word() {
    let rows = [holds(P, 0), holds(P, 0), holds(D, 0)];
    let (down, tried) = (Some(Exclusion::BreakerOpen), Some(Exclusion::Tried));
    for (exclusions, wanted) in [
        ([None, None, None], ("all", 3)),
        ([None, down, None], ("some", 2)),
        ([tried, tried, None], ("some", 1)),
        ([None, None, down], ("last_resort", 3)),
    ] {
        let decision = Pool::without(&exclusions).decide(&rows).unwrap();
        let note = &decision.notes[0];
        assert_eq!((note.outcome, note.left), wanted, "{exclusions:?}");
    }
}
