//! Engines that speak h2: connections shared, replaced, and within limits.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, Version};
use http_body_util::Full;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kvasir_testkit::pki::{Authority, server_config};
use kvasir_upstream::{Limits, Origin, Phase, TlsFiles, Upstream};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::engine::{Engine, PATIENCE, ask, begin, request, stats, until};
use crate::tls;

/// An h2 engine.
struct Server {
    addr: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    accepted: AtomicUsize,
    in_work: AtomicUsize,
    most_in_work: AtomicUsize,
    /// Answers wait for it.
    held: Option<Notify>,
    /// Every connection is told to go away after so many requests.
    requests_each: Option<usize>,
}

impl Server {
    async fn start(state: State, max_streams: u32, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                state.accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            serve(
                                TokioIo::new(tls.accept(stream).await.unwrap()),
                                state,
                                max_streams,
                            )
                            .await;
                        }
                        None => serve(TokioIo::new(stream), state, max_streams).await,
                    }
                });
            }
        });
        Self { addr, state }
    }

    fn origin(&self, limits: Limits) -> Origin {
        Origin::new(self.addr.to_string().parse().unwrap(), None, true, limits)
    }
}

async fn serve<I>(io: I, state: Arc<State>, max_streams: u32)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let seen = Arc::new((AtomicUsize::new(0), Notify::new()));
    let (count, limit) = (Arc::clone(&seen), state.requests_each);
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (state, seen) = (Arc::clone(&state), Arc::clone(&seen));
        async move {
            assert_eq!(request.version(), Version::HTTP_2);
            assert!(request.uri().authority().is_some() && !request.headers().contains_key("host"));
            let now = state.in_work.fetch_add(1, Ordering::SeqCst) + 1;
            state.most_in_work.fetch_max(now, Ordering::SeqCst);
            if state.requests_each == Some(seen.0.fetch_add(1, Ordering::SeqCst) + 1) {
                seen.1.notify_one();
            }
            if let Some(held) = &state.held {
                held.notified().await;
            }
            state.in_work.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok"))))
        }
    });
    let mut connection = std::pin::pin!(
        http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(max_streams)
            .serve_connection(io, service)
    );
    tokio::select! {
        _ = connection.as_mut() => return,
        () = count.1.notified(), if limit.is_some() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    let server = Server::start(State::default(), 200, None).await;
    let (upstream, origin) = (Upstream::default(), server.origin(Limits::default()));
    let mut all = JoinSet::new();
    for _ in 0..50 {
        let (upstream, origin) = (upstream.clone(), origin.clone());
        all.spawn(async move { ask(&upstream, &origin).await.unwrap() });
    }
    assert!(all.join_all().await.iter().all(|answer| answer == "ok"));
    assert_eq!(server.state.accepted.load(Ordering::SeqCst), 1);
    until("all is done", || stats(&upstream).busy == 0).await;
    assert_eq!((stats(&upstream).idle, stats(&upstream).connects[0]), (1, 1));
}

#[tokio::test]
async fn connections_that_are_told_to_go_away_are_replaced() {
    let state = State { requests_each: Some(7), ..State::default() };
    let server = Server::start(state, 200, None).await;
    let (upstream, origin) = (Upstream::default(), server.origin(Limits::default()));
    let mut all = JoinSet::new();
    for _ in 0..8 {
        let (upstream, origin) = (upstream.clone(), origin.clone());
        all.spawn(async move {
            for _ in 0..50 {
                assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
            }
        });
    }
    all.join_all().await;
    let accepted = server.state.accepted.load(Ordering::SeqCst);
    assert!(accepted > 10, "{accepted} connections for 400 requests, some seven each");
}

#[tokio::test]
async fn no_more_streams_than_the_engine_takes_and_no_more_connections_than_allowed() {
    let held = Some(Notify::new());
    let server = Server::start(State { held, ..State::default() }, 4, None).await;
    let origin = server.origin(Limits { idle: 8, connections: 2 });
    let upstream = Upstream::default();
    // What it takes is known once a first answer was given.
    let (first, ()) = tokio::join!(ask(&upstream, &origin), async {
        until("it is in work", || server.state.in_work.load(Ordering::SeqCst) == 1).await;
        server.state.held.as_ref().unwrap().notify_one();
    });
    first.unwrap();
    let mut all = JoinSet::new();
    for _ in 0..20 {
        let (upstream, origin) = (upstream.clone(), origin.clone());
        all.spawn(async move { ask(&upstream, &origin).await.unwrap() });
    }
    until("all places are taken", || server.state.in_work.load(Ordering::SeqCst) == 8).await;
    assert_eq!(server.state.accepted.load(Ordering::SeqCst), 2);
    let patience = kvasir_upstream::Patience { connect: Duration::from_millis(50), ..PATIENCE };
    let failure = upstream.send(&origin, patience, || true, request).await.unwrap_err();
    assert_eq!(failure.phase(), Phase::Pool, "{failure}");
    while !all.is_empty() {
        server.state.held.as_ref().unwrap().notify_one();
        let _ = tokio::time::timeout(Duration::from_millis(5), all.join_next()).await;
    }
    assert!(server.state.most_in_work.load(Ordering::SeqCst) <= 8);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_stream_and_no_other() {
    let held = Some(Notify::new());
    let server = Server::start(State { held, ..State::default() }, 200, None).await;
    let (upstream, origin) = (Upstream::default(), server.origin(Limits::default()));
    let stays = {
        let (upstream, origin) = (upstream.clone(), origin.clone());
        tokio::spawn(async move { ask(&upstream, &origin).await.unwrap() })
    };
    let leaves = tokio::time::timeout(Duration::from_millis(100), begin(&upstream, &origin)).await;
    assert!(leaves.is_err());
    server.state.held.as_ref().unwrap().notify_waiters();
    assert_eq!(stays.await.unwrap(), "ok");
    assert_eq!(server.state.accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn h2_is_agreed_on_within_tls() {
    let authority = Authority::new();
    let identity = authority.issue(&["127.0.0.1"]);
    let ca_file = Some(tls::file("h2-ca.pem", authority.pem()));
    let files = TlsFiles { ca_file, ..TlsFiles::default() };
    let acceptor = |alpn| TlsAcceptor::from(Arc::new(server_config(&identity, None, alpn)));
    let server = Server::start(State::default(), 200, Some(acceptor(&["h2", "http/1.1"]))).await;
    let upstream = Upstream::default();
    assert_eq!(ask(&upstream, &tls::origin(server.addr, &files, true)).await.unwrap(), "ok");
    // One that offers nothing of the kind.
    let server = Server::start(State::default(), 200, Some(acceptor(&[]))).await;
    let failure = ask(&upstream, &tls::origin(server.addr, &files, true)).await.unwrap_err();
    assert_eq!(failure.phase(), Phase::Tls);
    assert!(failure.why().ends_with("the engine does not offer h2 (ALPN)"), "{failure}");
}

#[tokio::test]
async fn an_engine_that_speaks_http1_is_none_with_h2() {
    let engine = Engine::start(|mut stream, _| async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        assert!(stream.read(&mut [0; 256]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let origin =
        Origin::new(engine.addr.to_string().parse().unwrap(), None, true, Limits::default());
    let failure = ask(&Upstream::default(), &origin).await.unwrap_err();
    assert!(failure.why().starts_with("h2:"), "{failure}");
}
