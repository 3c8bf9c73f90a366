//! The gateway before two real vLLM servers; run on purpose, see `docs/live-vllm.md`:
//!
//!     KVASIR_LIVE_VLLM='...' cargo test -p kvasir-gateway --test e2e live:: -- \
//!         --ignored --nocapture --test-threads 1
//!
//! Predictions are judged strictly only while nothing else goes on: what is predicted for a request
//! must then be what the engine reports for it, or less. Under concurrent traffic requests evict
//! each other's blocks between a prediction and its answer; those are counted, not judged.

#![allow(clippy::print_stdout, reason = "numbers for whoever runs it")]

mod fleet;
mod split;
mod traffic;

use std::time::{Duration, Instant};

use kvasir_testkit::client;
use serde_json::json;

use self::fleet::{Fleet, PATIENCE};
use self::traffic::{Outcome, Traffic, prompt};

/// Blocks of each engine: a few prompts.
const SMALL_CACHE: &str = "120";

/// Prompts that are judged after each event.
const JUDGED: u32 = 40;

#[ignore = "needs real vLLM servers"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_to_real_engines_is_followed() {
    let args = ["--enable-prompt-tokens-details", "--num-gpu-blocks-override", SMALL_CACHE];
    let mut fleet = Fleet::start(&args).await;
    fleet.until_exact(&[0, 1]).await;
    evictions(&fleet).await;
    reset(&fleet).await;
    kill(&mut fleet).await;
    gateway_restart(&mut fleet).await;
}

/// Far more prompts than fit.
async fn evictions(fleet: &Fleet) {
    let traffic = Traffic::start(fleet.gateway.addr(), 4, 0..24);
    let found = traffic.after(160).await;
    assert!(found.iter().all(Outcome::is_whole), "{found:?}");
    report("evictions, concurrent", &found);
    let removed = fleet.gateway.metrics().await;
    let resident = removed.sum("kvasir_endpoint_resident_blocks", &[]).unwrap();
    assert!(resident <= 240.0 && resident > 100.0, "{resident} blocks of two caches of 120");
    fleet.judge("evictions", (0..JUDGED).map(|n| prompt(n % 24, n / 24))).await;
}

/// `POST /reset_prefix_cache` at both, in the middle of nothing: the event comes with the next
/// request of each engine.
async fn reset(fleet: &Fleet) {
    let before = fleet.judge("before the reset", (0..6).map(|n| prompt(n, 0))).await;
    assert!(before.iter().any(|found| found.reported > 0), "{before:?}");
    for engine in &fleet.engines {
        let answer = client::post(engine.addr(), "/reset_prefix_cache", b"").await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    // One new request each tells of it.
    let begun = Instant::now();
    for engine in &fleet.engines {
        let body = traffic::body(&prompt(900, 0)).to_string();
        let answer = client::post(engine.addr(), "/v1/completions", body.as_bytes()).await;
        assert_eq!(answer.unwrap().status, 200);
    }
    fleet
        .until(PATIENCE, |page| {
            let resident = page.sum("kvasir_endpoint_resident_blocks", &[]).unwrap();
            (resident < 60.0).then_some(()).ok_or(format!("{resident} blocks"))
        })
        .await;
    fleet.until_exact(&[0, 1]).await;
    println!("reset: told by the next request and exact after {:?}", begun.elapsed());
    let after = fleet.judge("after the reset", (0..6).map(|n| prompt(n, 0))).await;
    assert!(after.iter().all(|found| found.reported == 0), "{after:?}");
    fleet.judge("filled again", (0..JUDGED).map(|n| prompt(n % 8, n / 8))).await;
}

/// `kill -9` and a new start under traffic.
async fn kill(fleet: &mut Fleet) {
    let traffic = Traffic::start(fleet.gateway.addr(), 4, 30..42);
    traffic.until(30).await;
    let killed = Instant::now();
    fleet.engines[0].kill();
    fleet.until_left(0).await;
    println!("kill -9: no longer credited after {:?}", killed.elapsed());
    traffic.until(traffic.count() + 60).await;
    fleet.engines[0].restart().unwrap();
    let up = fleet.engines[0].until_up().await;
    let is_up = Instant::now();
    fleet.until_exact(&[0]).await;
    println!("kill -9: up again after {up:?}, exact {:?} after that", is_up.elapsed());
    traffic.until(traffic.count() + 60).await;
    let found = traffic.stop().await;
    report("kill -9, concurrent", &found);
    // Only what was under way at the killed engine may have failed.
    for failed in found.iter().filter(|found| !found.is_whole()) {
        let in_flight = failed.begun <= killed && failed.ended >= killed;
        assert!(in_flight, "{failed:?}: {:?} after the kill", failed.begun - killed);
    }
    fleet.judge("after the kill", (0..JUDGED).map(|n| prompt(30 + n % 12, n / 12))).await;
}

/// A gateway is replaced by another in mid traffic: the new one learns everything by replay.
async fn gateway_restart(fleet: &mut Fleet) {
    let traffic = Traffic::start(fleet.gateway.addr(), 4, 50..62);
    traffic.until(40).await;
    let begun = Instant::now();
    let old = fleet.replace_gateway().await;
    traffic.turn_to(fleet.gateway.addr());
    old.terminate();
    fleet.until_exact(&[0, 1]).await;
    println!("gateway restart: exact on both {:?} after its start", begun.elapsed());
    traffic.until(traffic.count() + 60).await;
    let found = traffic.stop().await;
    assert!(found.iter().all(Outcome::is_whole), "{found:?}");
    report("gateway restart, concurrent", &found);
    fleet
        .judge("after the gateway's restart", (0..JUDGED).map(|n| prompt(50 + n % 12, n / 12)))
        .await;
}

/// Engines that report nothing per request: their counters are the witness.
#[ignore = "needs real vLLM servers"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_hit_counters_of_default_engines() {
    let fleet = Fleet::start(&[]).await;
    fleet.until_exact(&[0, 1]).await;
    let (mut equal, mut less, mut hits, mut misses) = (0, 0, 0, Vec::new());
    for n in 0..JUDGED {
        fleet.settle().await;
        let before = fleet.counters().await;
        let found = traffic::ask(fleet.gateway.addr(), &prompt(n % 6, n / 6)).await;
        assert!(found.is_whole(), "{found:?}");
        assert_eq!(found.told, None, "an engine of default flags does not report");
        // The counters are a moment late.
        let wanted = before.queries + found.tokens;
        let begun = Instant::now();
        let after = loop {
            let now = fleet.counters().await;
            if now.queries >= wanted || begun.elapsed() > PATIENCE {
                break now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(after.queries, wanted);
        let counted = after.hits - before.hits;
        hits += u32::from(counted > 0);
        match found.predicted.cmp(&counted) {
            std::cmp::Ordering::Equal => equal += 1,
            std::cmp::Ordering::Less => less += 1,
            std::cmp::Ordering::Greater => misses.push((counted, found)),
        }
    }
    println!("by the counters: {JUDGED} requests, {hits} hit: {equal} equal, {less} less");
    assert!(misses.is_empty(), "{misses:#?}");
    assert!(hits > JUDGED / 2);
    let models = client::get(fleet.gateway.addr(), "/v1/models").await.unwrap();
    assert_eq!(models.json()["data"][0]["id"], json!("tiny"));
}

fn report(what: &str, found: &[Outcome]) {
    let whole: Vec<&Outcome> = found.iter().filter(|found| found.is_whole()).collect();
    let more = whole.iter().filter(|found| found.predicted > found.reported).count();
    let less = whole.iter().filter(|found| found.predicted < found.reported).count();
    let hits = whole.iter().filter(|found| found.reported > 0).count();
    println!(
        "{what}: {} requests, {} failed, {hits} hit; predicted more {more}, less {less}",
        found.len(),
        found.len() - whole.len(),
    );
}
