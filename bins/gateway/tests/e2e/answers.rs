//! What the client receives: the engine's bytes, status and headers, as they come.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kvasir_testkit::client::{RawClient, Response};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, RawEnd, RawStep, Reply};
use serde_json::json;

use crate::harness::{CHAT, COMPLETIONS, Gateway, Lockstep, SOON, pool, pool_at, stream};

const BODY: &[u8] = br#"{"model":"tiny","prompt":[1,2,3]}"#;

async fn scene() -> (FakeEngine, Gateway) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut config = json!({"pools": [pool("tiny", &[&engine])]});
    config["decision_headers"] = false.into();
    config["forward_paths"] = json!(["/any/*"]);
    let gateway = Gateway::start(config).await;
    (engine, gateway)
}

/// The headers without those a server adds for itself.
fn headers(response: &Response) -> Vec<(String, String)> {
    let lower = |(name, value): &(String, String)| (name.to_lowercase(), value.clone());
    let own = |(name, _): &(String, String)| name != "date" && name != "x-request-id";
    let mut headers: Vec<_> = response.head.headers.iter().map(lower).filter(own).collect();
    headers.sort();
    headers
}

fn raw(text: &str) -> Reply {
    Reply::Raw(vec![RawStep::Write(Bytes::copy_from_slice(text.as_bytes()))], RawEnd::Close)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_get_what_they_would_get_from_the_engine_itself() {
    let (engine, gateway) = scene().await;
    let error = json!({"error": {"message": "no", "type": "BadRequestError", "code": 400}});
    let odd = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-odd; a=\"b;c\"")),
        (header::SERVER, HeaderValue::from_static("an engine")),
        (header::RETRY_AFTER, HeaderValue::from_static("7")),
        (header::SET_COOKIE, HeaderValue::from_static("a=1")),
    ]);
    let binary: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let status = |code: u16, body: &'static [u8]| {
        Reply::Status(StatusCode::from_u16(code).unwrap(), odd.clone(), Bytes::from_static(body))
    };
    for reply in [
        Reply::Default,
        Reply::Json(StatusCode::OK, json!({"a": "é"})),
        Reply::Json(StatusCode::BAD_REQUEST, error.clone()),
        Reply::Json(StatusCode::TOO_MANY_REQUESTS, error.clone()),
        Reply::Json(StatusCode::INTERNAL_SERVER_ERROR, error.clone()),
        Reply::Json(StatusCode::SERVICE_UNAVAILABLE, error),
        status(200, b""),
        status(201, b"created"),
        status(204, b""),
        status(302, b""),
        status(418, b"not json { at all"),
        status(499, b""),
        status(500, b""),
        status(503, b"overloaded"),
        Reply::Status(StatusCode::OK, odd.clone(), binary.into()),
        Reply::sse(["{\"a\":1}", "two\ndata: lines", ""]),
        Reply::sse(Vec::<String>::new()),
        // Framing of its own: none, odd chunks, an extension, a doubled header, a reason phrase.
        raw("HTTP/1.1 200 Fine\r\nx-a: 1\r\nX-A: 2\r\ncontent-length: 3\r\n\r\nabc"),
        raw("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end"),
        raw("HTTP/1.0 200 OK\r\n\r\nan old server"),
        raw(
            "HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        ),
    ] {
        let mut answers = Vec::new();
        for addr in [engine.addr(), gateway.addr()] {
            engine.push([reply.clone()]);
            let mut client = RawClient::connect(addr).await.unwrap().with_deadline(SOON);
            let sent = [("content-type", "application/json"), ("x-request-id", "same")];
            client.send("POST", COMPLETIONS, &sent, BODY).await.unwrap();
            answers.push(client.response().await.unwrap());
        }
        let (direct, relayed) = (&answers[0], &answers[1]);
        assert_eq!(relayed.status, direct.status, "{reply:?}");
        assert_eq!(without_created(relayed), without_created(direct), "{reply:?}");
        // The framing belongs to a hop, but a known length stays known.
        let hop = ["connection", "transfer-encoding"];
        let end_to_end = |response| -> Vec<_> {
            headers(response).into_iter().filter(|(n, _)| !hop.contains(&n.as_str())).collect()
        };
        assert_eq!(end_to_end(relayed), end_to_end(direct), "{reply:?}");
    }
}

/// The body; the default answer tells the second it was made in.
fn without_created(response: &Response) -> Bytes {
    let mut json = response.json();
    match json.get_mut("created") {
        Some(created) => {
            *created = 0.into();
            json.to_string().into()
        }
        None => response.body.clone(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_requests_keep_the_length_and_have_no_body() {
    let (engine, gateway) = scene().await;
    let body = Bytes::from_static(b"12345");
    engine.push([Reply::Status(StatusCode::OK, HeaderMap::new(), body)]);
    let mut client = gateway.connect().await;
    client.send("HEAD", "/any/thing", &[], b"").await.unwrap();
    let response = client.response().await.unwrap();
    assert_eq!(response.head.header("content-length"), Some("5"));
    // Nothing of a body follows: the next answer is where it should be.
    client.send("GET", "/health", &[], b"").await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 200);
    assert_eq!(engine.requests()[0].method, "HEAD");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_chunk_of_a_stream_arrives_before_the_next_one_is_sent() {
    let mut engine = Lockstep::start().await;
    let gateway = Gateway::over(pool_at("tiny", &[engine.url()])).await;
    let mut client = gateway.connect().await;
    let body = stream(&[1, 2, 3], 4).to_string();
    client.send("POST", COMPLETIONS, &[], body.as_bytes()).await.unwrap();
    let mut exchange = engine.next().await;
    assert_eq!(exchange.body, body.as_bytes());
    assert!(exchange.head.starts_with("POST /v1/completions HTTP/1.1\r\n"), "{}", exchange.head);
    exchange
        .write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
            transfer-encoding: chunked\r\n\r\n",
        )
        .await;
    for n in 0..10 {
        let event = format!("data: {{\"n\":{n}}}\n\n");
        exchange.chunk(event.as_bytes()).await;
        if n == 0 {
            assert_eq!(client.head().await.unwrap().status, 200);
        }
        assert_eq!(client.frame().await.unwrap().unwrap(), event.as_bytes());
    }
    // Several at once pass as they are; of events that are cut, whole ones at once.
    for (piece, whole) in [
        ("data: {\"hal", ""),
        ("f\":1}\n\nda", "data: {\"half\":1}\n\n"),
        ("ta: a\n\ndata: b\n\n: ping\n\n", "data: a\n\ndata: b\n\n: ping\n\n"),
        ("data: [DONE]\n\n", "data: [DONE]\n\n"),
    ] {
        exchange.chunk(piece.as_bytes()).await;
        let mut heard = Vec::new();
        while heard.len() < whole.len() {
            heard.extend_from_slice(&client.frame().await.unwrap().unwrap());
        }
        assert_eq!(heard, whole.as_bytes());
    }
    exchange.write(b"0\r\n\r\n").await;
    assert_eq!(client.frame().await.unwrap(), None);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_of_an_answer_of_known_length_are_not_held_back_either() {
    let mut engine = Lockstep::start().await;
    let gateway = Gateway::over(pool_at("tiny", &[engine.url()])).await;
    let mut client = gateway.sent(CHAT, b"{}").await;
    let mut exchange = engine.next().await;
    exchange.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").await;
    for (n, piece) in ["abc", "def", "ghi"].iter().enumerate() {
        exchange.write(piece.as_bytes()).await;
        if n == 0 {
            assert_eq!(client.head().await.unwrap().header("content-length"), Some("9"));
        }
        let mut read = Vec::new();
        while read.len() < piece.len() {
            read.extend_from_slice(&client.frame().await.unwrap().unwrap());
        }
        assert_eq!(read, piece.as_bytes());
    }
    assert_eq!(client.frame().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_everything_and_slows_nobody_else() {
    let (engine, gateway) = scene().await;
    let big = Bytes::from(vec![b'x'; 24 << 20]);
    engine.push([Reply::Status(StatusCode::OK, HeaderMap::new(), big.clone())]);
    let mut slow = gateway.sent(COMPLETIONS, BODY).await;
    assert_eq!(slow.head().await.unwrap().status, 200);
    for _ in 0..5 {
        assert_eq!(gateway.post_bytes(COMPLETIONS, BODY).await.status, 200);
    }
    let in_flight = gateway.metrics().await.sum("kvasir_endpoint_in_flight", &[]);
    assert_eq!(in_flight, Some(1.0), "counted until the last byte is taken");
    assert_eq!(slow.body().await.unwrap(), big);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interim_head_is_not_the_answer() {
    let (engine, gateway) = scene().await;
    let head = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    engine.push([raw(head)]);
    let response = gateway.post_bytes(COMPLETIONS, BODY).await;
    assert_eq!((response.status, response.text()), (200, "{}".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_engine_says_of_its_cache_is_in_the_access_log() {
    let (engine, gateway) = scene().await;
    let body = json!({"model": "tiny", "prompt": (1..=65).collect::<Vec<u32>>(), "max_tokens": 3,
        "stream": true, "stream_options": {"include_usage": true}});
    for expected in [0, 64] {
        let id = format!("ask-{expected}");
        let mut client = gateway.connect().await;
        let text = body.to_string();
        client.send("POST", COMPLETIONS, &[("x-request-id", &id)], text.as_bytes()).await.unwrap();
        let answer = client.response().await.unwrap();
        let line = gateway.access_line(|line| line["request_id"] == *id).await;
        assert_eq!(line["reported_cached_tokens"], expected, "{line}");
        assert_eq!(line["reported_prompt_tokens"], 65);
        assert_eq!((&line["status"], &line["outcome"]), (&json!(200), &json!("complete")));
        assert_eq!(line["stream"], true);
        assert_eq!(line["bytes_in"], text.len());
        assert_eq!(line["bytes_out"], answer.body.len());
        assert_eq!(line["endpoint"], engine.url());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_0_clients_are_served() {
    let (engine, gateway) = scene().await;
    engine.push([Reply::sse(["a", "b"]), Reply::Echo]);
    for expected in ["data: a\n\ndata: b\n\ndata: [DONE]\n\n", "{}"] {
        let mut client = gateway.connect().await.with_deadline(Duration::from_secs(5));
        let request = b"POST /v1/completions HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}";
        client.write(request).await.unwrap();
        let head = client.head().await.unwrap();
        assert_eq!((head.status, head.header("transfer-encoding")), (200, None));
        assert_eq!(client.body().await.unwrap(), expected);
        let after = client.read_raw().await;
        let closed = match &after {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(closed, "{after:?}");
    }
}
