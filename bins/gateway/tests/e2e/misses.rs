//! Why the policy that goes by engines' caches had no say.

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model};
use serde_json::{Value, json};

use crate::harness::{
    CHAT, COMPLETIONS, Decision, Gateway, Replica, ReplicaOptions, SOON, completion, ids, pool,
    until,
};

async fn missed(gateway: &Gateway, path: &str, body: &Value) -> Option<String> {
    // The engine may refuse it.
    let decision = Decision::of_head(&gateway.post(path, body).await.head);
    let is_told = decision.miss.is_some() == (decision.policy == "least_load");
    assert!(is_told, "{decision:?}");
    decision.miss
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_miss_has_its_reason() {
    // It answers whatever it is asked.
    let options = ReplicaOptions { tokenize: None, ..ReplicaOptions::default() };
    let replica = Replica::with(options).await;
    let mut pool = pool("tiny", &[&replica.engine]);
    pool["policy"] = json!({"name": "precise_cache_aware", "min_match_tokens": 64,
        "zero_hit_requests": 3});
    let gateway = Gateway::over(pool).await;
    gateway.until_learned(&[&replica]).await;
    let prompt = |first: u32, count: u32| completion(&ids(first, count));
    let mut extras = prompt(1, 8);
    extras["extra_key"] = "a".into();
    let tokenize = json!({"model": "tiny", "prompt": "a"});
    for (path, body, wanted) in [
        (COMPLETIONS, prompt(1, 8), "no_full_block"),
        (COMPLETIONS, extras, "unsupported"),
        (COMPLETIONS, json!({"model": "tiny"}), "text_empty"),
        (CHAT, json!({"model": "tiny", "messages": "x"}), "text_empty"),
        (CHAT, json!({"model": "tiny", "messages": [], "chat_template": "x"}), "unsupported"),
        ("/tokenize", tokenize, "api_mode"),
        (COMPLETIONS, prompt(1, 48), "no_holder"),
    ] {
        assert_eq!(missed(&gateway, path, &body).await.as_deref(), Some(wanted), "{path} {body}");
    }
    gateway.until_blocks(&replica, 3).await;
    // It holds three blocks of what has four, and the fourth counts.
    let miss = missed(&gateway, COMPLETIONS, &prompt(1, 65)).await;
    assert_eq!(miss.as_deref(), Some("shallow"));
    gateway.until_blocks(&replica, 4).await;
    assert_eq!(missed(&gateway, COMPLETIONS, &prompt(1, 65)).await, None);
    for (first, wanted) in [(1000, "no_holder"), (2000, "no_holder"), (3000, "zero_hits")] {
        let miss = missed(&gateway, COMPLETIONS, &prompt(first, 64)).await;
        assert_eq!(miss.as_deref(), Some(wanted));
    }
    gateway.line("the warning", |line| line.contains("no endpoint held anything")).await;
    for (reason, count) in [("no_holder", 3.0), ("zero_hits", 1.0), ("shallow", 1.0)] {
        let labels = [("policy", "precise_cache_aware"), ("reason", reason)];
        gateway.until_metric("kvasir_guard_misses_total", &labels, count).await;
    }
    let line = gateway.access_line(|line| line["miss"] == "zero_hits").await;
    assert_eq!(line["policy"], "least_load");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokenizer_or_events_that_is_the_reason() {
    let config = EngineConfig { models: vec![Model::base("plain")], ..EngineConfig::default() };
    let engine = FakeEngine::start(config).await.unwrap();
    let mut pool = pool("plain", &[&engine]);
    pool["policy"] = "precise_cache_aware".into();
    let gateway = Gateway::over(pool).await;
    let text = json!({"model": "plain", "prompt": "some words"});
    until(SOON, || async {
        // Until it was looked for, `tokenizer_pending`.
        match missed(&gateway, COMPLETIONS, &text).await.as_deref() {
            Some("no_tokenizer") => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    let tokens = json!({"model": "plain", "prompt": ids(1, 64)});
    assert_eq!(missed(&gateway, COMPLETIONS, &tokens).await.as_deref(), Some("not_ready"));
}
