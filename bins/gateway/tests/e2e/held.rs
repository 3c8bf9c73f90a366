//! What is held back of an answer, and for how long: a head until the first data, an error while others
//! are asked. And answers that are shorter than they said.

use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt as _;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, RawEnd, RawStep, Reply};
use kvasir_testkit::http_client::{HttpClient, full};
use serde_json::json;

use crate::harness::{COMPLETIONS, Gateway, Lockstep, SOON, completion, pool, pool_at, stream};

const SSE: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-of: ";

/// Engines that get requests in turn.
async fn in_turn(urls: &[String]) -> Gateway {
    let mut pool = pool_at("tiny", urls);
    pool["policy"] = "round_robin".into();
    Gateway::over(pool).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_is_held_until_the_first_data_and_a_fault_before_it_is_never_seen() {
    let mut engines = [Lockstep::start().await, Lockstep::start().await];
    let gateway = in_turn(&engines.each_ref().map(Lockstep::url)).await;
    let body = stream(&[1, 2, 3], 4).to_string();
    let client = gateway.sent(COMPLETIONS, body.as_bytes()).await;
    let [one, two] = &mut engines;
    let (mut first, other) = tokio::select! {
        exchange = one.next() => (exchange, two),
        exchange = two.next() => (exchange, one),
    };
    first.write(format!("{SSE}first\r\n\r\n").as_bytes()).await;
    // Nothing of it comes, however long that takes.
    let mut client = client.with_deadline(Duration::from_millis(300));
    client.head().await.expect_err("the head came before any data");
    drop(first);
    let mut second = other.next().await;
    assert_eq!(second.body, body.as_bytes(), "the same request");
    second.write(format!("{SSE}second\r\n\r\n").as_bytes()).await;
    client.head().await.expect_err("the head came before any data");
    second.chunk(b"data: 1\n\n").await;
    let mut client = client.with_deadline(crate::harness::SOON);
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.header("x-of")), (200, Some("second")));
    assert_eq!(client.frame().await.unwrap().unwrap(), &b"data: 1\n\n"[..]);
    second.chunk(b"data: [DONE]\n\n").await;
    second.write(b"0\r\n\r\n").await;
    assert_eq!(client.body().await.unwrap(), &b"data: [DONE]\n\n"[..]);
    let line = gateway.access_line(|line| line["outcome"] == "complete").await;
    assert_eq!(line["attempts"], 2, "{line}");
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_held_while_another_engine_is_asked() {
    let error = "{\"error\":{\"code\":\"own\"}}";
    let whole =
        format!("HTTP/1.1 500 Oh\r\nx-of: first\r\ncontent-length: {}\r\n\r\n{error}", error.len());
    // One that never ends is not waited for.
    let endless =
        format!("HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{:5}\r\n", "{");
    for (answer, better) in [(&whole, true), (&endless, true), (&whole, false)] {
        let mut engines = [Lockstep::start().await, Lockstep::start().await];
        let gateway = in_turn(&engines.each_ref().map(Lockstep::url)).await;
        let mut client =
            gateway.sent(COMPLETIONS, completion(&[1, 2, 3]).to_string().as_bytes()).await;
        let [one, two] = &mut engines;
        let (mut first, other) = tokio::select! {
            exchange = one.next() => (exchange, two),
            exchange = two.next() => (exchange, one),
        };
        first.write(answer.as_bytes()).await;
        let mut second = other.next().await;
        client = client.with_deadline(Duration::from_millis(200));
        client.head().await.expect_err("nobody knows yet whether the other does better");
        client = client.with_deadline(crate::harness::SOON);
        if better {
            second.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        }
        drop(second);
        let response = client.response().await.unwrap();
        if better {
            assert_eq!((response.status, response.text()), (200, "{}".to_owned()));
        } else {
            assert_eq!((response.status, response.text()), (500, error.to_owned()));
            assert_eq!(response.head.header("x-of"), Some("first"));
        }
        drop(first);
        gateway.until_idle().await;
    }
}

/// How the client's answer ends, in HTTP/2 and HTTP/1.1: whether in order, and what came.
async fn read(gateway: &Gateway, http2: bool) -> (bool, Vec<u8>) {
    let body = completion(&[1, 2, 3]).to_string();
    if !http2 {
        let mut client = gateway.sent(COMPLETIONS, body.as_bytes()).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        let mut came = Vec::new();
        loop {
            match client.frame().await {
                Ok(Some(frame)) => came.extend_from_slice(&frame),
                Ok(None) => return (true, came),
                Err(_) => return (false, came),
            }
        }
    }
    let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
    let request = Request::post(client.uri(COMPLETIONS)).body(full(body)).unwrap();
    // Where the engine resets its connection before its head is read there is no answer.
    let Ok(response) = client.begin(request).await else { return (false, Vec::new()) };
    assert_eq!(response.status(), 200);
    let (mut answer, mut came) = (response.into_body(), Vec::new());
    while let Some(frame) = answer.frame().await {
        match frame {
            Ok(frame) => came.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => return (false, came),
        }
    }
    (true, came)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_shorter_than_it_said_never_looks_whole() {
    for kind in ["audio/wav", "text/event-stream"] {
        let cut = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 30\r\n\r\ndata: 1\n\ndata: [D"
        );
        for end in [RawEnd::Close, RawEnd::Reset] {
            for http2 in [false, true] {
                let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
                let steps = vec![RawStep::Write(cut.clone().into())];
                engine.set_default(Reply::Raw(steps, end));
                let gateway = Gateway::over(pool("tiny", &[&engine])).await;
                let all = b"data: 1\n\ndata: [D";
                // Where the engine resets its connection, that may overtake what it sent. So may the
                // reset of an HTTP/2 stream on a busy machine, but not time after time.
                let may_be_less = matches!(end, RawEnd::Reset);
                let begun = Instant::now();
                loop {
                    let (whole, came) = read(&gateway, http2).await;
                    assert!(!whole, "{kind}: its end was forged");
                    assert!(all.starts_with(&came), "{came:?}");
                    if may_be_less || came == all {
                        break;
                    }
                    assert!(http2 && begun.elapsed() < SOON, "{kind}: {came:?}");
                }
                let line = gateway.access_line(|line| line["path"] == COMPLETIONS).await;
                let seen = (&line["outcome"], &line["fault"], &line["attempts"]);
                assert_eq!(seen, (&json!("engine_broke_off"), &json!("engine"), &json!(1)));
                gateway.until_idle().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_only_its_connection_ends_says_in_an_event_that_it_is_cut() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\ndata: [D";
    for http2 in [false, true] {
        let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
        engine.set_default(Reply::Raw(vec![RawStep::Write(cut.into())], RawEnd::Close));
        let gateway = Gateway::over(pool("tiny", &[&engine])).await;
        let (whole, came) = read(&gateway, http2).await;
        let text = String::from_utf8(came).unwrap();
        let event =
            text.strip_prefix("data: 1\n\ndata: {\"error\":").unwrap_or_else(|| panic!("{text}"));
        assert!(whole && event.contains("incomplete_stream"), "{text}");
    }
}
