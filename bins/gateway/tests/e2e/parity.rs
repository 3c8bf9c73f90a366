//! The gateway judges its own predictions by what engines say, and draws the consequences.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use kvasir_testkit::client::Response;
use kvasir_testkit::engine::Reply;
use kvasir_testkit::eventually_async;
use kvasir_testkit::publisher::payload;
use serde_json::{Value, json};

use crate::harness::{
    CHAT, COMPLETIONS, Decision, Gateway, Golden, Replica, ReplicaOptions, SOON, completion, ids,
    pool, until,
};

async fn over(replica: &Replica) -> Gateway {
    let gateway = Gateway::over(pool("tiny", &[&replica.engine])).await;
    gateway.until_learned(&[replica]).await;
    gateway
}

/// Sends the prompt; the credit it got and the trust behind that.
async fn ask(gateway: &Gateway, prompt: &[u32]) -> (u64, String) {
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(prompt)).await);
    (decision.overlap, decision.trust)
}

fn credit(overlap: u64, trust: &str) -> (u64, String) {
    (overlap, trust.to_owned())
}

/// Sends a request under a name of its own.
async fn ask_as(gateway: &Gateway, path: &str, id: &str, body: &Value) -> Response {
    let mut client = gateway.connect().await;
    client.send("POST", path, &[("x-request-id", id)], body.to_string().as_bytes()).await.unwrap();
    client.response().await.unwrap()
}

async fn parity(gateway: &Gateway) -> Value {
    gateway.get("/readyz").await.json()["pools"]["tiny"]["parity"].clone()
}

/// Waits for a few more metrics pages: what was asked before is on them.
async fn pages(replica: &Replica) {
    let seen = replica.engine.info_requests().len();
    eventually_async(SOON, || replica.engine.info_requests().len() > seen + 2).await;
}

async fn no_suspicion(gateway: &Gateway) {
    let labels = [("to", "suspect(hit_mismatch)")];
    assert_eq!(gateway.metrics().await.sum("kvasir_trust_transitions_total", &labels), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_does_not_hold_what_it_claims_loses_its_credit_until_it_does() {
    let replica = Replica::start().await;
    let gateway = over(&replica).await;
    let prompt = ids(1, 64);
    ask(&gateway, &prompt).await;
    gateway.until_blocks(&replica, 4).await;
    for n in 0..8 {
        // It drops its blocks and says nothing.
        replica.engine.reset_cache();
        let answer = ask_as(&gateway, COMPLETIONS, &format!("lie-{n}"), &completion(&prompt)).await;
        assert_eq!(Decision::of(&answer).overlap, 48);
    }
    gateway.until_trust(&replica, "suspect(hit_mismatch)").await;
    let state = &parity(&gateway).await["over_predicted"][&replica.url()];
    assert_eq!(state["trust"], "suspect(hit_mismatch)");
    let example = json!({"request_id": "lie-7", "api": "completions", "prompt_tokens": 64,
        "predicted_cached_tokens": 48, "reported_cached_tokens": 0});
    assert_eq!(state["example"], example);
    gateway.line("the suspicion", |line| line.contains("hits less") && line.contains("lie-")).await;
    // From now on it holds them: it is still predicted, and credited again when that is right.
    for n in 0..13 {
        assert_eq!(ask(&gateway, &prompt).await, credit(0, "suspect(hit_mismatch)"), "{n}");
    }
    gateway.until_trust(&replica, "exact").await;
    assert_eq!(ask(&gateway, &prompt).await, credit(48, "exact"));
    let page = gateway.metrics().await;
    let judged = |verdict| {
        let labels = [("oracle", "usage"), ("verdict", verdict)];
        page.sum("kvasir_hit_judged_total", &labels)
    };
    assert_eq!((judged("over"), judged("under")), (Some(8.0), Some(0.0)));
    assert!(judged("equal") >= Some(14.0), "the cold one and those that agreed");
    assert_eq!(page.kind("kvasir_hit_judged_total"), Some("counter"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clear_ends_the_suspicion() {
    let replica = Replica::start().await;
    let gateway = over(&replica).await;
    ask(&gateway, &ids(1, 64)).await;
    gateway.until_blocks(&replica, 4).await;
    for _ in 0..8 {
        replica.engine.reset_cache();
        ask(&gateway, &ids(1, 64)).await;
    }
    gateway.until_trust(&replica, "suspect(hit_mismatch)").await;
    replica.publish(payload::cleared());
    gateway.until_trust(&replica, "exact").await;
    assert_eq!(parity(&gateway).await, Value::Null, "its example is gone too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_that_is_announced_after_the_answer_is_no_fault() {
    let replica = Replica::start().await;
    let gateway = over(&replica).await;
    for n in 0..10 {
        let prompt = ids(1 + 100 * n, 64);
        ask(&gateway, &prompt).await;
        gateway.until_blocks(&replica, 4).await;
        replica.engine.reset_cache();
        assert_eq!(ask(&gateway, &prompt).await, credit(48, "exact"));
        replica.publish(payload::cleared());
        gateway.until_blocks(&replica, 0).await;
    }
    // All are accounted for: none of those that went before a clear is judged.
    until(SOON, || async {
        let page = gateway.metrics().await;
        let moved = page.sum("kvasir_hit_unjudged_total", &[("reason", "moved")]).unwrap();
        let judged = page.sum("kvasir_hit_judged_total", &[("oracle", "usage")]).unwrap();
        if moved + judged >= 20.0 { Ok(()) } else { Err(format!("{moved} + {judged}")) }
    })
    .await;
    let over = [("verdict", "over"), ("oracle", "usage")];
    let over = gateway.metrics().await.sum("kvasir_hit_judged_total", &over).unwrap();
    // A machine that stands still for a second may let one through.
    assert!(over < 4.0, "{over}");
    no_suspicion(&gateway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_computes_the_last_block_anew_is_learned_as_such() {
    let replica = Replica::start().await;
    let gateway = over(&replica).await;
    let prompt = ids(1, 65);
    ask(&gateway, &prompt).await;
    gateway.until_blocks(&replica, 4).await;
    replica.engine.set_handler(|request| {
        let tokens = request.json()["prompt"].as_array()?.len();
        let cached = (tokens - 1) / 16 * 16 - 16;
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens + 2,
            "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": cached}});
        Some(Reply::Json(StatusCode::OK, json!({"choices": [], "usage": usage})))
    });
    for n in 0..8 {
        assert_eq!(ask(&gateway, &prompt).await, credit(64, "exact"), "{n}");
    }
    gateway.until_metric("kvasir_hit_profile_blocks", &[], 1.0).await;
    assert_eq!(ask(&gateway, &prompt).await, credit(48, "exact"));
    assert_eq!(ask(&gateway, &ids(1, 49)).await, credit(32, "exact"));
    no_suspicion(&gateway).await;
    replica.restart().await;
    gateway.until_metric("kvasir_hit_profile_blocks", &[], 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tokenizer_is_named_with_an_example_and_no_endpoint_is_blamed() {
    let wrong = Arc::new(AtomicBool::new(true));
    let (right, is_wrong) = (Golden::tokenize(), Arc::clone(&wrong));
    let tokenize = move |body: &Value| {
        let mut ids = right(body)?;
        if is_wrong.load(Ordering::SeqCst) && body["messages"].is_array() {
            ids.insert(0, 1);
        }
        Some(ids)
    };
    let options = ReplicaOptions { tokenize: Some(Arc::new(tokenize)), ..Default::default() };
    let replica = Replica::with(options).await;
    let gateway = over(&replica).await;
    let (body, tokens) = Golden::read().case("multi_turn_6");
    let known = tokens.len() as u64;
    let asked = |n: usize| {
        let (gateway, body) = (&gateway, &body);
        async move { Decision::of(&ask_as(gateway, CHAT, &format!("chat-{n}"), body).await) }
    };
    for n in 0..8 {
        let decision = asked(n).await;
        assert_eq!((&*decision.level, &*decision.tokens), ("tokens", "exact"), "{n}");
    }
    let labels = [("model", "tiny"), ("api", "chat")];
    gateway.until_metric("kvasir_token_mismatch", &labels, 1.0).await;
    let decision = asked(8).await;
    assert_eq!((&*decision.level, &*decision.tokens), ("text", "token_mismatch"));
    let state = &parity(&gateway).await["token_counts"][0];
    let example = json!({"request_id": "chat-8", "endpoint": replica.url(), "stream": false,
        "counted_prompt_tokens": known, "reported_prompt_tokens": known + 1});
    assert_eq!((&state["model"], &state["api"]), (&json!("tiny"), &json!("chat")));
    assert_eq!((&state["token_mismatch"], &state["example"]), (&json!(true), &example));
    gateway.line("the count", |line| line.contains("other prompt tokens")).await;
    // Another API's prompts are known as before, and so is the engine's cache.
    ask(&gateway, &ids(1, 64)).await;
    let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await);
    assert_eq!(&*decision.tokens, "exact");
    wrong.store(false, Ordering::SeqCst);
    for n in 0..13 {
        assert_eq!(&*asked(n).await.tokens, "token_mismatch", "{n}");
    }
    gateway.until_metric("kvasir_token_mismatch", &labels, 0.0).await;
    assert_eq!(&*asked(0).await.tokens, "exact");
    no_suspicion(&gateway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_answers_are_silent_the_engines_own_counters_are_asked() {
    let replica = Replica::with(ReplicaOptions { reports: false, ..Default::default() }).await;
    let gateway = over(&replica).await;
    let prompt = ids(1, 64);
    ask(&gateway, &prompt).await;
    gateway.until_blocks(&replica, 4).await;
    pages(&replica).await;
    for _ in 0..8 {
        replica.engine.reset_cache();
        ask(&gateway, &prompt).await;
        pages(&replica).await;
    }
    gateway.until_trust(&replica, "suspect(hit_mismatch)").await;
    let state = &parity(&gateway).await["over_predicted"][&replica.url()]["example"];
    assert_eq!((&state["request_id"], &state["prompt_tokens"]), (&Value::Null, &json!(64)));
    // Others' traffic is not held for or against it.
    for _ in 0..3 {
        let body = completion(&prompt).to_string();
        let addr = replica.engine.addr();
        kvasir_testkit::client::post(addr, COMPLETIONS, body.as_bytes()).await.unwrap();
        ask(&gateway, &prompt).await;
        pages(&replica).await;
    }
    let name = "kvasir_hit_segments_left_out_total";
    let foreign = gateway.metrics().await.sum(name, &[("reason", "foreign")]).unwrap();
    assert!(foreign >= 3.0, "{foreign}");
    for _ in 0..13 {
        ask(&gateway, &prompt).await;
        pages(&replica).await;
    }
    gateway.until_trust(&replica, "exact").await;
    assert_eq!(ask(&gateway, &prompt).await, credit(48, "exact"));
}
