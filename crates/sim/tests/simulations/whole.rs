//! What must hold of any simulation: the same output for the same seed, nothing lost, work that
//! adds up.

use std::time::Duration;

use kvasir_sim::{Restart, Synthetic, csv, json, plot, table};

use super::*;

/// Several gateways, losses, a restart, engines that differ.
fn eventful() -> Options {
    let mut options = Options { replicas: 5, gateways: 3, time_scale: 4.0, ..Options::default() };
    options.engine.block_size = 16;
    options.engine.cache_tokens = vec![200_000, 60_000];
    options.engine.speeds = vec![1.0, 0.5, 2.0];
    options.news.event_loss = 0.05;
    options.restarts = vec![Restart { replica: 2, at: 8.0, down: Duration::from_secs(3) }];
    options
}

#[test]
fn the_same_seed_gives_the_same_output_byte_for_byte() {
    // Those that draw lots, those that keep counts, and those that look at everything.
    let names = ["latency", "round_robin", "lmetric", "llm_d", "random"];
    let workload = Synthetic::MultiTurn.generate(40, 3);
    let texts = |seed: u64| {
        let options = Options { seed, ..eventful() };
        let comparison = play(&workload, &options, &names);
        [json(&comparison), csv(&comparison), plot(&comparison), table(&comparison)]
    };
    let first = texts(1);
    assert_eq!(first, texts(1));
    assert_ne!(first, texts(2));
    // A policy's numbers do not depend on which others are played.
    let alone = csv(&play(&workload, &eventful(), &["lmetric"]));
    assert!(first[1].contains(alone.lines().nth(1).unwrap()), "{alone}");
}

#[test]
fn every_request_ends_and_work_adds_up_under_every_policy() {
    let all: Vec<String> = SimPolicy::all().map(|policy| policy.name()).collect();
    let names: Vec<&str> = all.iter().map(String::as_str).collect();
    for synthetic in Synthetic::ALL {
        let requests = synthetic.generate(25, 7);
        let mut options = Options { gateways: 2, replicas: 3, ..eventful() };
        options.engine.cache_tokens = vec![400_000];
        let stormy = play(&requests, &options, &["latency", "round_robin", "longest_prefix"]);
        options.restarts.clear();
        let calm = play(&requests, &options, &names);
        let prompts: u64 = requests.requests.iter().map(Asked::prompt_tokens).sum();
        for report in &calm.policies {
            assert_eq!(report.answered, 25, "{synthetic} {}", report.policy);
            assert_eq!(report.requests_by_replica.iter().sum::<u64>(), 25);
            assert_eq!(report.preemptions, 0);
            // Whatever was not found was computed, once.
            let computed = prompts as f64 * (1.0 - report.token_hit_rate);
            assert!((report.work_tokens as f64 - computed).abs() < 0.5, "{report:?}");
            assert!(report.ttft_ms.p50 <= report.ttft_ms.p99);
            assert!(report.ttft_ms.p99 <= report.e2e_ms.p99);
            assert!(report.max_over_mean_work >= 1.0);
        }
        for report in &stormy.policies {
            let ended = report.answered + report.cut_off + report.failed + report.refused;
            assert_eq!(ended, 25, "{synthetic} {}", report.policy);
        }
    }
}

#[test]
fn no_policy_beats_the_infinite_cache() {
    for synthetic in Synthetic::ALL {
        let comparison = play(
            &synthetic.generate(80, 2),
            &Options { replicas: 4, time_scale: 2.0, ..Options::default() },
            &["latency", "round_robin", "longest_prefix"],
        );
        for report in &comparison.policies {
            assert!(report.token_hit_rate <= report.ideal_hit_rate + 1e-9, "{report:?}");
            assert!(report.predicted_hit_rate <= report.token_hit_rate + 1e-9, "{report:?}");
        }
    }
}

#[test]
fn the_outputs_have_what_scripts_read() {
    let comparison =
        play(&Synthetic::Rag.generate(60, 1), &eventful(), &["latency", "smg_cache_aware"]);
    let value: serde_json::Value = serde_json::from_str(&json(&comparison)).unwrap();
    let latency = &value["policies"]["latency"];
    for path in [
        "/token_hit_rate",
        "/ideal_hit_rate",
        "/ttft_ms/mean",
        "/ttft_ms/p50",
        "/ttft_ms/p90",
        "/ttft_ms/p99",
        "/e2e_ms/p99",
        "/tpot_ms/p99",
        "/throughput_rps",
        "/max_over_mean_work",
        "/spills",
    ] {
        assert!(latency.pointer(path).is_some_and(serde_json::Value::is_number), "{path}");
    }
    assert_eq!(latency["work_by_replica"].as_array().unwrap().len(), 5);
    let csv = csv(&comparison);
    let widths: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(widths.len(), 3);
    assert!(widths.iter().all(|width| *width == widths[0]));
    let svg = plot(&comparison);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains(">smg_cache_aware</text>") && !svg.contains("NaN"));
    let table = table(&comparison);
    let rows = ["latency  ", "smg_cache_aware  "].map(|row| table.matches(row).count());
    assert_eq!(rows, [1, 1], "{table}");
}

#[test]
fn options_that_cannot_be_are_named() {
    let requests = Synthetic::Rag.generate(10, 1);
    let error = |change: &dyn Fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        simulate(&requests, &options, &[policy("latency")], &mut |_| {}).unwrap_err().to_string()
    };
    assert!(error(&|o| o.replicas = 0).contains("replicas is 0: must be from 1 to 4096"));
    assert!(error(&|o| o.gateways = 65).contains("gateways is 65"));
    assert!(error(&|o| o.time_scale = f64::NAN).contains("time-scale is NaN"));
    assert!(error(&|o| o.news.event_loss = 1.5).contains("event-loss is 1.5: must be from 0 to 1"));
    assert!(
        error(&|o| o.engine.cache_tokens = vec![1_024]).contains("the smallest cache holds 1024")
    );
    assert!(error(&|o| o.engine.cache_tokens.clear()).contains("cache sizes is 0"));
    assert!(
        error(&|o| o.engine.block_size = 0).contains("block-size is 0: must be from 1 to 65536")
    );
    let away = Restart { replica: 8, at: 0.0, down: Duration::ZERO };
    assert!(error(&|o| o.restarts = vec![away]).contains("replica is 8: must be from 0 to 7"));
}
