//! TLS of clients.

use std::path::PathBuf;
use std::time::Duration;

use http::Request;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, Reply};
use kvasir_testkit::http_client::{HttpClient, full};
use kvasir_testkit::pki::{Authority, Identity};
use serde_json::{Value, json};

use crate::harness::{
    COMPLETIONS, ConfigFile, Gateway, SOON, completion, pool, run_to_end, stops_in_good_order,
    stream, until,
};

const BOTH: &[&str] = &["h2", "http/1.1"];
const HTTP1: &[&str] = &["http/1.1"];

/// A gateway that speaks TLS, and what is behind and around it.
struct Scene {
    engine: FakeEngine,
    gateway: Gateway,
    authority: Authority,
    identity: Identity,
    cert: ConfigFile,
    key: ConfigFile,
}

impl Scene {
    async fn new() -> Self {
        Self::with(|_| Value::Null).await
    }

    async fn with(client_ca: impl FnOnce(&Authority) -> Value) -> Self {
        let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
        let authority = Authority::new();
        let identity = authority.issue(&["localhost"]);
        let (cert, key) = (ConfigFile::new(&identity.cert), ConfigFile::new(&identity.key));
        let mut tls = json!({"cert_file": cert.path(), "key_file": key.path()});
        let client_ca = client_ca(&authority);
        if !client_ca.is_null() {
            tls["client_ca_file"] = client_ca;
        }
        let config = json!({"pools": [pool("tiny", &[&engine])], "listener": {"tls": tls, "write_stall_s": 1}});
        let gateway = Gateway::start(config).await;
        Self { engine, gateway, authority, identity, cert, key }
    }

    async fn connect(&self, protocols: &[&str]) -> HttpClient {
        let config = self.authority.client(None, protocols);
        HttpClient::tls(self.gateway.addr(), config).await.unwrap()
    }

    /// A line of the metrics page.
    async fn until_line(&self, line: &str) {
        until(SOON, || async {
            let page = self.connect(HTTP1).await.get("/metrics").await.unwrap();
            let page = String::from_utf8(page.body.to_vec()).unwrap();
            if page.lines().any(|found| found == line) { Ok(()) } else { Err(page) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_protocol_is_agreed_on_and_requests_pass() {
    let scene = Scene::new().await;
    for (protocols, is_http2) in [(BOTH, true), (&["h2"], true), (HTTP1, false), (&[], false)] {
        let mut client = scene.connect(protocols).await;
        assert_eq!(client.is_http2(), is_http2, "{protocols:?}");
        let answer = client.post(COMPLETIONS, &completion(&[1])).await.unwrap();
        assert_eq!(answer.status, 200);
        let answer = client.post(COMPLETIONS, &stream(&[1], 3)).await.unwrap();
        assert!(answer.body.ends_with(b"data: [DONE]\n\n"));
        let got = scene.engine.wait_idle(SOON).await.pop().unwrap();
        assert_eq!(got.header("x-forwarded-proto"), "https");
    }
    assert_eq!(scene.engine.requests().len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_taken_up_and_a_bad_one_is_not() {
    let scene = Scene::new().await;
    let mut before = scene.connect(BOTH).await;
    assert_eq!(before.certificate, Some(scene.identity.der()));
    let fresh = scene.authority.issue(&["localhost"]);
    std::fs::write(scene.cert.path(), &fresh.cert).unwrap();
    // Half of a pair fits nothing: the old one stays.
    scene.gateway.line("the reason", |line| line.contains("what was read before stays")).await;
    assert_eq!(scene.connect(BOTH).await.certificate, Some(scene.identity.der()));
    scene.until_line("kvasir_tls_reloads_total{result=\"failed\"} 1").await;
    scene.until_line("kvasir_tls_stale 1").await;
    std::fs::write(scene.key.path(), &fresh.key).unwrap();
    until(SOON, || async {
        let seen = scene.connect(BOTH).await.certificate;
        if seen == Some(fresh.der()) { Ok(()) } else { Err("the old one".to_owned()) }
    })
    .await;
    scene.until_line("kvasir_tls_reloads_total{result=\"ok\"} 1").await;
    scene.until_line("kvasir_tls_stale 0").await;
    let answer = before.post(COMPLETIONS, &completion(&[1])).await.unwrap();
    assert_eq!(answer.status, 200, "connections of before go on");
    std::fs::write(scene.cert.path(), "no certificate").unwrap();
    scene.until_line("kvasir_tls_reloads_total{result=\"failed\"} 2").await;
    assert_eq!(scene.connect(BOTH).await.certificate, Some(fresh.der()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_may_have_to_show_a_certificate() {
    let mut file = None;
    let scene = Scene::with(|authority| {
        let written = file.insert(ConfigFile::new(authority.pem()));
        json!(written.path())
    })
    .await;
    let addr = scene.gateway.addr();
    let known = scene.authority.issue(&["client"]);
    let stranger = Authority::new().issue(&["client"]);
    for protocols in [BOTH, HTTP1] {
        let ask = async |identity: Option<&Identity>| {
            let config = scene.authority.client(identity, protocols);
            HttpClient::tls(addr, config).await?.post(COMPLETIONS, &completion(&[1])).await
        };
        assert_eq!(ask(Some(&known)).await.unwrap().status, 200);
        ask(None).await.expect_err("none was shown");
        ask(Some(&stranger)).await.expect_err("of an authority nobody knows");
    }
    let mut client =
        HttpClient::tls(addr, scene.authority.client(Some(&known), BOTH)).await.unwrap();
    let page = client.get("/metrics").await.unwrap();
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    for cause in ["no_client_certificate", "client_certificate"] {
        let line = format!("kvasir_tls_handshake_failures_total{{cause=\"{cause}\"}} 2");
        assert!(page.contains(&line), "{line}:\n{page}");
    }
    assert_eq!(scene.engine.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_handshakes_are_counted_by_their_cause_and_hurt_nobody() {
    let scene = Scene::new().await;
    let mut plain = scene.gateway.connect().await;
    plain.send("GET", "/health", &[], b"").await.unwrap();
    while plain.read_raw().await.is_ok_and(|read| !read.is_empty()) {}
    let gone = scene.gateway.connect().await;
    drop(gone);
    let distrusting = Authority::new().client(None, BOTH);
    HttpClient::tls(scene.gateway.addr(), distrusting).await.expect_err("not its authority");
    let other = scene.authority.client(None, &["spdy/1"]);
    HttpClient::tls(scene.gateway.addr(), other).await.expect_err("no protocol in common");
    for cause in ["not_tls", "closed", "alert", "no_protocol"] {
        scene
            .until_line(&format!("kvasir_tls_handshake_failures_total{{cause=\"{cause}\"}} 1"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_used_are_a_bad_configuration() {
    let authority = Authority::new();
    let (one, other) = (authority.issue(&["localhost"]), authority.issue(&["localhost"]));
    let (cert, key) = (ConfigFile::new(&one.cert), ConfigFile::new(&one.key));
    let (wrong, empty) = (ConfigFile::new(&other.key), ConfigFile::new("\n"));
    let path = |file: &ConfigFile| file.path().to_owned();
    let nowhere = PathBuf::from("/nonexistent/file.pem");
    for (cert, key, ca, named) in [
        (nowhere.clone(), path(&key), None, nowhere.clone()),
        (path(&cert), nowhere.clone(), None, nowhere.clone()),
        (path(&empty), path(&key), None, path(&empty)),
        (path(&cert), path(&empty), None, path(&empty)),
        (path(&cert), path(&wrong), None, path(&wrong)),
        (path(&cert), path(&key), Some(path(&empty)), path(&empty)),
    ] {
        let mut tls = json!({"cert_file": cert, "key_file": key});
        if let Some(ca) = ca {
            tls["client_ca_file"] = json!(ca);
        }
        let config = json!({"pools": [{"model": "m", "endpoints": [{"url": "http://127.0.0.1:1"}]}], "listener": {"tls": tls}});
        let file = ConfigFile::new(&config.to_string());
        let (status, text) = run_to_end(["--config", file.path().to_str().unwrap()]).await;
        assert_eq!(status, Some(78), "{text}");
        assert!(
            text.contains("listener.tls") && text.contains(&*named.to_string_lossy()),
            "{text}"
        );
        assert!(!text.contains("PRIVATE"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_in_good_order() {
    for protocols in [BOTH, HTTP1] {
        let Scene { engine, gateway, authority, .. } = Scene::new().await;
        let config = authority.client(None, protocols);
        let idle = HttpClient::tls(gateway.addr(), config.clone()).await.unwrap();
        let client = HttpClient::tls(gateway.addr(), config).await.unwrap();
        stops_in_good_order(gateway, &engine, idle, client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_is_cut_off_under_tls_too() {
    let scene = Scene::new().await;
    let chunk =
        || kvasir_testkit::engine::SseChunk { gap: Duration::ZERO, data: "x".repeat(64 << 10) };
    let chunks = (0..800).map(|_| chunk()).collect();
    scene.engine.push([Reply::Sse { head_delay: Duration::ZERO, chunks, done: true }]);
    let mut client = scene.connect(HTTP1).await;
    let request = Request::post(COMPLETIONS).header("host", "localhost");
    let request = request.body(full(stream(&[1], 800).to_string())).unwrap();
    // The client's own buffers fill up and it reads no more.
    let body = client.begin(request).await.unwrap();
    let seen = scene.engine.wait_idle(SOON).await;
    assert_eq!(seen[0].fate, Fate::ClientGoneMidBody);
    scene.until_line("kvasir_write_stalls_total{level=\"connection\"} 1").await;
    drop(body);
}
