//! Prefill and decode: which pair, or whether one endpoint does all of it.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod conversations;
mod model;

use std::time::Duration;

use kvasir_balance::{
    Candidate, Cut, Decision, EndpointId, Exclusion, Legs, Load, Members, Moment, PairPlan,
    PairSelect, Pairing, PolicyKind, Query, Reason, Rng, Role, SelectionSpec,
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
    cut: Vec<Cut>,
}

impl Pool {
    fn of(policy: PolicyKind, pairing: Pairing) -> Self {
        Self { spec: SelectionSpec::of(policy), pairing, exclusions: Vec::new(), cut: Vec::new() }
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
        self.spec.build(1).select_pair(&query, &members, &self.pairing, &self.cut, &mut moment)
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
    // That is no lack of prefill endpoints.
    assert_eq!(ask(Legs::Whole).plan(&rows), Some((PairPlan::NotSplit, 2, 2)));
    let by_turns = Pool::of(PolicyKind::RoundRobin, Pairing { legs: Legs::Whole, ..COST });
    assert_eq!(by_turns.plan(&rows).unwrap().0, PairPlan::NotSplit);
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
fn who_is_busy_is_not_waited_for_where_others_can_compute() {
    use Exclusion::BackPressure;
    for policy in [PolicyKind::Latency, PolicyKind::LeastLoad] {
        let pool =
            |pairing| Pool { exclusions: vec![Some(BackPressure)], ..Pool::of(policy, pairing) };
        let rows = [holds(P, 8_000), holds(D, 0)];
        assert_eq!(pool(COST).plan(&rows), Some((PairPlan::NoPrefill, 1, 1)), "{policy:?}");
        let rows = [holds(P, 8_000), holds(D, 0), holds(U, 8_000)];
        assert_eq!(pool(COST).plan(&rows), Some((PairPlan::Unified, 2, 2)), "{policy:?}");
        // Where decode endpoints compute nothing, the busy one is asked all the same.
        let fetching = Pairing { fetch_only: true, ..COST };
        let rows = [holds(P, 0), holds(D, 0)];
        assert_eq!(pool(fetching).plan(&rows), Some((PairPlan::Split, 0, 1)), "{policy:?}");
    }
}

#[test]
fn what_is_cut_is_gone_round() {
    use Cut::{Decode, Link, Prefill};
    let rows = [holds(P, 8_000), holds(P, 0), holds(D, 0), busy(D, 1)];
    let split = |prefill, decode| Some((PairPlan::Split, prefill, decode));
    let link = |prefill, decode| Link { prefill, decode };
    for policy in [PolicyKind::Latency, PolicyKind::PreciseCacheAware] {
        let cut = |cut: &[Cut]| Pool { cut: cut.to_vec(), ..Pool::of(policy, COST) }.plan(&rows);
        assert_eq!(cut(&[]), split(0, 2), "{policy:?}");
        assert_eq!(cut(&[Prefill(0)]), split(1, 2), "{policy:?}");
        assert_eq!(cut(&[Decode(2)]), split(0, 3), "{policy:?}");
        assert_eq!(cut(&[link(0, 2)]), split(0, 3), "{policy:?}");
        assert_eq!(cut(&[link(0, 2), link(0, 3)]), split(1, 2), "{policy:?}");
        // Decode endpoints compute then, also those that can fetch from nobody.
        let (plan, computes, index) = cut(&[Decode(2), Decode(3)]).unwrap();
        assert_eq!((plan, computes), (PairPlan::NoPrefill, index), "{policy:?}");
        assert_eq!(cut(&[Prefill(0), Prefill(1)]).unwrap().0, PairPlan::NoPrefill, "{policy:?}");
        // Where they cannot, what failed is tried.
        let fetching = Pairing { fetch_only: true, ..COST };
        let all = vec![Prefill(0), Prefill(1)];
        let pool = Pool { cut: all, ..Pool::of(policy, fetching) };
        assert_eq!(pool.plan(&rows), split(0, 2), "{policy:?}");
    }
}

/// `disaggregated_route` of `ExaMLOps` E4: `queue + 10 * kv + latency_ms / 100`, the least wins.
#[test]
fn e4_scores_are_those_of_its_description() {
    let decode = |waiting: u32, kv_usage: f64, ttft_ms: f64| Candidate {
        load: Load {
            in_flight: 7,
            waiting: Some(waiting),
            kv_usage: Some(kv_usage),
            ..Load::default()
        },
        ttft_ms: Some(ttft_ms),
        ..holds(D, 0)
    };
    let pool = Pool::of(PolicyKind::LeastLoad, Pairing { select: PairSelect::E4, ..COST });
    let table = [
        // One queued request is a tenth of the cache, or 100 ms.
        ([(3, 0.0, 0.0), (0, 0.2, 0.0)], 2),
        ([(1, 0.0, 0.0), (0, 0.2, 0.0)], 1),
        ([(1, 0.0, 0.0), (0, 0.0, 99.0)], 2),
        ([(1, 0.0, 0.0), (0, 0.0, 101.0)], 1),
        // 2 + 2.5 + 3.5 = 8.0 and 0 + 8 + 0.1 = 8.1.
        ([(2, 0.25, 350.0), (0, 0.8, 10.0)], 1),
        // 9 and 0.9 · 10 + 0.5 = 9.5.
        ([(9, 0.0, 0.0), (0, 0.9, 50.0)], 1),
    ];
    for (sides, wanted) in table {
        let [one, other] = sides.map(|(waiting, kv, ms)| decode(waiting, kv, ms));
        let rows = [holds(P, 0), one, other];
        assert_eq!(pool.plan(&rows), Some((PairPlan::Split, 0, wanted)), "{sides:?}");
    }
    // What is not known counts as nothing, and requests sent as queued.
    let blank = Candidate { load: busy(D, 2).load, ..holds(D, 0) };
    let rows = [holds(P, 0), blank, decode(1, 0.0, 0.0)];
    assert_eq!(pool.plan(&rows), Some((PairPlan::Split, 0, 2)));
    // Equals: fewest in flight. Unlike E4 not the first of the list, on which a burst would pile up.
    let idle = Candidate {
        load: Load { in_flight: 0, ..decode(2, 0.0, 0.0).load },
        ..decode(2, 0.0, 0.0)
    };
    let rows = [holds(P, 0), decode(2, 0.0, 0.0), idle];
    assert_eq!(pool.plan(&rows), Some((PairPlan::Split, 0, 2)));
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
