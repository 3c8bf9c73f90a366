//! Simulations small enough to compute on paper.

use std::time::Duration;

use kvasir_sim::{Release, Restart, SaturationState, find_saturation};

use super::*;

#[test]
fn one_request_takes_its_prefill_and_its_steps() {
    let report = play_one(&workload(vec![asked(0.0, &[(1, 100)], 3)]), &simple(1), "latency");
    // 0.5 ms of network, 10 + 100 ms of prefill, two steps of 11 ms.
    close(report.ttft_ms.mean, 110.5);
    close(report.e2e_ms.mean, 132.5);
    close(report.tpot_ms.mean, 11.0);
    close(report.throughput_rps, 1.0 / 0.1325);
    assert_eq!((report.work_tokens, report.answered), (100, 1));
    close(report.busy_seconds_by_replica[0], 0.132);
}

#[test]
fn a_second_request_joins_the_batch_and_hits_the_cache() {
    // The second one comes while the first is being prefilled, and waits for the step to end.
    let requests = vec![asked(0.0, &[(1, 100)], 3), asked(0.05, &[(1, 96), (2, 20)], 1)];
    let report = play_one(&workload(requests), &simple(1), "latency");
    // It hits 96 tokens: its step computes 20 of its own and one of the first request.
    assert_eq!(report.work_tokens, 120);
    close(report.token_hit_rate, 96.0 / 216.0);
    // Step of 110 until 110.5; then 10 + 21; it came at 50.
    close(report.ttft_ms.p99, 110.5);
    close(report.ttft_ms.p50, 110.5 + 31.0 - 50.0);
    // The first one: 110.5 + 31 + 11.
    close(report.e2e_ms.p99, 152.5);
    // Nobody knew of the blocks when it was sent.
    close(report.predicted_hit_rate, 0.0);
    assert_eq!(report.under_predicted, 1);
}

#[test]
fn what_events_have_told_is_predicted_and_followed() {
    let requests = vec![
        asked(0.0, &[(1, 160)], 1),
        asked(0.0, &[(2, 160)], 1),
        asked(2.0, &[(2, 160), (3, 8)], 1),
        asked(4.0, &[(1, 160), (4, 8)], 1),
    ];
    let comparison = play(&workload(requests), &simple(2), &["precise_cache_aware", "round_robin"]);
    let [precise, blind] = &comparison.policies[..] else { panic!("two policies") };
    assert_eq!(precise.work_by_replica, [168, 168]);
    close(precise.predicted_hit_rate, 320.0 / 656.0);
    close(precise.token_hit_rate, precise.ideal_hit_rate);
    assert_eq!((precise.spills, precise.over_predicted, precise.under_predicted), (0, 0, 0));
    // In turn, the third goes where the first was.
    assert_eq!(blind.work_by_replica, [328, 328]);
    assert_eq!(blind.spills, 2);
    close(blind.max_over_mean_work, 1.0);
}

#[test]
fn a_burst_with_one_new_prefix_goes_where_the_first_of_it_is_computed() {
    // Nothing is computed yet when all are sent, and no events need to tell it.
    let burst = |n: u32| asked(f64::from(n) * 1e-3, &[(1, 800), (u64::from(n) + 2, 16)], 1);
    // The other replica is busy.
    let mut requests = workload(vec![asked(0.0, &[(1_000, 4_000)], 1)]);
    requests.requests.extend((1..5).map(burst));
    let mut options = simple(2);
    for events in [true, false] {
        options.news.events = events;
        let report = play_one(&requests, &options, "latency");
        let mut work = report.work_by_replica.clone();
        work.sort_unstable();
        assert_eq!(work, [816 + 3 * 16, 4_000], "events: {events}");
        // What is pending is no part of what is predicted.
        close(report.predicted_hit_rate, 0.0);
        assert_eq!((report.under_predicted, report.spills), (3, 0));
    }
}

/// Prompts of 160 tokens, a `pause` apart, and each again, with 8 more, `later` seconds later.
fn twice(prompts: u32, pause: f64, later: f64) -> Workload {
    let one = |n: u32| asked(f64::from(n) * pause, &[(u64::from(n), 160)], 1);
    let again = |n: u32| asked(f64::from(n) * pause + later, &[(u64::from(n), 168)], 1);
    workload((0..prompts).map(one).chain((0..prompts).map(again)).collect())
}

#[test]
fn a_pending_prefix_ends_two_seconds_after_its_first_token() {
    // Without events nothing else draws the second one to the first one's replica, one of eight.
    let mut options = simple(8);
    options.news.events = false;
    let hits = |later: f64| {
        let requests = twice(20, 10.0, later);
        play_one(&requests, &options, "latency").token_hit_rate
    };
    // The first token comes after 0.1705 s.
    close(hits(2.165), 160.0 / 328.0);
    assert!(hits(2.175) < 80.0 / 328.0, "{}", hits(2.175));
}

#[test]
fn what_was_pending_at_an_engine_that_restarted_is_not_looked_for_there() {
    let mut options = simple(8);
    options.news.scrape_interval = Duration::from_millis(50);
    let down = Duration::from_millis(200);
    let all = |at| (0..8).map(move |replica| Restart { replica, at, down }).collect();
    for events in [true, false] {
        options.news.events = events;
        let mut odd = |restarts: Vec<Restart>| {
            options.restarts = restarts;
            // Six prompts on six replicas until 0.3 s, and again from 1 s on.
            let report = play_one(&twice(6, 0.02, 1.0), &options, "precise_cache_aware");
            assert_eq!(report.answered, 12);
            report.requests_by_replica.iter().filter(|requests| *requests % 2 == 1).count()
        };
        assert_eq!(odd(Vec::new()), 0, "events: {events}");
        assert!(odd(all(0.5)) > 0, "events: {events}");
    }
}

#[test]
fn a_small_cache_evicts() {
    // Room for ten blocks, and requests of ten blocks that take turns.
    let mut options = simple(1);
    options.engine.cache_tokens = vec![176];
    let turns = |turn: u64| asked(turn as f64, &[(turn % 2, 160)], 1);
    let report = play_one(&workload((0..6).map(turns).collect()), &options, "latency");
    close(report.ideal_hit_rate, 4.0 * 144.0 / 960.0);
    assert!(report.token_hit_rate < report.ideal_hit_rate, "{}", report.token_hit_rate);
    assert_eq!(report.over_predicted, 0);
}

#[test]
fn a_turn_waits_for_the_answer_and_its_pause_and_quotes_the_answer() {
    let mut next = asked(0.0, &[(1, 64)], 1);
    next.release = Release::After { request: 0, pause: 2.0 };
    next.prompt.push(Segment::answer_to(0, 33));
    let requests = workload(vec![asked(0.0, &[(1, 64)], 33), next]);
    let mut options = simple(1);
    options.time_scale = 4.0;
    let report = play_one(&requests, &options, "latency");
    // 64 + 33 tokens, of which the last was not computed: six blocks.
    close(report.token_hit_rate, 96.0 / (64.0 + 97.0));
    close(report.ideal_hit_rate, 96.0 / (64.0 + 97.0));
    // 74.5 ms, 32 steps of 11 ms, a pause of 0.5 s, one token and 11.5 ms.
    close(report.throughput_rps, 2.0 / (0.0745 + 0.352 + 0.5 + 0.0115));
}

#[test]
fn a_faster_replica_does_more_of_the_work() {
    let mut options = simple(2);
    options.engine.speeds = vec![1.0, 3.0];
    let requests = (0_u32..200).map(|n| asked(f64::from(n) * 0.4, &[(u64::from(n), 1_000)], 1));
    let report = play_one(&workload(requests.collect()), &options, "latency");
    let [slow, fast] = report.work_by_replica[..] else { panic!("two replicas") };
    assert!(fast > 2 * slow, "{slow} {fast}");
}

#[test]
fn a_slow_reading_of_metrics_changes_nothing_for_what_was_sent_by_oneself() {
    let mut options = simple(2);
    let requests = (0_u32..50).map(|n| asked(f64::from(n) * 0.3, &[(u64::from(n), 500)], 2));
    let requests = workload(requests.collect());
    let known = play_one(&requests, &options, "latency");
    options.news.scrape_interval = Duration::from_secs(3_600);
    assert_eq!(play_one(&requests, &options, "latency"), known);
}

#[test]
fn saturation_is_where_answers_no_longer_follow() {
    // 0.99 s of work in a request, one arrival a second.
    let requests = (0_u32..400).map(|n| asked(f64::from(n), &[(u64::from(n), 980)], 1));
    let requests = workload(requests.collect());
    let mut options = simple(1);
    options.engine.max_num_batched_tokens = 980;
    // The search may begin below and far above.
    for start in [1.0, 8.0] {
        options.time_scale = start;
        let found =
            find_saturation(&requests, &options, &policy("round_robin"), &mut |_, _| {}).unwrap();
        assert_eq!(found.state, SaturationState::Measured, "from {start}");
        // At x the replica answers 1 / (0.99 x) of what comes; 95 % of it at x = 1.063.
        assert!((1.01..1.10).contains(&found.time_scale), "from {start}: {found:?}");
        close(found.requests_per_second, found.time_scale * 400.0 / 399.0);
    }
}

#[test]
fn requests_that_all_come_at_once_have_no_saturation() {
    let requests = (0..4).map(|n| asked(0.0, &[(n, 980)], 1)).collect();
    let found =
        find_saturation(&workload(requests), &simple(1), &policy("round_robin"), &mut |_, _| {});
    assert_eq!(found.unwrap().state, SaturationState::BelowRange);
}
