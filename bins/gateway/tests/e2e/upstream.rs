//! How engines are connected to: TLS, timeouts, limits.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, Reply};
use kvasir_testkit::pki::{Authority, server_config};
use kvasir_testkit::tls::TlsFront;
use serde_json::json;

use crate::harness::{COMPLETIONS, Decision, Gateway, SOON, completion, pool, pool_at};

fn file(name: &str, text: &str) -> PathBuf {
    let name = format!("upstream-{}-{name}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_behind_mutual_tls_is_asked_and_scraped_and_named() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let (authority, clients) = (Authority::new(), Authority::new());
    let config = server_config(&authority.issue(&["engine.test"]), Some(&clients), &["http/1.1"]);
    let front = TlsFront::start(engine.addr(), config).await.unwrap();
    let ours = clients.issue(&["gateway"]);
    let mut pool = pool_at("tiny", &[front.url()]);
    pool["engine_tls"] = json!({
        "ca_file": file("ca.pem", authority.pem()), "server_name": "engine.test",
        "cert_file": file("ours.pem", &ours.cert), "key_file": file("ours.key", &ours.key),
    });
    let gateway = Gateway::over(pool).await;
    gateway.until_metric("kvasir_endpoint_up", &[("endpoint", &front.url())], 1.0).await;
    for _ in 0..3 {
        let decision = Decision::of(&gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await);
        assert_eq!(decision.endpoint, front.url());
    }
    let page = gateway.metrics().await;
    let of = |name: &str, labels: &[(&str, &str)]| page.sum(name, labels);
    assert_eq!(of("kvasir_upstream_connects_total", &[("result", "ok")]), Some(1.0));
    assert_eq!(of("kvasir_upstream_reused_total", &[]), Some(2.0));
    assert_eq!(of("kvasir_upstream_connections", &[("state", "busy")]), Some(0.0));
    // One that is not believed takes nothing, and why is counted.
    let mut pool = pool_at("tiny", &[front.url()]);
    pool["engine_tls"] = json!({"ca_file": file("ca2.pem", Authority::new().pem())});
    let gateway = Gateway::over(pool).await;
    let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
    assert_eq!((response.status, &response.json()["error"]["code"]), (503, &json!("no_endpoint")));
    let of_tls = [("endpoint", &*front.url()), ("cause", "connect_tls")];
    gateway.until_counted("kvasir_failed_attempts_total", &of_tls, 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_says_nothing_is_given_up_by_name_of_the_phase() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let other = FakeEngine::start(EngineConfig::default()).await.unwrap();
    for reply in [Reply::HangBeforeHead, Reply::HeadThenHang] {
        for engine in [&engine, &other] {
            engine.set_default(reply.clone());
        }
        let mut pool = pool("tiny", &[&engine, &other]);
        pool["timeouts"] = json!({"first_data_ms": 300});
        let gateway = Gateway::over(pool).await;
        gateway.until_metric("kvasir_endpoint_up", &[], 2.0).await;
        let before = engine.requests().len() + other.requests().len();
        let asked = Instant::now();
        let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
        assert!(asked.elapsed() >= Duration::from_millis(300), "{:?}", asked.elapsed());
        assert_eq!(response.status, 504, "{}", response.text());
        let error = &response.json()["error"];
        assert_eq!(error["code"], "first_data_timeout");
        let message = error["message"].as_str().unwrap();
        assert!(message.ends_with("no first data within 300 ms"), "{message}");
        assert_eq!(engine.requests().len() + other.requests().len() - before, 1, "asked once");
        let labels = [("cause", "first_data_timeout")];
        gateway.until_metric("kvasir_failed_attempts_total", &labels, 1.0).await;
        gateway.until_idle().await;
        for seen in engine.wait_idle(SOON).await.iter().chain(&other.wait_idle(SOON).await) {
            assert!(matches!(seen.fate, Fate::ClientGoneBeforeHead | Fate::ClientGoneMidBody));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_waited_for_in_vain_is_not_the_engines_fault() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.push([Reply::HeadThenHang]);
    let mut pool = pool("tiny", &[&engine]);
    pool["max_connections"] = 1.into();
    pool["timeouts"] = json!({"connect_ms": 200});
    let gateway = Gateway::over(pool).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 1.0).await;
    let hanging = gateway.sent(COMPLETIONS, completion(&[1]).to_string().as_bytes()).await;
    engine.wait_for(1, SOON).await;
    let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(response.text().contains("connections as are allowed"), "{}", response.text());
    gateway.until_metric("kvasir_endpoint_up", &[], 1.0).await;
    drop(hanging);
    gateway.until_idle().await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&[1])).await.status, 200);
}
