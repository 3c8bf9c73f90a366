//! Adapters and cache salts: equal tokens, different blocks.

use http::StatusCode;
use kvasir_testkit::engine::{Model, Reply};
use serde_json::json;

use crate::harness::{
    COMPLETIONS, Decision, Gateway, Replica, ReplicaOptions, completion, ids, pool,
};

async fn with_adapter() -> Replica {
    let models = vec![Model::base("tiny"), Model::adapter("ad", "tiny")];
    Replica::with(ReplicaOptions { models, ..ReplicaOptions::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_salt_separates_equal_prompts() {
    let replica = Replica::start().await;
    let gateway = Gateway::over(pool("tiny", &[&replica.engine])).await;
    gateway.until_learned(&[&replica]).await;
    let mut blocks = 0;
    for (salt, overlaps) in [("", [0, 48]), ("a", [0, 48]), ("b", [0, 48])] {
        let mut body = completion(&ids(1, 64));
        if !salt.is_empty() {
            body["cache_salt"] = salt.into();
        }
        blocks += 4;
        for overlap in overlaps {
            let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
            assert_eq!((decision.overlap, &*decision.trust), (overlap, "exact"), "salt {salt:?}");
            gateway.until_blocks(&replica, blocks).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adapter_goes_to_who_has_it_and_hits_its_own_blocks_only() {
    let (plain, adapted) = (Replica::start().await, with_adapter().await);
    let mut config = pool("tiny", &[&plain.engine, &adapted.engine]);
    config["policy"] = "precise_cache_aware".into();
    let gateway = Gateway::over(config).await;
    gateway.until_learned(&[&plain, &adapted]).await;
    // Both hold the plain prompt.
    let body = completion(&ids(1, 64));
    for replica in [&plain, &adapted] {
        let addr = replica.engine.addr();
        let text = body.to_string();
        kvasir_testkit::client::post(addr, COMPLETIONS, text.as_bytes()).await.unwrap();
        gateway.until_blocks(replica, 4).await;
    }
    let for_adapter = json!({"model": "ad", "prompt": ids(1, 64), "max_tokens": 2});
    let first = Decision::of(&gateway.post(COMPLETIONS, &for_adapter).await);
    assert_eq!((first.overlap, first.endpoint), (0, adapted.url()));
    gateway.until_blocks(&adapted, 8).await;
    for _ in 0..3 {
        let again = Decision::of(&gateway.post(COMPLETIONS, &for_adapter).await);
        assert_eq!((again.overlap, again.endpoint), (48, adapted.url()));
    }
    let base = Decision::of(&gateway.post(COMPLETIONS, &body).await);
    assert_eq!(base.overlap, 48, "the base model's blocks are as they were");
    let names: Vec<_> = plain.engine.requests().iter().map(|r| r.json()["model"].clone()).collect();
    assert!(!names.contains(&json!("ad")), "an engine without the adapter was asked for it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_did_not_say_what_it_serves_gets_no_requests_for_adapters() {
    let (silent, adapted) = (Replica::start().await, with_adapter().await);
    let broken = Reply::status(StatusCode::INTERNAL_SERVER_ERROR);
    silent.engine.set_page("/v1/models", broken);
    let gateway = Gateway::over(pool("tiny", &[&silent.engine, &adapted.engine])).await;
    gateway.until_learned(&[&adapted]).await;
    for n in 0..12 {
        let body = json!({"model": "ad", "prompt": ids(1 + 100 * n, 64)});
        let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
        assert_eq!(decision.endpoint, adapted.url());
    }
    // For the pool's own model the configuration's word is good enough.
    adapted.engine.stop().await.unwrap();
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await);
    assert_eq!(decision.endpoint, silent.url());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pools_on_one_engine_share_what_is_known_of_it() {
    let models = vec![Model::base("tiny"), Model::base("alias")];
    let mut shared = models.clone();
    shared[1].root.clone_from(&models[0].root);
    let replica =
        Replica::with(ReplicaOptions { models: shared, ..ReplicaOptions::default() }).await;
    let mut alias = pool("alias", &[&replica.engine]);
    alias["tokenizer_dir"] = crate::harness::Golden::staged_as("alias").to_str().unwrap().into();
    let pools = json!({"pools": [pool("tiny", &[&replica.engine]), alias]});
    let gateway = Gateway::start(pools).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[("model", "tiny")], 1.0).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[("model", "alias")], 1.0).await;
    gateway.until_trust(&replica, "exact").await;
    Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await);
    gateway.until_blocks(&replica, 4).await;
    let by_alias = json!({"model": "alias", "prompt": ids(1, 64)});
    let decision = Decision::of(&gateway.post(COMPLETIONS, &by_alias).await);
    assert_eq!(decision.overlap, 48);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_engine_can_tell_apart_is_credited_to_nobody() {
    let replica = Replica::start().await;
    let gateway = Gateway::over(pool("tiny", &[&replica.engine])).await;
    gateway.until_learned(&[&replica]).await;
    let plain = completion(&ids(1, 64));
    Decision::of(&gateway.post(COMPLETIONS, &plain).await);
    gateway.until_blocks(&replica, 4).await;
    for field in ["extra_key", "lora_path"] {
        let mut body = plain.clone();
        body[field] = "a".into();
        let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
        assert_eq!((decision.overlap, decision.prompt), (0, 64), "{field}");
        assert_eq!((&*decision.level, &*decision.tokens), ("none", "engine_extras"), "{field}");
        body[field] = json!(null);
        let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
        assert_eq!((decision.overlap, &*decision.tokens), (48, "exact"), "{field}");
    }
}
