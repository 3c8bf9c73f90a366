//! Every policy as a table: candidates in, choice and scores out.

use std::time::Duration;

use kvasir_balance::{
    Candidate, Choice, EndpointId, FleetView, Load, Moment, PolicyKind, Query, Reason, Rng,
};
use kvasir_inventory::{Overlap, Tier, Trust};
use proptest::prelude::*;

/// (resident tokens, in flight, queued prefill tokens, prefill rate)
type Row = (u32, u32, u64, f64);

fn candidate(place: usize, (resident, in_flight, queued_prefill_tokens, rate): Row) -> Candidate {
    let mut overlap = Overlap::default();
    overlap.add(Tier::Device, resident);
    let load = Load { in_flight, queued_prefill_tokens, ..Load::default() };
    let id = EndpointId(place as u64);
    Candidate { id, overlap, trust: Trust::Exact, load, prefill_rate: rate, ..Candidate::default() }
}

fn fleet(rows: &[Row]) -> Vec<Candidate> {
    rows.iter().enumerate().map(|(place, row)| candidate(place, *row)).collect()
}

fn choose(kind: PolicyKind, prompt_tokens: u64, rows: &[Row], seed: u64) -> Option<Choice> {
    let query = Query { prompt_tokens, ..Query::default() };
    let view = FleetView { candidates: &fleet(rows) };
    let mut moment = Moment { now: Duration::ZERO, rng: &mut Rng::new(seed) };
    kind.build().choose(&query, &view, &mut moment)
}

fn picks(kind: PolicyKind, prompt_tokens: u64, rows: &[Row]) -> Vec<usize> {
    let mut seen: Vec<usize> = (0..64)
        .filter_map(|seed| choose(kind, prompt_tokens, rows, seed))
        .map(|choice| choice.index)
        .collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

/// Policies that leave requests without a session, a key or a holder to others.
const HAS_NO_SAY: [PolicyKind; 5] = [
    PolicyKind::PreciseCacheAware,
    PolicyKind::CacheAware,
    PolicyKind::ConsistentHash,
    PolicyKind::Chwbl,
    PolicyKind::Session,
];

#[test]
fn nobody_to_choose_from() {
    for kind in PolicyKind::ALL {
        assert_eq!(choose(kind, 100, &[], 1), None, "{kind:?}");
    }
}

#[test]
fn round_robin_takes_turns() {
    let rows = [(0, 9, 0, 1.0), (0, 0, 0, 1.0), (640, 0, 0, 1.0)];
    let candidates = fleet(&rows);
    let view = FleetView { candidates: &candidates };
    let mut policy = PolicyKind::RoundRobin.build();
    let mut moment = Moment { now: Duration::ZERO, rng: &mut Rng::new(0) };
    let turns: Vec<usize> = (0..7)
        .filter_map(|_| policy.choose(&Query::default(), &view, &mut moment))
        .map(|choice| choice.index)
        .collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn least_load_counts_requests_then_queued_tokens_then_chance() {
    let kind = PolicyKind::LeastLoad;
    assert_eq!(picks(kind, 9, &[(0, 2, 0, 1.0), (0, 1, 900, 1.0), (640, 3, 0, 1.0)]), [1]);
    assert_eq!(picks(kind, 9, &[(0, 1, 10, 1.0), (0, 1, 9, 1.0)]), [1]);
    assert_eq!(picks(kind, 9, &[(0, 1, 5, 1.0), (0, 1, 5, 1.0), (0, 2, 0, 1.0)]), [0, 1]);
}

fn assert_scores(choice: &Choice, expected: &[f64]) {
    assert_eq!(choice.scores.len(), expected.len());
    for (score, wanted) in choice.scores.iter().zip(expected) {
        assert!((score - wanted).abs() < 1e-9, "{:?} instead of {expected:?}", choice.scores);
    }
}

#[test]
fn latency_costs_are_the_documented_formula() {
    // P = 1000: 1.75 wait + 2.5 own + 0.6 n * (own + 0.1 * P / r).
    let rows = [
        (0, 0, 0, 1000.0),      // own 1.0              2.5
        (600, 0, 0, 1000.0),    // own 0.4              1.0
        (600, 4, 0, 1000.0),    // own 0.4, n 4         1.0 + 2.4 * 0.5
        (600, 0, 2000, 1000.0), // own 0.4, wait 2      3.5 + 1.0
        (0, 0, 0, 4000.0),      // own 0.25             0.625
    ];
    let choice = choose(PolicyKind::Latency, 1000, &rows, 0).unwrap();
    assert_scores(&choice, &[2.5, 1.0, 2.2, 4.5, 0.625]);
    assert_eq!((choice.index, choice.reason), (4, Reason::LeastLatencyCold));
    // A quarter of n * share.
    let choice = choose(PolicyKind::Ttft, 1000, &rows, 0).unwrap();
    assert_scores(&choice, &[2.5, 1.0, 1.5, 4.5, 0.625]);
}

fn choose_of(kind: PolicyKind, prompt_tokens: u64, candidates: &[Candidate]) -> Choice {
    let query = Query { prompt_tokens, ..Query::default() };
    let mut moment = Moment { now: Duration::ZERO, rng: &mut Rng::new(0) };
    kind.build()
        .choose(&query, &FleetView { candidates }, &mut moment)
        .unwrap_or_else(|| panic!("nobody"))
}

#[test]
fn full_caches_slower_tiers_and_recent_work_cost_latency() {
    // P = 1000, nothing cached, rate 1000/s: own 1, 2.5 in all.
    let mut fleet = fleet(&[(0, 0, 0, 1000.0); 3]);
    fleet[0].load.kv_usage = Some(0.9);
    fleet[1].load.kv_usage = Some(0.95);
    fleet[2].load.kv_usage = Some(1.0);
    assert_scores(&choose_of(PolicyKind::Latency, 1000, &fleet), &[2.5, 3.75, 5.0]);

    // 500 tokens computed, 500 in memory, on the host or half and half.
    let mut fleet = self::fleet(&[(500, 0, 0, 1000.0), (0, 0, 0, 1000.0), (250, 0, 0, 1000.0)]);
    fleet[1].overlap.add(Tier::Host, 500);
    fleet[2].overlap.add(Tier::Disk, 250);
    fleet.iter_mut().for_each(|candidate| candidate.fetch_rate = 5_000.0);
    assert_scores(&choose_of(PolicyKind::Latency, 1000, &fleet), &[1.25, 1.5, 1.375]);

    // Work of 8, 10 and 6 s lately, 8 s in the mean: 4 * 2 / (8 + 2) shares of 1.1 s dearer and
    // cheaper, and 2 s ahead.
    let mut fleet = self::fleet(&[(0, 0, 0, 1000.0); 3]);
    for (candidate, tokens) in fleet.iter_mut().zip([8_000.0, 10_000.0, 6_000.0]) {
        candidate.load.recent_work = tokens;
    }
    assert_scores(&choose_of(PolicyKind::Latency, 1000, &fleet), &[2.5, 3.38 + 0.1, 1.62]);
    // It is bounded: -1 to 4 shares, and 2.5 whole prompts for 60 s ahead.
    for (candidate, tokens) in fleet.iter_mut().zip([0.0, 0.0, 90_000.0]) {
        candidate.load.recent_work = tokens;
    }
    assert_scores(&choose_of(PolicyKind::Latency, 1000, &fleet), &[1.4, 1.4, 6.9 + 2.5]);
}

#[test]
fn latency_leaves_a_busy_holder_when_computing_anew_is_quicker() {
    let kind = PolicyKind::Latency;
    assert_eq!(picks(kind, 1000, &[(960, 1, 0, 1000.0), (0, 0, 0, 1000.0)]), [0]);
    assert_eq!(picks(kind, 1000, &[(960, 1, 5000, 1000.0), (0, 0, 0, 1000.0)]), [1]);
}

#[test]
fn latency_ties_go_to_fewest_tokens_then_fewest_in_flight_then_least_work_then_chance() {
    let kind = PolicyKind::Latency;
    // Within 5 ms of each other: the one with more cached wins.
    assert_eq!(picks(kind, 10, &[(0, 0, 0, 1e4), (8, 1, 0, 1e4)]), [1]);
    assert_eq!(picks(kind, 10, &[(0, 2, 0, 1e5), (0, 1, 0, 1e5)]), [1]);
    assert_eq!(picks(kind, 10, &[(0, 1, 0, 1e5), (0, 1, 0, 1e5)]), [0, 1]);
    let mut rested = fleet(&[(0, 1, 0, 1e5), (0, 1, 0, 1e5)]);
    rested[0].load.recent_work = 1.0;
    assert_eq!(choose_of(kind, 10, &rested).index, 1);
    // 4 % apart is a tie, 6 % is not.
    assert_eq!(picks(kind, 1000, &[(0, 0, 0, 1000.0), (0, 0, 0, 960.0)]), [0, 1]);
    assert_eq!(picks(kind, 1000, &[(0, 0, 0, 1000.0), (0, 0, 0, 940.0)]), [0]);
}

#[test]
fn names_parse_back_and_unknown_ones_list_what_exists() {
    for kind in PolicyKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
    let error = "latencey".parse::<PolicyKind>().unwrap_err().to_string();
    assert!(error.starts_with("unknown policy `latencey`, expected one of `latency`, `ttft`, "));
    assert!(error.ends_with("`session`"), "{error}");
}

proptest! {
    #[test]
    fn any_view_gives_a_candidate_and_the_same_seed_the_same_one(
        rows in prop::collection::vec(
            (0u32..100_000, 0u32..500, 0u64..1_000_000, 0.0f64..1e6), 1..40),
        prompt in 0u64..200_000,
        seed in any::<u64>(),
    ) {
        for kind in PolicyKind::ALL {
            let Some(choice) = choose(kind, prompt, &rows, seed) else {
                prop_assert!(HAS_NO_SAY.contains(&kind), "{:?}", kind);
                continue;
            };
            prop_assert!(choice.index < rows.len());
            prop_assert!(choice.scores.iter().all(|score| score.is_finite()));
            prop_assert_eq!(Some(choice), choose(kind, prompt, &rows, seed));
        }
    }

    #[test]
    fn random_numbers_stay_below_their_bound(seed in any::<u64>(), bound in 1usize..1000) {
        let mut rng = Rng::new(seed);
        for _ in 0..100 {
            prop_assert!(rng.below(bound) < bound);
        }
    }
}
