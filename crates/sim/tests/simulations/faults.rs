//! What goes wrong: engines that are killed, events that are lost or never come.

use std::time::Duration;

use kvasir_sim::{Restart, Synthetic};

use super::*;

fn ends(report: &PolicyReport) -> u64 {
    report.answered + report.cut_off + report.failed + report.refused
}

fn sessions() -> Workload {
    Synthetic::MultiTurn.generate(300, 5)
}

fn busy(replicas: usize) -> Options {
    let mut options = Options { replicas, time_scale: 8.0, ..Options::default() };
    options.engine.block_size = 16;
    options
}

#[test]
fn a_killed_engine_loses_its_requests_and_comes_back_empty() {
    let mut options = busy(3);
    let calm = play_one(&sessions(), &options, "latency");
    assert_eq!((calm.answered, calm.retries), (300, 0));
    let kill = |replica, at| Restart { replica, at, down: Duration::from_secs(2) };
    options.restarts = vec![kill(0, 5.0), kill(1, 9.0), kill(0, 12.0)];
    for policy in ["latency", "round_robin", "precise_cache_aware"] {
        let report = play_one(&sessions(), &options, policy);
        assert_eq!(ends(&report), 300, "{policy}");
        assert!(report.cut_off > 0, "{policy}: {report:?}");
        assert!(report.answered > 200, "{policy}: {report:?}");
        assert!(report.token_hit_rate < calm.token_hit_rate, "{policy}");
    }
}

#[test]
fn requests_go_elsewhere_while_an_engine_is_away() {
    let mut options = simple(2);
    options.restarts = vec![Restart { replica: 0, at: 0.05, down: Duration::from_secs(1_000) }];
    // The first one is being prefilled when its engine dies.
    let requests = (0_u32..10).map(|n| asked(f64::from(n) * 0.5, &[(u64::from(n), 200)], 2));
    let report = play_one(&workload(requests.collect()), &options, "round_robin");
    assert_eq!((report.answered, report.failed), (10, 0));
    assert!(report.retries >= 1);
    assert_eq!(report.requests_by_replica, [0, 10]);
}

#[test]
fn with_no_engine_left_requests_fail_and_end() {
    let mut options = simple(1);
    options.restarts = vec![Restart { replica: 0, at: 0.02, down: Duration::from_secs(100) }];
    let requests = vec![asked(0.0, &[(1, 200)], 2), asked(5.0, &[(1, 200)], 2)];
    let report = play_one(&workload(requests), &options, "latency");
    assert_eq!((report.failed, ends(&report)), (2, 2));
}

#[test]
fn lost_events_are_replayed_or_cost_credit() {
    let mut options = busy(3);
    let complete = play_one(&sessions(), &options, "latency");
    options.news.event_loss = 0.3;
    let replayed = play_one(&sessions(), &options, "latency");
    options.news.replay = false;
    let lossy = play_one(&sessions(), &options, "latency");
    assert!(complete.predicted_hit_rate > 0.3, "{}", complete.predicted_hit_rate);
    assert!(replayed.predicted_hit_rate > 0.85 * complete.predicted_hit_rate);
    assert!(lossy.predicted_hit_rate < 0.5 * complete.predicted_hit_rate);
    // No eviction here: whatever is credited is there.
    for report in [&complete, &replayed, &lossy] {
        assert_eq!((report.over_predicted, ends(report)), (0, 300));
    }
    options.news.events = false;
    let blind = play_one(&sessions(), &options, "latency");
    close(blind.predicted_hit_rate, 0.0);
    assert_eq!(ends(&blind), 300);
}

#[test]
fn late_events_are_predicted_late() {
    let mut options = busy(3);
    let quick = play_one(&sessions(), &options, "latency");
    options.news.event_delay = Duration::from_secs(20);
    let late = play_one(&sessions(), &options, "latency");
    assert!(late.predicted_hit_rate < 0.8 * quick.predicted_hit_rate);
    assert_eq!(ends(&late), 300);
}
