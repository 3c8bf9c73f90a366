//! The raw client shows bytes as they arrive and fails on what is not HTTP.

// Helpers of tests are not test functions to clippy.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, RawEnd, RawStep, Reply};
use std::io::ErrorKind;
use std::time::Duration;

/// An engine that writes these pieces to whoever asks, and a client that asked.
async fn against(pieces: &[&str], end: RawEnd) -> (FakeEngine, RawClient) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut steps = Vec::new();
    for piece in pieces {
        steps.push(RawStep::Write(Bytes::copy_from_slice(piece.as_bytes())));
        steps.push(RawStep::Pause(Duration::from_millis(2)));
    }
    engine.push([Reply::Raw(steps, end)]);
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.send("GET", "/", &[], b"").await.unwrap();
    (engine, client)
}

#[tokio::test]
async fn chunks_are_frames_whatever_the_packets() {
    let pieces = [
        "HTTP/1.1 200 O",
        "K\r\ntransfer-encoding: chunked\r\n\r",
        "\n3\r\na",
        "bc\r",
        "\n2;x=y\r\nde\r\n0\r\ntrailer: 1\r\n",
        "\r\n",
    ];
    let (_engine, mut client) = against(&pieces, RawEnd::Hold).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.frame().await.unwrap().unwrap(), "abc");
    assert_eq!(client.frame().await.unwrap().unwrap(), "de");
    assert_eq!(client.frame().await.unwrap(), None);
    assert_eq!(client.frame().await.unwrap(), None);
}

#[tokio::test]
async fn bodies_by_length_and_by_close() {
    let (_engine, mut client) =
        against(&["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab", "cdEXTRA"], RawEnd::Hold).await;
    assert_eq!(client.response().await.unwrap().body, "abcd");
    assert_eq!(client.read_raw().await.unwrap(), "EXTRA");

    let (_engine, mut client) = against(&["HTTP/1.1 200 OK\r\n\r\nab", "cd"], RawEnd::Close).await;
    assert_eq!(client.response().await.unwrap().body, "abcd");
}

#[tokio::test]
async fn interim_heads_are_shown_or_skipped() {
    let pieces = ["HTTP/1.1 103 Early Hints\r\na: b\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"];
    let (_engine, mut client) = against(&pieces, RawEnd::Hold).await;
    assert_eq!(client.head().await.unwrap().status, 103);
    assert_eq!(client.head().await.unwrap().status, 204);
    let (_engine, mut client) = against(&pieces, RawEnd::Hold).await;
    assert_eq!(client.response().await.unwrap().status, 204);
}

#[tokio::test]
async fn events_may_lie_across_frames() {
    let pieces = [
        "HTTP/1.1 200 OK\r\n\r\n: comment\n\ndata: on",
        "e\n\nevent: x\ndata:two\nd",
        "ata: three\n\n",
    ];
    let (_engine, mut client) = against(&pieces, RawEnd::Close).await;
    client.head().await.unwrap();
    assert_eq!(client.event().await.unwrap().unwrap(), "one");
    assert_eq!(client.event().await.unwrap().unwrap(), "two\nthree");
    assert_eq!(client.event().await.unwrap(), None);
}

#[tokio::test]
async fn truncation_is_an_error() {
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\n", ErrorKind::UnexpectedEof),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab", ErrorKind::UnexpectedEof),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab", ErrorKind::UnexpectedEof),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
            ErrorKind::UnexpectedEof,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabcd0\r\n\r\n",
            ErrorKind::InvalidData,
        ),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", ErrorKind::InvalidData),
    ] {
        let (_engine, mut client) = against(&[text], RawEnd::Close).await;
        assert_eq!(client.response().await.unwrap_err().kind(), expected, "{text:?}");
    }
    let (_engine, mut client) =
        against(&["HTTP/1.1 200 OK\r\n\r\ndata: half"], RawEnd::Close).await;
    client.head().await.unwrap();
    assert_eq!(client.event().await.unwrap_err().kind(), ErrorKind::InvalidData);
}

#[tokio::test]
async fn waits_end_at_the_deadline() {
    let (_engine, client) = against(&[], RawEnd::Hold).await;
    let mut client = client.with_deadline(Duration::from_millis(30));
    assert_eq!(client.head().await.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn expect_continue_and_half_close() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_default(Reply::Echo);
    let mut client = RawClient::connect(engine.addr()).await.unwrap();
    client.start_chunked("POST", "/", &[("expect", "100-continue")]).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 100);
    client.chunk(b"").await.unwrap();
    client.chunk(b"body").await.unwrap();
    client.finish_chunks().await.unwrap();
    assert_eq!(client.response().await.unwrap().body, "body");
    client.close_write().await.unwrap();
    assert_eq!(client.read_raw().await.unwrap(), "");
}
