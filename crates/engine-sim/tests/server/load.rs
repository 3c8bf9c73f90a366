//! Real time, many clients at once, and clients that leave.

use std::time::{Duration, Instant};

use kvasir_testkit::client::RawClient;
use serde_json::json;

use crate::common::{addr, chunks, complete, metric, prompt, quick, slow, start, stream, until};

#[tokio::test]
async fn tokens_come_when_their_step_has_passed() {
    let step = Duration::from_millis(250);
    let server = start(slow(step.as_secs_f64())).await;
    let body = json!({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 4});
    let begun = Instant::now();
    let mut client = stream(&server, "/v1/completions", &body).await;
    assert!(begun.elapsed() < step, "the head comes before the first step has passed");
    for count in 1..=4 {
        client.event().await.unwrap();
        assert!(begun.elapsed() >= step * count, "token {count} after {:?}", begun.elapsed());
    }
    assert!(begun.elapsed() < step * 6, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_arrives_meanwhile_joins_the_next_step() {
    let server = start(slow(0.3)).await;
    let body = json!({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 3});
    let mut first = stream(&server, "/v1/completions", &body).await;
    until(async || server.stats().waiting + server.stats().running, |seen| *seen > 0).await;
    complete(&server, &[4, 5, 6], 2).await;
    chunks(&mut first).await;
    // Three steps for both; four if the second request missed the second step on a slow machine.
    assert!((3..=4).contains(&server.stats().steps), "{:?}", server.stats());
}

#[tokio::test]
async fn a_hundred_streams_at_once() {
    let mut config = quick();
    config.engine.num_blocks = 4_097;
    config.engine.max_num_seqs = 64;
    let server = start(config).await;
    let runs = (0..100u32).map(|number| {
        let body = json!({"model": "tiny", "prompt": prompt(number % 10, 200), "max_tokens": 30,
            "ignore_eos": true, "return_token_ids": true, "stream_options": {"include_usage": true}});
        let address = addr(&server);
        tokio::spawn(async move {
            let mut client = RawClient::connect(address).await.unwrap();
            let mut body = body;
            body["stream"] = json!(true);
            client.send("POST", "/v1/completions", &[], body.to_string().as_bytes()).await.unwrap();
            assert_eq!(client.head().await.unwrap().status, 200);
            let all = chunks(&mut client).await;
            let (usage, tokens) = all.split_last().unwrap();
            assert_eq!(usage["usage"]["completion_tokens"], 30);
            let token = |chunk: &serde_json::Value| chunk["choices"][0]["token_ids"][0].as_u64();
            let tokens: Vec<u64> = tokens.iter().map(|chunk| token(chunk).unwrap()).collect();
            assert_eq!(tokens.len(), 30);
            (number % 10, tokens)
        })
    });
    let runs: Vec<_> = runs.collect();
    let mut by_prompt = vec![Vec::new(); 10];
    for run in runs {
        let (number, tokens) = run.await.unwrap();
        by_prompt[number as usize].push(tokens);
    }
    for (number, runs) in by_prompt.iter().enumerate() {
        assert_eq!(runs.len(), 10);
        assert!(runs.iter().all(|run| *run == runs[0]), "prompt {number}");
    }
    let stats = server.stats();
    assert_eq!((stats.finished, stats.running, stats.waiting, stats.used_blocks), (100, 0, 0, 0));
    // Of each prompt one is computed; the others may begin before it has ended, or after.
    assert!(stats.prefix_hits >= 10 * 192, "{stats:?}");
}

#[tokio::test]
async fn a_client_that_leaves_aborts_its_request() {
    let server = start(slow(0.005)).await;
    let long = json!({"model": "tiny", "prompt": [prompt(1, 200), prompt(2, 200)],
        "max_tokens": 1_800, "ignore_eos": true});
    let aborted = "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"";

    let mut client = stream(&server, "/v1/completions", &long).await;
    client.event().await.unwrap();
    assert_eq!(server.stats().running, 2);
    assert!(server.stats().used_blocks >= 26);
    drop(client);
    until(async || server.stats().used_blocks, |used| *used == 0).await;
    assert_eq!(server.stats().running, 0);
    assert_eq!(metric(&server, aborted).await, 2.0);

    // One that waits for a whole answer, and leaves with a reset.
    let mut client = RawClient::connect(addr(&server)).await.unwrap();
    client.send("POST", "/v1/completions", &[], long.to_string().as_bytes()).await.unwrap();
    until(async || server.stats().running, |running| *running == 2).await;
    client.abort().unwrap();
    until(async || server.stats().used_blocks, |used| *used == 0).await;
    assert_eq!(metric(&server, aborted).await, 4.0);

    // What was computed stays cached.
    let warm = complete(&server, &prompt(1, 200), 1).await;
    assert_eq!(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 192);
}
