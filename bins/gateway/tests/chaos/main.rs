//! The gateway in the worst of company: engines that are killed, hang, reset connections in the
//! middle of answers, answer errors or garbage and close idle connections, a configuration that
//! changes every second, clients that leave at every stage. Every client gets a complete answer or
//! a well-formed error in time, none gets another's, and when it is over nothing is counted any more.
//!
//! Short by default; `KVASIR_CHAOS_REQUESTS` and `KVASIR_CHAOS_ABORTS` make it as long as wanted,
//! `KVASIR_CHAOS_SEED` another one:
//!
//!     KVASIR_CHAOS_REQUESTS=100000 KVASIR_CHAOS_ABORTS=100000 cargo test -p kvasir-gateway --test chaos

// Helpers of tests are not test functions to clippy.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

mod answers;
mod engines;
mod gateway;
mod leaving;
mod load;
mod random;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engines::Engines;
use crate::gateway::Gateway;
use crate::load::Load;
use crate::random::Random;

/// Requests of the short form.
const REQUESTS: u64 = 12_000;
/// The short form ends after this, however far it came.
const AT_MOST: Duration = Duration::from_secs(120);
const CLIENTS: u64 = 256;
const ENGINES: usize = 8;
/// Leavings of the short form.
const ABORTS: u64 = 4_000;
/// What the gateway may grow by while the same load goes on.
const GROWTH_MB: f64 = 48.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_engines_do_clients_are_answered() {
    let seed = setting("KVASIR_CHAOS_SEED").unwrap_or(1);
    let requests = setting("KVASIR_CHAOS_REQUESTS");
    let engines = Arc::new(Engines::start(ENGINES).await);
    let gateway = Arc::new(Gateway::start(&engines.urls()).await);
    let load = Arc::new(Load::new(gateway.addr(), requests.unwrap_or(REQUESTS)));
    let faults = tokio::spawn(Arc::clone(&engines).torment(Random::new(seed)));
    let reloads = tokio::spawn(Arc::clone(&gateway).reload_every(Duration::from_secs(1)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(Arc::clone(&load).client(client, Random::new(seed + client))))
        .collect();
    let began = Instant::now();
    let mut settled = None;
    while !load.is_done() {
        assert!(!faults.is_finished() && !reloads.is_finished(), "a tormentor gave up");
        if settled.is_none() && load.share_done() > 0.25 {
            settled = Some(gateway.resident_mb());
        }
        if requests.is_none() && began.elapsed() > AT_MOST {
            load.stop();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for client in clients {
        client.await.expect("a client came to its end");
    }
    let grown = gateway.resident_mb() - settled.unwrap_or_default();
    faults.abort();
    reloads.abort();
    engines.behave().await;
    gateway.until_idle().await;
    engines.until_idle().await;
    let (seen, took) = (load.seen(), began.elapsed().as_secs_f64());
    let (reloads, rejected) = gateway.reloads().await;
    println!("chaos: {seen} in {took:.1} s; {reloads} reloads; grew {grown:.1} MB");
    assert!(seen.complete > seen.all / 3, "most of the time there was an engine: {seen}");
    assert!(seen.errors + seen.broken_streams > 0, "nothing happened: {seen}");
    assert!(reloads > 0.0, "nothing was reloaded");
    assert_eq!((rejected, gateway.panics()), (0.0, 0));
    if settled.is_some() {
        assert!(grown < GROWTH_MB, "it grew by {grown:.1} MB");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_at_every_stage_leave_nothing_behind() {
    let aborts = setting("KVASIR_CHAOS_ABORTS").unwrap_or(ABORTS);
    let engines = Engines::start(2).await;
    let gateway = Gateway::start(&engines.urls()).await;
    leaving::leave(gateway.addr(), aborts).await;
    gateway.until_idle().await;
    engines.until_idle().await;
    assert_eq!(gateway.panics(), 0);
    // And it still serves.
    let load = Arc::new(Load::new(gateway.addr(), 50));
    Arc::clone(&load).client(0, Random::new(1)).await;
    let seen = load.seen();
    assert_eq!(seen.complete, seen.all, "{seen}");
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}
