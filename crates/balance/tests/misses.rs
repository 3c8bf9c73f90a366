//! Why `precise_cache_aware` has no say, and when that is a sign of something wrong.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::time::Duration;

use kvasir_balance::{
    Blend, Blind, Candidate, Exclusion, FleetView, Members, Miss, Moment, Policy, PolicyKind,
    PolicySpec, PreciseCacheAware, PreciseOptions, Prefix, Query, Relief, Rng, SelectionSpec,
};
use kvasir_inventory::{AbsentReason, Overlap, Tier, Trust};

const BLOCK: u32 = 16;

/// Candidates that hold so many blocks of the prompt, each with a known cache of 1,000 blocks.
fn fleet(blocks: &[u32]) -> Vec<Candidate> {
    let of = |blocks: &u32| {
        let mut overlap = Overlap::default();
        overlap.add(Tier::Device, blocks * BLOCK);
        let (trust, resident_blocks) = (Trust::Exact, Some(1000));
        Candidate { overlap, trust, resident_blocks, ..Candidate::default() }
    };
    blocks.iter().map(of).collect()
}

fn query(blocks: u64) -> Query<'static> {
    let prefix = Prefix { tokens_per_key: BLOCK, ..Prefix::default() };
    Query { prompt_tokens: blocks * u64::from(BLOCK) + 1, prefix, ..Query::default() }
}

/// Whether it chose.
fn ask(policy: &mut dyn Policy, query: &Query<'_>, candidates: &[Candidate]) -> bool {
    let mut rng = Rng::new(7);
    let mut moment = Moment { now: Duration::ZERO, rng: &mut rng };
    policy.choose(query, &FleetView { candidates }, &mut moment).is_some()
}

#[test]
fn short_prefixes_and_nobody_s_leave_the_say_to_others() {
    let options = PreciseOptions {
        blend: Blend::Hard,
        cold_seed_every: 0,
        relief: Relief::Off,
        min_match_tokens: 64,
        ..PreciseOptions::default()
    };
    let mut policy = PreciseCacheAware::new(options);
    // ceil(64 / 16) = 4 blocks, but no more than the prompt has.
    let mut miss = |query: &Query<'_>, candidates: &[Candidate]| {
        let chosen = ask(&mut policy, query, candidates);
        assert_eq!(chosen, policy.miss().is_none());
        policy.miss()
    };
    assert_eq!(miss(&query(100), &fleet(&[3, 0])), Some(Miss::Shallow));
    assert_eq!(miss(&query(100), &fleet(&[4, 0])), None);
    assert_eq!(miss(&query(3), &fleet(&[3, 0])), None);
    assert_eq!(miss(&query(100), &fleet(&[0, 0])), Some(Miss::NoHolder));
    assert_eq!(miss(&query(0), &fleet(&[0, 0])), Some(Miss::NoFullBlock));
    for blind in Blind::ALL {
        let query = Query { blind: Some(blind), ..query(100) };
        assert_eq!(miss(&query, &fleet(&[0])), Some(Miss::Blind(blind)));
    }
    let mut deaf = fleet(&[0, 0]);
    for candidate in &mut deaf {
        candidate.trust = Trust::Absent(AbsentReason::NoStream);
    }
    assert_eq!(miss(&query(100), &deaf), Some(Miss::NotReady));
    let unhashed = Query { blind: Some(Blind::Hashes), ..query(100) };
    assert_eq!(miss(&unhashed, &deaf), Some(Miss::NotReady));
    // What a deaf gateway sent there itself it knows without events.
    deaf[1].pending = 64;
    assert_eq!(miss(&query(100), &deaf), None);
}

#[test]
fn the_watchdog_barks_once_for_so_many_misses_in_a_row() {
    let mut policy = PreciseCacheAware::default();
    let full = fleet(&[0]);
    let mut empty = fleet(&[0]);
    empty[0].resident_blocks = Some(0);
    let mut barks = |query: &Query<'_>, candidates: &[Candidate], times: usize| {
        let miss = |_| {
            let chosen = ask(&mut policy, query, candidates);
            let nobody = !chosen && policy.miss() == Some(Miss::NoHolder);
            (nobody && policy.nobody_holds() == Miss::ZeroHits).then_some(())
        };
        (0..times).filter_map(miss).count()
    };
    let known = query(100);
    assert_eq!(barks(&known, &empty, 200), 0, "empty caches hold nothing");
    assert_eq!(barks(&known, &full, 49), 0);
    // Prompts that cannot be looked up say nothing of keys.
    let unknown = Query { blind: Some(Blind::NoTokenizer), ..known };
    assert_eq!(barks(&unknown, &full, 200), 0);
    assert_eq!(barks(&query(0), &full, 200), 0);
    assert_eq!(barks(&known, &full, 1), 1);
    assert_eq!(barks(&known, &full, 49), 0, "armed anew");
    assert_eq!(barks(&known, &full, 1), 1);
    // A holder in between begins the count anew.
    assert_eq!(barks(&known, &full, 49), 0);
    assert_eq!(barks(&known, &fleet(&[50]), 1), 0);
    assert_eq!(barks(&known, &full, 49), 0);
    assert_eq!(barks(&known, &full, 1), 1);
    // Caches whose events are not believed are as good as empty.
    let mut doubted = fleet(&[0]);
    doubted[0].trust = Trust::Absent(AbsentReason::Disconnected);
    assert_eq!(barks(&known, &doubted, 200), 0);
}

/// What a selection says of so many requests in a row of which only an endpoint that is draining,
/// or nobody, holds some.
fn misses(zero_hit_requests: u32, draining_holds: u32, times: usize) -> Vec<&'static str> {
    let options = PreciseOptions { zero_hit_requests, ..PreciseOptions::default() };
    let spec = SelectionSpec {
        policy: PolicySpec::PreciseCacheAware(options),
        ..SelectionSpec::of(PolicyKind::PreciseCacheAware)
    };
    let (mut selection, mut rng) = (spec.build(1), Rng::new(7));
    let candidates = fleet(&[0, draining_holds]);
    let exclusions = [None, Some(Exclusion::Draining)];
    let members = Members { candidates: &candidates, exclusions: &exclusions, first_attempt: true };
    let mut miss = |_| {
        let mut moment = Moment { now: Duration::ZERO, rng: &mut rng };
        let decision = selection.select(&query(100), &members, &mut moment).unwrap();
        decision.notes.iter().find(|note| note.stage == "precise_cache_aware").unwrap().miss
    };
    (0..times).map(&mut miss).collect()
}

#[test]
fn what_an_excluded_endpoint_holds_is_no_sign_of_other_keys() {
    assert_eq!(misses(3, 40, 9), ["excluded"; 9]);
    assert_eq!(misses(3, 0, 4), ["no_holder", "no_holder", "zero_hits", "no_holder"]);
    assert_eq!(misses(0, 0, 4), ["no_holder"; 4]);
}
