//! Advice about engines: it scales weights, has no say in measured rates, and leaves no request without an
//! endpoint.

use super::*;
use crate::advice::{Advice, AdvisedState};

#[test]
fn advice_scales_the_weight_and_not_the_expected_rate() {
    let scene = Scene::new(2, None);
    let pool = scene.pool(PolicyKind::Weighted);
    let prompts = burst(1);
    let of = |place: usize| {
        let explained = pool.explain("m", &pool.evidence(&plain(&prompts)), None);
        let endpoint = &explained.record.endpoints[place];
        (endpoint.weight, endpoint.prefill_rate)
    };
    let (weight, rate) = of(0);
    scene.endpoint(0).advise(Advice { percent: 25, ..Advice::NEUTRAL });
    assert_eq!((weight, of(0)), (100, (25, rate)));
    assert_eq!(scene.endpoint(0).view().effective_weight, 25);
    assert_eq!((scene.endpoint(0).view().weight, of(1)), (100, (100, rate)));
}

#[test]
fn who_is_advised_away_is_the_last_resort_and_no_more() {
    for state in [AdvisedState::Draining, AdvisedState::Disabled] {
        let scene = Scene::new(2, None);
        let pool = scene.pool(PolicyKind::RoundRobin);
        let prompts = burst(1);
        let chosen = || {
            let chosen = pool.choose("m", &pool.evidence(&plain(&prompts)), &[]).unwrap();
            chosen.reservation.endpoint().name()
        };
        let away = Advice { percent: 100, state };
        scene.endpoint(0).advise(away);
        let other = scene.endpoint(1).name();
        assert_eq!([chosen(), chosen()], [other.clone(), other]);
        // All of them: as if nothing were advised.
        scene.endpoint(1).advise(away);
        assert_ne!(chosen(), chosen());
        // What an operator took out is not taken, whatever is advised of others.
        scene.endpoint(1).set_state(AdminState::Disabled);
        let only = scene.endpoint(0).name();
        assert_eq!([chosen(), chosen()], [only.clone(), only]);
    }
}
