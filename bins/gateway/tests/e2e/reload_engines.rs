//! What another configuration changes about engines' health and connections while requests go on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use kvasir_testkit::pki::{Authority, server_config};
use kvasir_testkit::tls::TlsFront;
use serde_json::{Value, json};

use crate::harness::{
    COMPLETIONS, ConfigFile, Decision, Gateway, SOON, completion, pool, pool_at, stream, until,
};

fn file(name: &str, text: &str) -> PathBuf {
    let name = format!("reload-engines-{}-{name}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn engine() -> FakeEngine {
    FakeEngine::start(EngineConfig::default()).await.unwrap()
}

async fn breaker(gateway: &Gateway, url: &str) -> String {
    gateway.metrics().await.label("kvasir_endpoint_breaker", &[("endpoint", url)], "state")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_stays_open_and_goes_by_new_settings_and_retries_do_too() {
    let (bad, good) = (engine().await, engine().await);
    bad.set_default(Reply::Json(StatusCode::INTERNAL_SERVER_ERROR, json!({"error": {}})));
    let config = |more: Value| {
        let mut pool = pool("tiny", &[&bad, &good]);
        pool["policy"] = json!("round_robin");
        let mut config = json!({"pools": [pool], "health": {"failures": 1, "open_s": 600}});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    let once = config(json!({"retries": {"attempts": 1}}));
    let file = ConfigFile::of(&once);
    let gateway = Gateway::of_file(&file).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 2.0).await;
    let mut statuses = Vec::new();
    for _ in 0..2 {
        statuses.push(gateway.post(COMPLETIONS, &completion(&[1])).await.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 500], "it is sent once only");
    assert_eq!(breaker(&gateway, &bad.url()).await, "open");
    // All else about the pool is another, and it is still left alone.
    let mut changed = config(json!({"health": {"failures": 1, "open_s": 1}}));
    changed["pools"][0]["timeouts"] = json!({"idle_ms": 5000});
    changed["pools"][0]["policy"] = json!("least_load");
    gateway.reload(&file, &changed).await;
    assert_eq!(breaker(&gateway, &bad.url()).await, "open");
    for n in 0..4 {
        let answer = gateway.post(COMPLETIONS, &completion(&[n])).await;
        assert_eq!(Decision::of(&answer).endpoint, good.url());
    }
    // Where it is the only one it is asked all the same; now it is well.
    bad.set_default(Reply::Default);
    changed["pools"][0]["endpoints"][1]["state"] = json!("disabled");
    gateway.reload(&file, &changed).await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&[1])).await.status, 200);
    // New engines in trouble open theirs by the new settings, and requests are sent twice now.
    let third = engine().await;
    third.set_default(Reply::Json(StatusCode::INTERNAL_SERVER_ERROR, json!({"error": {}})));
    let mut with_third = config(json!({"health": {"failures": 1, "open_s": 600}}));
    with_third["pools"][0] = pool("tiny", &[&third, &good]);
    with_third["pools"][0]["policy"] = json!("round_robin");
    gateway.reload(&file, &with_third).await;
    for n in 0..3 {
        let answer = gateway.post(COMPLETIONS, &completion(&[n])).await;
        assert_eq!((answer.status, Decision::of(&answer).endpoint), (200, good.url()));
    }
    assert_eq!(breaker(&gateway, &third.url()).await, "open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_authority_is_believed_without_a_restart_and_who_left_has_no_connections() {
    let engine = engine().await;
    let authority = Authority::new();
    let config = server_config(&authority.issue(&["engine.test"]), None, &["http/1.1"]);
    let front = TlsFront::start(engine.addr(), config).await.unwrap();
    let with_ca = |ca: &PathBuf| {
        let mut pool = pool_at("tiny", &[front.url()]);
        pool["engine_tls"] = json!({"ca_file": ca, "server_name": "engine.test"});
        json!({ "pools": [pool] })
    };
    let (stranger, right) =
        (file("ca2.pem", Authority::new().pem()), file("ca.pem", authority.pem()));
    let of_file = ConfigFile::of(&with_ca(&stranger));
    let gateway = Gateway::of_file(&of_file).await;
    let refused = gateway.post(COMPLETIONS, &completion(&[1])).await;
    assert_eq!(refused.status, 503);
    let at = [("endpoint", &*front.url())];
    let of_tls = [at[0], ("cause", "connect_tls")];
    gateway.until_counted("kvasir_failed_attempts_total", &of_tls, 1.0).await;
    gateway.reload(&of_file, &with_ca(&right)).await;
    gateway.until_metric("kvasir_endpoint_up", &at, 1.0).await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&[1])).await.status, 200);
    // The same file with other contents, by a signal alone.
    std::fs::write(&right, Authority::new().pem()).unwrap();
    let gap = Duration::from_millis(100);
    engine.push([Reply::SlowTokens { first: gap, gap, count: 20 }]);
    let mut client = gateway.sent(COMPLETIONS, stream(&[1], 20).to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    gateway.reload(&of_file, &with_ca(&right)).await;
    gateway.until_metric("kvasir_endpoint_up", &at, 0.0).await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&[1])).await.status, 503);
    let page = gateway.metrics().await;
    assert_eq!(page.sum("kvasir_endpoint_in_flight", &at), Some(1.0), "it is the same engine");
    // The other side of it in plain text is another engine; what is under way stays.
    gateway.reload(&of_file, &json!({"pools": [pool("tiny", &[&engine])]})).await;
    gateway.until_metric("kvasir_endpoint_up", &[("endpoint", &*engine.url())], 1.0).await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&[1])).await.status, 200);
    let mut last = String::new();
    while let Some(event) = client.event().await.unwrap() {
        last = event;
    }
    assert_eq!(last, "[DONE]");
    until(SOON, || async {
        let page = gateway.metrics().await;
        let left = ["kvasir_upstream_connections", "kvasir_endpoint_up"]
            .map(|family| page.sum(family, &at));
        if left == [None, None] { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let page = gateway.metrics().await;
    let of_new = page.sum("kvasir_upstream_connections", &[("endpoint", &*engine.url())]);
    assert_eq!(of_new, Some(1.0));
}
