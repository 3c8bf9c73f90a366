//! What goes wrong, and whether that is said.

use std::time::{Duration, Instant};

use kvasir_upstream::{Limits, Patience, Phase, Upstream};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::engine::{Engine, SOON, begin, origin, read_request, request, rest};

#[tokio::test]
async fn a_connection_that_is_not_answered_is_given_up() {
    // Its queue is full: the kernel answers no further handshake.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = socket.local_addr().unwrap();
    let _listener = socket.listen(0).unwrap();
    let mut fillers = Vec::new();
    for _ in 0..4 {
        fillers.push(tokio::spawn(tokio::net::TcpStream::connect(addr)));
    }
    let patience = Patience { connect: Duration::from_millis(300), first_data: SOON };
    let start = Instant::now();
    let failure = loop {
        let origin = origin(addr, Limits::default());
        let upstream = Upstream::default();
        let sent = upstream.send(&origin, patience, || true, request);
        match tokio::time::timeout(Duration::from_secs(2), sent).await {
            Ok(Err(failure)) => break failure,
            _ => assert!(start.elapsed() < SOON),
        }
    };
    assert_eq!(failure.phase(), Phase::Tcp);
    let why = format!("no connection within 300 ms: TCP to {addr} is not answered");
    assert_eq!(failure.why(), why);
    fillers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_engine_that_says_nothing_is_given_up() {
    for head in [&b""[..], b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"] {
        let engine = Engine::start(move |mut stream, _| async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(head).await.unwrap();
            assert!(read_request(&mut stream).await.is_none());
        })
        .await;
        let patience = Patience { connect: SOON, first_data: Duration::from_millis(80) };
        let upstream = Upstream::default();
        let failure =
            upstream.send(&engine.origin(), patience, || true, request).await.unwrap_err();
        assert_eq!(failure.phase(), Phase::FirstData);
        assert_eq!(failure.why(), "no first data within 80 ms");
        assert_eq!(engine.accepted(), 1, "it is not asked again");
    }
}

#[tokio::test]
async fn every_break_before_the_first_data_has_its_phase() {
    for (answer, phase) in [
        (&b""[..], Phase::Broke),
        (b"HTTP/1.1 200 OK\r\ncontent-le", Phase::Broke),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", Phase::Broke),
        (b"SSH-2.0-not-http\r\n\r\n", Phase::NotHttp),
        (b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n", Phase::NotHttp),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", Phase::NotHttp),
    ] {
        let engine = Engine::start(move |mut stream, _| async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(answer).await.unwrap();
        })
        .await;
        let failure = begin(&Upstream::default(), &engine.origin()).await.unwrap_err();
        let said = String::from_utf8_lossy(answer);
        assert_eq!(failure.phase(), phase, "{said:?}: {failure}");
        assert!(!failure.why().is_empty());
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_says_so() {
    let engine = Engine::start(|stream, _| async move {
        stream.set_zero_linger().unwrap();
        // Longer than what fits on the way, which nobody reads.
        tokio::time::sleep(Duration::from_millis(100)).await;
    })
    .await;
    let long = || {
        let mut request = request();
        *request.body_mut() = http_body_util::Full::new(vec![b'x'; 32 << 20].into());
        request
    };
    let patience = Patience { connect: SOON, first_data: SOON };
    let sent = Upstream::default().send(&engine.origin(), patience, || true, long).await;
    let failure = sent.unwrap_err();
    assert!(matches!(failure.phase(), Phase::Send | Phase::Broke), "{failure:?}");
}

#[tokio::test]
async fn a_break_in_the_middle_is_an_error_after_what_came() {
    let engine = Engine::start(|mut stream, _| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbegun").await.unwrap();
    })
    .await;
    let started = begin(&Upstream::default(), &engine.origin()).await.unwrap();
    assert_eq!(started.first.as_ref().unwrap().data_ref().unwrap(), "begun");
    rest(started).await.unwrap_err();
}
