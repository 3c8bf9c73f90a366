//! What a reload carries over of engines' health, retries and connections, and what it takes up.

use kvasir_upstream::{Limits as ConnectionLimits, Origin};

use super::*;
use crate::breaker::{BreakerSettings, BreakerState};
use crate::exclusion::Exclusion;
use crate::health::Probe;
use crate::retry_budget::RetryLimits;

/// Three requests in a row that the engine failed.
fn break_it(pool: &Pool) {
    for _ in 0..3 {
        send(pool, 1).unwrap().faulted("broke off");
    }
}

fn with_breaker(pools: Vec<PoolSpec>, breaker: BreakerSettings) -> FleetSpec {
    FleetSpec { health: HealthSpec { breaker, ..HealthSpec::default() }, ..fleet(pools) }
}

#[tokio::test]
async fn health_of_an_engine_and_retries_of_a_pool_are_carried_over() {
    let first = start(vec![pool("m", [1])]);
    break_it(&first.pools()[0]);
    let limits = RetryLimits { percent: 0, min_per_s: 1 };
    let now = std::time::Instant::now();
    let taken =
        |fleet: &Fleet| (0..100).filter(|_| fleet.pools()[0].retries().take(limits, now)).count();
    assert_eq!(taken(&first), 10);
    // Another pool in its place, and then another engine by all but its URL.
    let mut changed = pool("m", [1]);
    changed.timeouts.idle = Duration::from_secs(7);
    let (second, changes) = reload(&first, vec![changed.clone()]);
    assert_eq!(
        (&*changes.pools_changed, &*changes.engines_changed),
        (&["m".to_owned()][..], &[][..])
    );
    assert_eq!(second.pools()[0].timeouts().idle, Duration::from_secs(7));
    assert_eq!(first.pools()[0].timeouts().idle, Timeouts::default().idle, "who began before");
    changed.rank_addressing = RankAddressingKind::Header;
    let (third, changes) = reload(&second, vec![changed]);
    assert_eq!(changes.engines_begun_anew, urls(&[1]));
    for fleet in [&second, &third] {
        let endpoint = &fleet.endpoints()[0];
        assert_eq!(endpoint.breaker(), BreakerState::Open);
        assert_eq!(endpoint.exclusion("m"), Some(Exclusion::BreakerOpen));
        assert_eq!(taken(fleet), 0);
    }
    // An answer to the old one closes it for the new one too.
    first.endpoints()[0].mark_unreachable("gone");
    third.endpoints()[0].mark_reachable();
    let mut trial = send(&first.pools()[0], 1).unwrap();
    assert_eq!(third.endpoints()[0].exclusion("m"), Some(Exclusion::HalfOpen));
    trial.answered();
    assert_eq!(third.endpoints()[0].breaker(), BreakerState::Closed);
    assert!(third.pools()[0].is_ready());
}

#[tokio::test]
async fn another_health_is_taken_up_by_engines_that_stay() {
    let first = start(vec![pool("m", [1])]);
    let one = BreakerSettings { failures: 1, ..BreakerSettings::default() };
    let (second, _) = first.reload(with_breaker(vec![pool("m", [1])], one)).unwrap();
    assert!(Arc::ptr_eq(&first.endpoints()[0], &second.endpoints()[0]));
    send(&first.pools()[0], 1).unwrap().faulted("broke off");
    assert_eq!(second.endpoints()[0].breaker(), BreakerState::Open);
    // A health page that nobody asks for any more says nothing.
    let engine = Arc::clone(second.engines[0].ranks().engine());
    engine.mark_unreachable("gone");
    engine.mark_reachable();
    engine.note_probe(Probe::Unwell(503));
    assert_eq!(engine.exclusion("m"), Some(Exclusion::Unhealthy));
    engine.note_probe(Probe::None);
    assert_eq!(engine.exclusion("m"), None);
}

#[tokio::test]
async fn an_engine_is_connected_to_in_another_way_and_stays_who_it_is() {
    let origin = |connections: usize, http2: bool| {
        let limits = ConnectionLimits { idle: 1, connections };
        Origin::new(authority(1), None, http2, limits)
    };
    let over = |origin: Origin| {
        let mut spec = pool("m", [1]);
        spec.endpoints[0].origin = origin;
        vec![spec]
    };
    let first = start(over(origin(3, false)));
    let held = send(&first.pools()[0], 100).unwrap();
    let endpoint = &first.endpoints()[0];
    let known = endpoint.origin();
    let (second, changes) = reload(&first, over(origin(3, false)));
    assert!(changes.is_empty() && Arc::ptr_eq(&known, &endpoint.origin()), "its connections stay");
    let (third, changes) = reload(&second, over(origin(4, true)));
    assert_eq!((changes.engines_changed, changes.pools_changed), (urls(&[1]), Vec::new()));
    assert!(Arc::ptr_eq(endpoint, &third.endpoints()[0]) && *endpoint.origin() == origin(4, true));
    assert_eq!(endpoint.in_flight(), 1);
    drop(held);
    // Two pools that connect to it differently change nothing.
    let mut other = over(origin(5, false));
    other.push(PoolSpec { model: "n".to_owned(), ..over(origin(6, false)).remove(0) });
    let error = third.reload(fleet(other)).unwrap_err();
    assert_eq!(error, FleetError::Connections("http://127.0.0.2:1".to_owned()));
    assert!(*endpoint.origin() == origin(4, true));
}

#[tokio::test]
async fn busy_or_tried_engines_make_a_pool_ready_and_draining_ones_do_not() {
    let first = start(vec![pool("m", [1])]);
    let (pool, endpoint) = (&first.pools()[0], &first.endpoints()[0]);
    endpoint.mark_reachable();
    endpoint.press_back(Duration::from_secs(30));
    assert_eq!(pool.exclusion(endpoint, "m"), Some(Exclusion::BackPressure));
    assert!(pool.is_ready());
    endpoint.set_state(AdminState::Drain);
    assert!(!pool.is_ready(), "it is not meant to take anything, busy or not");
    assert!(send(pool, 1).is_none());
    // But what is stored there is nowhere else.
    let none = PromptTokens { prompts: None, count: 1, exact: false, adapter: None, salt: None };
    assert!(pool.choose_owner("m", &pool.evidence(&none), &[], endpoint).is_ok());
}

/// Known by an address only: another scheme is another engine, and the one that ended does not come
/// back, though it still has a request.
#[tokio::test]
async fn an_engine_that_ended_is_not_taken_back() {
    let first = start(vec![pool("m", [1])]);
    let held = send(&first.pools()[0], 100).unwrap();
    let mut other = pool("m", [1]);
    other.endpoints[0].origin = Origin::at(authority(1), true).unwrap();
    let (second, changes) = reload(&first, vec![other]);
    assert_eq!(changes.engines_begun_anew.len(), 1);
    let (third, _) = reload(&second, vec![pool("m", [2])]);
    let (third, _) = reload(&third, vec![pool("m", [1])]);
    assert_eq!(third.endpoints()[0].url(), held.endpoint().url());
    assert!(third.engines.iter().all(|engine| !engine.ends()), "nobody watches it");
    drop(held);
}

/// Blocks of requests that differ by more than tokens are still there when the engine is known in
/// another way.
#[tokio::test]
async fn that_an_engine_carried_extras_is_not_forgotten() {
    use kvasir_inventory::{SuspectReason, Trust};
    use kvasir_kv_events::Event;

    let first = start(vec![pool("m", [1])]);
    let old = Arc::clone(&first.endpoints()[0]);
    let mut changed = pool("m", [1]);
    changed.rank_addressing = RankAddressingKind::Header;
    let (second, changes) = reload(&first, vec![changed]);
    assert_eq!(changes.engines_begun_anew, urls(&[1]));
    let endpoint = &second.endpoints()[0];
    let stream = &endpoint.streams()[0];
    // What does not publish them looks plain.
    let stored = crate::test_events::stored([1], vec![7; 16], 16);
    stream.before(&crate::test_events::batch(vec![Event::Stored(stored)]));
    stream.set_trust(Trust::Exact, "test");
    assert_eq!(endpoint.trust(), Trust::Exact);
    // By a request that chose in the fleet before.
    old.carried_extras();
    let suspect = Trust::Suspect(SuspectReason::ExtraKeysUnpublished);
    assert_eq!(endpoint.trust(), suspect);
    let (third, _) = reload(&second, vec![pool("m", [1])]);
    let endpoint = &third.endpoints()[0];
    let stream = &endpoint.streams()[0];
    let stored = crate::test_events::stored([1], vec![7; 16], 16);
    stream.before(&crate::test_events::batch(vec![Event::Stored(stored)]));
    stream.set_trust(Trust::Exact, "test");
    assert_eq!(endpoint.trust(), suspect);
}
