//! The fake engine tells the truth about what became of each request.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use kvasir_testkit::client::{self, RawClient};
use kvasir_testkit::engine::{
    EngineConfig, FakeEngine, Fate, RawEnd, RawStep, Recorded, Reply, SseChunk,
};
use kvasir_testkit::eventually_async;
use std::io::ErrorKind;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);
const NEVER: Duration = Duration::from_secs(3600);
const PATH: &str = "/v1/completions";
const BODY: &[u8] = br#"{"model":"tiny","prompt":[1,2,3],"max_tokens":3}"#;
const STREAM: &[u8] = br#"{"model":"tiny","prompt":[1,2,3],"max_tokens":3,"stream":true}"#;

async fn engine() -> FakeEngine {
    FakeEngine::start(EngineConfig::default()).await.unwrap()
}

async fn sent(engine: &FakeEngine, body: &[u8]) -> RawClient {
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.send("POST", PATH, &[], body).await.unwrap();
    client
}

async fn only(engine: &FakeEngine) -> Recorded {
    let mut seen = engine.wait_idle(SOON).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(engine.active(), 0);
    assert!(seen[0].ended.unwrap() >= seen[0].at);
    seen.remove(0)
}

#[tokio::test]
async fn whole_answers_are_completed() {
    let bare = |status| Reply::Status(status, HeaderMap::new(), Bytes::new());
    for (reply, status, body) in [
        (Reply::Default, 200, STREAM),
        (Reply::Default, 200, BODY),
        (bare(StatusCode::OK), 200, BODY),
        (bare(StatusCode::NO_CONTENT), 204, BODY),
        (Reply::Echo, 200, b""),
        (Reply::sse(Vec::<String>::new()), 200, BODY),
        (Reply::Json(StatusCode::SERVICE_UNAVAILABLE, serde_json::json!({})), 503, BODY),
    ] {
        let engine = engine().await;
        engine.push([reply.clone()]);
        // The connection stays open: only the flush can tell.
        let mut client = sent(&engine, body).await;
        assert_eq!(client.response().await.unwrap().status, status);
        assert_eq!(only(&engine).await.fate, Fate::Completed, "{reply:?}");
    }
}

#[tokio::test]
async fn an_answer_to_head_is_completed_without_its_body() {
    let engine = engine().await;
    engine.push([Reply::Status(StatusCode::OK, HeaderMap::new(), Bytes::from_static(b"abc"))]);
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.send("HEAD", PATH, &[], b"").await.unwrap();
    assert_eq!(client.response().await.unwrap().body, Bytes::new());
    assert_eq!(only(&engine).await.fate, Fate::Completed);
}

#[tokio::test]
async fn peer_that_leaves_before_the_head() {
    for reset in [true, false] {
        for reply in [Reply::HangBeforeHead, Reply::after(NEVER), Reply::Raw(vec![], RawEnd::Hold)]
        {
            let engine = engine().await;
            engine.push([reply]);
            let client = sent(&engine, BODY).await;
            assert_eq!(engine.wait_for(1, SOON).await[0].fate, Fate::Open);
            assert_eq!(engine.active(), 1);
            if reset {
                client.abort().unwrap();
            } else {
                client.close();
            }
            assert_eq!(only(&engine).await.fate, Fate::ClientGoneBeforeHead);
        }
    }
}

#[tokio::test]
async fn peer_that_leaves_mid_body() {
    let slow = SseChunk { gap: NEVER, data: "never".into() };
    let raw = Bytes::from_static(b"HTTP/1.1 200 OK\r\n\r\n");
    for reset in [true, false] {
        for reply in [
            Reply::HeadThenHang,
            Reply::SlowTokens { first: Duration::ZERO, gap: NEVER, count: 5 },
            Reply::Sse { head_delay: Duration::ZERO, chunks: vec![slow.clone()], done: true },
            Reply::Raw(vec![RawStep::Write(raw.clone())], RawEnd::Hold),
        ] {
            let engine = engine().await;
            engine.push([reply]);
            let mut client = sent(&engine, STREAM).await;
            // The head arrives although the body hangs: nothing is held back.
            assert_eq!(client.head().await.unwrap().status, 200);
            assert_eq!(engine.requests()[0].fate, Fate::Open);
            assert_eq!(engine.active(), 1);
            if reset {
                client.abort().unwrap();
            } else {
                client.close();
            }
            assert_eq!(only(&engine).await.fate, Fate::ClientGoneMidBody);
        }
    }
}

#[tokio::test]
async fn an_answer_the_peer_does_not_read_is_not_completed() {
    let engine = engine().await;
    let large = Bytes::from(vec![b'x'; 64 << 20]);
    engine.push([Reply::Status(StatusCode::OK, HeaderMap::new(), large.clone())]);
    let mut client = sent(&engine, BODY).await;
    client.head().await.unwrap();
    client.frame().await.unwrap();
    // The library took all of it long ago; the kernel cannot have.
    assert_eq!(engine.active(), 1);
    client.abort().unwrap();
    assert_eq!(only(&engine).await.fate, Fate::ClientGoneMidBody);

    engine.push([Reply::Status(StatusCode::OK, HeaderMap::new(), large.clone())]);
    let mut client = sent(&engine, BODY).await;
    assert_eq!(client.response().await.unwrap().body.len(), large.len());
    assert_eq!(engine.wait_idle(SOON).await[1].fate, Fate::Completed);
}

#[tokio::test]
async fn peer_that_leaves_while_sending() {
    let engine = engine().await;
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.start_chunked("POST", PATH, &[]).await.unwrap();
    client.chunk(b"{\"prompt\"").await.unwrap();
    eventually_async(SOON, || engine.active() == 1).await;
    client.chunk(b": [1").await.unwrap();
    client.close();
    let seen = only(&engine).await;
    assert_eq!((seen.fate, seen.body_complete), (Fate::ClientGoneBeforeHead, false));
    assert_eq!(seen.body, "{\"prompt\": [1");
}

#[tokio::test]
async fn breaks_are_seen_by_the_client_as_scripted() {
    let events = vec!["one".to_owned(), "two".to_owned()];
    for (reply, expected) in [
        (Reply::ResetMidBody(events.clone()), ErrorKind::ConnectionReset),
        (Reply::CloseMidBody(events.clone()), ErrorKind::UnexpectedEof),
    ] {
        let engine = engine().await;
        engine.push([reply]);
        let mut client = sent(&engine, STREAM).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        assert_eq!(client.event().await.unwrap().as_deref(), Some("one"));
        assert_eq!(client.event().await.unwrap().as_deref(), Some("two"));
        assert_eq!(client.event().await.unwrap_err().kind(), expected);
        assert_eq!(only(&engine).await.fate, Fate::EngineEnded);
    }
    for (reply, expected) in [
        (Reply::ResetBeforeHead, ErrorKind::ConnectionReset),
        (Reply::Raw(vec![], RawEnd::Close), ErrorKind::UnexpectedEof),
        (Reply::RawBytes(Bytes::from_static(b"\0garbage")), ErrorKind::InvalidData),
    ] {
        let engine = engine().await;
        engine.push([reply]);
        let mut client = sent(&engine, STREAM).await;
        assert_eq!(client.head().await.unwrap_err().kind(), expected);
        assert_eq!(only(&engine).await.fate, Fate::EngineEnded);
    }
}

#[tokio::test]
async fn stop_ends_all_and_refuses_until_restart() {
    let engine = engine().await;
    engine.push([Reply::HangBeforeHead, Reply::HeadThenHang]);
    let mut hanging = sent(&engine, BODY).await;
    engine.wait_for(1, SOON).await;
    let mut streaming = sent(&engine, STREAM).await;
    streaming.head().await.unwrap();

    engine.stop().await.unwrap();
    assert_eq!(engine.active(), 0);
    let fates: Vec<Fate> = engine.requests().iter().map(|r| r.fate).collect();
    assert_eq!(fates, [Fate::EngineEnded, Fate::EngineEnded]);
    hanging.head().await.unwrap_err();
    streaming.frame().await.unwrap_err();
    for _ in 0..3 {
        let refused = RawClient::connect(engine.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    engine.stop().await.unwrap();

    for _ in 0..2 {
        engine.restart().await.unwrap();
        assert_eq!(client::post(engine.addr(), PATH, BODY).await.unwrap().status, 200);
    }
    let addr = engine.addr();
    drop(engine);
    let closed = async {
        while client::get(addr, "/health").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, closed).await.expect("a dropped engine must close its port");
}
