//! What `ExaMLOps` E4 asks of a gateway, by the names of its requirements.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use kvasir_balance::e4::{
    Gateway, Mode, NoReplicas, Replica, disaggregated_route, measure_hit_rate, prefix_key,
};

fn replicas(count: usize) -> Vec<Replica> {
    (0..count).map(|n| Replica::new(format!("r{n}"))).collect()
}

fn slow(id: &str, latency_ms: f64, queue_depth: u32) -> Replica {
    Replica { latency_ms, queue_depth, ..Replica::new(id) }
}

fn rate(mode: Mode, count: usize, requests: usize) -> f64 {
    let mut gateway = Gateway::new(replicas(count), mode, None);
    let key = prefix_key("You are helpful.", "", "");
    measure_hit_rate(&mut gateway, std::iter::repeat_n(&*key, requests)).unwrap()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn keys_are_the_first_digits_of_a_sha256() {
    // printf 'a‖b‖c' | sha256sum
    assert_eq!(prefix_key("a", "b", "c"), "3efca701835282e1");
    assert_ne!(prefix_key("a", "", ""), prefix_key("", "a", ""));
    assert_eq!(prefix_key("", "", "").len(), 16);
}

#[test]
fn load_scores_weigh_a_request_a_tenth_of_the_cache_and_100_ms_alike() {
    let replica = Replica { kv_utilization: 0.25, ..slow("a", 350.0, 2) };
    assert!(near(replica.load_score(), 2.0 + 2.5 + 3.5));
}

#[test]
fn r1_a_key_goes_to_a_replica_that_holds_it() {
    let mut gateway = Gateway::new(replicas(3), Mode::CacheAware, None);
    let first = gateway.route("k").unwrap();
    assert_eq!((first.decision, first.hit), ("load_aware", false));
    let second = gateway.route("k").unwrap();
    assert_eq!((second.decision, second.hit, second.replica), ("affinity", true, first.replica));
}

#[test]
fn r2_a_new_key_goes_to_the_least_loaded() {
    let busy = Replica { kv_utilization: 0.5, ..Replica::new("kv") };
    let fleet = vec![slow("queue", 0.0, 6), busy, slow("latency", 499.0, 0)];
    let mut gateway = Gateway::new(fleet, Mode::CacheAware, None);
    assert_eq!(gateway.route("k").unwrap().replica, "latency");
}

#[test]
fn r3_round_robin_is_the_default_and_takes_turns() {
    assert_eq!(Mode::default(), Mode::RoundRobin);
    let mut gateway = Gateway::new(replicas(3), Mode::default(), None);
    let order: Vec<String> = (0..4).map(|_| gateway.route("k").unwrap().replica).collect();
    assert_eq!(order, ["r0", "r1", "r2", "r0"]);
}

#[test]
fn r6_a_limit_never_leaves_nobody() {
    let mut within = Gateway::new(
        vec![slow("at", 500.0, 9), slow("above", 500.1, 0)],
        Mode::CacheAware,
        Some(500.0),
    );
    assert_eq!(within.route("k").unwrap().replica, "at");
    let all_above = vec![slow("worse", 2000.0, 0), slow("bad", 900.0, 5)];
    let mut gateway = Gateway::new(all_above.clone(), Mode::CacheAware, Some(500.0));
    assert_eq!(gateway.route("k").unwrap().replica, "bad", "the least bad first");
    let mut sick = all_above;
    sick.iter_mut().for_each(|replica| replica.healthy = false);
    let mut gateway = Gateway::new(sick, Mode::CacheAware, Some(500.0));
    assert_eq!(gateway.route("k").unwrap().replica, "bad", "by load, where all are unhealthy");
    let mut nobody = Gateway::new(Vec::new(), Mode::RoundRobin, None);
    assert_eq!(nobody.route("k"), Err(NoReplicas));
}

#[test]
fn gwt_1_shared_prefixes_hit_more_often_than_under_round_robin() {
    assert!(near(rate(Mode::CacheAware, 4, 100), 0.99));
    assert!(near(rate(Mode::RoundRobin, 4, 100), 0.96), "every replica is warm after its first");
    assert!(near(rate(Mode::RoundRobin, 4, 50), 0.92));
    assert!(near(rate(Mode::RoundRobin, 4, 0), 0.0));
}

#[test]
fn gwt_2_affinity_wins_over_load() {
    let holder = Replica { prefixes: HashSet::from(["k".to_owned()]), ..slow("holder", 0.0, 50) };
    let mut gateway = Gateway::new(vec![Replica::new("idle"), holder], Mode::CacheAware, None);
    assert_eq!(gateway.route("k").unwrap().replica, "holder");
    assert_eq!(gateway.route("new").unwrap().replica, "idle");
}

#[test]
fn gwt_3_the_default_spreads_over_all() {
    let mut gateway = Gateway::new(replicas(3), Mode::default(), None);
    let seen: HashSet<String> = (0..3).map(|_| gateway.route("k").unwrap().replica).collect();
    assert_eq!(seen.len(), 3);
}

#[test]
fn gwt_5_a_replica_above_the_limit_is_avoided_even_when_least_loaded() {
    let mut holder = slow("slow", 2000.0, 0);
    holder.prefixes.insert("k".to_owned());
    let fleet = vec![holder, slow("fast", 100.0, 5)];
    let mut gateway = Gateway::new(fleet, Mode::CacheAware, Some(500.0));
    assert_eq!(gateway.route("k").unwrap().replica, "fast");
}

#[test]
fn both_parts_of_a_request_find_a_replica() {
    let mut warm = slow("p1", 0.0, 3);
    warm.prefixes.insert("k".to_owned());
    let sick = Replica { healthy: false, ..Replica::new("d0") };
    let decode = [sick, slow("d1", 0.0, 2), slow("d2", 0.0, 1)];
    let both = disaggregated_route("k", &[Replica::new("p0"), warm], &decode).unwrap();
    assert_eq!((&*both.prefill_replica, &*both.decode_replica), ("p1", "d2"));
    assert_eq!(disaggregated_route("k", &[], &decode), Err(NoReplicas));
    assert_eq!(disaggregated_route("k", &decode, &[]), Err(NoReplicas));
}

#[test]
fn disaggregated_routes_are_those_of_the_description() {
    let row = |id: &str, queue_depth, kv_utilization, latency_ms, keys: &[&str]| Replica {
        queue_depth,
        kv_utilization,
        latency_ms,
        prefixes: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..Replica::new(id)
    };
    let prefill = [
        // Scores 50.0, 9.0 (4 + 2 + 3), 9.0, 0.5.
        row("p0", 50, 0.0, 0.0, &["a"]),
        row("p1", 4, 0.2, 300.0, &["a", "b"]),
        row("p2", 9, 0.0, 0.0, &["b"]),
        row("p3", 0, 0.0, 50.0, &[]),
    ];
    let decode = [
        // Scores 6.0 (1 + 5), 5.0 (0 + 0 + 5), 5.0 (5), 12.0 (2 + 10).
        row("d0", 1, 0.5, 0.0, &["c"]),
        row("d1", 0, 0.0, 500.0, &[]),
        row("d2", 5, 0.0, 0.0, &[]),
        row("d3", 2, 1.0, 0.0, &["a"]),
    ];
    for (replica, score) in
        prefill.iter().chain(&decode).zip([50.0, 9.0, 9.0, 0.5, 6.0, 5.0, 5.0, 12.0])
    {
        assert!(near(replica.load_score(), score), "{}", replica.id);
    }
    let table = [
        // The least loaded holder computes, however idle others are; of equals the first.
        ("a", "p1"),
        ("b", "p1"),
        // Nobody holds it: the least loaded does. What decode replicas hold is not looked at.
        ("c", "p3"),
    ];
    for (key, wanted) in table {
        let both = disaggregated_route(key, &prefill, &decode).unwrap();
        // Of two with 5.0 the first.
        let found = (&*both.prefill_replica, &*both.decode_replica, &*both.prefix_key);
        assert_eq!(found, (wanted, "d1", key));
        // Nothing is kept between two calls.
        assert_eq!(disaggregated_route(key, &prefill, &decode).unwrap(), both);
    }
    // There is no limit for latency on either side; who is unhealthy computes only if all are.
    let slow = [row("s", 0, 0.0, 60_000.0, &["a"]), row("t", 0, 0.0, 0.0, &[])];
    assert_eq!(disaggregated_route("a", &slow, &decode).unwrap().prefill_replica, "s");
    let sick = slow.map(|replica| Replica { healthy: false, ..replica });
    assert_eq!(disaggregated_route("a", &sick, &sick).unwrap().prefill_replica, "s");
    assert_eq!(disaggregated_route("a", &sick, &sick).unwrap().decode_replica, "t");
}
