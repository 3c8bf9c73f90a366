//! vLLM's legs: a prompt is kept under a lease, and fetched by whoever decodes.

use std::time::{Duration, Instant};

use kvasir_engine_sim::server::{EngineKind, PdRole, TransferFailure};
use serde_json::{Value, json};

use crate::common::{
    addr, ask, chunks, complete, fetch, metric, prompt, quick, send, start, stream, until,
};
use crate::pair::{Pair, alone, bodies, nixl_decode, nixl_prefill, streamed, tokens, with_role};

#[tokio::test]
async fn split_and_whole_give_the_same() {
    let alone = alone().await;
    let pair = Pair::of(EngineKind::Vllm).await;
    for (path, body) in bodies() {
        let whole = ask(&alone, path, &body).await;
        let (first, leg) = nixl_decode(&pair.prefill, path, &body).await;
        assert_eq!(tokens(&first), tokens(&whole)[..1], "{path}");
        let split = ask(&pair.decode, path, &leg).await;
        assert_eq!(tokens(&split), tokens(&whole), "{path}");
        assert_eq!(split["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
        for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(split["usage"][count], whole["usage"][count]);
        }
        assert_eq!(split["kv_transfer_params"], Value::Null);

        // Streamed, with the same prompt in other blocks.
        let mut salted = body.clone();
        salted["cache_salt"] = json!("streams");
        let (_, leg) = nixl_decode(&pair.prefill, path, &salted).await;
        let events = chunks(&mut stream(&pair.decode, path, &leg).await).await;
        assert_eq!(streamed(&events), tokens(&whole), "{path} streamed");
    }
    pair.is_clean().await;
    assert_eq!(metric(&pair.decode, "vllm:nixl_num_failed_transfers_total").await, 0.0);
}

#[tokio::test]
async fn what_is_here_already_is_not_fetched() {
    let pair = Pair::with(EngineKind::Vllm, |pd| {
        pd.transfer_rate = 1_000.0;
        pd.transfer_time = Duration::ZERO;
    })
    .await;
    let body = json!({"model": "tiny", "prompt": prompt(1, 300), "max_tokens": 2});
    for (moved, total) in [(300.0, 300.0), (12.0, 312.0)] {
        let (_, leg) = nixl_decode(&pair.prefill, "/v1/completions", &body).await;
        let begun = Instant::now();
        ask(&pair.decode, "/v1/completions", &leg).await;
        let took = begun.elapsed().as_secs_f64();
        assert!(took >= moved / 1_000.0, "{took}");
        assert_eq!(metric(&pair.decode, "sim_tokens_pulled_total").await, total);
        let hits = metric(&pair.decode, "vllm:external_prefix_cache_hits_total").await;
        assert_eq!(hits, total);
    }
    let stats = pair.decode.stats();
    assert_eq!((stats.prefix_hits, stats.external_queries), (288, 312));
    pair.is_clean().await;
}

#[tokio::test]
async fn leases_end_unless_they_are_fetched() {
    let pair = Pair::with(EngineKind::Vllm, |pd| pd.lease = Duration::from_millis(150)).await;
    let (path, body) = bodies().remove(0);
    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    assert_eq!(metric(&pair.prefill, "sim_leases").await, 1.0);
    assert!(pair.prefill.stats().used_blocks > 0, "the blocks are kept");
    let reset = send(&pair.prefill, "/reset_prefix_cache", &Value::Null).await;
    assert_eq!(reset.json()["success"], false, "and cannot be thrown away");
    let expired = "vllm:nixl_num_kv_expired_reqs_total";
    until(|| metric(&pair.prefill, expired), |count| *count == 1.0).await;
    let late = send(&pair.decode, path, &leg).await;
    assert_eq!(late.status, 500);
    let error = json!({"error": {"message": "Internal server error",
        "type": "InternalServerError", "param": null, "code": 500}});
    assert_eq!(late.json(), error);
    // vLLM's head of a stream is out before that.
    let events = chunks(&mut stream(&pair.decode, path, &leg).await).await;
    assert_eq!(events, [error]);
    pair.is_clean().await;
    assert_eq!(metric(&pair.decode, "vllm:nixl_num_failed_transfers_total").await, 2.0);

    // One that is being read does not end.
    let slow = json!({"transfer": "slow:400", "once": true});
    ask(&pair.decode, "/sim/faults", &slow).await;
    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    assert_eq!(send(&pair.decode, path, &leg).await.status, 200);
    assert_eq!(metric(&pair.prefill, expired).await, 1.0);
    pair.is_clean().await;
}

#[tokio::test]
async fn a_lease_is_fetched_once() {
    let pair = Pair::of(EngineKind::Vllm).await;
    let (path, body) = bodies().remove(0);
    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    assert_eq!(send(&pair.decode, path, &leg).await.status, 200);
    assert_eq!(send(&pair.decode, path, &leg).await.status, 500);
    pair.is_clean().await;
}

#[tokio::test]
async fn what_is_gone_may_be_read_as_something_else() {
    let pair = Pair::of(EngineKind::Vllm).await;
    ask(&pair.prefill, "/sim/faults", &json!({"gone": "garbage"})).await;
    let (path, body) = bodies().remove(0);
    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    let right = tokens(&ask(&pair.decode, path, &leg).await);
    // Nobody is told.
    let wrong = tokens(&ask(&pair.decode, path, &leg).await);
    assert_eq!(wrong.len(), right.len());
    assert!(wrong.iter().zip(&right).all(|(wrong, right)| wrong != right), "{wrong:?} {right:?}");
    let events = chunks(&mut stream(&pair.decode, path, &leg).await).await;
    assert_eq!(streamed(&events), wrong);
    pair.is_clean().await;
    assert_eq!(metric(&pair.decode, "vllm:nixl_num_failed_transfers_total").await, 0.0);
}

#[tokio::test]
async fn whoever_may_recompute_does() {
    let alone = alone().await;
    let pair = Pair::with(EngineKind::Vllm, |pd| {
        pd.on_failure = TransferFailure::Recompute;
        pd.failure_delay = Duration::from_millis(30);
    })
    .await;
    let (path, body) = bodies().remove(0);
    let (_, mut leg) = nixl_decode(&pair.prefill, path, &body).await;
    leg["kv_transfer_params"]["remote_request_id"] = json!("unknown");
    let begun = Instant::now();
    let answer = ask(&pair.decode, path, &leg).await;
    assert!(begun.elapsed() >= Duration::from_millis(30));
    assert_eq!(tokens(&answer), tokens(&ask(&alone, path, &body).await));
    assert_eq!(metric(&pair.decode, "vllm:external_prefix_cache_hits_total").await, 0.0);
    assert!(metric(&pair.decode, "vllm:external_prefix_cache_queries_total").await > 0.0);
    let events = chunks(&mut stream(&pair.decode, path, &leg).await).await;
    assert_eq!(streamed(&events), tokens(&answer));
}

#[tokio::test]
async fn mixed_up_parameters_are_found() {
    let pair = Pair::of(EngineKind::Vllm).await;
    let (path, body) = bodies().remove(0);
    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    let mut other = leg.clone();
    other["prompt"] = json!([1, 2, 3]);
    let response = send(&pair.decode, path, &other).await;
    assert_eq!(response.status, 400);
    assert!(response.text().contains("the prompt is another one"), "{}", response.text());
    for (field, wrong) in [
        ("remote_host", json!("")),
        ("remote_port", json!(0)),
        ("remote_port", json!(70_000)),
        ("remote_engine_id", Value::Null),
        ("remote_request_id", json!(7)),
        ("remote_block_ids", Value::Null),
    ] {
        let mut broken = leg.clone();
        broken["kv_transfer_params"][field] = wrong;
        let response = send(&pair.decode, path, &broken).await;
        assert_eq!(response.status, 400, "{field}");
        assert_eq!(response.json()["error"]["param"], "kv_transfer_params");
    }
    for more in [json!({"n": 2}), json!({"prompt": [[1], [2]]})] {
        let mut broken = nixl_prefill(&body);
        broken.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(send(&pair.prefill, path, &broken).await.status, 400, "{more}");
    }
    // The lease has survived all of it, and another engine's is not this one's.
    let mut other = leg.clone();
    other["kv_transfer_params"]["remote_engine_id"] = json!("somebody-else");
    assert_eq!(send(&pair.decode, path, &other).await.status, 500);
    assert_eq!(send(&pair.decode, path, &leg).await.status, 200);
    pair.is_clean().await;
}

#[tokio::test]
async fn several_answers_share_a_transfer() {
    let pair = Pair::of(EngineKind::Vllm).await;
    let (path, mut body) = bodies().remove(0);
    let (_, mut leg) = nixl_decode(&pair.prefill, path, &body).await;
    body["n"] = json!(2);
    leg["n"] = json!(2);
    let answer = ask(&pair.decode, path, &leg).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    assert_eq!(choices[0]["token_ids"], choices[1]["token_ids"]);
    assert_eq!(metric(&pair.decode, "vllm:prompt_tokens_total").await, {
        2.0 * answer["usage"]["prompt_tokens"].as_f64().unwrap()
    });
    pair.is_clean().await;
}

#[tokio::test]
async fn a_client_that_leaves_leaves_nothing_behind() {
    let pair = Pair::with(EngineKind::Vllm, |pd| {
        pd.lease = Duration::from_millis(400);
        pd.transfer_time = Duration::from_secs(60);
    })
    .await;
    let (path, body) = bodies().remove(0);
    for streams in [false, true] {
        let (_, mut leg) = nixl_decode(&pair.prefill, path, &body).await;
        leg["stream"] = json!(streams);
        let mut client =
            kvasir_testkit::client::RawClient::connect(addr(&pair.decode)).await.unwrap();
        client.send("POST", path, &[], leg.to_string().as_bytes()).await.unwrap();
        until(|| metric(&pair.decode, "sim_pulls"), |pulls| *pulls == 1.0).await;
        drop(client);
        // The lease was being read, and now ends like any other.
        pair.is_clean().await;
    }
    assert_eq!(metric(&pair.prefill, "sim_leases_expired_total").await, 2.0);
}

#[tokio::test]
async fn a_restart_ends_all_leases() {
    let pair = Pair::of(EngineKind::Vllm).await;
    let (path, body) = bodies().remove(0);
    let (first, leg) = nixl_decode(&pair.prefill, path, &body).await;
    pair.prefill.restart().await;
    pair.is_clean().await;
    assert_eq!(send(&pair.decode, path, &leg).await.status, 500);
    let (second, leg) = nixl_decode(&pair.prefill, path, &body).await;
    let engine = |answer: &Value| answer["kv_transfer_params"]["remote_engine_id"].clone();
    assert_ne!(engine(&first), engine(&second), "another life is another engine");
    assert_eq!(send(&pair.decode, path, &leg).await.status, 200);
    pair.is_clean().await;
}

#[tokio::test]
async fn every_rank_keeps_its_own() {
    let mut config = with_role(EngineKind::Vllm, PdRole::Both);
    config.ranks = 2;
    let server = start(config).await;
    let path = "/v1/completions";
    let mut legs = Vec::new();
    for number in 1..5 {
        let body = json!({"model": "tiny", "prompt": prompt(number, 50), "max_tokens": 4});
        let (_, leg) = nixl_decode(&server, path, &body).await;
        legs.push((body, leg));
    }
    let held = async || {
        let state = fetch(&server, "/sim/state").await;
        [0, 1].map(|rank| state["ranks"][rank]["held_requests"].as_u64().unwrap())
    };
    let [one, two] = held().await;
    assert!(one > 0 && two > 0 && one + two == 4, "{one} {two}");
    for (body, leg) in legs {
        let whole = ask(&server, path, &body).await;
        let split = ask(&server, path, &leg).await;
        assert_eq!(split["choices"][0]["text"], whole["choices"][0]["text"]);
    }
    until(held, |held| *held == [0, 0]).await;
    assert_eq!(metric(&server, "sim_leases").await, 0.0);
}

#[tokio::test]
async fn without_a_role_there_is_no_connector() {
    let server = start(quick()).await;
    let body = json!({"model": "tiny", "prompt": prompt(1, 40), "max_tokens": 1});
    let response = send(&server, "/v1/completions", &nixl_prefill(&body)).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.head.header("x-sim-ignored"), Some("kv_transfer_params"));
    assert_eq!(response.json()["kv_transfer_params"], Value::Null);
    assert_eq!(fetch(&server, "/sim/state").await["ranks"][0]["held_requests"], 0);
    assert_eq!(send(&server, "/sim/kv/pull", &json!({})).await.status, 404);
    assert_eq!(metric(&server, "vllm:external_prefix_cache_queries_total").await, 0.0);
    // A role changes nothing for those who do not ask.
    let both = start(with_role(EngineKind::Vllm, PdRole::Both)).await;
    assert_eq!(complete(&both, &prompt(1, 40), 1).await["kv_transfer_params"], Value::Null);
    assert_eq!(send(&both, "/sim/kv/pull", &json!({})).await.status, 400);
}
