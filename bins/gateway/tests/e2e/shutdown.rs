//! A stop in good order.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, RawEnd, RawStep, Reply};
use serde_json::json;

use crate::harness::{
    CHAT, COMPLETIONS, ConfigFile, Gateway, SOON, completion, long_prompt, pool, stream, until,
};

/// The exit status where requests were cut off.
const CUT: Option<i32> = Some(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_in_flight_finish_and_new_connections_are_refused() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut gateway = Gateway::over(pool("tiny", &[&engine])).await;
    let gap = Duration::from_millis(40);
    engine.push([Reply::SlowTokens { first: gap, gap, count: 30 }]);
    let mut client = gateway.sent(COMPLETIONS, stream(&[1, 2], 30).to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client.event().await.unwrap().unwrap();
    let mut idle = gateway.connect().await;
    idle.send("GET", "/health", &[], b"").await.unwrap();
    assert_eq!(idle.response().await.unwrap().status, 200);
    gateway.terminate();
    until(SOON, || async {
        match RawClient::connect(gateway.addr()).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(engine.requests()[0].fate, Fate::Open, "the stream is still going on");
    assert!(idle.read_raw().await.unwrap().is_empty(), "idle connections are closed");
    let mut events = 1;
    let mut last = String::new();
    while let Some(event) = client.event().await.unwrap() {
        events += 1;
        last = event;
    }
    assert_eq!((events, &*last), (31, "[DONE]"));
    assert_eq!(gateway.exit_status().await, Some(0));
    assert_eq!(engine.requests()[0].fate, Fate::Completed);
    let line = gateway.access_line(|line| line["stream"] == true).await;
    assert_eq!(line["outcome"], "complete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_finish_in_time_is_cut_off() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": 1});
    let mut gateway = Gateway::start(config).await;
    engine.push([Reply::HeadThenHang]);
    let mut client = gateway.sent(COMPLETIONS, stream(&[1], 5).to_string().as_bytes()).await;
    engine.wait_for(1, SOON).await;
    let asked = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, CUT);
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(900), "the grace was not waited for: {took:?}");
    assert!(took < SOON, "{took:?}");
    let answer = client.response().await.unwrap();
    assert_eq!((answer.status, answer.head.header("connection")), (503, Some("close")));
    assert!(answer.head.header("retry-after").is_some());
    let error = json!({"message": "the gateway is stopping", "type": "server_error",
        "param": null, "code": "stopping"});
    assert_eq!(answer.json()["error"], error);
    gateway.line("the reason", |line| line.contains("stopped with requests in flight")).await;
    let line = gateway.access_line(|line| line["stream"] == true).await;
    assert_eq!(line["attempts"], 1, "cut off requests are in the log too");
    assert_eq!(
        (&line["status"], &line["outcome"], &line["fault"]),
        (&json!(503), &json!("stopping"), &json!("gateway"))
    );
}

/// A stream that has begun and does not end by itself.
fn endless(kind: &str, first: &str) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\n{kind}\r\ntransfer-encoding: chunked\r\n\r\n");
    let chunk = format!("{:x}\r\n{first}\r\n", first.len());
    let steps = [head, chunk].map(|text| RawStep::Write(text.into()));
    Reply::Raw(steps.to_vec(), RawEnd::Hold)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_have_begun_are_cut_off_as_others_that_break() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": 1});
    let mut gateway = Gateway::start(config).await;
    let stream = "content-type: text/event-stream";
    let why = "the gateway stops before the answer is complete";
    let error = json!({"error": {"message": why, "type": "server_error", "param": null,
        "code": "stopping"}});
    let of_messages = json!({"type": "error", "error": {"type": "api_error", "message": why}});
    let mut clients = Vec::new();
    for (path, event, wanted) in [
        (CHAT, "data: {\"choices\":[]}\n\n", format!("data: {error}\n\n")),
        (
            "/v1/messages",
            "event: ping\ndata: {}\n\n",
            format!("event: error\ndata: {of_messages}\n\n"),
        ),
    ] {
        engine.push([endless(stream, event)]);
        let body = json!({"model": "tiny", "messages": [{"role": "user", "content": "a"}],
            "max_tokens": 4, "stream": true});
        let mut client = gateway.sent(path, body.to_string().as_bytes()).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        clients.push((client, format!("{event}{wanted}")));
    }
    // Nothing can be added to it.
    engine.push([endless("content-type: text/plain", "half of a text")]);
    let mut broken = gateway.sent(COMPLETIONS, completion(&[1, 2]).to_string().as_bytes()).await;
    assert_eq!(broken.head().await.unwrap().status, 200);
    gateway.terminate();
    for (mut client, wanted) in clients {
        let body = client.body().await.expect("the stream is to end in order");
        assert_eq!(String::from_utf8_lossy(&body), wanted);
    }
    broken.body().await.expect_err("it never looks whole");
    assert_eq!(gateway.exit_status().await, CUT);
    let lines = gateway.access_lines();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for line in lines {
        assert_eq!(
            (&line["status"], &line["outcome"], &line["fault"]),
            (&json!(200), &json!("stopping"), &json!("gateway")),
            "{line}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_does_not_delay_the_end_and_is_not_said_to_have_left() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": 0});
    let mut gateway = Gateway::start(config).await;
    // More than all buffers on the way take.
    let piece = "x".repeat(64 << 20);
    engine.push([endless("content-type: text/plain", &piece)]);
    let mut client = gateway.sent(COMPLETIONS, completion(&[1, 2]).to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let asked = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, CUT);
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    let line = gateway.access_line(|line| line["status"] == 200).await;
    assert_eq!((&line["outcome"], &line["fault"]), (&json!("stopping"), &json!("gateway")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_gateway_stops_at_once() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut gateway = Gateway::over(pool("tiny", &[&engine])).await;
    let asked = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_takes_long_to_tokenise_does_not_delay_the_end() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": 0, "max_prompt_bytes": 64 << 20});
    let mut gateway = Gateway::start(config).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let _client = gateway.sent(COMPLETIONS, long_prompt().as_bytes()).await;
    gateway.until_metric("kvasir_tokenizer_threads_busy", &[], 1.0).await;
    let asked = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, CUT);
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    assert!(engine.requests().is_empty(), "it was done before the end came");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_balancers_are_told_before_connections_are_refused() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config =
        |delay: u64| json!({"pools": [pool("tiny", &[&engine])], "shutdown_delay_s": delay});
    let mut gateway = Gateway::start(config(1)).await;
    let asked = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    assert!(asked.elapsed() >= Duration::from_secs(1), "{:?}", asked.elapsed());
    // As long as the delay is not over, however busy the machine is.
    let mut gateway = Gateway::start(config(3600)).await;
    gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
    gateway.terminate();
    let seen = until(SOON, || async {
        let ready = gateway.get("/readyz").await;
        if ready.status == 503 { Ok(ready.json()) } else { Err(ready.text()) }
    })
    .await;
    assert_eq!((&seen["ready"], &seen["stopping"]), (&json!(false), &json!(true)));
    assert_eq!(gateway.get("/health").await.status, 200, "the process runs");
    let body = json!({"model": "tiny", "prompt": [1, 2], "max_tokens": 1});
    assert_eq!(gateway.post(COMPLETIONS, &body).await.status, 200, "who still comes is served");
    gateway.terminate();
    gateway.exit_status().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_twice_waits_no_longer() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": 3600});
    let mut gateway = Gateway::start(config).await;
    engine.push([Reply::HeadThenHang]);
    let _client = gateway.sent(COMPLETIONS, stream(&[1], 5).to_string().as_bytes()).await;
    engine.wait_for(1, SOON).await;
    let asked = Instant::now();
    gateway.terminate();
    gateway.line("the first stop", |line| line.contains("stop asked for")).await;
    gateway.signal("-INT");
    assert_eq!(gateway.exit_status().await, CUT);
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_times_of_a_stop_are_those_of_the_configuration_in_effect() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let with = |grace: u64| json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": grace});
    let file = ConfigFile::of(&with(3600));
    let mut gateway = Gateway::of_file(&file).await;
    gateway.reload(&file, &with(0)).await;
    engine.push([Reply::HeadThenHang]);
    let _client = gateway.sent(COMPLETIONS, stream(&[1], 5).to_string().as_bytes()).await;
    engine.wait_for(1, SOON).await;
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, CUT);
}
