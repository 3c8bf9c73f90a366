//! Requests in two legs: what is chosen, what is claimed, and what is given back.

mod decoding;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kvasir_balance::record::{Line, Replay, Start};
use kvasir_balance::{PairPlan, PairSelect, Role};

use super::admission::{behind, each, requests, tokens};
use super::*;
use crate::admission::{Limits as AdmissionLimits, NoRoom};
use crate::decision_log::{DecisionLog, DecisionLogSpec};
use crate::kind::EngineKind;
use crate::load::Reservation;
use crate::parity::Unjudged;
use crate::spec::Part;
use crate::split::{Protocol, SplitSettings, SplitState};
use Role::{Decode, Prefill, Unified};

pub(super) fn scene(roles: &[Role]) -> Scene {
    let scene = Scene::new(u16::try_from(roles.len()).unwrap(), Some(true));
    for (ranks, role) in scene.engines.iter().zip(roles) {
        ranks.engine().set_part(Part { role: *role, ..Part::default() });
    }
    scene
}

/// As the engines were told.
fn roles(scene: &Scene) -> HashMap<http::uri::Authority, Role> {
    let all = scene.engines.iter().map(|ranks| ranks.engine());
    let roles = all.map(|engine| (engine.authority().clone(), engine.part().role));
    roles.filter(|(_, role)| *role != Unified).collect()
}

fn nixl() -> Option<SplitSettings> {
    Some(SplitSettings {
        protocol: Protocol::Nixl,
        transfer_time: Duration::ZERO,
        ..SplitSettings::default()
    })
}

pub(super) fn splitting(scene: &Scene) -> Pool {
    scene.pool(PolicyKind::Latency).with_split(nixl(), roles(scene))
}

pub(super) fn ask(pool: &Pool, prompt: &[Vec<u32>]) -> Result<Chosen, NoRoom> {
    pool.choose("m", &pool.evidence(&plain(prompt)), &[])
}

pub(super) fn plan(pool: &Pool, prompt: &[Vec<u32>]) -> Option<PairPlan> {
    ask(pool, prompt).unwrap().decision.plan
}

/// The claim of a decode leg whose prefill leg is over.
fn decode_leg(pool: &Pool, prompt: &[Vec<u32>]) -> Reservation {
    let Chosen { reservation, prefill, .. } = ask(pool, prompt).unwrap();
    drop(prefill);
    reservation
}

pub(super) fn prompt() -> Vec<Vec<u32>> {
    vec![(0..4_000).collect()]
}

#[test]
fn both_legs_are_claimed_at_once_and_given_back_one_by_one() {
    let scene = scene(&[Prefill, Decode]);
    let (pool, prompt) = (splitting(&scene), prompt());
    let (p, d) = (scene.endpoint(0), scene.endpoint(1));
    let load = |endpoint: &Endpoint| (endpoint.in_flight(), endpoint.queued_prefill_tokens());
    let Chosen { reservation, prefill, decision } = ask(&pool, &prompt).unwrap();
    assert!(Arc::ptr_eq(reservation.endpoint(), &d));
    let mut prefill = prefill.unwrap();
    assert!(Arc::ptr_eq(prefill.endpoint(), &p));
    assert_eq!((load(&p), load(&d)), ((1, 4_000), (1, 0)));
    assert_eq!(decision.plan, Some(PairPlan::Split));
    assert!(Arc::ptr_eq(&decision.prefill.as_ref().unwrap().endpoint, &p));
    assert!(decision.prefill.as_ref().unwrap().cost.is_some());
    // What the decode engine calls cached is nobody's prediction.
    assert_eq!(decision.prediction.err(), Some(Unjudged::Split));
    assert_eq!(decision.prefill.unwrap().prediction.err(), Some(Unjudged::Trust));
    // The next request with that prompt counts on it where it is computed, and nowhere else.
    let next = ask(&pool, &prompt).unwrap().decision;
    assert_eq!((next.prefill.unwrap().pending, next.pending), (3_984, 0));

    prefill.first_data(true);
    assert_eq!((load(&p), p.leased()), ((1, 0), 0));
    let lease = prefill.lease(Duration::from_secs(60), Instant::now());
    assert_eq!((load(&p), p.leased(), lease.is_live()), ((0, 0), 1, true));
    assert_eq!(load(&d), (1, 0));
    lease.fetched();
    assert_eq!(leases(&p, Duration::ZERO), (0, 0, 0));
    assert_eq!(leases(&p, Duration::from_secs(61)), (0, 0, 0));
    drop(reservation);
    assert_eq!(load(&d), (0, 0));
}

/// Leases that are live, expired and abandoned, that much later.
fn leases(endpoint: &Endpoint, later: Duration) -> (usize, u64, u64) {
    let counts = endpoint.leases().count(Instant::now() + later);
    (counts.live, counts.expired, counts.abandoned)
}

#[test]
fn a_lease_that_is_held_for_too_long_expires_once() {
    let scene = scene(&[Prefill, Decode]);
    let p = scene.endpoint(0);
    let claim = || ask(&splitting(&scene), &prompt()).unwrap().prefill.unwrap();
    let now = Instant::now();
    let expired = claim().lease(Duration::ZERO, now);
    let live = claim().lease(Duration::from_secs(60), now);
    assert_eq!((expired.is_live(), live.is_live()), (false, true));
    assert_eq!(leases(&p, Duration::ZERO), (1, 1, 0));
    drop(expired);
    assert_eq!(leases(&p, Duration::ZERO), (1, 1, 0));
    assert_eq!(leases(&p, Duration::from_secs(61)), (0, 2, 0));
    drop(live);
    assert_eq!(leases(&p, Duration::from_secs(61)), (0, 2, 0));
}

#[test]
fn a_lease_that_is_given_up_counts_until_the_engine_lets_go() {
    let scene = scene(&[Prefill, Decode]);
    let p = scene.endpoint(0);
    let now = Instant::now();
    let lease = || {
        let claim = ask(&splitting(&scene), &prompt()).unwrap().prefill.unwrap();
        claim.lease(Duration::from_secs(60), now)
    };
    drop(lease());
    let sent = lease();
    sent.set_sent(true);
    let broke = lease();
    broke.set_sent(true);
    drop(broke);
    let unsent = lease();
    unsent.set_sent(true);
    unsent.set_sent(false);
    assert_eq!(leases(&p, Duration::from_secs(59)), (4, 0, 0));
    // What is being fetched says nothing by its end.
    assert_eq!(leases(&p, Duration::from_secs(61)), (0, 1, 2));
    drop((sent, unsent));
    assert_eq!(leases(&p, Duration::from_secs(61)), (0, 1, 2));
}

#[test]
fn a_lease_begins_before_the_engines_and_is_not_used_to_its_last_moment() {
    let scene = scene(&[Prefill, Decode]);
    let second = Duration::from_secs(1);
    let table = [(0, 60, true), (53, 60, true), (55, 60, false), (0, 1, false), (0, 2, true)];
    for (ago, time, is_live) in table {
        let claim = ask(&splitting(&scene), &prompt()).unwrap().prefill.unwrap();
        let since = Instant::now().checked_sub(second * ago).unwrap();
        let lease = claim.lease(second * time, since);
        assert_eq!(lease.is_live(), is_live, "{time} s, {ago} s ago");
    }
    // Those that could not be used any more were too short, the others given up.
    assert_eq!(leases(&scene.endpoint(0), second * 61), (0, 2, 3));
}

#[test]
fn switched_off_every_endpoint_serves_whole_requests() {
    let scene = scene(&[Prefill, Decode]);
    let pool = scene.pool(PolicyKind::RoundRobin).with_split(None, roles(&scene));
    assert_eq!((pool.split_state(), pool.split_state().as_str()), (SplitState::Off, "off"));
    for place in [0, 1] {
        let chosen = ask(&pool, &prompt()).unwrap();
        assert!(Arc::ptr_eq(chosen.reservation.endpoint(), &scene.endpoint(place)));
        assert!(chosen.prefill.is_none() && chosen.decision.plan.is_none());
    }
    let without = Scene::new(2, None);
    let pool = splitting(&without);
    assert_eq!(pool.split_state(), SplitState::NoRoles);
    assert_eq!(plan(&pool, &prompt()), None);
    assert_eq!(pool.unavailable_code(), "no_endpoint");
}

#[test]
fn a_pool_of_one_side_says_so() {
    let decoding = scene(&[Decode]);
    let pool = splitting(&decoding);
    assert_eq!(pool.split_state(), SplitState::NoPrefill);
    assert_eq!(plan(&pool, &prompt()), Some(PairPlan::NoPrefill));
    let computing = scene(&[Prefill, Prefill]);
    let pool = splitting(&computing);
    computing.endpoint(0).mark_reachable();
    assert_eq!(pool.split_state(), SplitState::NoDecode);
    assert_eq!(ask(&pool, &prompt()).unwrap_err(), NoRoom::Nobody);
    assert_eq!(pool.unavailable_code(), "pd_pool_unavailable");
    assert_eq!(pool.why_none("m"), "it has no decode or unified endpoint to answer");
    assert!(!pool.is_ready());
    let down = scene(&[Prefill, Decode]);
    down.endpoint(1).set_state(AdminState::Disabled);
    let pool = splitting(&down);
    assert_eq!(ask(&pool, &prompt()).unwrap_err(), NoRoom::Nobody);
    assert_eq!(pool.why_none("m"), "all of them were taken out of service (1 disabled)");
}

#[test]
fn who_hands_over_in_an_unknown_way_computes_for_nobody() {
    let scene = scene(&[Prefill, Prefill, Decode, Decode]);
    let pool =
        scene.pool(PolicyKind::Latency).with_split(Some(SplitSettings::default()), roles(&scene));
    assert_eq!(plan(&pool, &prompt()), Some(PairPlan::NoPrefill));
    let is = |place: usize, kind| {
        let ranks = &scene.engines[place];
        let card = (*ranks.engine().card().unwrap()).clone();
        ranks.engine().set_card(EngineCard { kind, ..card });
    };
    is(1, EngineKind::Sglang);
    is(2, EngineKind::Vllm);
    let chosen = ask(&pool, &prompt()).unwrap();
    let (p, d) = (chosen.prefill.unwrap(), chosen.reservation);
    assert!(Arc::ptr_eq(p.endpoint(), &scene.endpoint(1)));
    assert!(Arc::ptr_eq(d.endpoint(), &scene.endpoint(3)), "a vLLM takes nothing of an SGLang");
    assert_eq!(pool.protocol(p.endpoint()), Some(Protocol::Sglang));
}

/// The same, of `SGLang`'s engines.
pub(super) fn fetching(scene: &Scene) -> Pool {
    let settings = nixl().map(|split| SplitSettings { protocol: Protocol::Sglang, ..split });
    scene.pool(PolicyKind::Latency).with_split(settings, roles(scene))
}

#[test]
fn decode_endpoints_that_only_fetch_get_no_whole_request_but_one_that_names_its_blocks() {
    for roles in [&[Prefill, Decode][..], &[Decode]] {
        let scene = scene(roles);
        let pool = fetching(&scene);
        let evidence = pool.evidence(&plain(&prompt())).not_split();
        assert_eq!(pool.choose("m", &evidence, &[]).unwrap_err(), NoRoom::Nobody);
        let chosen = pool.choose("m", &evidence.computes_nothing(), &[]).unwrap();
        assert!(pool.only_fetches(chosen.reservation.endpoint()) && chosen.prefill.is_none());
        assert!(pool.serves_only_split());
        assert_eq!(pool.transfer_protocol(), Some(Protocol::Sglang));
    }
    let scene = scene(&[Prefill, Decode, Unified]);
    let pool = fetching(&scene);
    let whole = pool.evidence(&plain(&prompt())).not_split();
    let chosen = pool.choose("m", &whole, &[]).unwrap();
    assert!(Arc::ptr_eq(chosen.reservation.endpoint(), &scene.endpoint(2)));
    assert!(!pool.serves_only_split());
    assert!(!splitting(&scene).serves_only_split());
}

#[test]
fn a_pool_that_only_fetches_is_ready_with_somebody_who_computes() {
    let all = scene(&[Prefill, Decode, Unified]);
    for place in 0..3 {
        all.endpoint(place).mark_reachable();
    }
    assert!(fetching(&all).is_ready());
    all.endpoint(2).set_state(AdminState::Disabled);
    assert!(fetching(&all).is_ready());
    all.endpoint(0).set_state(AdminState::Disabled);
    assert!(!fetching(&all).is_ready(), "nobody computes prompts");
    assert!(splitting(&all).is_ready(), "decode endpoints of others do");
    all.endpoint(2).set_state(AdminState::Active);
    assert!(fetching(&all).is_ready());
    let lone = scene(&[Decode]);
    lone.endpoint(0).mark_reachable();
    assert!(!fetching(&lone).is_ready());
}

#[test]
fn one_leg_alone_can_be_chosen() {
    let scene = scene(&[Prefill, Decode, Unified]);
    let (pool, prompt) = (splitting(&scene), prompt());
    let evidence = pool.evidence(&plain(&prompt));
    let d = scene.endpoint(1);
    let whole = pool.choose("m", &evidence.clone().not_split(), &[scene.endpoint(2)]).unwrap();
    assert_eq!((whole.decision.plan, whole.prefill.is_none()), (Some(PairPlan::NotSplit), true));
    assert_eq!(d.queued_prefill_tokens(), 4_000);
    drop(whole);
    let decode = pool.choose_decode("m", &evidence, &[], &scene.endpoint(0)).unwrap();
    assert_eq!((decode.decision.plan, decode.prefill.is_none()), (Some(PairPlan::Split), true));
    assert_eq!((d.in_flight(), d.queued_prefill_tokens()), (1, 0));
    let tried = pool.choose_decode("m", &evidence, &[d], &scene.endpoint(0));
    assert_eq!(tried.unwrap_err(), NoRoom::Nobody);
    let plain_pool = scene.pool(PolicyKind::Latency);
    assert_eq!(
        plain_pool.choose_decode("m", &evidence, &[], &scene.endpoint(0)).unwrap_err(),
        NoRoom::Nobody
    );
}

#[test]
fn limits_hold_on_each_side_and_one_request_counts_once() {
    let scene = scene(&[Prefill, Decode]);
    let all = AdmissionLimits { pool: requests(2), ..AdmissionLimits::default() };
    let pool = behind(splitting(&scene), all);
    let held: Vec<Chosen> = (0..2).map(|_| ask(&pool, &prompt()).unwrap()).collect();
    assert_eq!(ask(&pool, &prompt()).unwrap_err(), NoRoom::Full);
    drop(held);
    // Decode endpoints do not compute in the place of prefill endpoints that are at their limits.
    let pool = behind(splitting(&scene), each(tokens(5_000)));
    let first = ask(&pool, &prompt()).unwrap();
    let other = vec![(9_000..13_000).collect()];
    assert_eq!(ask(&pool, &other).unwrap_err(), NoRoom::Full);
    let Chosen { reservation, prefill, .. } = first;
    drop(prefill);
    let second = ask(&pool, &other).unwrap();
    assert_eq!(second.decision.plan, Some(PairPlan::Split));
    drop((reservation, second));
    // The same where nobody can answer.
    let pool = behind(splitting(&scene), each(requests(1)));
    let Chosen { reservation, prefill, .. } = ask(&pool, &prompt()).unwrap();
    drop(prefill);
    assert_eq!(ask(&pool, &prompt()).unwrap_err(), NoRoom::Full);
    drop(reservation);
    assert!(ask(&pool, &prompt()).is_ok());
}

#[test]
fn transfers_are_timed_where_they_are_alone() {
    let scene = scene(&[Prefill, Decode]);
    let (pool, prompt, d) = (splitting(&scene), prompt(), scene.endpoint(1));
    let leg = || decode_leg(&pool, &prompt);
    for _ in 0..9 {
        // Not sent by itself: what it took says nothing.
        leg().first_data(true);
        let (mut one, mut other) = (leg(), leg());
        one.decode_begins(false);
        other.decode_begins(false);
        one.first_data(true);
        other.first_data(true);
        // The first data is no first token.
        let mut whole = leg();
        whole.decode_begins(false);
        whole.first_data(false);
    }
    assert_eq!(d.learned_transfer_rate(), None);
    for _ in 0..9 {
        let mut one = leg();
        one.decode_begins(false);
        one.first_data(true);
    }
    assert!(d.learned_transfer_rate().is_some());
    assert_eq!(d.learned_prefill_rate(), None, "it computed nothing");
}

#[test]
fn the_log_has_both_legs_and_replays() {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("kvasir-split-{}-{count}", std::process::id()));
    let spec = DecisionLogSpec { directory: directory.clone(), max_bytes: 1 << 20, files: 2 };
    let log = DecisionLog::open(spec).unwrap();
    let scene = scene(&[Prefill, Prefill, Decode, Decode, Unified]);
    for select in [PairSelect::Cost, PairSelect::LeastLoad] {
        let selection = SelectionSpec::of(PolicyKind::Latency);
        let start = Start::new(select_name(select).to_owned(), selection.clone(), 1);
        let selecting = Selecting::new(&selection, 1, Some(log.pool(start)));
        let prompts = ModelPrompts::new("m".to_owned(), None, kvasir_prompt::Limits::default());
        let state = PoolState::new(selecting, prompts, TokenSpec::default());
        let (timeouts, shared) = (crate::spec::Timeouts::default(), scene.shared.clone());
        let split = nixl().map(|split| SplitSettings { select, ..split });
        let engines = scene.engines.clone();
        let pool = Pool::new("m".to_owned(), None, timeouts, engines, shared, state);
        let pool = pool.with_split(split, roles(&scene));
        let mut held = Vec::new();
        for prompt in burst(20) {
            let mut chosen = ask(&pool, &[prompt]).unwrap();
            if let Some(prefill) = &mut chosen.prefill {
                prefill.first_data(true);
            }
            held.push(chosen);
        }
    }
    assert!(log.close());
    let mut splits = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let mut replay = Replay::default();
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let line: Line = serde_json::from_str(line).unwrap();
            if let Line::Decision(record) = &line {
                let choice = record.choice.as_ref().unwrap();
                splits += u32::from(choice.plan == "split");
                assert_eq!(choice.prefill.is_some(), choice.plan == "split");
                assert!(record.pairing.is_some());
            }
            assert_eq!(replay.line(&line).unwrap(), None);
        }
        assert_eq!(replay.decisions(), 20);
    }
    assert!(splits > 2, "{splits}");
    std::fs::remove_dir_all(directory).unwrap();
}

fn select_name(select: PairSelect) -> &'static str {
    match select {
        PairSelect::Cost => "cost",
        PairSelect::LeastLoad => "least_load",
        PairSelect::E4 => "e4",
    }
}

#[test]
fn both_sides_of_a_pair_are_foreseen() {
    let scene = scene(&[Prefill, Prefill, Decode, Decode]);
    let (pool, prompt) = (splitting(&scene), prompt());
    let mut kept = Vec::new();
    for _ in 0..6 {
        let evidence = pool.evidence(&plain(&prompt));
        let seen: Vec<_> = (0..3)
            .map(|_| pool.explain("m", &evidence, None).record.choice.unwrap())
            .map(|choice| (choice.endpoint, choice.prefill, choice.plan))
            .collect();
        let chosen = ask(&pool, &prompt).unwrap();
        let prefill = chosen.decision.prefill.as_ref().map(|side| side.endpoint.name());
        let plan = chosen.decision.plan.unwrap().as_str().to_owned();
        let made = (chosen.reservation.endpoint().name(), prefill, plan);
        assert_eq!(seen, [made.clone(), made.clone(), made]);
        kept.push(chosen);
    }
}
