//! The formulas of the policies that come from other routers, against values computed by hand.

mod edges;

use std::collections::HashMap;
use std::time::Duration;

use kvasir_balance::{
    Blend, CacheAware, CacheAwareOptions, Candidate, Capacity, Choice, Chwbl, ConsistentHash,
    EndpointId, FleetView, LeastLoad, LmcacheAware, Load, LoadScore, Moment, Outcome, Policy,
    PowerOfTwo, PreciseCacheAware, PreciseOptions, PrecisePipeline, Prefix, Query, Random, Reason,
    Relief, Rng, Session, Weighted, detail, digest, digest_of_text, digest_of_tokens,
};
use kvasir_inventory::{Overlap, Tier, Trust};
use kvasir_kv_hash::BlockKey;

const BLOCK: u32 = 16;

/// (blocks held, requests in flight), each with a known cache of 1,000 blocks.
fn fleet(rows: &[(u32, u32)]) -> Vec<Candidate> {
    let of = |(place, (blocks, in_flight)): (usize, &(u32, u32))| {
        let mut overlap = Overlap::default();
        overlap.add(Tier::Device, blocks * BLOCK);
        Candidate {
            id: EndpointId(place as u64),
            overlap,
            load: Load { in_flight: *in_flight, ..Load::default() },
            trust: Trust::Exact,
            resident_blocks: Some(1000),
            ..Candidate::default()
        }
    };
    rows.iter().enumerate().map(of).collect()
}

fn query(blocks: u64) -> Query<'static> {
    let prefix = Prefix { tokens_per_key: BLOCK, ..Prefix::default() };
    Query { prompt_tokens: blocks * u64::from(BLOCK) + 1, prefix, ..Query::default() }
}

fn ask(policy: &mut dyn Policy, query: &Query<'_>, candidates: &[Candidate]) -> Option<Choice> {
    let mut rng = Rng::new(7);
    let mut moment = Moment { now: Duration::ZERO, rng: &mut rng };
    policy.choose(query, &FleetView { candidates }, &mut moment)
}

fn quiet(blend: Blend) -> PreciseOptions {
    PreciseOptions { blend, cold_seed_every: 0, relief: Relief::Off, ..PreciseOptions::default() }
}

fn chosen(options: PreciseOptions, candidates: &[Candidate]) -> Option<Choice> {
    ask(&mut PreciseCacheAware::new(options), &query(100), candidates)
}

fn precise(options: PreciseOptions, rows: &[(u32, u32)]) -> Option<(usize, &'static str)> {
    chosen(options, &fleet(rows)).map(|choice| (choice.index, choice.detail))
}

fn near(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    let apart = found.iter().zip(wanted).any(|(a, b)| (a - b).abs() > 1e-9);
    assert!(!apart, "{found:?} is not {wanted:?}");
}

// === LoxiLB's blends ===

#[test]
fn off_takes_the_longest_whatever_the_load() {
    let off = quiet(Blend::Off);
    assert_eq!(precise(off, &[(10, 0), (50, 99), (49, 0)]), Some((1, "")));
    assert_eq!(precise(off, &[(50, 5), (50, 4), (0, 0)]), Some((1, "")));
}

#[test]
fn hard_leaves_holders_at_their_cap() {
    let hard = quiet(Blend::Hard);
    // Loads 4, 2, 0: cap = ceil(175 * 6 / 300) = 4. The first is at it.
    assert_eq!(precise(hard, &[(50, 4), (40, 2), (30, 0)]), Some((1, detail::SPILL)));
    // Loads 4, 2, 1: cap = ceil(175 * 7 / 300) = 5.
    assert_eq!(precise(hard, &[(50, 4), (40, 2), (30, 1)]), Some((0, "")));
    // Only holders count: of one, cap = ceil(1.75 * 9) = 16.
    assert_eq!(precise(hard, &[(50, 9), (0, 0)]), Some((0, "")));
    // Without load every cap is 1.
    assert_eq!(precise(hard, &[(50, 0), (60, 0)]), Some((1, "")));
    // Of equals the less loaded, then the first; that is no spill.
    assert_eq!(precise(hard, &[(50, 3), (50, 2), (50, 2)]), Some((1, "")));
}

#[test]
fn hard_with_all_at_their_cap_takes_the_least_load_then_the_longest() {
    let tight = PreciseOptions { load_factor_percent: 100, ..quiet(Blend::Hard) };
    // cap = ceil(100 * 6 / 300) = 2 = all loads.
    assert_eq!(precise(tight, &[(10, 2), (50, 2), (50, 2)]), Some((1, "")));
    assert_eq!(precise(tight, &[(50, 0), (40, 0)]), Some((0, "")));
}

#[test]
fn caps_follow_capacity_and_weight() {
    let options = PreciseOptions { capacity: Capacity::Blocks, ..quiet(Blend::Hard) };
    let mut candidates = fleet(&[(50, 4), (40, 0)]);
    let mut chosen = |blocks: [u64; 2], weights: [u32; 2]| {
        for (at, candidate) in candidates.iter_mut().enumerate() {
            candidate.capacity_blocks = Some(blocks[at]);
            candidate.weight = weights[at];
        }
        ask(&mut PreciseCacheAware::new(options), &query(100), &candidates).unwrap().index
    };
    // cap(0) = ceil(175 * 4 * C0 / (100 * ΣC)): 4 of equals; 6 of 3 in 4.
    assert_eq!(chosen([1000, 1000], [100, 100]), 1);
    assert_eq!(chosen([3000, 1000], [100, 100]), 0);
    // A weight above 100 counts as 100; one of 33 leaves 990 of 3,000 blocks.
    assert_eq!(chosen([3000, 1000], [33, 100]), 1);
    assert_eq!(chosen([3000, 1000], [500, 100]), 0);
}

#[test]
fn soft_weighs_a_block_against_load() {
    let soft = quiet(Blend::Soft);
    // λ = 32: (50 - 49) * 1000 = 1000 against 32 * 31 = 992 and 32 * 32 = 1024.
    assert_eq!(precise(soft, &[(50, 31), (49, 0)]), Some((0, "")));
    assert_eq!(precise(soft, &[(50, 32), (49, 0)]), Some((1, detail::SPILL)));
    let choice = ask(&mut PreciseCacheAware::new(soft), &query(100), &fleet(&[(50, 3), (48, 1)]));
    near(&choice.unwrap().scores, &[96.0, 2032.0]);
}

#[test]
fn the_adaptive_laws_follow_the_sum_of_loads() {
    let hard = quiet(Blend::Adaptive);
    // L = 16: f = 175, cap = ceil(175 * 16 / 200) = 14.
    assert_eq!(precise(hard, &[(50, 14), (40, 2)]), Some((1, detail::SPILL)));
    // L = 20: f = 225, cap = ceil(225 * 20 / 200) = 23.
    assert_eq!(precise(hard, &[(50, 18), (40, 2)]), Some((0, "")));
    // L = 30: f = 300, cap = 45 > 28.
    assert_eq!(precise(hard, &[(50, 28), (40, 2)]), Some((0, "")));

    let soft = quiet(Blend::AdaptiveSoft);
    // L = 1: λ = 50,000: one request weighs 50 blocks.
    assert_eq!(precise(soft, &[(90, 1), (40, 0)]), Some((0, "")));
    assert_eq!(precise(soft, &[(89, 1), (40, 0)]), Some((1, detail::SPILL)));
    // L = 20: λ = 70,000. L = 26 and above: 100,000.
    let scores = |rows: &[(u32, u32)]| {
        ask(&mut PreciseCacheAware::new(soft), &query(100), &fleet(rows)).unwrap().scores
    };
    near(&scores(&[(50, 20), (50, 0)]), &[1_400_000.0, 0.0]);
    near(&scores(&[(50, 40), (50, 0)]), &[4_000_000.0, 0.0]);
}

#[test]
fn the_adaptive_laws_scale_with_the_fleet() {
    let lambda = |sum: Option<u64>| {
        let options = PreciseOptions { capacity_sum_milli: sum, ..quiet(Blend::AdaptiveSoft) };
        let rows = fleet(&[(50, 10), (50, 0)]);
        ask(&mut PreciseCacheAware::new(options), &query(100), &rows).unwrap().scores[0] / 10.0
    };
    let of = |lambda: f64, sum| near(&[lambda], &[sum]);
    of(lambda(None), 50_000.0);
    // Half the capacity: 10 counts as 20, λ = 70,000.
    of(lambda(Some(7_642_155)), 70_000.0);
    // A factor that is not within 1/8 and 8 is not believed.
    of(lambda(Some(1_000_000)), 50_000.0);
    of(lambda(Some(0)), 50_000.0);
}

#[test]
fn spill_relief_looks_at_the_whole_fleet() {
    let relieved = PreciseOptions { relief: Relief::On, ..quiet(Blend::Hard) };
    // Among holders the cap of one is ceil(1.75 * 6) = 11; of the fleet it is ceil(175 * 6 / 300) = 4.
    assert_eq!(precise(relieved, &[(50, 6), (0, 0), (0, 0)]), Some((1, detail::RELIEF)));
    assert_eq!(precise(relieved, &[(50, 3), (0, 2), (0, 1)]), Some((0, "")));
    // A pick that was a spill already is not relieved; nor any without load blend.
    assert_eq!(precise(relieved, &[(50, 9), (40, 1), (0, 0)]), Some((1, detail::SPILL)));
    let off = PreciseOptions { relief: Relief::On, ..quiet(Blend::Off) };
    assert_eq!(precise(off, &[(50, 6), (0, 0), (0, 0)]), Some((0, "")));
    // Endpoints nothing is known of are not in the fleet.
    let mut candidates = fleet(&[(50, 6), (0, 0)]);
    candidates[1].resident_blocks = None;
    let choice = ask(&mut PreciseCacheAware::new(relieved), &query(100), &candidates).unwrap();
    assert_eq!(choice.index, 0);
}

#[test]
fn every_nth_hit_warms_a_cold_endpoint() {
    let options = PreciseOptions { cold_seed_every: 4, ..quiet(Blend::Hard) };
    let mut policy = PreciseCacheAware::new(options);
    let mut candidates = fleet(&[(50, 0), (0, 0), (0, 0)]);
    candidates[2].resident_blocks = Some(15);
    let picks: Vec<usize> =
        (0..8).map(|_| ask(&mut policy, &query(100), &candidates).unwrap().index).collect();
    assert_eq!(picks, [0, 0, 0, 2, 0, 0, 0, 2]);
    candidates[2].resident_blocks = Some(16);
    let warm: Vec<usize> =
        (0..8).map(|_| ask(&mut policy, &query(100), &candidates).unwrap().index).collect();
    assert_eq!(warm, [0; 8]);
}

// === E4, ADR 0143, rolter ===

#[test]
fn e4_and_adr_0143_scores() {
    let mut candidates = fleet(&[(0, 7), (0, 7), (0, 3)]);
    candidates[0].load.waiting = Some(2);
    candidates[0].load.kv_usage = Some(0.25);
    candidates[0].ttft_ms = Some(350.0);
    candidates[1].load.waiting = Some(0);
    candidates[1].load.kv_usage = Some(0.9);
    let scores = |score| ask(&mut LeastLoad { score }, &query(1), &candidates).unwrap();
    near(&scores(LoadScore::E4).scores, &[2.0 + 2.5 + 3.5, 9.0, 3.0]);
    near(&scores(LoadScore::Adr0143).scores, &[2.0 + 2.5 + 2.5, 3.5 + 9.0, 3.0]);
    assert_eq!(scores(LoadScore::E4).index, 2);
}

#[test]
fn rolter_s_pipeline_is_prefix_plus_a_quarter_of_least_load() {
    let mut candidates = fleet(&[(50, 8), (0, 0), (25, 4)]);
    candidates[0].load.waiting = Some(2);
    let choice = ask(&mut PrecisePipeline, &query(100), &candidates).unwrap();
    let held = |blocks: f64| blocks * 16.0 / 1601.0;
    near(&choice.scores, &[-held(50.0), -0.25, -(held(25.0) + 0.25 * 0.6)]);
    assert_eq!((choice.index, choice.reason), (0, Reason::BestScore));
}

#[test]
fn lmcache_room_is_neutral_where_it_is_not_known() {
    let mut candidates = fleet(&[(0, 4), (0, 0), (0, 2)]);
    let choice = ask(&mut LmcacheAware, &query(1), &candidates).unwrap();
    near(&choice.scores, &[-0.5, -0.75, -0.625]);
    assert_eq!((choice.index, choice.reason), (1, Reason::LeastLoad));
    candidates[0].lmcache_occupancy = Some(0.1);
    candidates[1].lmcache_occupancy = Some(0.9);
    let choice = ask(&mut LmcacheAware, &query(1), &candidates).unwrap();
    near(&choice.scores, &[-0.9, -0.35, -0.625]);
    assert_eq!((choice.index, choice.reason), (0, Reason::BestScore));
}

// === Rotation, chance, hashing ===

#[test]
fn weights_are_spread_evenly_over_time() {
    let mut candidates = fleet(&[(0, 0), (0, 0), (0, 0)]);
    candidates[0].weight = 5;
    candidates[1].weight = 1;
    candidates[2].weight = 0;
    let mut policy = Weighted::default();
    let order: Vec<usize> =
        (0..7).map(|_| ask(&mut policy, &query(1), &candidates).unwrap().index).collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn the_less_loaded_of_two_different_ones_wins() {
    let candidates = fleet(&[(0, 9), (0, 1)]);
    let mut rng = Rng::new(3);
    for _ in 0..100 {
        let mut moment = Moment { now: Duration::ZERO, rng: &mut rng };
        let view = FleetView { candidates: &candidates };
        let choice = PowerOfTwo.choose(&query(1), &view, &mut moment).unwrap();
        assert_eq!(choice.index, 1);
    }
    assert_eq!(ask(&mut PowerOfTwo, &query(1), &candidates[..1]).unwrap().index, 0);
}

#[test]
fn chance_is_fair() {
    let candidates = fleet(&[(0, 0); 4]);
    let mut rng = Rng::new(5);
    let mut counts = [0; 4];
    for _ in 0..4000 {
        let mut moment = Moment { now: Duration::ZERO, rng: &mut rng };
        let view = FleetView { candidates: &candidates };
        counts[Random.choose(&query(1), &view, &mut moment).unwrap().index] += 1;
    }
    assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
}

fn by_session(policy: &mut dyn Policy, session: &str, candidates: &[Candidate]) -> Option<usize> {
    let query = Query { session: Some(digest(session.as_bytes())), ..query(1) };
    ask(policy, &query, candidates).map(|choice| choice.index)
}

#[test]
fn keys_spread_evenly_over_3_to_300_endpoints() {
    for (count, each) in [(3, 2000_usize), (8, 2000), (37, 1000), (300, 200)] {
        let candidates = fleet(&vec![(0, 0); count]);
        let keys = each * count;
        let mut counts = vec![0_usize; count];
        for key in 0..keys {
            let policy = &mut ConsistentHash::default();
            counts[by_session(policy, &key.to_string(), &candidates).unwrap()] += 1;
        }
        let (most, least) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
        let spread = 5 * each.isqrt();
        assert!(
            *most < each + spread && *least > each - spread,
            "{count} endpoints: {least} to {most}, five standard deviations are {spread}"
        );
    }
}

#[test]
fn only_the_keys_of_an_endpoint_that_left_move() {
    let before = fleet(&[(0, 0); 10]);
    let mut after = before.clone();
    after.remove(3);
    let policy = &mut ConsistentHash::default();
    for key in 0..1000 {
        let key = key.to_string();
        let then = before[by_session(policy, &key, &before).unwrap()].id;
        let now = after[by_session(policy, &key, &after).unwrap()].id;
        assert!(then == now || then == EndpointId(3), "{key}");
    }
}

#[test]
fn weights_are_shares_of_the_keys() {
    let mut candidates = fleet(&[(0, 0); 2]);
    candidates[1].weight = 300;
    let policy = &mut ConsistentHash::default();
    let second = (0..4000)
        .filter(|key: &u32| by_session(policy, &key.to_string(), &candidates) == Some(1))
        .count();
    assert!((2850..3150).contains(&second), "{second}");
}

#[test]
fn what_a_key_is_made_of() {
    let key = |query: &Query<'_>| Chwbl::default().key.of(query);
    let head = digest_of_tokens(&[1, 2]);
    let plain = Query { prefix: Prefix { token_head: head, ..Prefix::default() }, ..query(1) };
    let with = |prefix| key(&Query { prefix, ..plain });
    let base = plain.prefix;
    assert!(key(&plain).is_some());
    let salted = with(Prefix { salt: Some(digest(b"s")), ..base });
    assert_ne!(salted, key(&plain));
    assert_ne!(with(Prefix { adapter: Some("s"), ..base }), salted);
    assert_eq!(with(Prefix { tools: true, ..base }), key(&plain));
    assert_eq!(key(&Query { session: Some(1), ..plain }), key(&plain));
    assert_eq!(key(&query(1)), None);
    let text = Prefix { text_head: digest_of_text(b"hello"), ..Prefix::default() };
    assert!(with(text).is_some());
    let long: Vec<u32> = (0..1000).collect();
    assert_eq!(digest_of_tokens(&long), digest_of_tokens(&long[..256]));
    assert_ne!(digest_of_tokens(&long), digest_of_tokens(&long[..255]));
    assert_eq!((digest_of_tokens(&[]), digest_of_text(b"")), (None, None));
}

#[test]
fn the_bound_holds_for_one_hot_prefix_too() {
    for count in [3_usize, 8, 300] {
        let mut candidates = fleet(&vec![(0, 0); count]);
        let hot = Prefix { token_head: Some(7), ..Prefix::default() };
        let query = Query { prefix: hot, ..query(4) };
        let mut policy = Chwbl::default();
        for sent in 0..10 * count as u64 {
            let choice = ask(&mut policy, &query, &candidates).unwrap();
            candidates[choice.index].load.in_flight += 1;
            let bound = (125 * (sent + 1)).div_ceil(100 * count as u64).max(1);
            assert!(u64::from(candidates[choice.index].load.in_flight) <= bound);
        }
        let first = ask(&mut policy, &query, &fleet(&vec![(0, 0); count])).unwrap();
        assert_eq!(first.reason, Reason::Hashed);
    }
}

#[test]
fn sessions_stay_and_hash_where_they_are_new() {
    let mut candidates = fleet(&[(0, 0); 5]);
    let policy = &mut Session::default();
    let home = by_session(policy, "s", &candidates).unwrap();
    assert_eq!(by_session(&mut Session::default(), "s", &candidates), Some(home), "by name");
    candidates[home].load.in_flight = 1000;
    assert_eq!(by_session(policy, "s", &candidates), Some(home));
    let mut rest = candidates.clone();
    rest.remove(home);
    let moved = rest[by_session(policy, "s", &rest).unwrap()].id;
    assert_eq!(
        candidates[by_session(policy, "s", &candidates).unwrap()].id,
        moved,
        "it stays there"
    );
    assert!(ask(policy, &query(1), &candidates).is_none());
}

// === cache_aware ===

fn keys(of: u64, count: u64) -> Vec<BlockKey> {
    (0..count).map(|at| BlockKey(of << 32 | at)).collect()
}

fn prompt(keys: &[BlockKey]) -> Query<'_> {
    let prefix = Prefix { keys, tokens_per_key: BLOCK, ..Prefix::default() };
    Query { prompt_tokens: keys.len() as u64 * u64::from(BLOCK), prefix, ..Query::default() }
}

fn answered(policy: &mut dyn Policy, query: &Query<'_>, endpoint: u64, answered: bool) {
    let endpoint = EndpointId(endpoint);
    policy.observe(&Outcome { query, endpoint, answered, now: Duration::ZERO });
}

#[test]
fn what_was_answered_is_likely_there() {
    let mut policy = CacheAware::default();
    let candidates = fleet(&[(0, 0); 4]);
    let long = keys(1, 64);
    assert!(ask(&mut policy, &prompt(&long), &candidates).is_none());
    answered(&mut policy, &prompt(&long), 2, false);
    assert!(ask(&mut policy, &prompt(&long), &candidates).is_none(), "failures teach nothing");
    answered(&mut policy, &prompt(&long), 2, true);
    let choice = ask(&mut policy, &prompt(&long), &candidates).unwrap();
    assert_eq!((choice.index, choice.reason), (2, Reason::LikelyPrefix));
    near(&choice.scores, &[0.0, 0.0, -1.0, 0.0]);
    // A prompt that shares 6 of 64 blocks has one chunk of 4 in common: 4 / 64 is below a tenth.
    let mut other = long[..6].to_vec();
    other.extend(keys(2, 58));
    assert!(ask(&mut policy, &prompt(&other), &candidates).is_none());
    let mut half = long[..32].to_vec();
    half.extend(keys(3, 32));
    near(&ask(&mut policy, &prompt(&half), &candidates).unwrap().scores, &[0.0, 0.0, -0.5, 0.0]);
    policy.forget(EndpointId(2));
    assert!(ask(&mut policy, &prompt(&long), &candidates).is_none());
}

#[test]
fn a_hot_prefix_gets_more_holders_under_load() {
    let mut policy = CacheAware::default();
    let mut candidates = fleet(&[(0, 0); 8]);
    let hot = keys(1, 64);
    let mut fallback = LeastLoad::default();
    let mut warm = 0;
    for _ in 0..200 {
        let choice = ask(&mut policy, &prompt(&hot), &candidates);
        warm += u32::from(choice.is_some());
        let index =
            choice.or_else(|| ask(&mut fallback, &prompt(&hot), &candidates)).unwrap().index;
        candidates[index].load.in_flight += 1;
        answered(&mut policy, &prompt(&hot), index as u64, true);
    }
    let loads: Vec<u32> = candidates.iter().map(|c| c.load.in_flight).collect();
    assert!(loads.iter().all(|load| *load <= 38), "at most half above the mean: {loads:?}");
    assert!(warm >= 190, "{warm}");
}

#[test]
fn smg_s_thresholds_are_its_own() {
    let mut policy = CacheAware::new(CacheAwareOptions::smg());
    let long = keys(1, 64);
    answered(&mut policy, &prompt(&long), 0, true);
    let mut chosen = |loads: [u32; 2]| {
        ask(&mut policy, &prompt(&long), &fleet(&[(0, loads[0]), (0, loads[1])])).map(|c| c.index)
    };
    assert_eq!(chosen([64, 0]), Some(0), "64 is not more than 64");
    assert_eq!(chosen([65, 0]), None);
    assert_eq!(chosen([265, 200]), Some(0), "not more than 1.5 times");
    assert_eq!(chosen([301, 200]), None);
}

#[test]
fn what_was_seen_stays_within_its_bytes() {
    let bytes = 1 << 20;
    let mut policy = CacheAware::new(CacheAwareOptions { bytes, ..CacheAwareOptions::default() });
    let candidates = fleet(&[(0, 0); 4]);
    let kept = keys(0, 64);
    let mut found = HashMap::new();
    for n in 1..4_000 {
        let prompt_keys = keys(n, 64);
        answered(&mut policy, &prompt(&prompt_keys), n % 4, true);
        answered(&mut policy, &prompt(&kept), 1, true);
        assert!(policy.bytes() <= bytes, "{} bytes", policy.bytes());
        let index = ask(&mut policy, &prompt(&kept), &candidates).map(|choice| choice.index);
        *found.entry(index).or_insert(0) += 1;
    }
    assert!(policy.bytes() > bytes / 8, "{} bytes", policy.bytes());
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(Some(1), 3_999)]);
    assert!(ask(&mut policy, &prompt(&keys(1, 64)), &candidates).is_none(), "long unused");
    assert!(ask(&mut policy, &prompt(&keys(3_999, 64)), &candidates).is_some());
}
