//! Simulated engines that die and come back.

use std::time::Instant;

use serde_json::json;

use super::{FAST, SLOW, Sim, ask, by_url, open, over, until_trusted};
use crate::harness::{COMPLETIONS, Decision, SOON, completion, ids, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_dies_in_the_middle_of_a_stream() {
    let mut sims = Sim::several(2, 600, SLOW.faster(2.0)).await;
    let gateway = over(&sims, "latency").await;
    let prompt = ids(1, 200);
    let holder = ask(&gateway, &prompt, 1).await.decision.endpoint;
    by_url(&sims, &holder).settle(&gateway).await;
    let (mut client, head) = open(gateway.addr(), &prompt, 5_000).await;
    let decision = Decision::of_head(&head);
    assert_eq!((&decision.endpoint, decision.overlap), (&holder, 192));
    for _ in 0..3 {
        client.event().await.unwrap().unwrap();
    }
    let place = sims.iter().position(|sim| sim.url() == holder).unwrap();
    sims.remove(place).server.stop().await;
    let mut last = String::new();
    while let Some(event) = client.event().await.unwrap() {
        assert!(last.is_empty() || last.contains("\"text\""), "more after {last}");
        last = event;
    }
    let error: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!(error["error"]["code"], "engine_broke_off", "{last}");
    let cold = ask(&gateway, &prompt, 1).await;
    assert_eq!((cold.agreed(), &cold.decision.endpoint), (0, &sims[0].url()));
    sims[0].settle(&gateway).await;
    let warm = ask(&gateway, &prompt, 1).await;
    assert_eq!((warm.agreed(), &warm.decision.endpoint), (192, &sims[0].url()));
    gateway.until_idle().await;
    let line = gateway.access_line(|line| line["outcome"] == "engine_broke_off").await;
    assert_eq!((&line["status"], &line["attempts"]), (&json!(200), &json!(1)), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_are_all_down_are_used_again_when_they_are_back() {
    let sims = Sim::several(3, 600, FAST).await;
    let gateway = over(&sims, "latency").await;
    let prompt = ids(1, 100);
    let holder = ask(&gateway, &prompt, 1).await.decision.endpoint;
    by_url(&sims, &holder).settle(&gateway).await;
    for sim in &sims {
        sim.go_down().await;
    }
    for _ in 0..3 {
        let asked = Instant::now();
        let response = gateway.post(COMPLETIONS, &completion(&prompt)).await;
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
        assert_eq!(response.status, 503, "{}", response.text());
        assert_eq!(response.head.header("content-type"), Some("application/json"));
        assert_eq!(response.json()["error"]["code"], "no_endpoint");
    }
    sims[1].server.restart().await;
    let first = until(SOON, || async {
        let response = gateway.post(COMPLETIONS, &completion(&prompt)).await;
        if response.status == 200 { Ok(Decision::of(&response)) } else { Err(response.text()) }
    })
    .await;
    assert_eq!((first.endpoint, first.overlap), (sims[1].url(), 0));
    sims[0].server.restart().await;
    sims[2].server.restart().await;
    until_trusted(&gateway, &sims).await;
    gateway.until_metric("kvasir_endpoint_resident_blocks", &[], 6.0).await;
    let warm = ask(&gateway, &prompt, 1).await;
    assert_eq!((warm.agreed(), warm.decision.endpoint), (96, sims[1].url()));
    gateway.until_idle().await;
}
