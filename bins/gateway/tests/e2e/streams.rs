//! Streams that are not completed: what the client gets in place of their end.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, RawEnd, RawStep, Reply, SseChunk};
use serde_json::{Value, json};

use crate::harness::{CHAT, COMPLETIONS, Gateway, SOON, pool};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

async fn scene(timeouts: Value) -> (FakeEngine, Gateway) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway =
        Gateway::start(json!({"pools": [pool("tiny", &[&engine])], "timeouts": timeouts})).await;
    (engine, gateway)
}

fn patient() -> Value {
    json!({"connect_ms": 1000})
}

/// A stream in these chunks, which need not be whole events; `None` keeps the last chunk out.
fn chunks(pieces: &[&str], end: Option<RawEnd>) -> Reply {
    raw_stream("content-type: text/event-stream\r\n", pieces, end)
}

fn raw_stream(headers: &str, pieces: &[&str], end: Option<RawEnd>) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\n{headers}transfer-encoding: chunked\r\n\r\n");
    let mut steps = vec![RawStep::Write(head.into())];
    for piece in pieces {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        steps.extend([RawStep::Write(chunk.into()), RawStep::Pause(Duration::from_millis(5))]);
    }
    if end.is_none() {
        steps.push(RawStep::Write(Bytes::from_static(b"0\r\n\r\n")));
    }
    Reply::Raw(steps, end.unwrap_or(RawEnd::Close))
}

async fn open(gateway: &Gateway, path: &str) -> RawClient {
    let body = json!({"model": "tiny", "prompt": [1, 2], "input": "a", "max_tokens": 4,
        "messages": [{"role": "user", "content": "a"}], "stream": true});
    let mut client = gateway.sent(path, body.to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client
}

/// The whole body, which must end in order.
async fn read(gateway: &Gateway, path: &str) -> String {
    let body = open(gateway, path).await.body().await.expect("the body is to end in order");
    String::from_utf8(body.to_vec()).unwrap()
}

async fn broken(gateway: &Gateway, cause: &str, outcome: &str) {
    let line = gateway.access_line(|line| line["outcome"] == outcome).await;
    assert_eq!((&line["status"], &line["attempts"]), (&json!(200), &json!(1)), "{line}");
    gateway.until_metric("kvasir_streams_broken_total", &[("cause", cause)], 1.0).await;
    let labels = [("outcome", outcome)];
    assert_eq!(gateway.metrics().await.sum("kvasir_requests_total", &labels), Some(1.0));
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_ends_with_one_error_event_in_the_form_of_its_api() {
    let named = "event: response.output_text.delta\ndata: {\"sequence_number\":6}\n\n";
    for (path, whole, expected) in [
        (
            CHAT,
            "data: {\"choices\":[]}\n\n",
            json!({"error": {"message": "the engine broke off in the middle of its answer",
                "type": "server_error", "param": null, "code": "engine_broke_off"}}),
        ),
        (
            COMPLETIONS,
            ": ping\r\n\r\ndata: 1\r\n\r\n",
            json!({"error": {"message": "the engine broke off in the middle of its answer",
                "type": "server_error", "param": null, "code": "engine_broke_off"}}),
        ),
        (
            RESPONSES,
            named,
            json!({"type": "error", "code": "engine_broke_off",
                "message": "the engine broke off in the middle of its answer", "param": null,
                "sequence_number": 7}),
        ),
        (
            MESSAGES,
            "event: ping\ndata: {}\n\n",
            json!({"type": "error", "error": {"type": "api_error",
                "message": "the engine broke off in the middle of its answer"}}),
        ),
    ] {
        for end in [RawEnd::Close, RawEnd::Reset] {
            let (engine, gateway) = scene(patient()).await;
            // The last event is cut off: nothing of it arrives.
            engine.push([chunks(&[whole, "event: x\ndata: {\"half"], Some(end))]);
            let body = read(&gateway, path).await;
            let rest = body.strip_prefix(whole).unwrap_or_else(|| panic!("{path}: {body}"));
            let event = match path {
                RESPONSES | MESSAGES => rest.strip_prefix("event: error\ndata: "),
                _ => rest.strip_prefix("data: "),
            };
            let event = event.and_then(|event| event.strip_suffix("\n\n"));
            let event: Value =
                serde_json::from_str(event.unwrap_or_else(|| panic!("{rest}"))).unwrap();
            assert_eq!(event, expected, "{path}");
            assert!(!body.contains("[DONE]"));
            broken(&gateway, "broke", "engine_broke_off").await;
            assert_eq!(engine.requests().len(), 1, "what was heard once is not computed again");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_of_the_client_goes_on_after_an_error_event() {
    let (engine, gateway) = scene(patient()).await;
    engine.push([chunks(&["data: 1\n\n"], Some(RawEnd::Reset))]);
    let mut client = open(&gateway, CHAT).await;
    client.body().await.unwrap();
    client.send("GET", "/health", &[], b"").await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_stops_in_the_middle_is_given_up_and_told_so() {
    for (timeouts, cause) in [
        (json!({"connect_ms": 1000, "idle_ms": 1000}), "idle_timeout"),
        (json!({"connect_ms": 1000, "request_ms": 1500}), "request_timeout"),
    ] {
        let (engine, gateway) = scene(timeouts).await;
        let gap = Duration::from_millis(20);
        let chunk = |gap, data: &str| SseChunk { gap, data: data.to_owned() };
        let stream = vec![chunk(gap, "1"), chunk(gap, "2"), chunk(Duration::from_secs(3600), "3")];
        engine.push([Reply::Sse { head_delay: gap, chunks: stream, done: true }]);
        let began = Instant::now();
        let body = read(&gateway, CHAT).await;
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(1) && took < SOON, "{took:?}");
        let events: Vec<&str> = body.split_terminator("\n\n").collect();
        assert_eq!(&events[..2], ["data: 1", "data: 2"], "{body}");
        assert!(events.len() == 3 && events[2].contains(cause), "{body}");
        broken(&gateway, cause, cause).await;
        let seen = engine.wait_idle(SOON).await;
        assert_eq!(seen[0].fate, Fate::ClientGoneMidBody, "the engine is told too");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_shorter_than_the_limit_are_none_and_a_slow_reader_costs_the_engine_nothing() {
    let (engine, gateway) = scene(json!({"connect_ms": 1000, "idle_ms": 2000})).await;
    let gap = Duration::from_millis(300);
    engine.push([Reply::SlowTokens { first: gap, gap, count: 8 }]);
    let body = read(&gateway, CHAT).await;
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    // More than fits between here and there: the gateway has to wait for the reader.
    let big = Bytes::from(vec![b'x'; 24 << 20]);
    engine.push([Reply::Status(StatusCode::OK, HeaderMap::new(), big.clone())]);
    let mut client = gateway.sent(COMPLETIONS, br#"{"model":"tiny","prompt":[1]}"#).await;
    client.head().await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(client.body().await.unwrap().len(), big.len());
    assert_eq!(gateway.metrics().await.sum("kvasir_streams_broken_total", &[]), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_have_no_event_added_is_broken_for_the_client() {
    let gzip = "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n";
    for (headers, timeouts, cause, outcome) in [
        ("content-type: application/json\r\n", patient(), "broke", "engine_broke_off"),
        (gzip, patient(), "broke", "engine_broke_off"),
        (
            "content-type: application/json\r\n",
            json!({"connect_ms": 1000, "idle_ms": 200}),
            "idle_timeout",
            "idle_timeout",
        ),
    ] {
        let (engine, gateway) = scene(timeouts).await;
        let end = if cause == "broke" { RawEnd::Close } else { RawEnd::Hold };
        engine.push([raw_stream(headers, &["{\"half\":"], Some(end))]);
        let mut client = open(&gateway, CHAT).await;
        client.body().await.expect_err("the end was forged");
        broken(&gateway, cause, outcome).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_very_long_event_that_breaks_is_broken_too() {
    let (engine, gateway) = scene(patient()).await;
    let long = format!("data: {}", "x".repeat(200_000));
    engine.push([chunks(&[&long], Some(RawEnd::Close))]);
    let mut client = open(&gateway, CHAT).await;
    client.body().await.expect_err("half an event is no event");
    engine.push([chunks(&[&long, "\n\ndata: [DONE]\n\n"], None)]);
    assert_eq!(read(&gateway, CHAT).await, format!("{long}\n\ndata: [DONE]\n\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_ends_without_its_end_is_named_and_told_unless_it_is_complete() {
    let part = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n";
    let last = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let (engine, gateway) = scene(patient()).await;
    engine.push([chunks(&[part, "data: half"], None)]);
    let body = read(&gateway, CHAT).await;
    let rest = body.strip_prefix(part).unwrap();
    assert!(rest.starts_with("data: {\"error\":") && rest.contains("incomplete_stream"), "{body}");
    broken(&gateway, "no_done", "incomplete_stream").await;
    let (engine, gateway) = scene(patient()).await;
    engine.push([chunks(&[part, last], None)]);
    assert_eq!(read(&gateway, CHAT).await, format!("{part}{last}"));
    broken(&gateway, "no_done", "incomplete_stream").await;
    // Of other APIs nobody can tell whether the answer is complete.
    let (engine, gateway) = scene(patient()).await;
    let event = "event: response.created\ndata: {\"sequence_number\":0}\n\n";
    engine.push([chunks(&[event], None)]);
    assert_eq!(read(&gateway, RESPONSES).await, event);
    broken(&gateway, "no_done", "incomplete_stream").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_complete_is_complete_however_its_connection_ends() {
    for (path, body) in [
        (CHAT, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"),
        (RESPONSES, "event: response.completed\ndata: {\"sequence_number\":3}\n\n"),
        (MESSAGES, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
    ] {
        for end in [None, Some(RawEnd::Close)] {
            let (engine, gateway) = scene(patient()).await;
            engine.push([chunks(&[body], end)]);
            assert_eq!(read(&gateway, path).await, body);
            gateway.access_line(|line| line["outcome"] == "complete").await;
            assert_eq!(gateway.metrics().await.sum("kvasir_streams_broken_total", &[]), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_looks_like_the_end_of_a_stream_is_none() {
    for (path, body) in [
        (CHAT, "data: {\"choices\":[{\"delta\":{\"content\":\"data: [DONE]\"}}]}\n\n"),
        (
            RESPONSES,
            "event: response.output_text.delta\n\
                data: {\"delta\":\"event: response.completed\",\"sequence_number\":3}\n\n",
        ),
        (
            MESSAGES,
            "event: content_block_delta\ndata: {\"delta\":{\"text\":\"event: message_stop\"}}\n\n",
        ),
    ] {
        let (engine, gateway) = scene(patient()).await;
        engine.push([chunks(&[body], Some(RawEnd::Close))]);
        let seen = read(&gateway, path).await;
        let rest = seen.strip_prefix(body).unwrap_or_else(|| panic!("{path}: {seen}"));
        assert!(rest.contains("\"error\""), "{path}: {seen}");
        broken(&gateway, "broke", "engine_broke_off").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_do_not_complete_half_an_event() {
    let part = "data: {\"choices\":[]}\n\n";
    let (engine, gateway) = scene(patient()).await;
    let half = format!("{part}data: {{\"half");
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\
            trailer: x-sum\r\n\r\n{:x}\r\n{half}\r\n0\r\nx-sum: 1\r\n\r\n",
        half.len()
    );
    engine.push([Reply::Raw(vec![RawStep::Write(answer.into())], RawEnd::Close)]);
    let body = read(&gateway, CHAT).await;
    let rest = body.strip_prefix(part).unwrap();
    assert!(rest.starts_with("data: {\"error\":") && rest.contains("incomplete_stream"), "{body}");
    broken(&gateway, "no_done", "incomplete_stream").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_answers_in_events_pass_as_they_are() {
    let (engine, gateway) = scene(patient()).await;
    // An error of the engine in this form, and a stream of known length.
    let odd = HeaderMap::from_iter([(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    )]);
    for status in [StatusCode::BAD_REQUEST, StatusCode::OK] {
        let body = Bytes::from_static(b"data: no end");
        engine.push([Reply::Status(status, odd.clone(), body.clone())]);
        let response = gateway.post(CHAT, &json!({"model": "tiny", "messages": []})).await;
        assert_eq!((response.status, response.body), (status.as_u16(), body));
    }
}
