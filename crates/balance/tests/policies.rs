//! Every policy as a table: candidates in, choice and scores out.

use kvasir_balance::{
    Candidate, Choice, FleetView, Load, PolicyKind, PolicyState, Query, Reason, Rng,
};
use kvasir_inventory::{Overlap, Tier, Trust};
use proptest::prelude::*;

/// (resident tokens, in flight, queued prefill tokens, prefill rate)
type Row = (u32, u32, u64, f64);

fn candidate((resident, in_flight, queued_prefill_tokens, prefill_rate): Row) -> Candidate {
    let mut overlap = Overlap::default();
    overlap.add(Tier::Device, resident);
    let load = Load { in_flight, queued_prefill_tokens };
    Candidate { overlap, pending: 0, trust: Trust::Exact, load, prefill_rate }
}

fn choose(kind: PolicyKind, prompt_tokens: u64, rows: &[Row], seed: u64) -> Option<Choice> {
    let candidates: Vec<Candidate> = rows.iter().copied().map(candidate).collect();
    let view = FleetView { candidates: &candidates };
    kind.build().choose(&Query { prompt_tokens }, &view, &mut PolicyState::new(seed))
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

#[test]
fn nobody_to_choose_from() {
    for kind in PolicyKind::ALL {
        assert_eq!(choose(kind, 100, &[], 1), None, "{kind:?}");
    }
}

#[test]
fn round_robin_takes_turns() {
    let rows = [(0, 9, 0, 1.0), (0, 0, 0, 1.0), (640, 0, 0, 1.0)];
    let candidates: Vec<Candidate> = rows.iter().copied().map(candidate).collect();
    let view = FleetView { candidates: &candidates };
    let mut state = PolicyState::new(0);
    let policy = PolicyKind::RoundRobin.build();
    let turns: Vec<usize> = (0..7)
        .filter_map(|_| policy.choose(&Query { prompt_tokens: 1 }, &view, &mut state))
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

#[test]
fn precise_takes_the_longest_prefix_then_the_least_loaded() {
    let kind = PolicyKind::PreciseCacheAware;
    let rows = [(64, 0, 0, 1.0), (128, 7, 0, 1.0), (128, 6, 0, 1.0), (0, 0, 0, 1.0)];
    assert_eq!(picks(kind, 200, &rows), [2]);
    let choice = choose(kind, 200, &rows, 0).unwrap();
    assert_eq!(choice.reason, Reason::LongestPrefix);
    assert_eq!(choice.scores, [-64.0, -128.0, -128.0, 0.0]);

    let cold = choose(kind, 200, &[(0, 2, 0, 1.0), (0, 1, 0, 1.0)], 0).unwrap();
    assert_eq!((cold.index, cold.reason), (1, Reason::NoOverlap));
}

/// The candidates, with so much pending at each.
fn with_pending<const N: usize>(kind: PolicyKind, rows: [(Row, u32); N]) -> Option<Choice> {
    let candidates = rows.map(|(row, pending)| Candidate { pending, ..candidate(row) });
    let view = FleetView { candidates: &candidates };
    kind.build().choose(&Query { prompt_tokens: 1000 }, &view, &mut PolicyState::new(0))
}

#[test]
fn precise_counts_what_is_pending_after_what_is_there() {
    let kind = PolicyKind::PreciseCacheAware;
    let rows = [((64, 0, 0, 1.0), 0), ((64, 9, 9, 1.0), 16), ((0, 0, 0, 1.0), 900)];
    let choice = with_pending(kind, rows).unwrap();
    assert_eq!((choice.index, choice.reason), (1, Reason::LongestPrefix));
    assert_eq!(choice.scores, [-64.0, -64.0, 0.0], "only what is there is certain");
    let rows = [((0, 0, 0, 1.0), 0), ((0, 9, 9, 1.0), 16), ((0, 0, 0, 1.0), 0)];
    let choice = with_pending(kind, rows).unwrap();
    assert_eq!((choice.index, choice.reason), (1, Reason::LongestPrefix));
}

#[test]
fn latency_credits_what_is_pending_and_waits_for_it() {
    let kind = PolicyKind::Latency;
    let rows = [
        ((0, 0, 0, 1000.0), 0),       // own 1.0         -> 1 + 1           = 2.0
        ((0, 1, 1000, 1000.0), 800),  // own 0.2, wait 1 -> 1.2 + 0.2 * 1.25 = 1.45
        ((0, 1, 2000, 1000.0), 800),  // own 0.2, wait 2                     = 2.45
        ((0, 1, 1700, 1000.0), 9000), // never less than nothing of its own
    ];
    let choice = with_pending(kind, rows).unwrap();
    for (score, wanted) in choice.scores.iter().zip([2.0, 1.45, 2.45, 1.7]) {
        assert!((score - wanted).abs() < 1e-9, "{:?}", choice.scores);
    }
    assert_eq!((choice.index, choice.reason), (1, Reason::LeastLatencyCold));
}

#[test]
fn latency_costs_are_the_documented_formula() {
    // P = 1000; rate 1000/s.
    let rows = [
        (0, 0, 0, 1000.0),      // own 1.0, wait 0   -> 1 + 1*(1+0)    = 2.0
        (600, 0, 0, 1000.0),    // own 0.4           -> 0.4 + 0.4      = 0.8
        (600, 4, 0, 1000.0),    // own 0.4, crowd 2x -> 0.4 + 0.8      = 1.2
        (600, 0, 2000, 1000.0), // wait 2            -> 2 + 0.8        = 2.8
        (0, 0, 0, 4000.0),      // own 0.25          -> 0.5
    ];
    let choice = choose(PolicyKind::Latency, 1000, &rows, 0).unwrap();
    let expected = [2.0, 0.8, 1.2, 2.8, 0.5];
    for (score, wanted) in choice.scores.iter().zip(expected) {
        assert!((score - wanted).abs() < 1e-9, "{:?}", choice.scores);
    }
    assert_eq!((choice.index, choice.reason), (4, Reason::LeastLatencyCold));
    assert_eq!(choice.scores.len(), expected.len());
}

#[test]
fn latency_leaves_a_busy_holder_when_computing_anew_is_quicker() {
    let kind = PolicyKind::Latency;
    assert_eq!(picks(kind, 1000, &[(960, 1, 0, 1000.0), (0, 0, 0, 1000.0)]), [0]);
    assert_eq!(picks(kind, 1000, &[(960, 1, 5000, 1000.0), (0, 0, 0, 1000.0)]), [1]);
}

#[test]
fn latency_ties_go_to_least_own_work_then_fewest_in_flight_then_chance() {
    let kind = PolicyKind::Latency;
    // Within 5 ms of each other: the one with more cached wins.
    assert_eq!(picks(kind, 10, &[(0, 0, 0, 1e4), (8, 1, 0, 1e4)]), [1]);
    assert_eq!(picks(kind, 10, &[(0, 2, 0, 1e5), (0, 1, 0, 1e5)]), [1]);
    assert_eq!(picks(kind, 10, &[(0, 1, 0, 1e5), (0, 1, 0, 1e5)]), [0, 1]);
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
    assert_eq!(
        error,
        "unknown policy `latencey`, expected one of `latency`, `precise_cache_aware`, \
         `least_load`, `round_robin`"
    );
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
            let choice = choose(kind, prompt, &rows, seed).unwrap();
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
