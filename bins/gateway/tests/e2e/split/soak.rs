//! Many requests over engines that fail at random: every client is answered, and in the end nothing is
//! counted, kept or done any more. `KVASIR_SPLIT_REQUESTS` makes it as long as wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::EngineKind;
use serde_json::{Value, json};

use super::{Split, body, streamed};
use crate::harness::COMPLETIONS;

const REQUESTS: u32 = 400;
const CLIENTS: u32 = 16;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

#[derive(Default)]
struct Seen {
    begun: AtomicU32,
    complete: AtomicU32,
    errors: AtomicU32,
    broken: AtomicU32,
    left: AtomicU32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legs_that_fail_at_random_leave_nothing_behind() {
    soak(EngineKind::Vllm, requests()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_that_fail_at_random_leave_nothing_behind() {
    soak(EngineKind::Sglang, requests() / 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contexts_that_fail_at_random_leave_nothing_behind() {
    soak(EngineKind::TrtLlm, requests() / 2).await;
}

fn requests() -> u32 {
    let set = std::env::var("KVASIR_SPLIT_REQUESTS").ok();
    set.map_or(REQUESTS, |text| text.parse().unwrap())
}

#[expect(clippy::print_stdout, reason = "what a long run saw is of interest")]
async fn soak(kind: EngineKind, requests: u32) {
    let limits = json!({"prefill_timeout_ms": 1500, "decode_timeout_ms": 1500, "lease_ms": 4000});
    let split = Arc::new(Split::with(kind, 2, 2, CostModel::DEMO, limits).await);
    let (seen, over) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
    let faults = tokio::spawn(torment(Arc::clone(&split), Arc::clone(&over)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(client(Arc::clone(&split), Arc::clone(&seen), requests, number)))
        .collect();
    for client in clients {
        client.await.expect("a client came to its end");
    }
    over.store(true, Ordering::Relaxed);
    faults.await.unwrap();
    split.until_clean().await;
    let read = |count: &AtomicU32| count.load(Ordering::Relaxed);
    let (complete, errors) = (read(&seen.complete), read(&seen.errors));
    let (broken, left) = (read(&seen.broken), read(&seen.left));
    println!("{kind}: {complete} complete, {errors} errors, {broken} broken, {left} left");
    assert_eq!(complete + errors + broken + left, requests);
    assert!(complete > requests / 3, "{complete} of {requests}");
    let page = split.gateway.metrics().await;
    let plans = page.sum("kvasir_pd_requests_total", &[]).unwrap();
    assert!(plans > f64::from(requests) / 2.0, "{plans}");
    assert!(!split.gateway.log_text().contains("panicked"));
    // And it still serves.
    let response = split.ask(1).await;
    assert_eq!(response.status, 200, "{}", response.text());
    split.until_clean().await;
}

/// Changes what fails every so often, and lets all of it work in the end.
async fn torment(split: Arc<Split>, over: Arc<AtomicBool>) {
    let mut random = Random(1);
    let kinds = ["error:500", "error:503", "reset", "reset_mid_body", "garbage", "slow:30", "hang"];
    while !over.load(Ordering::Relaxed) {
        let engines: Vec<_> = split.engines().collect();
        let at = usize::try_from(random.below(engines.len() as u64)).unwrap();
        let fault = match random.below(10) {
            0 => json!({"transfer": "fail", "once": true}),
            1 => json!({"lease": "expired", "once": true}),
            _ => {
                let kind = usize::try_from(random.below(kinds.len() as u64)).unwrap();
                json!({"http": kinds[kind], "once": random.below(2) == 0})
            }
        };
        engines[at].fault(fault).await;
        tokio::time::sleep(Duration::from_millis(20 + random.below(40))).await;
        // Most of the time most of them work.
        let well = json!({"http": "ok", "transfer": "ok", "lease": "ok", "once": false});
        engines[at].fault(well).await;
    }
}

async fn client(split: Arc<Split>, seen: Arc<Seen>, requests: u32, number: u32) {
    let mut random = Random(u64::from(number) + 7);
    while seen.begun.fetch_add(1, Ordering::Relaxed) < requests {
        let first = u32::try_from(random.below(3_000)).unwrap();
        let mut asked = body(first);
        asked["max_tokens"] = (1 + random.below(12)).into();
        let asked = if random.below(2) == 0 { streamed(asked) } else { asked };
        let mut client = split.gateway.sent(COMPLETIONS, asked.to_string().as_bytes()).await;
        if random.below(12) == 0 {
            tokio::time::sleep(Duration::from_millis(random.below(25))).await;
            client.abort().unwrap();
            seen.left.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let response = client.response().await.unwrap_or_else(|e| panic!("no answer: {e}"));
        let text = response.text();
        let is_stream = text.starts_with("data:");
        let count = match response.status {
            200 if is_stream && text.ends_with("data: [DONE]\n\n") => {
                // Whoever fails has not finished.
                assert!(
                    !text.contains("data: {\"error\""),
                    "an error in a stream that is whole: {text}"
                );
                &seen.complete
            }
            200 if is_stream => {
                assert!(text.contains("\"error\""), "a stream without an end: {text}");
                &seen.broken
            }
            200 => {
                assert!(response.json()["usage"].is_object(), "{text}");
                &seen.complete
            }
            status => {
                let error: Value = response.json();
                assert!(error["error"].is_object(), "{status} {text}");
                &seen.errors
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
