//! The stages of a selection: who is left, who chooses, and what is written down.

use std::time::Duration;

use kvasir_balance::{
    Candidate, Decision, EndpointId, Exclusion, Load, Members, Moment, Outcome, Pins, PolicyKind,
    Prefix, Query, Reason, Rng, Selection, Slo, Stage, StickyOptions, digest,
};
use kvasir_inventory::{Tier, Trust};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn fleet(in_flight: &[u32]) -> Vec<Candidate> {
    let load = |in_flight| Load { in_flight, ..Load::default() };
    let of = |(place, busy): (usize, &u32)| Candidate {
        id: EndpointId(place as u64),
        load: load(*busy),
        ..Candidate::default()
    };
    in_flight.iter().enumerate().map(of).collect()
}

fn stages(policy: PolicyKind) -> Selection {
    Selection::new(vec![
        Stage::Eligibility,
        Stage::Slo(Slo::new(500.0)),
        Stage::Stickiness(Pins::new(StickyOptions::default())),
        Stage::Policy(policy.build()),
        Stage::Policy(PolicyKind::LeastLoad.build()),
    ])
}

/// One decision at a time, as a pool makes them.
struct Desk {
    selection: Selection,
    rng: Rng,
    now: Duration,
    first_attempt: bool,
}

impl Desk {
    fn new(selection: Selection) -> Self {
        Self { selection, rng: Rng::new(1), now: Duration::ZERO, first_attempt: true }
    }

    fn select(
        &mut self,
        query: &Query<'_>,
        candidates: &[Candidate],
        exclusions: &[Option<Exclusion>],
    ) -> Option<Decision> {
        let members = Members { candidates, exclusions, first_attempt: self.first_attempt };
        let mut moment = Moment { now: self.now, rng: &mut self.rng };
        self.selection.select(query, &members, &mut moment)
    }
}

fn outcomes(decision: &Decision) -> Vec<(&'static str, &'static str, usize)> {
    decision.notes.iter().map(|note| (note.stage, note.outcome, note.left)).collect()
}

fn of_session(session: &str) -> Query<'static> {
    Query { prompt_tokens: 100, session: Some(digest(session.as_bytes())), ..Query::default() }
}

#[test]
fn every_stage_is_written_down_in_its_order() {
    let mut desk = Desk::new(stages(PolicyKind::LeastLoad));
    let mut candidates = fleet(&[0, 1, 2, 3]);
    candidates[1].ttft_ms = Some(800.0);
    let decision = desk.select(&Query::default(), &candidates, &[Some(Exclusion::Asleep)]).unwrap();
    assert_eq!(
        outcomes(&decision),
        [
            ("eligibility", "some", 3),
            ("slo", "some_breach", 2),
            ("sticky", "no_session", 2),
            ("least_load", "least_load", 2),
        ]
    );
    assert_eq!((decision.index, decision.policy), (2, "least_load"));
    assert_eq!((&*decision.considered, decision.runner_up), (&[2, 3][..], Some(3)));
}

#[test]
fn a_last_resort_is_taken_only_where_there_is_no_other() {
    let failing = Some(Exclusion::BreakerOpen);
    let gone = Some(Exclusion::Unreachable);
    let never = Some(Exclusion::ModelNotServed);
    let mut desk = Desk::new(stages(PolicyKind::RoundRobin));
    let candidates = fleet(&[0, 0, 0]);
    let mut chosen = |exclusions: &[Option<Exclusion>], first: bool| {
        desk.first_attempt = first;
        desk.select(&Query::default(), &candidates, exclusions).map(|decision| decision.index)
    };
    assert_eq!(chosen(&[failing, gone, None], true), Some(2));
    assert_eq!(chosen(&[failing, gone, never], true), Some(0));
    assert_eq!(chosen(&[never, gone, never], true), Some(1));
    assert_eq!(chosen(&[never, gone, never], false), None);
    assert_eq!(chosen(&[never, never, Some(Exclusion::Tried)], true), None);
}

#[test]
fn a_conversation_stays_until_it_is_idle_or_its_endpoint_fails() {
    let mut desk = Desk::new(stages(PolicyKind::RoundRobin));
    let candidates = fleet(&[0, 0, 0]);
    let query = of_session("a");
    let first = desk.select(&query, &candidates, &[]).unwrap();
    assert_eq!((first.index, first.policy), (0, "round_robin"));
    for _ in 0..3 {
        let next = desk.select(&query, &candidates, &[]).unwrap();
        assert_eq!((next.index, next.policy, next.reason), (0, "sticky", Reason::Pinned));
    }
    // Others go their own ways.
    assert_eq!(desk.select(&of_session("b"), &candidates, &[]).unwrap().index, 1);

    let endpoint = EndpointId(0);
    let failed = Outcome { query: &query, endpoint, answered: false, now: desk.now };
    desk.selection.observe(&failed);
    assert_eq!(desk.select(&query, &candidates, &[]).unwrap().index, 2);
    desk.now = at(301);
    let moved = desk.select(&query, &candidates, &[]).unwrap();
    assert_eq!((moved.policy, outcomes(&moved)[2].1), ("round_robin", "not_pinned"));
}

#[test]
fn a_pin_gives_way_to_exclusion_and_to_cost_but_not_to_draining() {
    let mut desk = Desk::new(stages(PolicyKind::RoundRobin));
    let mut candidates = fleet(&[0, 0]);
    let query = of_session("a");
    assert_eq!(desk.select(&query, &candidates, &[]).unwrap().index, 0);
    let draining = desk.select(&query, &candidates, &[Some(Exclusion::Draining)]).unwrap();
    assert_eq!((draining.index, draining.reason), (0, Reason::Pinned));
    // A new conversation does not go there.
    for _ in 0..3 {
        let other = desk.select(&Query::default(), &candidates, &[Some(Exclusion::Draining)]);
        assert_eq!(other.unwrap().index, 1);
    }
    candidates[0].load.queued_prefill_tokens = 8_000;
    let outweighed = desk.select(&query, &candidates, &[]).unwrap();
    assert_eq!(outcomes(&outweighed)[2].1, "outweighed");

    let mut desk = Desk::new(stages(PolicyKind::RoundRobin));
    let candidates = fleet(&[0, 0]);
    assert_eq!(desk.select(&query, &candidates, &[]).unwrap().index, 0);
    let failing = desk.select(&query, &candidates, &[Some(Exclusion::BreakerOpen)]).unwrap();
    assert_eq!((failing.index, outcomes(&failing)[2].1), (1, "excluded"));
}

#[test]
fn a_shadow_changes_nothing() {
    let choices = |shadow: bool| {
        let mut selection = stages(PolicyKind::LeastLoad);
        if shadow {
            selection = selection.with_shadow(PolicyKind::RoundRobin.build(), 9);
        }
        let mut desk = Desk::new(selection);
        let candidates = fleet(&[1, 1, 1, 1]);
        let all: Vec<Decision> =
            (0..100).map(|_| desk.select(&Query::default(), &candidates, &[]).unwrap()).collect();
        all
    };
    let (with, without) = (choices(true), choices(false));
    let indices = |all: &[Decision]| all.iter().map(|one| one.index).collect::<Vec<_>>();
    assert_eq!(indices(&with), indices(&without));
    assert_eq!(with[5].shadow, Some(1));
    assert_eq!(without[5].shadow, None);
}

#[test]
fn a_conversation_of_another_tenant_is_another_one() {
    for stages in [stages(PolicyKind::RoundRobin), stages(PolicyKind::Session)] {
        let mut desk = Desk::new(stages);
        let candidates = fleet(&[0, 0, 0, 0]);
        let salted = |salt| Query {
            prefix: Prefix { salt, ..Prefix::default() },
            ..of_session("the same name")
        };
        let tenants = [None, Some(1), Some(2), Some(3)].map(salted);
        let homes = tenants.map(|query| desk.select(&query, &candidates, &[]).unwrap().index);
        // The answer of one that failed takes its own pin with it, and no other's.
        let (query, endpoint) = (&tenants[1], candidates[homes[1]].id);
        desk.selection.observe(&Outcome { query, endpoint, answered: false, now: at(0) });
        for place in [0, 2, 3] {
            let decision = desk.select(&tenants[place], &candidates, &[]).unwrap();
            assert_eq!((decision.index, decision.reason), (homes[place], Reason::Pinned));
        }
        let decision = desk.select(&tenants[1], &candidates, &[]).unwrap();
        assert_ne!(decision.reason, Reason::Pinned);
    }
}

#[test]
fn why_a_policy_had_no_say_is_written_down() {
    let mut desk = Desk::new(stages(PolicyKind::PreciseCacheAware));
    let mut candidates = fleet(&[0, 0]);
    for candidate in &mut candidates {
        candidate.trust = Trust::Exact;
    }
    let prefix = Prefix { tokens_per_key: 16, ..Prefix::default() };
    let query = Query { prompt_tokens: 100, prefix, ..Query::default() };
    let mut miss = |candidates: &[Candidate], exclusions: &[Option<Exclusion>]| {
        let decision = desk.select(&query, candidates, exclusions).unwrap();
        let note = decision.notes.iter().find(|note| note.stage == "precise_cache_aware").unwrap();
        let others = decision.notes.iter().filter(|other| other.stage != note.stage);
        assert!(others.into_iter().all(|other| other.miss.is_empty()));
        (note.outcome, note.miss)
    };
    assert_eq!(miss(&candidates, &[]), ("no_say", "no_holder"));
    candidates[1].overlap.add(Tier::Device, 64);
    assert_eq!(miss(&candidates, &[]), ("longest_prefix", ""));
    let asleep = [None, Some(Exclusion::Asleep)];
    assert_eq!(miss(&candidates, &asleep), ("no_say", "excluded"));
}

#[test]
fn what_eligibility_left_has_a_word() {
    let failing = Some(Exclusion::BreakerOpen);
    let mut desk = Desk::new(stages(PolicyKind::LeastLoad));
    let candidates = fleet(&[0, 0]);
    for (exclusions, wanted) in [
        ([None, None], ("eligibility", "all", 2)),
        ([None, failing], ("eligibility", "some", 1)),
        ([failing, failing], ("eligibility", "last_resort", 2)),
        ([failing, Some(Exclusion::Tried)], ("eligibility", "last_resort", 1)),
    ] {
        let decision = desk.select(&Query::default(), &candidates, &exclusions).unwrap();
        assert_eq!(outcomes(&decision)[0], wanted, "{exclusions:?}");
    }
}

#[test]
fn every_stage_forgets() {
    let query = of_session("s");
    let candidates = fleet(&[0, 5]);
    let mut desk = Desk::new(stages(PolicyKind::LeastLoad));
    let mut busy = candidates.clone();
    busy[0].load.in_flight = 3;
    let by = |desk: &mut Desk| {
        desk.select(&query, &busy, &[]).map(|decision| (decision.policy, decision.index))
    };
    desk.select(&query, &candidates, &[]);
    assert_eq!(by(&mut desk), Some(("sticky", 0)));
    // What another endpoint forgets is nothing to this one.
    desk.selection.forget(EndpointId(1));
    assert_eq!(by(&mut desk), Some(("sticky", 0)));
    desk.selection.forget(EndpointId(0));
    assert_eq!(by(&mut desk), Some(("least_load", 0)));
    // So does a policy: of two equals, the first has the turn again.
    let mut turns = Desk::new(Selection::new(vec![Stage::Policy(PolicyKind::Weighted.build())]));
    let next =
        |turns: &mut Desk| turns.select(&query, &candidates, &[]).map(|decision| decision.index);
    assert_eq!((next(&mut turns), next(&mut turns), next(&mut turns)), (Some(0), Some(1), Some(0)));
    for id in [0, 1] {
        turns.selection.forget(EndpointId(id));
    }
    assert_eq!(next(&mut turns), Some(0));
}
