//! Clients that leave: engines learn of it at once, and nothing stays counted.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, Reply, SseChunk};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{
    COMPLETIONS, Gateway, NEVER, PROMPTLY, SOON, completion, ids, long_prompt, pool, stream,
};

async fn scene() -> (FakeEngine, Gateway) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    (engine, gateway)
}

/// Leaves by a reset or in order.
fn leave(client: RawClient, reset: bool) -> Instant {
    if reset {
        client.abort().unwrap();
    } else {
        client.close();
    }
    Instant::now()
}

/// What the engine saw of the only request, after its client left.
async fn fate_after(engine: &FakeEngine, left: Instant) -> Fate {
    let seen = engine.wait_idle(SOON).await.pop().unwrap();
    let took = seen.ended.unwrap().saturating_duration_since(left);
    assert!(took <= PROMPTLY, "the engine learned of it after {took:?}");
    seen.fate
}

async fn left_line(gateway: &Gateway) -> Value {
    gateway.until_idle().await;
    let line = gateway.access_line(|line| line["outcome"] == "client_left").await;
    let counted =
        gateway.metrics().await.sum("kvasir_requests_total", &[("outcome", "client_left")]);
    assert_eq!(counted, Some(1.0));
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_before_the_answer_began() {
    for (body, reply, fate) in [
        (completion(&[1, 2]), Reply::HangBeforeHead, Fate::ClientGoneBeforeHead),
        (completion(&[1, 2]), Reply::after(NEVER), Fate::ClientGoneBeforeHead),
        (stream(&[1, 2], 5), Reply::HangBeforeHead, Fate::ClientGoneBeforeHead),
        // The head of a stream comes before anything is computed.
        (stream(&[1, 2], 5), Reply::HeadThenHang, Fate::ClientGoneMidBody),
    ] {
        for reset in [true, false] {
            let (engine, gateway) = scene().await;
            engine.push([reply.clone()]);
            let client = gateway.sent(COMPLETIONS, body.to_string().as_bytes()).await;
            engine.wait_for(1, SOON).await;
            let left = leave(client, reset);
            assert_eq!(fate_after(&engine, left).await, fate, "{reply:?}");
            let line = left_line(&gateway).await;
            assert_eq!((&line["attempts"], &line["status"]), (&json!(1), &json!(0)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_in_the_middle_of_a_stream() {
    for reset in [true, false] {
        let (engine, gateway) = scene().await;
        let gap = Duration::from_millis(20);
        engine.push([Reply::SlowTokens { first: gap, gap, count: 1_000 }]);
        let body = stream(&[1, 2], 5).to_string();
        let mut client = gateway.sent(COMPLETIONS, body.as_bytes()).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        for _ in 0..3 {
            client.event().await.unwrap().unwrap();
        }
        let in_flight = gateway.metrics().await.sum("kvasir_endpoint_in_flight", &[]);
        assert_eq!(in_flight, Some(1.0));
        let left = leave(client, reset);
        assert_eq!(fate_after(&engine, left).await, Fate::ClientGoneMidBody);
        let line = left_line(&gateway).await;
        assert_eq!((&line["status"], &line["stream"]), (&json!(200), &json!(true)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_a_stream_is_silent() {
    let (engine, gateway) = scene().await;
    let chunk = |gap, data: &str| SseChunk { gap, data: data.to_owned() };
    let chunks = vec![chunk(Duration::ZERO, "one"), chunk(NEVER, "two")];
    engine.push([Reply::Sse { head_delay: Duration::ZERO, chunks, done: true }]);
    let mut client = gateway.sent(COMPLETIONS, stream(&[1], 2).to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.event().await.unwrap().unwrap(), "one");
    let left = leave(client, false);
    assert_eq!(fate_after(&engine, left).await, Fate::ClientGoneMidBody);
    left_line(&gateway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_during_its_upload_reaches_no_engine() {
    let (engine, gateway) = scene().await;
    for chunked in [true, false] {
        let mut client = gateway.connect().await;
        if chunked {
            client.start_chunked("POST", COMPLETIONS, &[]).await.unwrap();
            client.chunk(b"{\"model\":\"ti").await.unwrap();
        } else {
            let head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 99\r\n\r\n{";
            client.write(head).await.unwrap();
        }
        leave(client, chunked);
    }
    let refused =
        |line: &&Value| line["outcome"] == "incomplete_body" || line["outcome"] == "client_left";
    kvasir_testkit::eventually_async(SOON, || {
        gateway.access_lines().iter().filter(refused).count() == 2
    })
    .await;
    assert_eq!(engine.requests().len(), 0);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_its_prompt_is_tokenised() {
    let (engine, gateway) = scene().await;
    let body = long_prompt();
    let client = gateway.sent(COMPLETIONS, body.as_bytes()).await;
    // Others are served meanwhile.
    for n in 0..5 {
        assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(n, 20))).await.status, 200);
    }
    let ended = gateway.access_lines().iter().any(|line| line["bytes_in"] == body.len());
    assert!(!ended, "the long prompt is to be still in work");
    let left = leave(client, false);
    let line = left_line(&gateway).await;
    assert!(left.elapsed() <= PROMPTLY, "noticed after {:?}", left.elapsed());
    assert_eq!((&line["attempts"], &line["tokens"]), (&json!(0), &json!("not_tried")));
    assert_eq!(line["bytes_in"], body.len());
    assert_eq!(engine.requests().len(), 5, "no engine saw the long prompt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_client_is_no_client() {
    // One that shuts down its sending side has left, as far as can be told.
    let (engine, gateway) = scene().await;
    engine.push([Reply::HangBeforeHead]);
    let mut client = gateway.sent(COMPLETIONS, completion(&[1]).to_string().as_bytes()).await;
    engine.wait_for(1, SOON).await;
    client.close_write().await.unwrap();
    assert_eq!(fate_after(&engine, Instant::now()).await, Fate::ClientGoneBeforeHead);
    left_line(&gateway).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_concurrent_streams_arrive_whole_and_unmixed() {
    const STREAMS: usize = 200;
    const EVENTS: usize = 20;
    let one = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let engines = [one, FakeEngine::start(EngineConfig::default()).await.unwrap()];
    for engine in &engines {
        engine.set_handler(|request| {
            let who = request.json()["user"].as_str()?.to_owned();
            let chunks = (0..EVENTS).map(|n| SseChunk {
                gap: Duration::from_millis(10),
                data: format!("{who} says {n}"),
            });
            let chunks = chunks.collect();
            Some(Reply::Sse { head_delay: Duration::ZERO, chunks, done: true })
        });
    }
    let gateway = Gateway::over(pool("tiny", &[&engines[0], &engines[1]])).await;
    let mut streams = JoinSet::new();
    for n in 0..STREAMS {
        let addr = gateway.addr();
        streams.spawn(async move {
            let who = format!("user-{n}");
            let mut body = stream(&[1, 2, 3], 5);
            body["user"] = who.as_str().into();
            let mut client = RawClient::connect(addr).await.unwrap().with_deadline(SOON);
            client.send("POST", COMPLETIONS, &[], body.to_string().as_bytes()).await.unwrap();
            assert_eq!(client.head().await.unwrap().status, 200);
            for n in 0..EVENTS {
                let event = client.event().await.unwrap();
                assert_eq!(event.as_deref(), Some(&*format!("{who} says {n}")));
            }
            assert_eq!(client.event().await.unwrap().as_deref(), Some("[DONE]"));
            assert_eq!(client.event().await.unwrap(), None);
            who
        });
    }
    let heard: HashSet<String> = streams.join_all().await.into_iter().collect();
    assert_eq!(heard.len(), STREAMS);
    gateway.until_idle().await;
    let page = gateway.metrics().await;
    let complete = page.sum("kvasir_requests_total", &[("outcome", "complete"), ("status", "200")]);
    assert_eq!(complete, Some(200.0));
    for engine in &engines {
        assert!(engine.requests().len() > STREAMS / 4, "both take their part");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_streams_that_are_left_at_any_moment_none_stays_counted() {
    let (engine, gateway) = scene().await;
    let gap = Duration::from_millis(3);
    engine.set_default(Reply::SlowTokens { first: gap, gap, count: 1_000 });
    let mut clients = JoinSet::new();
    for n in 0..60_u64 {
        let addr = gateway.addr();
        clients.spawn(async move {
            let mut client = RawClient::connect(addr).await.unwrap().with_deadline(SOON);
            let body = stream(&[1, 2, 3], 5).to_string();
            client.send("POST", COMPLETIONS, &[], body.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(n)).await;
            if n % 3 == 0 {
                client.head().await.unwrap();
                client.event().await.unwrap();
            }
            leave(client, n % 2 == 0);
        });
    }
    clients.join_all().await;
    gateway.until_idle().await;
    assert_eq!(
        engine.wait_idle(SOON).await.iter().filter(|r| r.fate == Fate::Completed).count(),
        0
    );
}
