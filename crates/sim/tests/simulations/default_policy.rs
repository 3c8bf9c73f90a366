//! What the default policy must keep: hits where there are any, work spread evenly, and both also when
//! gateways know little.

use std::time::Duration;

use kvasir_sim::Restart;

use super::*;

/// Requests of a shared beginning and a part of their own, so many seconds apart.
fn shared_prompts(requests: u64, shared: u32, own: u32, gap: f64, outputs: u32) -> Workload {
    let one = |n: u64| asked(n as f64 * gap, &[(1, shared), (1_000 + n, own)], outputs);
    workload((0..requests).map(one).collect())
}

fn eight() -> Options {
    let mut options = Options::default();
    options.engine.block_size = 16;
    options
}

#[test]
fn one_system_prompt_of_all_is_found_and_its_work_is_spread() {
    // 100 and 150 requests a second of 2,200 tokens, 2,000 of them everybody's: half and three
    // quarters of what the replicas can compute.
    for gap in [0.01, 1.0 / 150.0] {
        let workload = shared_prompts(1_200, 2_000, 200, gap, 100);
        let report = play_one(&workload, &eight(), "latency");
        assert!(report.token_hit_rate > 0.9 * report.ideal_hit_rate, "{}", report.token_hit_rate);
        let (spread, requests) = (report.max_over_mean_work, &report.requests_by_replica);
        assert!(spread < 1.3, "{spread}: {requests:?}");
        let most = requests.iter().max().copied().unwrap_or(0);
        assert!(most * 8 < 1_200 * 13 / 10, "{requests:?}");
    }
}

#[test]
fn a_burst_is_computed_once_or_twice_and_waits_hardly_longer_than_under_round_robin() {
    const LEAST: u64 = 2_000 + 64 * 200;
    let workload = shared_prompts(64, 2_000, 200, 0.05 / 64.0, 20);
    for gateways in [1, 2] {
        // With several gateways it is chance which of them gets which request.
        let (mut found, mut bound) = (0.0, 0.0);
        for seed in 1..=5 {
            let mut options = Options { gateways, seed, ..eight() };
            // No metrics before it is over.
            options.news.scrape_interval = Duration::from_secs(86_400);
            let comparison = play(&workload, &options, &["latency", "round_robin"]);
            let [latency, turns] = &comparison.policies[..] else { panic!("two policies") };
            assert_eq!(latency.answered, 64);
            let work = latency.work_tokens;
            assert!(work <= 2 * LEAST, "{gateways} gateways: {work} of {LEAST}");
            found += latency.ttft_ms.p99 / 5.0;
            bound += turns.ttft_ms.p99 / 5.0;
        }
        // Whose eighth request came first waits longest: in turn that is the least.
        assert!(
            found <= 1.03 * bound,
            "{gateways} gateways: {found} ms, {bound} ms under round robin"
        );
    }
}

/// The beginning of the conversation trace on eight replicas.
fn conversation(change: impl Fn(&mut Options)) -> PolicyReport {
    let workload = Workload::read_trace(&trace("conversation_trace_600.jsonl"))
        .unwrap_or_else(|error| panic!("{error}"));
    let mut options = Options { time_scale: 0.8, ..Options::default() };
    change(&mut options);
    play_one(&workload, &options, "latency")
}

fn informed(options: &mut Options) {
    options.news.scrape_interval = Duration::from_millis(100);
    options.news.event_delay = Duration::ZERO;
    options.news.told_speeds = true;
}

fn ill_informed(options: &mut Options) {
    options.news.scrape_interval = Duration::from_secs(10);
    options.news.event_loss = 0.01;
}

#[track_caller]
fn within_15_percent(change: impl Fn(&mut Options)) {
    let best = conversation(|options| {
        informed(options);
        change(options);
    });
    let found = conversation(|options| {
        ill_informed(options);
        change(options);
    });
    for (ours, perfect) in
        [(found.e2e_ms.mean, best.e2e_ms.mean), (found.ttft_ms.mean, best.ttft_ms.mean)]
    {
        assert!(ours <= 1.15 * perfect, "{ours} ms, {perfect} ms with perfect information");
    }
}

#[test]
fn stale_metrics_and_lost_events_cost_little() {
    within_15_percent(|_| {});
}

#[test]
fn a_replica_three_times_slower_is_found_out() {
    within_15_percent(|options| {
        options.engine.speeds = vec![1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0 / 3.0];
    });
}

#[test]
fn replicas_that_die_or_join_cost_no_more_than_they_must() {
    let gone = |at: f64, down: u64| Restart { replica: 3, at, down: Duration::from_secs(down) };
    within_15_percent(|options| options.restarts = vec![gone(60.0, 100_000)]);
    within_15_percent(|options| options.restarts = vec![gone(0.0, 60)]);
}

#[test]
fn a_newcomer_gets_no_more_than_it_can_take() {
    // Half an hour of cold prompts of 2,000 tokens, 0.2 s each, at 60 % of what two can compute; a
    // third replica comes after 25 minutes.
    let one = |n: u64| asked(n as f64 * 0.17, &[(1_000 + n, 2_048)], 2);
    let workload = workload((0..10_500).map(one).collect());
    let mut options = Options { replicas: 3, ..Options::default() };
    options.restarts = vec![Restart { replica: 2, at: 0.0, down: Duration::from_secs(1_500) }];
    let joined = play_one(&workload, &options, "latency");
    options.restarts.clear();
    options.replicas = 2;
    let before = play_one(&workload, &options, "latency");
    // The newcomer takes about a third of the last 285 s of 1,785, and nobody waits for it.
    let third = joined.requests_by_replica[2];
    assert!((400..=780).contains(&third), "{:?}", joined.requests_by_replica);
    let (p99, bound) = (joined.ttft_ms.p99, before.ttft_ms.p99);
    assert!(p99 <= bound * 1.05, "{p99} ms with a third replica, {bound} ms without");
}
