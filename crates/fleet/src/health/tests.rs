use http::uri::Authority;
use kvasir_upstream::Origin;

use super::*;
use crate::identity::BlockIdentity;

fn engine() -> Arc<Engine> {
    let origin = Origin::at(Authority::from_static("127.0.0.1:1"), false).unwrap();
    let space = kvasir_kv_hash::KeySpace::fixed();
    let inventory = kvasir_inventory::Inventory::new(space, kvasir_inventory::Limits::default());
    let shared = crate::pool::Shared::new(Arc::new(inventory));
    let engine = Engine::new(origin, BlockIdentity::default(), &shared);
    engine.set_breaker(BreakerSettings { failures: 2, ..BreakerSettings::default() });
    Arc::new(engine)
}

fn fault(engine: &Arc<Engine>) {
    engine.send().settle(Verdict::Fault, "broke");
}

#[test]
fn a_request_that_ends_without_a_word_frees_its_place() {
    let engine = engine();
    fault(&engine);
    fault(&engine);
    assert_eq!(engine.exclusion("m"), Some(Exclusion::BreakerOpen));
    engine.mark_unreachable("refused");
    engine.mark_reachable();
    assert_eq!((engine.breaker(), engine.exclusion("m")), (BreakerState::HalfOpen, None));
    let trial = engine.send();
    assert_eq!(engine.exclusion("m"), Some(Exclusion::HalfOpen));
    assert!(engine.send().is_surplus() && !trial.is_surplus());
    drop(trial);
    assert_eq!(engine.exclusion("m"), None, "a client that leaves says nothing");
    let mut trial = engine.send();
    trial.settle(Verdict::Answered, "");
    trial.settle(Verdict::Fault, "counts once");
    assert_eq!((engine.breaker(), engine.exclusion("m")), (BreakerState::Closed, None));
}

#[test]
fn a_page_that_answers_is_no_answered_request() {
    let engine = engine();
    fault(&engine);
    fault(&engine);
    engine.mark_reachable();
    engine.note_page(true);
    engine.note_probe(Probe::Well);
    assert_eq!(engine.exclusion("m"), Some(Exclusion::BreakerOpen));
}

#[test]
fn health_pages_count_at_once_where_they_come_and_in_a_row_where_they_do_not() {
    let engine = engine();
    engine.note_probe(Probe::Late);
    assert_eq!(engine.exclusion("m"), None);
    engine.note_probe(Probe::Late);
    assert_eq!(engine.exclusion("m"), Some(Exclusion::Unhealthy));
    engine.note_probe(Probe::Well);
    assert_eq!(engine.exclusion("m"), None);
    engine.note_probe(Probe::Unwell(503));
    assert_eq!(engine.exclusion("m"), Some(Exclusion::Unhealthy));
}

#[test]
fn the_longest_wish_to_be_left_alone_counts_within_bounds() {
    let engine = engine();
    engine.press_back(Duration::from_secs(20));
    engine.press_back(Duration::from_secs(1));
    assert!(engine.back_pressure().unwrap() > Duration::from_secs(10));
    assert_eq!(engine.exclusion("m"), Some(Exclusion::BackPressure));
    engine.press_back(Duration::MAX);
    assert!(engine.back_pressure().unwrap() <= LONGEST_PRESSURE);
}
