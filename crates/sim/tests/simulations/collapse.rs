//! The longest prefix alone is no policy: where all prompts begin alike, one engine gets them all.

use kvasir_sim::Synthetic;

use super::*;

/// The beginning of the conversation trace: every request of it begins with the same block.
fn conversation() -> Workload {
    Workload::read_trace(&trace("conversation_trace_600.jsonl"))
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_longest_prefix_collapses_on_the_conversation_trace() {
    let workload = conversation();
    assert_eq!(workload.requests.len(), 600);
    let first = workload.requests[0].prompt[0];
    assert!(workload.requests.iter().all(|asked| asked.prompt[0] == first));
    let options = Options { replicas: 8, time_scale: 0.8, ..Options::default() };
    let comparison = play(&workload, &options, &["longest_prefix", "latency", "round_robin"]);
    let [greedy, latency, blind] = &comparison.policies[..] else { panic!("three policies") };
    // Nearly all work is one engine's, of eight.
    assert!(greedy.max_over_mean_work > 6.0, "{}", greedy.max_over_mean_work);
    assert!(latency.max_over_mean_work < 1.5, "{}", latency.max_over_mean_work);
    for better in [latency, blind] {
        assert!(
            greedy.ttft_ms.mean > 10.0 * better.ttft_ms.mean,
            "{} against {} under {}",
            greedy.ttft_ms.mean,
            better.ttft_ms.mean,
            better.policy
        );
    }
    assert!(latency.token_hit_rate > blind.token_hit_rate);
    assert!(latency.ttft_ms.mean < blind.ttft_ms.mean);
}

#[test]
fn with_one_cache_too_small_even_its_hit_rate_falls_below_round_robins() {
    let mut options = Options { replicas: 8, time_scale: 0.8, ..Options::default() };
    options.engine.cache_tokens = vec![300 * 512];
    let comparison = play(&conversation(), &options, &["longest_prefix", "round_robin"]);
    let [greedy, blind] = &comparison.policies[..] else { panic!("two policies") };
    assert!(
        greedy.token_hit_rate < blind.token_hit_rate,
        "{} against {}",
        greedy.token_hit_rate,
        blind.token_hit_rate
    );
}

#[test]
fn a_bound_of_load_helps_where_one_engine_is_warm_before_the_others() {
    // One request ahead of all others: only its engine holds the block that all begin with.
    let mut workload = conversation();
    workload.truncate(300);
    let first = workload.requests[0].prompt[0].id;
    for asked in &mut workload.requests {
        if let Release::At(seconds) = &mut asked.release {
            *seconds += 10.0;
        }
    }
    workload.requests.insert(0, asked(0.0, &[(first, 512), (1 << 40, 1)], 1));
    let options = Options { replicas: 8, time_scale: 0.8, ..Options::default() };
    let policies = ["longest_prefix", "precise_cache_aware", "latency"];
    let comparison = play(&workload, &options, &policies);
    let [greedy, bounded, latency] = &comparison.policies[..] else { panic!("three policies") };
    assert!(greedy.max_over_mean_work > 7.9, "{}", greedy.max_over_mean_work);
    assert!(greedy.ttft_ms.mean > 10.0 * latency.ttft_ms.mean);
    assert!(bounded.max_over_mean_work < 2.0, "{}", bounded.max_over_mean_work);
}

#[test]
fn a_hot_prefix_replicates_under_the_default_policy() {
    let workload = Synthetic::HotPrefix.generate(400, 9);
    let mut options = Options { replicas: 4, time_scale: 5.0, ..Options::default() };
    options.engine.block_size = 16;
    let comparison = play(&workload, &options, &["latency", "longest_prefix", "round_robin"]);
    let [latency, greedy, blind] = &comparison.policies[..] else { panic!("three policies") };
    // Nearly as much is found as one infinite cache would, and yet nobody is overloaded.
    assert!(latency.token_hit_rate > 0.9 * latency.ideal_hit_rate, "{latency:?}");
    assert!(latency.max_over_mean_work < 1.5, "{}", latency.max_over_mean_work);
    assert!(latency.ttft_ms.mean < blind.ttft_ms.mean);
    assert!(latency.ttft_ms.p99 < greedy.ttft_ms.p99);
    let requests = &greedy.requests_by_replica;
    assert!(requests.iter().max() > Some(&190), "{requests:?}");
}

#[test]
fn lengths_alone_can_be_simulated_too() {
    let workload = Workload::read_trace(&trace("azure_conv_200.csv")).unwrap();
    let options = Options { replicas: 2, ..Options::default() };
    let report = play_one(&workload, &options, "latency");
    assert_eq!((report.answered, workload.requests.len()), (199, 199));
    close(report.ideal_hit_rate, 0.0);
}
