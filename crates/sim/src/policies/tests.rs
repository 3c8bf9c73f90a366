use kvasir_balance::{Candidate, Load, Query};
use kvasir_inventory::{Overlap, Tier, Trust};

use super::*;

/// (resident, in flight, queued tokens, waiting, KV use, prompt tokens in flight)
type Row = (u32, u32, u64, f64, f64, u64);

fn pick(peer: Peer, rows: &[Row]) -> Option<usize> {
    let candidates: Vec<Candidate> = rows
        .iter()
        .map(|&(resident, in_flight, queued_prefill_tokens, ..)| {
            let mut overlap = Overlap::default();
            overlap.add(Tier::Device, resident);
            let load = Load { in_flight, queued_prefill_tokens, ..Load::default() };
            Candidate {
                overlap,
                trust: Trust::Exact,
                load,
                prefill_rate: 1000.0,
                ..Candidate::default()
            }
        })
        .collect();
    let extras: Vec<Extra> = rows
        .iter()
        .map(|&(.., waiting, kv_usage, prompt_tokens)| Extra { waiting, kv_usage, prompt_tokens })
        .collect();
    let query = Query { prompt_tokens: 1000, ..Query::default() };
    let members = Members { candidates: &candidates, exclusions: &[], first_attempt: true };
    SimPolicy::Peer(peer)
        .build(1)
        .choose(&query, &members, None, &extras, Duration::ZERO)
        .map(|picked| picked.index)
}

#[test]
fn nobody_to_choose_from() {
    for policy in SimPolicy::all() {
        let query = Query { prompt_tokens: 1, ..Query::default() };
        let nobody = Members { candidates: &[], exclusions: &[], first_attempt: true };
        assert_eq!(policy.build(1).choose(&query, &nobody, None, &[], Duration::ZERO), None);
    }
}

#[test]
fn lmetric_multiplies_tokens_and_batch() {
    // 1000 * 1 = 1000; 100 * 9 = 900; (100 + 900) * 2 = 2000.
    let rows = [(0, 0, 0, 0.0, 0.0, 0), (900, 8, 0, 0.0, 0.0, 0), (900, 1, 900, 0.0, 0.0, 0)];
    assert_eq!(pick(Peer::Lmetric, &rows), Some(1));
    assert_eq!(pick(Peer::Lmetric, &[rows[0], rows[2]]), Some(0));
}

#[test]
fn llm_d_adds_ratio_queue_and_cache() {
    // 0 + 1 + 1 = 2; 1 + 0 + 0.9 = 1.9; 1 + 0.5 + 0.6 = 2.1.
    let rows = [(0, 0, 0, 0.0, 0.0, 0), (500, 0, 0, 4.0, 0.1, 0), (500, 0, 0, 2.0, 0.4, 0)];
    assert_eq!(pick(Peer::LlmD, &rows), Some(2));
    assert_eq!(pick(Peer::LlmD, &rows[..2]), Some(0));
}

#[test]
fn dynamo_adds_blocks_to_compute_and_blocks_in_use() {
    // 1000 + 100; 400 + 600; 400 + 200 queued + 600.
    let rows = [(0, 1, 0, 0.0, 0.0, 100), (600, 1, 0, 0.0, 0.0, 600), (600, 1, 200, 0.0, 0.0, 600)];
    assert_eq!(pick(Peer::Dynamo, &rows), Some(1));
    assert_eq!(pick(Peer::Dynamo, &[rows[0], rows[2]]), Some(0));
}

#[test]
fn smg_goes_by_overlap_until_loads_are_far_apart() {
    let row = |resident, in_flight| (resident, in_flight, 0, 0.0, 0.0, 0);
    assert_eq!(pick(Peer::SmgCacheAware, &[row(16, 64), row(0, 0)]), Some(0));
    assert_eq!(pick(Peer::SmgCacheAware, &[row(16, 65), row(0, 0)]), Some(1));
    assert_eq!(pick(Peer::SmgCacheAware, &[row(16, 200), row(0, 140)]), Some(0));
    assert_eq!(pick(Peer::SmgCacheAware, &[row(0, 3), row(0, 2)]), Some(1));
    assert_eq!(pick(Peer::SmgCacheAware, &[row(16, 3), row(16, 2)]), Some(1));
}

#[test]
fn the_longest_prefix_wins_whatever_the_load_and_the_first_of_several() {
    let row = |resident, in_flight| (resident, in_flight, 0, 0.0, 0.0, 0);
    let rows = [row(16, 0), row(32, 500), row(32, 0), row(0, 0)];
    assert_eq!(pick(Peer::LongestPrefix, &rows), Some(1));
}

#[test]
fn names_parse_back_and_unknown_ones_list_what_exists() {
    for policy in SimPolicy::all() {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    let error = "best".parse::<SimPolicy>().unwrap_err().to_string();
    assert!(error.contains("`latency`") && error.contains("`dynamo`"), "{error}");
}

#[test]
fn options_are_told_where_they_are_not_the_defaults() {
    for (text, name) in [
        (r#"{"name":"precise_cache_aware"}"#, "precise_cache_aware"),
        (r#"{"name":"precise_cache_aware","blend":"hard"}"#, "precise_cache_aware"),
        (
            r#"{"name":"precise_cache_aware","blend":"adaptive_soft"}"#,
            "precise_cache_aware(blend=adaptive_soft)",
        ),
        (r#"{"name":"least_load","score":"e4"}"#, "least_load(score=e4)"),
        (
            r#"{"name":"cache_aware","guard":{"imbalance":{"absolute":64,"relative":1.5}}}"#,
            "cache_aware(guard.imbalance.absolute=64 guard.imbalance.relative=1.5)",
        ),
        (r#"{"name":"consistent_hash","key":{"by":"text"}}"#, "consistent_hash(key.by=text)"),
    ] {
        let policy: SimPolicy = text.parse().unwrap();
        assert_eq!(policy.name(), name);
    }
    let other: SimPolicy = r#"{"name":"least_load","score":"e4"}"#.parse().unwrap();
    assert_ne!(other, SimPolicy::from(PolicyKind::LeastLoad));
    let plain: SimPolicy = r#"{"name":"least_load"}"#.parse().unwrap();
    assert_eq!(plain, SimPolicy::from(PolicyKind::LeastLoad));
    for (text, part) in [
        ("{", "EOF"),
        (r#"{"name":"lmetric"}"#, "unknown variant `lmetric`"),
        (r#"{"name":"precise_cache_aware","blend":"warm"}"#, "unknown variant `warm`"),
    ] {
        let error = text.parse::<SimPolicy>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
