//! Values at which formulas and rules turn over, and what a policy asks for, names and forgets.

use kvasir_balance::{
    Exclusion, Guard, Needs, PolicyKind, PrefillRate, RecentWork, SelectionSpec, even_out,
    median_rate,
};

use super::*;

#[test]
fn the_law_of_the_cap_between_its_ends() {
    // L = 17: f = 175 + floor(125 * 1 / 10) = 187, cap = ceil(187 * 17 / 200) = 16.
    let at = |rows: &[(u32, u32)]| {
        chosen(quiet(Blend::Adaptive), &fleet(rows)).map(|choice| (choice.index, choice.detail))
    };
    assert_eq!(at(&[(50, 16), (40, 1)]), Some((1, detail::SPILL)));
    // L = 18: f = 200, cap = 18.
    assert_eq!(at(&[(50, 17), (40, 1)]), Some((0, "")));
}

#[test]
fn a_capacity_is_believed_up_to_eight_times_the_fitted_fleet_s() {
    const FITTED: u64 = 15_284_310;
    let lambda = |sum, load| {
        let options = PreciseOptions { capacity_sum_milli: sum, ..quiet(Blend::AdaptiveSoft) };
        let scores = chosen(options, &fleet(&[(50, load), (50, 0)])).map(|choice| choice.scores);
        scores.map(|scores| scores[0] / f64::from(load))
    };
    // L = 80 is far beyond the law's end; an eighth of it is before its beginning.
    assert_eq!(lambda(None, 80), Some(100_000.0));
    assert_eq!(lambda(Some(8 * FITTED), 80), Some(50_000.0));
    assert_eq!(lambda(Some(8 * FITTED + 1), 80), Some(100_000.0));
    // L = 3 counts as 23 at an eighth of the capacity: 50,000 + 5,000 * (23 - 16).
    assert_eq!(lambda(Some(FITTED / 8 + 1), 3), Some(85_000.0));
    assert_eq!(lambda(Some(FITTED / 8), 3), Some(50_000.0));
}

#[test]
fn scores_are_lower_where_it_is_better() {
    let scores = |blend, rows: &[(u32, u32)]| chosen(quiet(blend), &fleet(rows)).unwrap().scores;
    assert_eq!(scores(Blend::Off, &[(10, 0), (50, 9), (0, 0)]), [-10.0, -50.0, 0.0]);
    // A load weighs by its part of the capacity: 32 * 6 over 2 and over 1.
    let soft = PreciseOptions { capacity: Capacity::Blocks, ..quiet(Blend::Soft) };
    let mut candidates = fleet(&[(50, 6), (50, 6)]);
    for (candidate, blocks) in candidates.iter_mut().zip([2_000, 1_000]) {
        candidate.capacity_blocks = Some(blocks);
    }
    let scores = chosen(soft, &candidates).unwrap().scores;
    assert!((scores[0] * 2.0 - scores[1]).abs() <= 1.0, "{scores:?}");
}

#[test]
fn two_endpoints_are_a_fleet_for_relief() {
    let relieved = PreciseOptions { relief: Relief::On, ..quiet(Blend::Hard) };
    // Of the holder alone the cap is ceil(1.75 * 6) = 11, of both ceil(175 * 6 / 200) = 6.
    let choice = |rows: &[(u32, u32)]| chosen(relieved, &fleet(rows)).unwrap();
    assert_eq!(
        (choice(&[(50, 6), (0, 0)]).index, choice(&[(50, 6), (0, 0)]).detail),
        (1, detail::RELIEF)
    );
    assert_eq!(choice(&[(50, 6)]).index, 0);
}

#[test]
fn the_bound_of_a_likely_holder_counts_the_request_itself() {
    let guard = Guard::Bound { load_factor_percent: 125 };
    let keys: Vec<BlockKey> = (1..=100).map(BlockKey).collect();
    let prefix = Prefix { keys: &keys, tokens_per_key: BLOCK, ..Prefix::default() };
    let query = Query { prompt_tokens: 1601, prefix, ..Query::default() };
    let held = |loads: [u32; 2]| {
        let mut policy =
            CacheAware::new(CacheAwareOptions { guard, ..CacheAwareOptions::default() });
        let endpoint = EndpointId(0);
        policy.observe(&Outcome { query: &query, endpoint, answered: true, now: Duration::ZERO });
        let choice = ask(&mut policy, &query, &fleet(&[(0, loads[0]), (0, loads[1])]));
        choice.is_some_and(|choice| choice.index == 0 && choice.scores[0] < 0.0)
    };
    // ceil(125 * (1 + 1) / 200) = 2; ceil(125 * (2 + 1) / 200) = 2: who has two is at it.
    assert!(held([1, 0]));
    assert!(!held([2, 0]));
    assert!(held([2, 1]), "ceil(125 * 4 / 200) = 3");
}

#[test]
fn a_forgotten_endpoint_takes_its_turn_as_a_new_one() {
    let mut policy = Weighted::default();
    let mut candidates = fleet(&[(0, 0), (0, 0)]);
    candidates[0].weight = 300;
    let query = Query::default();
    let mut turns = |count, forget: Option<EndpointId>| -> Vec<usize> {
        forget.into_iter().for_each(|id| policy.forget(id));
        (0..count).map(|_| ask(&mut policy, &query, &candidates).unwrap().index).collect()
    };
    let first = turns(4, None);
    assert_eq!(turns(4, None), first, "four turns are a round of 3 to 1");
    let begun = turns(1, None);
    assert_eq!(begun, first[..1]);
    // Both forgotten in the middle of a round: it begins anew.
    turns(0, Some(EndpointId(0)));
    assert_eq!(turns(4, Some(EndpointId(1))), first);
}

#[test]
fn what_policies_need() {
    let none = Needs::default();
    let head = Needs { session: true, head: true, ..none };
    for (kind, wanted) in [
        (PolicyKind::Latency, none),
        (PolicyKind::RoundRobin, none),
        (PolicyKind::PreciseCacheAware, Needs { blocks: true, ..none }),
        (PolicyKind::CacheAware, Needs { keys: true, ..none }),
        (PolicyKind::Session, Needs { session: true, ..none }),
        (PolicyKind::ConsistentHash, head),
        (PolicyKind::Chwbl, head),
    ] {
        let needs = kind.build().needs();
        assert_eq!(Needs { images: false, ..needs }, wanted, "{kind:?}");
        // What a stage needs its selection needs.
        let all = SelectionSpec::of(kind).build(1).needs();
        assert!(all.blocks == wanted.blocks && all.keys == wanted.keys && all.head == wanted.head);
    }
}

#[test]
fn where_an_excluded_endpoint_comes_in() {
    use Exclusion as E;
    for (exclusion, first, later) in [
        (E::AdvisedDraining, Some(1), Some(1)),
        (E::AdvisedDisabled, Some(1), Some(1)),
        (E::HalfOpen, Some(2), Some(2)),
        (E::BackPressure, Some(3), None),
        (E::BreakerOpen, Some(4), Some(4)),
        (E::Unhealthy, Some(4), Some(4)),
        (E::Silent, Some(4), Some(4)),
        (E::Unreachable, Some(5), None),
        (E::ContextTooLong, Some(6), Some(6)),
        (E::AtLimitRequests, None, None),
        (E::Disabled, None, None),
        (E::Tried, None, None),
    ] {
        assert_eq!(
            (exclusion.resort(true), exclusion.resort(false)),
            (first, later),
            "{exclusion:?}"
        );
    }
}

/// The published sequence of `SplitMix64` for this seed.
#[test]
fn chance_is_splitmix64() {
    let mut rng = Rng::new(1_234_567);
    let wanted = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
        4_593_380_528_125_082_431,
        16_408_922_859_458_223_821,
    ];
    assert_eq!(wanted.map(|_| rng.next_u64()), wanted);
}

#[test]
fn names_have_ids_of_their_own() {
    let mut ids: Vec<EndpointId> =
        (0..1_000).map(|n| EndpointId::of(&format!("http://10.0.0.{n}:8000"))).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1_000);
    assert_eq!(EndpointId::of("a"), EndpointId::of("a"));
}

#[test]
fn a_rate_lies_between_what_is_expected_and_what_was_seen() {
    let now = Duration::from_secs(1_000);
    let expected = 10_000.0_f64;
    for factor in [0.2, 0.5, 0.7, 0.8, 0.9, 1.1, 1.2, 1.4, 1.5, 2.0, 5.0] {
        let mut rate = PrefillRate::default();
        let mut last = expected;
        for n in 0..40 {
            rate.observe(20_000, 20_000.0 / (expected * factor), now);
            let (found, seen) = (rate.against(expected, now), rate.get().unwrap_or(expected));
            let (low, high) = (expected.min(seen) - 1e-6, expected.max(seen) + 1e-6);
            assert!((low..=high).contains(&found), "{factor} {n}: {found} for {seen}");
            // More of the same is believed more.
            let apart = |rate: f64| (rate - expected).abs();
            assert!(apart(found) >= apart(last) - 1e-6, "{factor} {n}: {found} after {last}");
            last = found;
        }
    }
}

#[test]
fn the_median_of_rates() {
    for count in 1..10_usize {
        let distinct = (0..count).map(|n| ((count - n) as f64, 100));
        // Of an even number the upper one.
        assert_eq!(median_rate(distinct), (count / 2 + 1) as f64, "{count}");
    }
    // A half-weight endpoint that does 50 stands for a full one that does 100.
    assert_eq!(median_rate([(50.0, 50)].into_iter()), 100.0);
}

#[test]
fn who_began_later_has_the_mean_of_the_time_before() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let mut late = RecentWork::new(minutes(30));
    late.add(1_000, 0, minutes(30));
    // Of the time that counts by halves of fifteen minutes.
    assert!((late.missing(minutes(30)) - 1.0).abs() < 1e-9);
    assert!((late.missing(minutes(45)) - 0.5).abs() < 1e-9);
    assert!((late.missing(minutes(60)) - 0.25).abs() < 1e-9);
    let mut candidates = fleet(&[(0, 0), (0, 0)]);
    even_out(&mut candidates, &[(900.0, 0.0), (0.0, 0.5)]);
    // 900 in 1.5 wholes, of which the second lacks a half.
    let work: Vec<f64> = candidates.iter().map(|candidate| candidate.load.recent_work).collect();
    assert!((work[0] - 900.0).abs() < 1e-9 && (work[1] - 300.0).abs() < 1e-9, "{work:?}");
}

#[test]
fn a_conversation_at_an_endpoint_that_is_gone_is_a_new_one() {
    let query = Query { prompt_tokens: 100, session: Some(7), ..Query::default() };
    let mut policy = Session::default();
    let mut chosen = |forget: Option<EndpointId>, rows: &[(u32, u32)]| {
        forget.into_iter().for_each(|id| policy.forget(id));
        ask(&mut policy, &query, &fleet(rows)).map(|choice| (choice.index, choice.reason))
    };
    let first = chosen(None, &[(0, 0); 3]).unwrap().0;
    let other = EndpointId((first as u64 + 1) % 3);
    assert_eq!(chosen(None, &[(0, 0); 3]), Some((first, Reason::Pinned)));
    assert_eq!(chosen(Some(other), &[(0, 0); 3]), Some((first, Reason::Pinned)));
    let again = chosen(Some(EndpointId(first as u64)), &[(0, 0); 3]);
    assert!(again.is_some_and(|(_, reason)| reason != Reason::Pinned), "{again:?}");
}
