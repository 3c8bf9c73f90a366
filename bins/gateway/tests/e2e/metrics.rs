//! What `/metrics` says. That every page of every test here is as the catalogue says is checked where it is read.

use std::path::{Path, PathBuf};

use kvasir_metrics::Page;
use kvasir_testkit::client;
use serde_json::{Value, json};

use crate::admin::{Admin, READ, with_admin};
use crate::harness::{
    CHAT, COMPLETIONS, ConfigFile, Gateway, Golden, Replica, completion, ids, pool,
};

/// A completion whose engine says how many tokens it made.
fn counted(prompt: &[u32], tokens: u32) -> Value {
    json!({"model": "tiny", "prompt": prompt, "max_tokens": tokens, "stream": true,
        "stream_options": {"include_usage": true}})
}

/// Families that traffic of one pool makes, with or without anything special.
const USUAL: [&str; 24] = [
    "kvasir_requests_total",
    "kvasir_request_seconds",
    "kvasir_first_data_seconds",
    "kvasir_time_per_output_token_seconds",
    "kvasir_decisions_total",
    "kvasir_guard_misses_total",
    "kvasir_shadow_decisions_total",
    "kvasir_shadow_predicted_cached_tokens_total",
    "kvasir_prompts_total",
    "kvasir_overlap_ratio",
    "kvasir_stage_seconds",
    "kvasir_judged_reported_tokens_total",
    "kvasir_endpoint_trust",
    "kvasir_endpoint_breaker",
    "kvasir_endpoint_stored_blocks_total",
    "kvasir_endpoint_evicted_blocks_total",
    "kvasir_stream_replay_failures_total",
    "kvasir_upstream_connections",
    "kvasir_pool_endpoint",
    "kvasir_template_state",
    "kvasir_hit_judged_total",
    "kvasir_config_stale",
    "kvasir_admin_requests_total",
    "kvasir_admin_connections",
];

/// A holder of `ids(1, 64)` and another replica behind a gateway that takes turns, with a shadow that
/// goes by caches.
async fn scene() -> (Replica, Replica, Gateway) {
    let (holder, other) = (Replica::start().await, Replica::start().await);
    let mut pool = pool("tiny", &[&other.engine, &holder.engine]);
    pool["policy"] = json!("precise_cache_aware");
    pool["shadow"] = json!("precise_cache_aware");
    let gateway = Gateway::start(with_admin(json!([pool]))).await;
    gateway.until_learned(&[&holder, &other]).await;
    let body = completion(&ids(1, 64)).to_string();
    client::post(holder.engine.addr(), COMPLETIONS, body.as_bytes()).await.unwrap();
    gateway.until_blocks(&holder, 4).await;
    (holder, other, gateway)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happened_to_requests_and_caches_is_told() {
    let (holder, _other, gateway) = scene().await;
    let admin = Admin::of(&gateway).await;
    admin.get("/api/v1/pools").await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(1, 65))).await.status, 200);
    assert_eq!(gateway.post(COMPLETIONS, &counted(&ids(1, 65), 5)).await.status, 200);
    assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(900, 40))).await.status, 200);
    assert_eq!(gateway.post(COMPLETIONS, &json!({"model": "nobody's"})).await.status, 404);
    gateway.until_metric("kvasir_overlap_ratio_count", &[("model", "tiny")], 3.0).await;
    let page = gateway.metrics().await;
    // Two found 64 of 65 tokens, one nothing.
    let up_to = |le| page.sum("kvasir_overlap_ratio_bucket", &[("le", le)]);
    assert_eq!((up_to("0"), up_to("0.95"), up_to("0.99")), (Some(1.0), Some(1.0), Some(3.0)));
    assert_eq!(page.sum("kvasir_time_per_output_token_seconds_count", &[]), Some(1.0));
    for stage in ["parse", "tokenise", "hash", "overlap", "choose"] {
        let took = page.sum("kvasir_stage_seconds_count", &[("stage", stage)]);
        assert!(took >= Some(3.0), "{stage}: {took:?}");
    }
    let missed = [("reason", "no_holder"), ("policy", "precise_cache_aware")];
    assert_eq!(page.sum("kvasir_guard_misses_total", &missed), Some(1.0));
    let at = [("endpoint", &*holder.url())];
    assert!(page.sum("kvasir_endpoint_stored_blocks_total", &at) >= Some(4.0));
    let text = gateway.get("/metrics").await.text();
    let there: Vec<&str> = Page::parse(&text).unwrap().families().collect();
    let missing: Vec<&str> = USUAL.into_iter().filter(|name| !there.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_shadow_would_have_found_stands_beside_what_was_found() {
    let (holder, other) = (Replica::start().await, Replica::start().await);
    let mut pool = pool("tiny", &[&other.engine, &holder.engine]);
    pool["policy"] = json!("round_robin");
    pool["shadow"] = json!("precise_cache_aware");
    let gateway = Gateway::over(pool).await;
    gateway.until_learned(&[&holder, &other]).await;
    let prompts = [1, 1_000];
    for first in prompts {
        let body = completion(&ids(first, 64)).to_string();
        client::post(holder.engine.addr(), COMPLETIONS, body.as_bytes()).await.unwrap();
    }
    gateway.until_blocks(&holder, 8).await;
    // Each gets one of them, and one holds both.
    for first in prompts {
        assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(first, 65))).await.status, 200);
    }
    let of = [("model", "tiny"), ("policy", "precise_cache_aware")];
    gateway.until_metric("kvasir_shadow_predicted_cached_tokens_total", &of, 128.0).await;
    gateway.until_metric("kvasir_predicted_cached_tokens_total", &of[..1], 64.0).await;
}

/// The staged tokenizer with a template that some chats make fail.
fn moody() -> PathBuf {
    let staged = Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e-moody");
    let dir = staged.join("tiny");
    std::fs::create_dir_all(&dir).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        let _ = std::fs::remove_file(dir.join(file));
        std::fs::copy(Golden::staged().join("tiny").join(file), dir.join(file)).unwrap();
    }
    let template = "{% for m in messages %}{% if m.content == 'bad' %}{{ raise_exception('no') }}\
                    {% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    std::fs::write(dir.join("chat_template.jinja"), template).unwrap();
    staged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_template_that_fails_is_a_state_of_its_model() {
    let replica = Replica::start().await;
    let mut pool = pool("tiny", &[&replica.engine]);
    pool["tokenizer_dir"] = json!(moody());
    let gateway = Gateway::over(pool).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let chat = |said: &str| {
        let message = json!({"role": "user", "content": said});
        json!({"model": "tiny", "messages": [message], "max_tokens": 1})
    };
    let state = |state, reason| [("model", "tiny"), ("state", state), ("reason", reason)];
    let until = |wanted: [(&'static str, &'static str); 3]| {
        let gateway = &gateway;
        async move { gateway.until_metric("kvasir_template_state", &wanted, 1.0).await }
    };
    until(state("untried", "")).await;
    gateway.post(CHAT, &chat("good")).await;
    until(state("ok", "")).await;
    for _ in 0..2 {
        gateway.post(CHAT, &chat("bad")).await;
    }
    until(state("ok", "")).await;
    gateway.post(CHAT, &chat("bad")).await;
    until(state("failing", "fails_on_chats")).await;
    gateway.line("its begin", |line| line.contains("the chat template fails on them")).await;
    gateway.post(CHAT, &chat("good")).await;
    until(state("ok", "")).await;
    gateway.line("its end", |line| line.contains("the chat template renders them")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_api_tells_of_itself() {
    let replica = Replica::start().await;
    let gateway = Gateway::start(with_admin(json!([pool("tiny", &[&replica.engine])]))).await;
    let admin = Admin::of(&gateway).await;
    let path = format!("/api/v1/pools/tiny/endpoints/{}", replica.engine.addr());
    admin.done("PATCH", &path, &json!({"weight": 30})).await;
    assert_eq!(admin.ask("PATCH", &path, b"{\"weight\": -1}").await.status, 422);
    assert_eq!(admin.with(Some(READ)).ask("PATCH", &path, b"{}").await.status, 403);
    assert_eq!(admin.with(Some("guessed")).ask("GET", "/api/v1/pools", b"").await.status, 401);
    assert_eq!(admin.ask("GET", "/api/v1/secrets-of-somebody", b"").await.status, 404);
    let page = gateway.metrics().await;
    let template = "/api/v1/pools/{model}/endpoints/{endpoint}";
    for (status, count) in [("200", 1.0), ("422", 1.0), ("403", 1.0)] {
        let of = [("route", template), ("method", "PATCH"), ("status", status)];
        assert_eq!(page.sum("kvasir_admin_requests_total", &of), Some(count), "{status}");
    }
    let nowhere = [("route", "none"), ("method", "none"), ("status", "404")];
    assert_eq!(page.sum("kvasir_admin_requests_total", &nowhere), Some(1.0));
    for (result, count) in [("done", 1.0), ("invalid", 1.0), ("read_only", 1.0)] {
        let of = [("route", template), ("result", result)];
        assert_eq!(page.sum("kvasir_admin_changes_total", &of), Some(count), "{result}");
    }
    for reason in ["read_only", "unauthorized"] {
        let denied = page.sum("kvasir_admin_denied_total", &[("reason", reason)]);
        assert_eq!(denied, Some(1.0), "{reason}");
    }
    assert_eq!(page.sum("kvasir_admin_audit_dropped_total", &[]), Some(0.0));
    gateway.until_metric("kvasir_admin_connections", &[], 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_file_is_stale_until_one_is_taken_up() {
    let replica = Replica::start().await;
    let config = json!({"pools": [pool("tiny", &[&replica.engine])]});
    let file = ConfigFile::of(&config);
    let gateway = Gateway::of_file(&file).await;
    gateway.until_metric("kvasir_config_stale", &[], 0.0).await;
    file.replace_text("pools: 7");
    gateway.hang_up();
    gateway.until_metric("kvasir_config_stale", &[], 1.0).await;
    file.replace(&config);
    gateway.hang_up();
    gateway.until_metric("kvasir_config_stale", &[], 0.0).await;
}
