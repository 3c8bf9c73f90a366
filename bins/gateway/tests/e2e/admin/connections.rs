//! The admin port's connections: who goes for whom, and the certificate they are made with.

use std::time::{Duration, Instant};

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine};
use kvasir_testkit::http_client::HttpClient;
use kvasir_testkit::pki::Authority;
use serde_json::json;

use super::{Admin, READ, started, with_admin};
use crate::harness::{ConfigFile, Gateway, SOON, pool, until};

/// As many as there may be, and some more.
const MANY: usize = 80;

async fn engine() -> FakeEngine {
    FakeEngine::start(EngineConfig::default()).await.unwrap()
}

async fn asks(client: &mut RawClient) -> u16 {
    let token = format!("Bearer {READ}");
    client.send("GET", "/api/v1/pools", &[("authorization", &token)], b"").await.unwrap();
    client.response().await.unwrap().status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_token_keep_nobody_out() {
    let engine = engine().await;
    let (_gateway, admin, _file) = started(json!([pool("tiny", &[&engine])])).await;
    let mut known = RawClient::connect(admin.addr).await.unwrap().with_deadline(SOON);
    assert_eq!(asks(&mut known).await, 200);
    let began = Instant::now();
    let mut strangers = Vec::new();
    for n in 0..MANY {
        let mut stranger = RawClient::connect(admin.addr).await.unwrap().with_deadline(SOON);
        // Some begin to ask something.
        if n % 2 == 0 {
            stranger.write(b"GET /api/v1/pools HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        }
        strangers.push(stranger);
    }
    // Who showed a token keeps the connection, and a new one is served at once.
    assert_eq!(asks(&mut known).await, 200);
    assert_eq!(admin.with(Some(READ)).ask("GET", "/api/v1/pools", b"").await.status, 200);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // A head that does not end is not waited for long.
    for mut stranger in strangers {
        let _ = stranger.read_raw().await;
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_taken_up() {
    let engine = engine().await;
    let authority = Authority::new();
    let (old, new) = (authority.issue(&["localhost"]), authority.issue(&["localhost"]));
    let (cert, key) = (ConfigFile::new(&old.cert), ConfigFile::new(&old.key));
    let mut config = with_admin(json!([pool("tiny", &[&engine])]));
    config["admin"]["tls"] = json!({"cert_file": cert.path(), "key_file": key.path()});
    let gateway = Gateway::start(config).await;
    let admin = Admin::of(&gateway).await;
    let connect = || async {
        HttpClient::tls(admin.addr, authority.client(None, &["http/1.1"])).await.unwrap()
    };
    let mut before = connect().await;
    assert_eq!(before.certificate, Some(old.der()));
    std::fs::write(cert.path(), &new.cert).unwrap();
    gateway.line("the reason", |line| line.contains("what was read before stays")).await;
    assert_eq!(connect().await.certificate, Some(old.der()));
    std::fs::write(key.path(), &new.key).unwrap();
    until(SOON, || async {
        let shown = connect().await.certificate;
        if shown == Some(new.der()) { Ok(()) } else { Err("the old certificate".to_owned()) }
    })
    .await;
    let counted = [("result", "ok")];
    gateway.until_metric("kvasir_admin_tls_reloads_total", &counted, 1.0).await;
    assert_eq!(before.get("/healthz").await.unwrap().status, 200);
}
