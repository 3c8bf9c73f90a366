//! Many requests with one new prefix at once.

use tokio::task::JoinSet;

use super::{SLOW, Sim, ask_streaming, over};
use crate::harness::ids;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_one_new_prefix_is_computed_twice_at_most() {
    const REQUESTS: u32 = 64;
    const SHARED: u32 = 2_000;
    const OWN: u32 = 200;
    let sims = Sim::several(8, 2_000, SLOW).await;
    let gateway = over(&sims, "latency").await;
    let mut streams = JoinSet::new();
    for n in 0..REQUESTS {
        let (addr, mut prompt) = (gateway.addr(), ids(1, SHARED));
        prompt.extend(ids(1_000_000 + 1_000 * n, OWN));
        streams.spawn(async move { ask_streaming(addr, &prompt, 1).await });
    }
    let answers = streams.join_all().await;
    let cached: u64 = answers.iter().map(|answer| answer.cached).sum();
    let computed = u64::from(REQUESTS * (SHARED + OWN)) - cached;
    let least = u64::from(SHARED + REQUESTS * OWN);
    // Sent anywhere without a thought of what is pending, as much as 9.5 times the least.
    assert!(computed <= 2 * least, "{computed} tokens computed for {least}: {answers:#?}");
    let pending: u64 = answers.iter().map(|answer| answer.decision.pending).sum();
    assert!(pending > 0, "it was too slow for a burst: {answers:#?}");
    // What is pending is found, and is no prediction.
    let counted: u64 = answers.iter().map(|a| a.decision.overlap + a.decision.pending).sum();
    assert!(counted <= cached, "{counted} {cached} {answers:#?}");
    gateway.until_idle().await;
    let page = gateway.metrics().await;
    let predicted: u64 = answers.iter().map(|answer| answer.decision.overlap).sum();
    let tokens = |count: u64| Some(f64::from(u32::try_from(count).unwrap()));
    assert_eq!(page.sum("kvasir_predicted_cached_tokens_total", &[]), tokens(predicted));
    assert_eq!(page.sum("kvasir_pending_cached_tokens_total", &[]), tokens(pending));
    gateway.until_metric("kvasir_endpoint_pending_prefixes", &[], 0.0).await;
}
