//! A thousand configurations under traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvasir_testkit::engine::Reply;
use serde_json::{Value, json};

use crate::harness::{
    COMPLETIONS, ConfigFile, Gateway, Replica, SOON, completion, ids, pool, stream, until,
};

/// As many as there is time for, and these at most; `KVASIR_RELOADS=N` takes the time N take.
const RELOADS: usize = 1_000;
const TIME: Duration = Duration::from_secs(15);
/// After so many everything there will be has been there.
const WARM: usize = 40;
const CLIENTS: usize = 8;
const TOKENS: usize = 12;

/// What a process has of the system.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    kib: usize,
    tasks: f64,
}

impl Held {
    async fn by(gateway: &Gateway) -> Self {
        let process = format!("/proc/{}", gateway.pid());
        let entries = |name: &str| std::fs::read_dir(format!("{process}/{name}")).unwrap().count();
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        Self {
            descriptors: entries("fd"),
            threads: entries("task"),
            kib: resident.split_whitespace().next().unwrap().parse().unwrap(),
            tasks: gateway.metrics().await.sum("kvasir_runtime_tasks", &[]).unwrap(),
        }
    }
}

/// The `n`th configuration: engines come and go, are drained and weighed, and policies change.
fn config(replicas: &[Replica], n: usize) -> Value {
    let present: Vec<&Replica> = match n % 4 {
        0 => vec![&replicas[0], &replicas[1], &replicas[2]],
        1 => vec![&replicas[0], &replicas[1]],
        2 => vec![&replicas[2], &replicas[0]],
        _ => vec![&replicas[1], &replicas[2], &replicas[0]],
    };
    let engines: Vec<_> = present.iter().map(|replica| &replica.engine).collect();
    let mut pool = pool("tiny", &engines);
    pool["policy"] = json!(["latency", "round_robin", "cache_aware"][n / 3 % 3]);
    pool["endpoints"][0]["weight"] = json!(50 + n % 50);
    pool["endpoints"][1]["state"] = json!(["active", "drain", "active", "disabled"][n / 2 % 4]);
    json!({"pools": [pool], "decision_headers": n.is_multiple_of(2),
        "scrape_interval_ms": 1000 + n % 2})
}

/// Sends requests until told to stop; every one of them must be answered as a whole.
async fn talk(gateway: &Gateway, client: usize, stop: &AtomicBool, answered: &AtomicUsize) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let prompt = ids(u32::try_from(client * 100 + round % 50).unwrap(), 40);
        if round.is_multiple_of(3) {
            let answer = gateway.post(COMPLETIONS, &completion(&prompt)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        } else {
            let body = stream(&prompt, u32::try_from(TOKENS).unwrap()).to_string();
            let mut stream = gateway.sent(COMPLETIONS, body.as_bytes()).await;
            assert_eq!(stream.head().await.unwrap().status, 200);
            let (mut events, mut last) = (0, String::new());
            while let Some(event) = stream.event().await.unwrap() {
                events += 1;
                last = event;
            }
            assert_eq!((events, &*last), (TOKENS + 1, "[DONE]"));
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_reloads_drop_no_stream_and_leave_nothing_behind() {
    let replicas = Replica::several(3).await;
    for replica in &replicas {
        let gap = Duration::from_millis(3);
        replica.engine.set_default(Reply::SlowTokens { first: gap, gap, count: TOKENS });
    }
    let file = ConfigFile::of(&config(&replicas, 0));
    let gateway = Arc::new(Gateway::of_file(&file).await);
    gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (gateway, stop, answered) =
                (Arc::clone(&gateway), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move { talk(&gateway, client, &stop, &answered).await })
        })
        .collect();
    let mut warm = None;
    let forced = std::env::var("KVASIR_RELOADS").ok().map(|count| count.parse().unwrap());
    let (most, start) = (forced.unwrap_or(RELOADS), Instant::now());
    let mut reloads = 0;
    while reloads < most && (forced.is_some() || reloads <= WARM || start.elapsed() < TIME) {
        reloads += 1;
        let n = reloads;
        gateway.reload(&file, &config(&replicas, n)).await;
        assert!(clients.iter().all(|client| !client.is_finished()), "a client failed");
        if n == WARM {
            warm = Some(Held::by(&gateway).await);
        }
    }
    let busy = Held::by(&gateway).await;
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let answered = answered.load(Ordering::Relaxed);
    assert!(answered > 200, "{answered} answers are no traffic");
    gateway.until_idle().await;
    gateway.until_metric("kvasir_endpoint_decoding", &[], 0.0).await;
    let leaving = [("state", "leaving")];
    until(SOON, || async {
        let seen = gateway.metrics().await.sum("kvasir_endpoint_state", &leaving);
        if seen.is_none() { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    let (warm, idle) = (warm.unwrap(), Held::by(&gateway).await);
    let seen = format!(
        "{reloads} reloads in {:?}: warm {warm:?}, at the end {busy:?}, idle {idle:?}, {answered} answers",
        start.elapsed()
    );
    println!("{seen}");
    // Three engines with a stream each, and eight clients: what comes and goes of itself.
    assert!(idle.threads <= warm.threads + 4, "{seen}");
    assert!(idle.descriptors <= warm.descriptors + 20, "{seen}");
    assert!(idle.tasks <= warm.tasks + 20.0, "{seen}");
    assert!(busy.kib <= warm.kib + warm.kib / 4 + 16_384, "{seen}");
}
