//! Connections: how many, how long, and how they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvasir_testkit::client::{self, RawClient};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, Reply};
use kvasir_testkit::http_client::HttpClient;
use serde_json::{Value, json};

use crate::harness::{
    COMPLETIONS, ConfigFile, Gateway, SOON, completion, pool, run_to_end, stream, until,
};

async fn with(listener: Value) -> (FakeEngine, Gateway) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "listener": listener});
    let gateway = Gateway::start(config).await;
    (engine, gateway)
}

async fn opened(addr: SocketAddr) -> RawClient {
    let mut client = RawClient::connect(addr).await.unwrap();
    client.send("GET", "/health", &[], b"").await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 200);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_wait_until_there_is_room() {
    let (_engine, gateway) = with(json!({"max_connections": 2})).await;
    let first = opened(gateway.addr()).await;
    let mut second = opened(gateway.addr()).await;
    // The system takes it; nobody serves it.
    let mut third = gateway.connect().await.with_deadline(Duration::from_millis(300));
    third.send("GET", "/health", &[], b"").await.unwrap();
    third.response().await.expect_err("there is no room");
    gateway.line("the reason", |line| line.contains("max_connections is reached")).await;
    second.send("GET", "/metrics", &[], b"").await.unwrap();
    let page = second.response().await.unwrap().text();
    for line in [
        "kvasir_client_connections 2",
        "kvasir_client_connections_limit 2",
        "kvasir_accept_paused 1",
        "kvasir_accept_pauses_total{reason=\"max_connections\"} 1",
    ] {
        assert!(page.contains(&format!("\n{line}\n")), "{line}:\n{page}");
    }
    let mut third = third.with_deadline(SOON);
    drop(first);
    assert_eq!(third.response().await.unwrap().status, 200, "its turn has come");
    gateway.line("its end", |line| line.contains("accepted again")).await;
    drop((second, third));
    gateway.until_metric("kvasir_accept_paused", &[], 0.0).await;
    gateway.until_metric("kvasir_client_connections", &[], 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_is_sent_away() {
    let (_engine, gateway) = with(json!({"idle_timeout_s": 1})).await;
    let began = Instant::now();
    let mut silent = gateway.connect().await;
    let mut slow = gateway.connect().await;
    slow.write(b"GET /health HTT").await.unwrap();
    let mut preface = gateway.connect().await;
    preface.write(b"PRI * HTT").await.unwrap();
    let mut idle = opened(gateway.addr()).await;
    let mut h2 = HttpClient::h2c(gateway.addr()).await.unwrap();
    assert_eq!(h2.get("/health").await.unwrap().status, 200);
    let unused = HttpClient::h2c(gateway.addr()).await.unwrap();
    for client in [&mut silent, &mut slow, &mut preface, &mut idle] {
        // Some are told what was wrong first.
        while client.read_raw().await.is_ok_and(|read| !read.is_empty()) {}
    }
    h2.closed().await.expect("in good order");
    unused.closed().await.expect("in good order");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900) && took < SOON, "{took:?}");
    gateway.until_metric("kvasir_client_connections", &[], 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_answer_is_not_idleness() {
    let (engine, gateway) = with(json!({"idle_timeout_s": 1})).await;
    let pause = Duration::from_millis(3_500);
    let slow = || Reply::SlowTokens { first: pause, gap: Duration::ZERO, count: 2 };
    engine.push([slow(), slow()]);
    let mut plain = gateway.sent(COMPLETIONS, stream(&[1], 2).to_string().as_bytes()).await;
    let mut h2 = HttpClient::h2c(gateway.addr()).await.unwrap();
    let answer = h2.post(COMPLETIONS, &completion(&[1])).await.unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(plain.response().await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_tells_clients_to_close_and_lets_new_ones_send_their_first() {
    let (engine, mut gateway) = with(json!({})).await;
    engine.push([Reply::SlowTokens {
        first: Duration::from_millis(500),
        gap: Duration::ZERO,
        count: 2,
    }]);
    let mut asked = gateway.sent(COMPLETIONS, completion(&[1]).to_string().as_bytes()).await;
    engine.wait_for(1, SOON).await;
    let mut fresh = gateway.connect().await;
    gateway.terminate();
    gateway.line("the stop", |line| line.contains("stopping")).await;
    fresh.send("GET", "/health", &[], b"").await.unwrap();
    let answer = fresh.response().await.unwrap();
    assert_eq!((answer.status, answer.head.header("connection")), (200, Some("close")));
    let answer = asked.response().await.unwrap();
    assert_eq!((answer.status, answer.head.header("connection")), (200, Some("close")));
    assert_eq!(gateway.exit_status().await, Some(0));
    assert_eq!(engine.requests()[0].fate, Fate::Completed);
}

/// Requests over a new connection each, until told to stop; every one of them must be answered.
async fn ask_on(addr: SocketAddr, running: Arc<AtomicBool>, served: Arc<AtomicUsize>) {
    while running.load(Ordering::Relaxed) {
        let body = completion(&[1]).to_string();
        let answer = client::post(addr, COMPLETIONS, body.as_bytes()).await;
        assert_eq!(answer.unwrap().status, 200);
        served.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_share_a_port_and_one_takes_over_without_a_gap() {
    const STREAMS: usize = 4;
    const EVENTS: usize = 20;
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config =
        json!({"pools": [pool("tiny", &[&engine])], "listener": json!({"reuse_port": true})});
    let mut first = Gateway::start(config.clone()).await;
    let addr = first.addr();
    let gap = Duration::from_millis(100);
    engine.push(vec![Reply::SlowTokens { first: gap, gap, count: EVENTS }; STREAMS]);
    // While it is alone, so that all of them are its own.
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let body = stream(&[1, 2], u32::try_from(EVENTS).unwrap()).to_string();
        streams.push(first.sent(COMPLETIONS, body.as_bytes()).await);
    }
    engine.wait_for(STREAMS, SOON).await;
    let second = Gateway::start_at(addr, config).await;
    assert_eq!(second.addr(), addr);
    let (running, served) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| tokio::spawn(ask_on(addr, Arc::clone(&running), Arc::clone(&served))))
        .collect();
    let more = async |than: usize| {
        until(SOON, || async {
            let now = served.load(Ordering::Relaxed);
            if now > than { Ok(()) } else { Err(format!("{now} requests")) }
        })
        .await;
    };
    more(20).await;
    first.terminate();
    first.line("the stop", |line| line.contains("stop asked for")).await;
    let before = served.load(Ordering::Relaxed);
    for client in &mut streams {
        assert_eq!(client.head().await.unwrap().status, 200);
        let (mut events, mut last) = (0, String::new());
        while let Some(event) = client.event().await.unwrap() {
            events += 1;
            last = event;
        }
        assert_eq!((events, &*last), (EVENTS + 1, "[DONE]"));
    }
    assert_eq!(first.exit_status().await, Some(0));
    more(before + 20).await;
    running.store(false, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert!(engine.requests().iter().all(|request| request.fate == Fate::Completed));
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_port_is_said_and_what_is_out_of_bounds_located() {
    let (_engine, gateway) = with(json!({})).await;
    let pools = r#""pools": [{"model": "m", "endpoints": [{"url": "http://127.0.0.1:1"}]}]"#;
    let file = ConfigFile::new(&format!("{{{pools}}}"));
    let listen = gateway.addr().to_string();
    let (status, text) =
        run_to_end(["--config", file.path().to_str().unwrap(), "--listen", &listen]).await;
    assert_eq!(status, Some(1));
    assert!(
        text.contains(&format!("cannot listen on {listen}")) && text.contains("in use"),
        "{text}"
    );
    for (bad, why) in [
        (r#"{"max_connections": 0}"#, "must be from 1 to 1048576"),
        (r#"{"max_concurrent_streams": 0}"#, "must be from 1 to 65536"),
        (r#"{"idle_timeout_s": 0}"#, "must be from 1 to 86400"),
        (r#"{"write_stall_s": 100000}"#, "must be from 1 to 86400"),
        (r#"{"forwarded_headers": "drop"}"#, "expected one of append, replace, off"),
        (r#"{"tls": {"cert_file": "x"}}"#, "key_file"),
        (r#"{"tls": {"cert_file": "", "key_file": "k"}}"#, "must have a name"),
        (r#"{"port": 1}"#, "port"),
    ] {
        let file = ConfigFile::new(&format!("{pools}\n\"listener\": {bad}\n"));
        let (status, text) = run_to_end(["--config", file.path().to_str().unwrap()]).await;
        assert_eq!(status, Some(78), "{bad}: {text}");
        assert!(text.contains(".yaml:2:") && text.contains(why), "{bad}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_listened_on_at_the_address_it_stands_for() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "listen": "localhost:0",
        "admin": {"listen": "localhost:0"}, "log": {"format": "json"}});
    let file = ConfigFile::of(&config);
    let gateway = Gateway::begun(["--config", file.path().to_str().unwrap()]);
    let listening = gateway.line("the address", |line| line.contains("\"listening\"")).await;
    let line: Value = serde_json::from_str(&listening).unwrap();
    let address: SocketAddr = line["address"].as_str().unwrap().parse().unwrap();
    assert!(address.ip().is_loopback(), "{address}");
    assert_eq!(client::get(address, "/health").await.unwrap().status, 200);
    for key in ["listen", "admin.listen"] {
        let which = format!("\"key\":\"{key}\",\"name\":\"localhost:0\",\"chosen\":\"");
        gateway.line("which address it is", |line| line.contains(&which)).await;
    }
}
