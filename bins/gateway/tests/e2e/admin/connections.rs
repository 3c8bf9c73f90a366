//! The admin port's connections: who goes for whom, and the certificate they are made with.

use std::io::ErrorKind;
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
    let known = RawClient::connect(admin.addr).await.unwrap().with_deadline(SOON);
    let known = tokio::sync::Mutex::new(known);
    assert_eq!(asks(&mut *known.lock().await).await, 200);
    // Who showed a token keeps the connection, and a new one is served before any stranger's time is up.
    // Where this machine was too slow to see that, once more.
    let mut strangers = until(SOON * 3, || async {
        let (began, strangers) = (Instant::now(), strangers(&admin).await);
        assert_eq!(asks(&mut *known.lock().await).await, 200);
        assert_eq!(admin.with(Some(READ)).ask("GET", "/api/v1/pools", b"").await.status, 200);
        let took = began.elapsed();
        if took < Duration::from_secs(4) { Ok(strangers) } else { Err(format!("{took:?}")) }
    })
    .await;
    // A head that does not end is not waited for as long as a connection that is not used.
    for stranger in &mut strangers {
        let closed = stranger.read_raw().await;
        assert!(!closed.is_err_and(|error| error.kind() == ErrorKind::TimedOut));
    }
}

/// Connections that show no token; some begin to ask something.
async fn strangers(admin: &Admin) -> Vec<RawClient> {
    let mut strangers = Vec::new();
    for n in 0..MANY {
        let mut stranger = RawClient::connect(admin.addr).await.unwrap().with_deadline(SOON);
        if n % 2 == 0 {
            stranger.write(b"GET /api/v1/pools HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        }
        strangers.push(stranger);
    }
    strangers
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_refused_leaves_its_connection_usable_or_says_that_it_ends() {
    let engine = engine().await;
    let (_gateway, admin, _file) = started(json!([pool("tiny", &[&engine])])).await;
    let mut client = RawClient::connect(admin.addr).await.unwrap().with_deadline(SOON);
    for (head, status) in
        [("PUT /api/v1/pools HTTP/1.1", 405), ("POST /api/v1/pools HTTP/1.1", 401)]
    {
        let head = format!("{head}\r\nhost: x\r\ncontent-length: 2\r\n\r\n");
        client.write(head.as_bytes()).await.unwrap();
        // The body comes in a segment of its own, after the refusal is clear.
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.write(b"{}").await.unwrap();
        let refused = client.response().await.unwrap();
        assert_eq!((refused.status, refused.head.header("connection")), (status, None));
        assert_eq!(asks(&mut client).await, 200);
    }
    // What does not come is not waited for.
    client
        .write(b"POST /api/v1/pools HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        .await
        .unwrap();
    let refused = client.response().await.unwrap();
    assert_eq!((refused.status, refused.head.header("connection")), (401, Some("close")));
}
