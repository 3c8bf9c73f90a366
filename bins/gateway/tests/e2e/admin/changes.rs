//! Changes to a running gateway.

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model};
use kvasir_testkit::eventually_async;
use serde_json::{Value, json};

use super::{Admin, started, with_admin};
use crate::harness::{COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, pool, until};

fn turns(engines: &[&FakeEngine]) -> Value {
    let mut pool = pool("tiny", engines);
    pool["policy"] = json!("round_robin");
    json!([pool])
}

/// Where some requests go.
async fn seen(gateway: &Gateway) -> Vec<String> {
    let mut seen = Vec::new();
    for n in 0..4 {
        let answer = gateway.post(COMPLETIONS, &completion(&ids(n, 8))).await;
        seen.push(Decision::of(&answer).endpoint);
    }
    seen.sort();
    seen.dedup();
    seen
}

fn at(replica: &Replica) -> String {
    format!("/api/v1/pools/tiny/endpoints/{}", replica.engine.addr())
}

async fn until_up(gateway: &Gateway, replica: &Replica) {
    gateway.until_metric("kvasir_endpoint_up", &[("endpoint", &replica.url())], 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_comes_is_drained_and_goes_while_requests_are_served() {
    let (one, two) = (Replica::start().await, Replica::start().await);
    let (gateway, admin, file) = started(turns(&[&one.engine])).await;
    gateway.until_learned(&[&one]).await;
    let new = json!({"url": two.url(), "group": "late"});
    let made = admin.ask("POST", "/api/v1/pools/tiny/endpoints", new.to_string().as_bytes()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!((&made["origin"], &made["persisted"]), (&json!("admin"), &json!(false)));
    assert_eq!(made["group"], "late");
    // It is watched, its events are followed, and it gets its share.
    gateway.until_learned(&[&two]).await;
    assert!(!two.publisher.is_left());
    let mut both = [one.url(), two.url()];
    both.sort();
    assert_eq!(seen(&gateway).await, both);
    let patched = admin.done("PATCH", &at(&two), &json!({"weight": 30})).await;
    assert_eq!((&patched["weight"], &patched["patched"]), (&json!(30), &json!(["weight"])));
    // A file that is read anew takes none of it back.
    gateway.hang_up();
    let mut config = with_admin(turns(&[&one.engine]));
    config["max_body_bytes"] = json!(1_000_000);
    gateway.reload(&file, &config).await;
    assert_eq!(admin.get(&at(&two)).await["weight"], 30);
    let drained = admin.done("PATCH", &at(&two), &json!({"state": "drain"})).await;
    assert_eq!((&drained["state"], &drained["why_not"]), (&json!("drain"), &json!("draining")));
    assert_eq!(seen(&gateway).await, [one.url()]);
    admin.done("PATCH", &at(&two), &json!({"state": null})).await;
    assert_eq!(seen(&gateway).await, both);
    let gone = admin.done("DELETE", &at(&two), &Value::Null).await;
    assert_eq!(gone["deleted"], true);
    assert_eq!(seen(&gateway).await, [one.url()]);
    eventually_async(SOON, || two.publisher.is_left()).await;
    assert_eq!(admin.ask("GET", &at(&two), b"").await.status, 404);
    assert!(!one.publisher.is_left());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_comes_changes_and_goes() {
    let one = Replica::start().await;
    let models = vec![Model::base("org/other")];
    let other = EngineConfig { models, ..EngineConfig::default() };
    let other = FakeEngine::start(other).await.unwrap();
    let (gateway, admin, _file) = started(turns(&[&one.engine])).await;
    let made = admin.done("POST", "/api/v1/pools", &pool("org/other", &[&other])).await;
    assert_eq!((&made["model"], &made["origin"]), (&json!("org/other"), &json!("admin")));
    gateway.until_metric("kvasir_endpoint_up", &[("endpoint", &other.url())], 1.0).await;
    let ask = json!({"model": "org/other", "prompt": [1, 2, 3]});
    assert_eq!(gateway.post(COMPLETIONS, &ask).await.status, 200);
    let place = "/api/v1/pools/org%2Fother";
    let patched = admin.done("PATCH", place, &json!({"policy": "random"})).await;
    assert_eq!((&patched["policy"], &patched["patched"]), (&json!("random"), &json!(["policy"])));
    let reset = admin.done("PATCH", place, &json!({"policy": null})).await;
    assert_eq!(reset["policy"], "latency");
    let headers = json!({"decision_headers": false});
    admin.done("PATCH", "/api/v1/pools/tiny", &headers).await;
    until_up(&gateway, &one).await;
    let answer = gateway.post(COMPLETIONS, &completion(&ids(1, 8))).await;
    assert_eq!((answer.status, answer.head.header("x-kvasir-endpoint")), (200, None));
    admin.done("DELETE", place, &Value::Null).await;
    assert_eq!(gateway.post(COMPLETIONS, &ask).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_leaves_one_side_only_says_so() {
    let (one, two) = (Replica::start().await, Replica::start().await);
    let (_gateway, admin, _file) = started(turns(&[&one.engine, &two.engine])).await;
    let role = async |replica: &Replica, role: Value| {
        admin.done("PATCH", &at(replica), &json!({ "role": role })).await["warnings"].clone()
    };
    let no_decode =
        json!(["pool `tiny`: no decode endpoint: prefill endpoints get nothing until one comes"]);
    let no_prefill = json!([
        "pool `tiny`: no prefill endpoint: decode endpoints compute prompts until one comes"
    ]);
    assert_eq!(role(&one, json!("prefill")).await, no_decode);
    assert_eq!(role(&two, json!("decode")).await, json!([]));
    assert_eq!(role(&one, json!("unified")).await, no_prefill);
    assert_eq!(role(&two, Value::Null).await, json!([]));
    let off = json!({"disaggregation": {"enabled": false}});
    admin.done("PATCH", "/api/v1/pools/tiny", &off).await;
    assert_eq!(role(&one, json!("prefill")).await, json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_changes_are_refused_with_the_field_and_without_effect() {
    let one = Replica::start().await;
    let (gateway, admin, _file) = started(turns(&[&one.engine])).await;
    gateway.until_known().await;
    let before = admin.get("/api/v1/config").await;
    let endpoints = "/api/v1/pools/tiny/endpoints";
    let twice = json!({"url": one.url()}).to_string();
    for (method, path, body, status, field) in [
        ("POST", "/api/v1/pools", "{", 400, None),
        ("POST", "/api/v1/pools", "[]", 400, None),
        ("POST", "/api/v1/pools", r#"{"model": "x", "endpoints": []}"#, 422, Some("endpoints")),
        ("POST", "/api/v1/pools", r#"{"endpoints": []}"#, 422, Some("model")),
        ("POST", endpoints, r#"{"url": "nowhere"}"#, 422, Some("url")),
        ("POST", endpoints, twice.as_str(), 409, Some("url")),
        ("PATCH", "/api/v1/pools/tiny", r#"{"polcy": "random"}"#, 422, Some("polcy")),
        ("PATCH", "/api/v1/pools/none", "{}", 404, None),
        ("PATCH", &at(&one), r#"{"weight": -1}"#, 422, Some("weight")),
        ("PATCH", &format!("{}%230", at(&one)), r#"{"weight": 1}"#, 422, Some("endpoint")),
        ("DELETE", &format!("{}%230", at(&one)), "", 422, Some("endpoint")),
        ("DELETE", &at(&one), "", 422, Some("endpoints")),
        ("PATCH", "/api/v1/routing/tiny", r#"{"mode": "fast"}"#, 422, Some("mode")),
        ("PATCH", "/api/v1/routing/tiny?tenant=acme", "{}", 422, Some("tenant")),
        ("PATCH", "/api/v1/routing/none", "{}", 404, None),
    ] {
        let (found, _, of) = admin.refused(method, path, body).await;
        assert_eq!((found, of.as_deref()), (status, field), "{method} {path} {body}");
    }
    let large = vec![b' '; (1 << 20) + 1];
    let answer = admin.ask("PATCH", "/api/v1/pools/tiny", &large).await;
    assert_eq!(answer.status, 413);
    assert_eq!(admin.get("/api/v1/config").await, before);
    assert_eq!(seen(&gateway).await, [one.url()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_the_file_leaves_no_place_for_are_dropped_by_name() {
    let (one, two) = (Replica::start().await, Replica::start().await);
    let (gateway, admin, file) = started(turns(&[&one.engine, &two.engine])).await;
    admin.done("PATCH", &at(&two), &json!({"weight": 30})).await;
    gateway.reload(&file, &with_admin(turns(&[&one.engine]))).await;
    let addr = two.engine.addr().to_string();
    let is_it =
        |line: &str| line.contains("is dropped") && line.contains(&addr) && line.contains("weight");
    gateway.line("the change that is dropped", is_it).await;
    gateway.reload(&file, &with_admin(turns(&[&one.engine, &two.engine]))).await;
    assert_eq!(admin.get(&at(&two)).await["weight"], 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_one_time_are_made_one_after_the_other() {
    let (one, two) = (Replica::start().await, Replica::start().await);
    let file = crate::harness::ConfigFile::of(&with_admin(turns(&[&one.engine])));
    let gateway = Gateway::of_file(&file).await;
    let admin = Admin::of(&gateway).await;
    // Several at once: one after the other, and none is lost.
    let changes = (0..8).map(|n| {
        let admin = admin.with(Some(super::WRITE));
        let new = json!({"url": format!("http://127.0.0.1:{}", 2 + n)});
        async move { admin.done("POST", "/api/v1/pools/tiny/endpoints", &new).await }
    });
    futures_util::future::join_all(changes).await;
    let new = json!({"url": two.url()});
    admin.done("POST", "/api/v1/pools/tiny/endpoints", &new).await;
    until(SOON, || async {
        let endpoints = admin.get("/api/v1/endpoints").await;
        let count = endpoints["endpoints"].as_array().map_or(0, Vec::len);
        if count == 10 { Ok(()) } else { Err(endpoints.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_one_however_its_url_is_written() {
    let (one, two) = (Replica::start().await, Replica::start().await);
    let (_gateway, admin, _file) = started(turns(&[&one.engine])).await;
    let url = two.url().replace("http://", "HTTP://");
    let made = admin.done("POST", "/api/v1/pools/tiny/endpoints", &json!({"url": url})).await;
    assert_eq!((&made["url"], &made["origin"]), (&json!(two.url()), &json!("admin")));
    let twice = json!({"url": two.url()}).to_string();
    let refused = admin.refused("POST", "/api/v1/pools/tiny/endpoints", &twice).await;
    assert_eq!(refused, (409, "conflict".to_owned(), Some("url".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_routing_settings_win_over_are_named_in_the_answer() {
    let one = Replica::start().await;
    let (_gateway, admin, _file) = started(turns(&[&one.engine])).await;
    admin.done("PATCH", "/api/v1/routing/tiny", &json!({"mode": "cache_aware"})).await;
    let patch = json!({"policy": "random", "slo_ttft_ms": 700.0});
    let patched = admin.done("PATCH", "/api/v1/pools/tiny", &patch).await;
    assert_eq!(
        (&patched["ignored"], &patched["policy"]),
        (&json!(["policy"]), &json!("precise_cache_aware"))
    );
    admin.done("DELETE", "/api/v1/routing/tiny", &Value::Null).await;
    let now = admin.get("/api/v1/pools/tiny").await;
    assert_eq!((&now["ignored"], &now["policy"]), (&json!([]), &json!("random")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_to_another_configuration_than_was_seen_is_refused() {
    let one = Replica::start().await;
    let (_gateway, admin, _file) = started(turns(&[&one.engine])).await;
    let etag = |answer: &kvasir_testkit::client::Response| {
        answer.head.header("etag").unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
    };
    let seen = etag(&admin.ask("GET", "/api/v1/pools/tiny", b"").await);
    let patch = |slo: f64| json!({ "slo_ttft_ms": slo }).to_string().into_bytes();
    let with = |seen: String, slo: f64| {
        let (admin, body) = (&admin, patch(slo));
        async move {
            let expected = [("if-match", seen.as_str())];
            admin.ask_with("PATCH", "/api/v1/pools/tiny", &expected, &body).await
        }
    };
    let made = with(seen.clone(), 700.0).await;
    assert_eq!(made.status, 200);
    let refused = with(seen.clone(), 800.0).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (412, &json!("changed")));
    assert_eq!(etag(&admin.ask("GET", "/api/v1/config", b"").await), etag(&made));
    assert_eq!(admin.get("/api/v1/config").await["pools"][0]["slo_ttft_ms"], 700.0);
    assert_eq!(with(etag(&made), 900.0).await.status, 200);
}
