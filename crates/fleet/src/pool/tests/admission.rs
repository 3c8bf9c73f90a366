//! Limits hold exactly, whoever asks at the same time.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use kvasir_balance::Rng;

use super::*;
use crate::admission::{
    AdmissionSpec, Asker, EndpointLimits, Limits as AdmissionLimits, Most, NoRoom, QueueSpec,
};

pub(super) fn requests(most: u32) -> Most {
    Most { requests: Some(most), prefill_tokens: None }
}

pub(super) fn tokens(most: u64) -> Most {
    Most { requests: None, prefill_tokens: Some(most) }
}

pub(super) fn each(most: Most) -> AdmissionLimits {
    AdmissionLimits {
        endpoint: EndpointLimits { most, kv_usage: None },
        ..AdmissionLimits::default()
    }
}

pub(super) fn behind(pool: Pool, limits: AdmissionLimits) -> Pool {
    pool.with_door(Some(spec_of(limits)), None)
}

fn spec_of(limits: AdmissionLimits) -> AdmissionSpec {
    let queue = QueueSpec { places: 100, max_wait: Duration::from_secs(20) };
    let hold = Duration::ZERO;
    AdmissionSpec {
        limits,
        queue,
        hold,
        tenant_header: None,
        priority_header: None,
        timeout_header: None,
    }
}

/// Prompts of so many tokens, of which nothing is known but that.
fn long(count: u64) -> PromptTokens<'static> {
    PromptTokens { prompts: None, count, exact: false, adapter: None, salt: None }
}

fn ask(pool: &Pool, count: u64) -> Result<Chosen, NoRoom> {
    pool.choose("m", &pool.evidence(&long(count)), &[])
}

#[test]
fn limits_of_requests_hold_with_many_at_once() {
    let scene = Scene::new(3, None);
    let both = AdmissionLimits { pool: requests(5), ..each(requests(2)) };
    for limits in [each(requests(2)), both] {
        let pool = behind(scene.pool(PolicyKind::Random), limits);
        let most_of_all = limits.pool.requests.unwrap_or(6);
        let (at_work, most, served) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..400 {
                        let Ok(chosen) = ask(&pool, 100) else {
                            std::thread::yield_now();
                            continue;
                        };
                        let now = at_work.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        served.fetch_add(1, Ordering::SeqCst);
                        assert!(chosen.reservation.endpoint().in_flight() <= 2);
                        std::thread::yield_now();
                        at_work.fetch_sub(1, Ordering::SeqCst);
                        drop(chosen);
                    }
                });
            }
        });
        assert!(most.into_inner() <= most_of_all);
        assert!(served.into_inner() > 100);
        assert!((0..3).all(|place| scene.endpoint(place).in_flight() == 0));
    }
}

/// Random requests, answers and ends, against sums kept beside.
#[test]
fn limits_are_those_of_a_naive_model() {
    let mut rng = Rng::new(7);
    for round in 0..60_u64 {
        let scene = Scene::new(2, None);
        let limit = |rng: &mut Rng, most: usize| (rng.below(2) > 0).then(|| rng.below(most) + 1);
        let mut most = |requests, tokens| Most {
            requests: limit(&mut rng, requests).map(|most| u32::try_from(most).unwrap()),
            prefill_tokens: limit(&mut rng, tokens).map(|most| most as u64),
        };
        let (of_pool, of_each) = (most(8, 3_000), most(4, 1_500));
        let limits = AdmissionLimits { pool: of_pool, ..each(of_each) };
        let pool = behind(scene.pool(PolicyKind::Random), limits);
        // Endpoint, tokens still queued, guard.
        let mut in_hand: Vec<(usize, u64, Chosen)> = Vec::new();
        for _ in 0..200 {
            match rng.below(4) {
                0 if !in_hand.is_empty() => drop(in_hand.swap_remove(rng.below(in_hand.len()))),
                1 if !in_hand.is_empty() => {
                    let at = rng.below(in_hand.len());
                    in_hand[at].1 = 0;
                    in_hand[at].2.reservation.first_data(true);
                }
                _ => {
                    let count = rng.below(1_000) as u64 + 1;
                    let fits = |place: Option<usize>, most: Most| {
                        let those = in_hand.iter().filter(|one| place.is_none_or(|at| one.0 == at));
                        let (requests, tokens) =
                            those.fold((0, 0), |(n, sum), one| (n + 1, sum + one.1));
                        most.requests.is_none_or(|most| requests < most)
                            && most
                                .prefill_tokens
                                .is_none_or(|most| tokens == 0 || tokens + count <= most)
                    };
                    let room = |place| fits(None, of_pool) && fits(Some(place), of_each);
                    match ask(&pool, count) {
                        Ok(chosen) => {
                            let url = chosen.reservation.endpoint().url().to_owned();
                            let place =
                                (0..2).find(|place| scene.endpoint(*place).url() == url).unwrap();
                            assert!(room(place), "round {round}: {limits:?} {count}");
                            in_hand.push((place, count, chosen));
                        }
                        Err(why) => {
                            assert_eq!(why, NoRoom::Full);
                            assert!(!room(0) && !room(1), "round {round}: {limits:?} {count}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_asks_for_more_than_the_limit_is_served_alone() {
    let scene = Scene::new(1, None);
    let pool = behind(scene.pool(PolicyKind::LeastLoad), each(tokens(1_000)));
    let small = ask(&pool, 10).unwrap();
    assert_eq!(ask(&pool, 5_000).unwrap_err(), NoRoom::Full);
    drop(small);
    let mut big = ask(&pool, 5_000).unwrap();
    assert_eq!(ask(&pool, 10).unwrap_err(), NoRoom::Full);
    // Its prompt is computed.
    big.reservation.first_data(true);
    ask(&pool, 10).unwrap();
}

#[test]
fn engines_that_fail_are_no_way_round_a_limit() {
    let scene = Scene::new(2, None);
    let pool = behind(scene.pool(PolicyKind::LeastLoad), each(requests(1)));
    scene.endpoint(1).mark_unreachable("gone");
    let first = ask(&pool, 10).unwrap();
    assert_eq!(ask(&pool, 10).unwrap_err(), NoRoom::Full);
    drop(first);
    // Where all fail, they are tried as without limits; one that failed this request is not.
    scene.endpoint(0).mark_unreachable("gone");
    let again = ask(&pool, 10).unwrap();
    let tried = [scene.endpoint(0), scene.endpoint(1)];
    let none = pool.choose("m", &pool.evidence(&long(10)), &tried);
    assert_eq!(none.unwrap_err(), NoRoom::Nobody);
    drop(again);
}

#[test]
fn a_full_cache_gets_no_more() {
    let scene = Scene::new(2, None);
    let endpoint = EndpointLimits { kv_usage: Some(0.9), ..EndpointLimits::default() };
    let limits = AdmissionLimits { endpoint, ..AdmissionLimits::default() };
    let pool = behind(scene.pool(PolicyKind::Random), limits);
    let usage = |place: usize, usage: f64| {
        let signals = crate::signals::Signals { kv_usage: Some(usage), ..Default::default() };
        scene.endpoint(place).set_signals(signals, 0);
    };
    usage(0, 0.95);
    for _ in 0..20 {
        assert_eq!(ask(&pool, 10).unwrap().reservation.endpoint().url(), scene.endpoint(1).url());
    }
    usage(1, 0.9);
    assert_eq!(ask(&pool, 10).unwrap_err(), NoRoom::Full);
    usage(0, 0.89);
    ask(&pool, 10).unwrap();
}

/// Two pools over one engine: whoever waits in either hears that there is room.
#[tokio::test]
async fn room_is_heard_of_in_all_pools_of_an_engine() {
    let scene = Scene::new(1, None);
    let pool = || Arc::new(behind(scene.pool(PolicyKind::LeastLoad), each(requests(1))));
    let (one, other) = (pool(), pool());
    let mut taken = ask(&one, 10).unwrap();
    for _ in 0..3 {
        let was_called = Arc::new(AtomicBool::new(false));
        let (waiting, called) = (Arc::clone(&other), Arc::clone(&was_called));
        let task = tokio::spawn(async move {
            let door = Arc::clone(waiting.door().unwrap());
            let turn =
                door.admit(|| waiting.members(), Asker::default(), || ask(&waiting, 10)).await;
            called.store(true, Ordering::SeqCst);
            turn
        });
        while other.door().unwrap().waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(!was_called.load(Ordering::SeqCst));
        drop(taken);
        let turn = tokio::time::timeout(Duration::from_secs(10), task).await.unwrap().unwrap();
        assert!(turn.waited.is_some());
        taken = turn.result.unwrap();
        assert_eq!(scene.endpoint(0).in_flight(), 1);
    }
}

/// Who waits at the door of a pool that was replaced chooses by the limits in place.
#[tokio::test]
async fn limits_that_are_raised_or_lifted_hold_for_those_who_wait_already() {
    let all = AdmissionLimits { pool: requests(2), ..AdmissionLimits::default() };
    for next in [Some(all), None] {
        let scene = Scene::new(1, None);
        let old = Arc::new(behind(scene.pool(PolicyKind::LeastLoad), each(requests(1))));
        let taken = ask(&old, 10).unwrap();
        let now = Arc::new(parking_lot::Mutex::new(Arc::clone(&old)));
        let (waiting, in_place) = (Arc::clone(&old), Arc::clone(&now));
        let task = tokio::spawn(async move {
            let door = Arc::clone(waiting.door().unwrap());
            let pool = || Arc::clone(&*in_place.lock());
            door.admit(|| pool().members(), Asker::default(), || ask(&pool(), 10)).await
        });
        while old.door().unwrap().waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let pool = scene.pool(PolicyKind::LeastLoad);
        *now.lock() = Arc::new(pool.with_door(next.map(spec_of), old.door()));
        crate::admission::ring_all();
        let turn = tokio::time::timeout(Duration::from_secs(10), task).await.unwrap().unwrap();
        assert!(turn.result.is_ok(), "{:?}", turn.result);
        drop(taken);
    }
}
