//! Prompts that are computed elsewhere than was decided, and engines that hand nothing over.

use std::time::Duration;

use kvasir_balance::{PairPlan, Role};

use super::admission::{behind, each, requests};
use super::split::{ask, fetching, plan, prompt, scene, splitting};
use super::*;
use crate::admission::NoRoom;
use Role::{Decode, Prefill};

#[test]
fn a_prompt_that_a_decode_endpoint_computes_after_all_is_work_there() {
    let scene = scene(&[Prefill, Decode, Decode]);
    let (pool, prompt) = (splitting(&scene), prompt());
    let other = vec![(9_000..13_000).collect::<Vec<u32>>()];
    let load = |endpoint: &Endpoint| (endpoint.in_flight(), endpoint.queued_prefill_tokens());
    let whole = |prompt: &[Vec<u32>]| {
        let evidence = pool.evidence(&plain(prompt)).not_split();
        pool.choose("m", &evidence, &[]).unwrap()
    };
    // By the plan, by falling back from a split, and by falling back from a decode leg alone.
    for way in ["no_prefill", "split", "decode"] {
        let mut chosen = match way {
            "no_prefill" => whole(&prompt),
            "split" => ask(&pool, &prompt).unwrap(),
            _ => {
                let from = scene.endpoint(0);
                pool.choose_decode("m", &pool.evidence(&plain(&prompt)), &[], &from).unwrap()
            }
        };
        assert_eq!(chosen.prefill.is_some(), way == "split", "{way}");
        drop(chosen.prefill.take());
        let d = Arc::clone(chosen.reservation.endpoint());
        if way != "no_prefill" {
            assert_eq!(load(&d), (1, 0), "{way}");
        }
        chosen.reservation.computes_prompt();
        // Once.
        chosen.reservation.computes_prompt();
        assert_eq!(load(&d), (1, 4_000), "{way}");
        // The next one sees it: goes elsewhere, or counts on what is pending there.
        let next = whole(&other);
        assert!(!next.reservation.endpoint().same_engine(&d), "{way}");
        drop(next);
        let same = whole(&prompt);
        assert!(same.reservation.endpoint().same_engine(&d), "{way}");
        assert_eq!(same.decision.pending, 3_984, "{way}");
        drop(same);
        chosen.reservation.first_data(true);
        assert_eq!(load(&d), (1, 0), "{way}");
        assert_eq!(d.learned_transfer_rate(), None, "nothing was fetched");
        drop(chosen);
        assert_eq!(load(&d), (0, 0), "{way}");
        d.begins_anew();
        d.load().reset_recent_work();
    }
    // Nor is anything left of one that never begins.
    let mut chosen = ask(&pool, &other).unwrap();
    let d = Arc::clone(chosen.reservation.endpoint());
    let before = d.load().at(Instant::now()).recent.0;
    chosen.reservation.computes_prompt();
    assert!(d.load().at(Instant::now()).recent.0 > before + 3_900.0);
    drop(chosen);
    assert_eq!(load(&d), (0, 0));
    assert!(d.load().at(Instant::now()).recent.0 < before + 1.0);
    assert_eq!(whole(&other).decision.pending, 0);
}

#[test]
fn who_is_at_fault_for_hand_overs_is_left_out_of_them() {
    let engines = [Prefill, Prefill, Decode, Decode];
    let places = |scene: &Scene, chosen: &Chosen| {
        let place = |endpoint: &Arc<Endpoint>| {
            (0..engines.len()).find(|at| Arc::ptr_eq(&scene.endpoint(*at), endpoint)).unwrap()
        };
        let prefill = chosen.prefill.as_ref().map(|prefill| place(prefill.endpoint()));
        (prefill, place(chosen.reservation.endpoint()))
    };
    // Failures by pair, and the pairs of the requests after them.
    type Row = (&'static [(usize, usize)], &'static [usize], &'static [usize]);
    let table: [Row; 3] = [
        (&[(0, 2), (0, 3), (0, 2)], &[1], &[2, 3]),
        (&[(0, 2), (1, 2), (0, 2)], &[0, 1], &[3]),
        (&[(0, 2), (0, 2), (0, 2)], &[0, 1], &[2, 3]),
    ];
    for (failures, prefill, decode) in table {
        let scene = scene(&engines);
        let pool = splitting(&scene);
        for (p, d) in failures {
            let evidence = pool.evidence(&plain(&prompt()));
            let from = scene.endpoint(*p);
            let others: Vec<Arc<Endpoint>> = vec![scene.endpoint(5 - d)];
            let leg = pool.choose_decode("m", &evidence, &others, &from).unwrap();
            assert!(Arc::ptr_eq(leg.reservation.endpoint(), &scene.endpoint(*d)));
            leg.reservation.could_not_fetch_from(&from);
        }
        let mut held = Vec::new();
        let mut seen = Vec::new();
        for prompt in burst(40) {
            let chosen = ask(&pool, &[prompt]).unwrap();
            let (p, d) = places(&scene, &chosen);
            // A decode endpoint that cannot fetch may compute.
            seen.extend(p.map(|p| (p, d)));
            held.push(chosen);
        }
        let used = |side: fn(&(usize, usize)) -> usize| {
            let mut used: Vec<usize> = seen.iter().map(side).collect();
            used.sort_unstable();
            used.dedup();
            used
        };
        assert_eq!((used(|pair| pair.0), used(|pair| pair.1)), (prefill.into(), decode.into()));
        assert!(!seen.contains(&(0, 2)), "{failures:?}");
        // Nor is it sent for what is computed already.
        let evidence = pool.evidence(&plain(&prompt()));
        let left = pool.choose_decode("m", &evidence, &[scene.endpoint(3)], &scene.endpoint(0));
        assert_eq!(left.unwrap_err(), NoRoom::Nobody, "{failures:?}");
        // It works again: all is well.
        let ask_again = |p: usize, d: usize| {
            scene.shared.hand_overs.worked(&scene.endpoint(p), &scene.endpoint(d));
            pool.choose_decode("m", &evidence, &[scene.endpoint(3)], &scene.endpoint(0)).is_ok()
        };
        assert!(ask_again(0, 2), "{failures:?}");
    }
}

#[test]
fn a_prefill_engine_that_was_left_out_is_tried_by_one_request() {
    let scene = scene(&[Prefill, Decode, Decode]);
    let (pool, from) = (splitting(&scene), scene.endpoint(0));
    let failed = |at| scene.shared.hand_overs.failed(&from, &scene.endpoint(at));
    [1, 2, 1].into_iter().for_each(failed);
    assert_eq!(plan(&pool, &prompt()), Some(PairPlan::NoPrefill));
    scene.shared.hand_overs.later(Duration::from_secs(30));
    let plans = |burst: Vec<Vec<u32>>| -> Vec<_> {
        burst.into_iter().map(|prompt| plan(&pool, &[prompt]).unwrap()).collect()
    };
    let (split, alone) = (PairPlan::Split, PairPlan::NoPrefill);
    assert_eq!(plans(burst(3)), [split, alone, alone]);
    // Nothing came of it: the next one.
    scene.shared.hand_overs.later(Duration::from_secs(5));
    assert_eq!(plans(burst(3)), [split, alone, alone]);
    scene.shared.hand_overs.worked(&from, &scene.endpoint(1));
    assert_eq!(plans(burst(3)), [split, split, split]);
}

#[test]
fn where_all_prefill_engines_are_at_fault_decode_engines_compute() {
    let scene = scene(&[Prefill, Decode, Decode]);
    let from = scene.endpoint(0);
    for at in [1, 2, 1] {
        scene.shared.hand_overs.failed(&from, &scene.endpoint(at));
    }
    assert_eq!(plan(&splitting(&scene), &prompt()), Some(PairPlan::NoPrefill));
    // Those of SGLang cannot.
    assert_eq!(plan(&fetching(&scene), &prompt()), Some(PairPlan::Split));
    // An engine that hands nothing over is known by itself.
    let other = super::split::scene(&[Prefill, Decode]);
    let pool = splitting(&other);
    for wanted in [PairPlan::Split, PairPlan::Split, PairPlan::Split, PairPlan::NoPrefill] {
        let chosen = ask(&pool, &prompt()).unwrap();
        assert_eq!(chosen.decision.plan, Some(wanted));
        if let Some(prefill) = chosen.prefill {
            prefill.handed_nothing();
        }
    }
}

#[test]
fn a_busy_prefill_endpoint_is_not_waited_for() {
    let scene = scene(&[Prefill, Decode]);
    let pool = behind(splitting(&scene), each(requests(4)));
    scene.endpoint(0).press_back(Duration::from_secs(20));
    let chosen = ask(&pool, &prompt()).unwrap();
    assert_eq!(chosen.decision.plan, Some(PairPlan::NoPrefill));
    // What it is given counts against the decode endpoint's limits.
    assert_eq!(scene.endpoint(1).queued_prefill_tokens(), 4_000);
    // Where nobody else can compute, it is asked all the same.
    let chosen = ask(&fetching(&scene), &prompt()).unwrap();
    assert_eq!(chosen.decision.plan, Some(PairPlan::Split));
}
