//! Where conversations are pinned.

use kvasir_balance::{
    Candidate, EndpointId, Exclusion, Legs, Members, Moment, Outcome, PairPlan, Pairing,
    PolicyKind, PolicySpec, Query, Rng, SelectionSpec, StickyOptions,
};

use super::{COST, D, NOW, P, busy};

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
        let decision = selection.select_pair(&query, &members, &COST, &[], &mut moment).unwrap();
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

#[test]
fn a_conversation_comes_back_to_who_computes_prompts() {
    let mut rows = vec![busy(P, 0), busy(P, 0), busy(D, 0), busy(D, 0)];
    for (place, candidate) in (0..).zip(&mut rows) {
        candidate.id = EndpointId(place);
    }
    for policy in [PolicyKind::RoundRobin, PolicyKind::Latency, PolicyKind::Session] {
        let spec =
            SelectionSpec { sticky: Some(StickyOptions::default()), ..SelectionSpec::of(policy) };
        let mut selection = spec.build(1);
        let query = Query { prompt_tokens: 8_000, session: Some(7), ..Query::default() };
        let mut ask = |legs, exclusions: &[Option<Exclusion>]| {
            let members = Members { candidates: &rows, exclusions, first_attempt: true };
            let (pairing, mut rng) = (Pairing { legs, ..COST }, Rng::new(1));
            let mut moment = Moment { now: NOW, rng: &mut rng };
            let found =
                selection.select_pair(&query, &members, &pairing, &[], &mut moment).unwrap();
            (found.plan.unwrap(), found.computes())
        };
        let gone = [Some(Exclusion::Unreachable), Some(Exclusion::BackPressure)];
        // Nobody but decode endpoints can compute, from the beginning.
        assert_eq!(ask(Legs::Any, &gone).0, PairPlan::NoPrefill, "{policy:?}");
        let (plan, first) = ask(Legs::Any, &[]);
        assert_eq!(plan, PairPlan::Split, "{policy:?}");
        // Then for a while only: it finds its way back to where its prompts are.
        for (legs, plan) in [(Legs::Any, PairPlan::NoPrefill), (Legs::Whole, PairPlan::NotSplit)] {
            for _ in 0..3 {
                assert_eq!(ask(legs, &gone).0, plan, "{policy:?}");
            }
            for _ in 0..3 {
                assert_eq!(ask(Legs::Any, &[]), (PairPlan::Split, first), "{policy:?} {legs:?}");
            }
        }
    }
}

#[test]
fn where_only_decode_endpoints_compute_conversations_stay_there() {
    let sticky = |rows: &[Candidate], legs| {
        let spec = SelectionSpec {
            sticky: Some(StickyOptions::default()),
            ..SelectionSpec::of(PolicySpec::RoundRobin)
        };
        let mut rows = rows.to_vec();
        for (place, candidate) in (0..).zip(&mut rows) {
            candidate.id = EndpointId(place);
        }
        let mut selection = spec.build(1);
        let query = Query { prompt_tokens: 8_000, session: Some(7), ..Query::default() };
        let mut ask = || {
            let members = Members { candidates: &rows, exclusions: &[], first_attempt: true };
            let (pairing, mut rng) = (Pairing { legs, ..COST }, Rng::new(1));
            let mut moment = Moment { now: NOW, rng: &mut rng };
            let found =
                selection.select_pair(&query, &members, &pairing, &[], &mut moment).unwrap();
            found.index
        };
        [ask(), ask(), ask()]
    };
    assert_eq!(sticky(&[busy(D, 0), busy(D, 0)], Legs::Any), [0, 0, 0]);
    assert_eq!(sticky(&[busy(P, 0), busy(D, 0), busy(D, 0)], Legs::Whole), [1, 1, 1]);
}
