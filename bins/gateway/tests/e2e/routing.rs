//! Requests go where their prompt is cached, and the answer says how much of it.

use http::StatusCode;
use kvasir_testkit::client::Response;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use serde_json::{Value, json};

use crate::harness::{
    BLOCK, CHAT, COMPLETIONS, Decision, Gateway, Golden, Replica, ReplicaOptions, completion, ids,
    pool, pool_at,
};

/// Three replicas and a gateway that knows their (empty) caches.
async fn fleet(policy: &str) -> (Vec<Replica>, Gateway) {
    let replicas = Replica::several(3).await;
    let gateway = over(&replicas, policy).await;
    (replicas, gateway)
}

async fn over(replicas: &[Replica], policy: &str) -> Gateway {
    let engines: Vec<&FakeEngine> = replicas.iter().map(|replica| &replica.engine).collect();
    let mut pool = pool("tiny", &engines);
    pool["policy"] = policy.into();
    let gateway = Gateway::over(pool).await;
    gateway.until_learned(&replicas.iter().collect::<Vec<_>>()).await;
    gateway
}

/// What the engine says it had cached.
fn cached(response: &Response) -> u64 {
    response.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

/// Sends a prompt nobody holds; returns who got it, once its blocks are known.
async fn warm<'a>(gateway: &Gateway, replicas: &'a [Replica], prompt: &[u32]) -> &'a Replica {
    let response = gateway.post(COMPLETIONS, &completion(prompt)).await;
    let decision = Decision::of(&response);
    assert_eq!((decision.overlap, cached(&response)), (0, 0), "{decision:?}");
    let holder = replicas.iter().find(|r| r.url() == decision.endpoint).unwrap();
    gateway.until_blocks(holder, u32::try_from(prompt.len()).unwrap() / BLOCK).await;
    holder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_prompt_goes_to_the_replica_that_holds_it() {
    for (policy, cold, hot) in [
        ("latency", ("latency", "least_latency_cold"), "least_latency_warm"),
        ("precise_cache_aware", ("least_load", "least_load"), "longest_prefix"),
    ] {
        let (replicas, gateway) = fleet(policy).await;
        let prompt = ids(1, 70);
        let first = Decision::of(&gateway.post(COMPLETIONS, &completion(&prompt)).await);
        let expected = Decision {
            endpoint: first.endpoint.clone(),
            rank: None,
            policy: cold.0.to_owned(),
            reason: cold.1.to_owned(),
            overlap: 0,
            pending: 0,
            prompt: 70,
            level: "tokens".to_owned(),
            tokens: "exact".to_owned(),
            trust: "exact".to_owned(),
            id: None,
            miss: (policy == "precise_cache_aware").then(|| "no_holder".to_owned()),
            plan: None,
            prefill_overlap: None,
        };
        assert_eq!(first, expected);
        let holder = replicas.iter().find(|r| r.url() == first.endpoint).unwrap();
        gateway.until_blocks(holder, 4).await;
        let (policy, reason) = (policy.to_owned(), hot.to_owned());
        let expected = Decision { policy, reason, overlap: 64, miss: None, ..expected };
        for _ in 0..4 {
            let response = gateway.post(COMPLETIONS, &completion(&prompt)).await;
            assert_eq!(Decision::of(&response), expected);
            assert_eq!(cached(&response), 64, "the engine agrees");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_full_blocks_before_the_last_token_count_and_only_from_the_start() {
    let (replicas, gateway) = fleet("precise_cache_aware").await;
    let holder = warm(&gateway, &replicas, &ids(1, 64)).await;
    let changed_at = |place: usize| {
        let mut prompt = ids(1, 64);
        prompt[place] = 4000;
        prompt
    };
    for (prompt, overlap) in [
        // Exactly four blocks: the last token is computed anew, and its block with it.
        (ids(1, 64), 48),
        (ids(1, 65), 64),
        (ids(1, 63), 48),
        (ids(1, 48), 32),
        (ids(1, 17), 16),
        (ids(1, 16), 0),
        (ids(1, 3), 0),
        (changed_at(63), 48),
        (changed_at(40), 32),
        (changed_at(16), 16),
        (changed_at(15), 0),
        (changed_at(0), 0),
        // The same blocks in another place.
        (ids(17, 48), 0),
        // The whole prefix and more.
        (ids(1, 200), 64),
    ] {
        let response = gateway.post(COMPLETIONS, &completion(&prompt)).await;
        let decision = Decision::of(&response);
        assert_eq!(decision.overlap, overlap, "{prompt:?}");
        assert_eq!(decision.prompt, prompt.len() as u64);
        // What no one was credited with went anywhere, and left its blocks there.
        if overlap > u64::from(BLOCK) {
            assert_eq!(decision.endpoint, holder.url(), "{prompt:?}");
        }
        // What this request stored may not be known to the next.
        let known = cached(&response);
        assert!(known >= overlap, "{known} < {overlap}: more was promised than there is");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_overlaps_of_a_list_of_prompts_add_up() {
    let (replicas, gateway) = fleet("precise_cache_aware").await;
    let holder = warm(&gateway, &replicas, &ids(1, 64)).await;
    for replica in &replicas {
        replica.engine.set_handler(|request| {
            let is_list = request.json()["prompt"][0].is_array();
            is_list.then(|| Reply::Json(StatusCode::OK, json!({})))
        });
    }
    let prompts = json!([ids(1, 64), ids(1, 33), ids(500, 40), [7]]);
    let body = json!({"model": "tiny", "prompt": prompts});
    let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
    assert_eq!((decision.overlap, decision.prompt), (48 + 32, 64 + 33 + 40 + 1));
    assert_eq!((decision.endpoint, &*decision.tokens), (holder.url(), "exact"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_and_chats_are_tokenised_as_the_engine_does_it() {
    let (replicas, gateway) = fleet("precise_cache_aware").await;
    for (path, case) in [
        (COMPLETIONS, "russian"),
        (COMPLETIONS, "rust"),
        (CHAT, "multi_turn_6"),
        (CHAT, "unicode_emoji_zwj"),
        (CHAT, "tool_call_str"),
    ] {
        let (body, ids) = Golden::read().case(case);
        let tokens = ids.len() as u64;
        let before = gateway.metrics().await.sum("kvasir_endpoint_resident_blocks", &[]).unwrap();
        let cold = Decision::of(&gateway.post(path, &body).await);
        assert_eq!((cold.prompt, &*cold.tokens), (tokens, "exact"), "{case}");
        // The blocks it shares with the others may be there already.
        let stored = (tokens - cold.overlap) / u64::from(BLOCK);
        let after = before + f64::from(u32::try_from(stored).unwrap());
        gateway.until_metric("kvasir_endpoint_resident_blocks", &[], after).await;
        let response = gateway.post(path, &body).await;
        let warm = Decision::of(&response);
        assert_eq!(warm.overlap, (tokens - 1) / 16 * 16, "{case}");
        assert_eq!((warm.endpoint, cached(&response)), (cold.endpoint, warm.overlap), "{case}");
    }
    drop(replicas);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_longer_than_two_kilobytes_is_routed_just_the_same() {
    let (replicas, gateway) = fleet("latency").await;
    let prompt = ids(1, 3000);
    let holder = warm(&gateway, &replicas, &prompt).await;
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&prompt)).await);
    assert_eq!((decision.endpoint, decision.overlap), (holder.url(), 2992));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_that_hold_different_lengths_are_told_apart() {
    let (replicas, gateway) = fleet("precise_cache_aware").await;
    let long = warm(&gateway, &replicas, &ids(1, 64)).await;
    let other = replicas.iter().find(|r| r.url() != long.url()).unwrap();
    // Another router sends the beginning of the same prompt elsewhere.
    let body = completion(&ids(1, 40)).to_string();
    let addr = other.engine.addr();
    kvasir_testkit::client::post(addr, COMPLETIONS, body.as_bytes()).await.unwrap();
    gateway.until_blocks(other, 2).await;
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await);
    assert_eq!((decision.endpoint, decision.overlap), (long.url(), 48));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_different_block_sizes_are_each_credited_by_their_own() {
    let coarse = ReplicaOptions { block_size: 32, ..ReplicaOptions::default() };
    let (fine, coarse) = (Replica::start().await, Replica::with(coarse).await);
    let mut pool = pool("tiny", &[&coarse.engine, &fine.engine]);
    pool["policy"] = "precise_cache_aware".into();
    let gateway = Gateway::over(pool).await;
    gateway.until_learned(&[&fine, &coarse]).await;
    let body = completion(&ids(1, 64)).to_string();
    for (replica, blocks) in [(&fine, 4), (&coarse, 2)] {
        let addr = replica.engine.addr();
        kvasir_testkit::client::post(addr, COMPLETIONS, body.as_bytes()).await.unwrap();
        gateway.until_blocks(replica, blocks).await;
    }
    // 63 usable tokens: three blocks of 16, or one of 32.
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await);
    assert_eq!((decision.endpoint, decision.overlap), (fine.url(), 48));
    fine.engine.stop().await.unwrap();
    fine.publisher.go_down();
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await);
    assert_eq!((decision.endpoint, decision.overlap), (coarse.url(), 32));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_publishes_no_events_is_served_without_credit() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    gateway.until_metric("kvasir_endpoint_trust", &[("reason", "no_stream")], 1.0).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    for cached_tokens in [0, 48] {
        let response = gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await;
        let decision = Decision::of(&response);
        assert_eq!(cached(&response), cached_tokens);
        assert_eq!((decision.overlap, &*decision.trust), (0, "absent(no_stream)"));
        assert_eq!((decision.prompt, &*decision.tokens), (64, "exact"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_a_tokenizer_is_served_by_load() {
    let replicas = Replica::several(2).await;
    let mut pool = pool_at("tiny", &[replicas[0].url(), replicas[1].url()]);
    pool.as_object_mut().unwrap().remove("tokenizer_dir");
    let gateway = Gateway::over(pool).await;
    let line = gateway.line("the tokenizer", |line| line.contains("no tokenizer")).await;
    assert!(line.contains("tiny"), "{line}");
    let text = json!({"model": "tiny", "prompt": "Once upon a time"});
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]});
    for replica in &replicas {
        let answer = Reply::Json(StatusCode::OK, json!({"choices": []}));
        replica.engine.set_default(answer);
    }
    for (path, body) in [(COMPLETIONS, text), (CHAT, chat)] {
        let decision = Decision::of(&gateway.post(path, &body).await);
        assert_eq!((decision.overlap, &*decision.tokens), (0, "no_tokenizer"));
    }
    let ready = gateway.metrics().await.sum("kvasir_pool_tokenizer_ready", &[("model", "tiny")]);
    assert_eq!(ready, Some(0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_ids_need_no_tokenizer() {
    let replicas = Replica::several(2).await;
    let mut pool = pool_at("tiny", &[replicas[0].url(), replicas[1].url()]);
    pool.as_object_mut().unwrap().remove("tokenizer_dir");
    let gateway = Gateway::over(pool).await;
    gateway.until_metric("kvasir_endpoint_trust", &[("state", "exact")], 2.0).await;
    let prompt = ids(9, 70);
    let holder = warm(&gateway, &replicas, &prompt).await;
    let warm = Decision::of(&gateway.post(COMPLETIONS, &completion(&prompt)).await);
    assert_eq!((warm.overlap, &*warm.tokens, warm.endpoint), (64, "exact", holder.url()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_rendered_is_served_by_load_with_the_reason() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_default(Reply::Json(StatusCode::OK, json!({})));
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let image = json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]);
    let chat = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    for (path, body, why) in [
        (CHAT, chat(image), "multimodal"),
        (CHAT, json!({"messages": "no list"}), "body"),
        (COMPLETIONS, json!({"prompt": "a", "suffix": "b"}), "unsupported_field"),
        (COMPLETIONS, json!({"prompt": {"no": "prompt"}}), "body"),
        ("/v1/rerank", json!({"query": "Hi", "documents": ["a"]}), "pairs"),
        ("/tokenize", json!({"prompt": "Hi"}), "unsupported_api"),
    ] {
        let decision = Decision::of(&gateway.post(path, &body).await);
        assert_eq!((&*decision.tokens, decision.overlap), (why, 0), "{path} {body}");
    }
}
