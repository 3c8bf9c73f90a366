//! Places on h2 connections: who waits for one gets the next that is free, and nobody holds those
//! of others.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kvasir_upstream::{Limits, Options, Patience, Phase, Upstream};
use tokio::sync::Notify;

use crate::engine::{Engine, PATIENCE, SOON, ask, begin, request, rest, stats, until};
use crate::frames::{DATA, END_STREAM, Frames, HEADERS, OK};
use crate::resets::h2_origin;

/// Begins every answer, and ends it when told; takes `most` at a time.
async fn held(most: u32, ends: Arc<Notify>) -> Engine {
    Engine::start(move |stream, _| {
        let ends = Arc::clone(&ends);
        async move {
            let Some(mut frames) = Frames::greet(stream, most).await else { return };
            while let Some(stream) = frames.request().await {
                frames.send(HEADERS, crate::frames::END_HEADERS, stream, OK).await;
                frames.send(DATA, 0, stream, b"o").await;
                ends.notified().await;
                frames.send(DATA, END_STREAM, stream, b"k").await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_up_no_other_on_their_connection() {
    const LONG: usize = 4 << 20;
    let body = Bytes::from(vec![b'x'; LONG]);
    let engine = Engine::start(move |stream, _| {
        let body = body.clone();
        async move {
            let service = service_fn(move |_| {
                let answer = Response::new(Full::new(body.clone()));
                async move { Ok::<_, std::convert::Infallible>(answer) }
            });
            let _ = http2::Builder::new(TokioExecutor::new())
                .max_concurrent_streams(200)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    })
    .await;
    let (upstream, origin) = (Upstream::default(), h2_origin(&engine, Limits::default()));
    let mut stalled = Vec::new();
    for _ in 0..99 {
        stalled.push(begin(&upstream, &origin).await.unwrap());
    }
    for _ in 0..3 {
        let whole = tokio::time::timeout(SOON, ask(&upstream, &origin)).await;
        assert_eq!(whole.expect("it is held up").unwrap().len(), LONG);
    }
    assert_eq!(engine.accepted(), 1, "on one connection");
    // They were not read, and not lost.
    let late = rest(stalled.pop().unwrap()).await.unwrap();
    assert_eq!(late.len(), LONG);
}

/// Looks, as it is woken, whether a place is free.
struct Looks {
    upstream: Upstream,
    woken: AtomicUsize,
    in_vain: AtomicUsize,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        let taken = stats(&self.upstream).busy;
        self.in_vain.fetch_add(taken, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn who_waits_is_woken_when_the_place_is_free_and_not_before() {
    let ends = Arc::new(Notify::new());
    let engine = held(1, Arc::clone(&ends)).await;
    let lifetime = Duration::from_millis(1);
    let upstream = Upstream::new(Options { lifetime, ..Options::default() });
    let origin = h2_origin(&engine, Limits { idle: 1, connections: 1 });
    let started = begin(&upstream, &origin).await.unwrap();
    // The connection is old, so that it ends with its last answer.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let mut waits = pin!(upstream.send(&origin, PATIENCE, || true, request));
    let looks = Arc::new(Looks {
        upstream: upstream.clone(),
        woken: AtomicUsize::new(0),
        in_vain: AtomicUsize::new(0),
    });
    let waker = Waker::from(Arc::clone(&looks));
    // Some times, for what may have been left over from before.
    for _ in 0..3 {
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!((stats(&upstream).waiting, stats(&upstream).busy), (1, 1));
    let before = (looks.woken.load(Ordering::SeqCst), looks.in_vain.load(Ordering::SeqCst));
    drop(started);
    let after = (looks.woken.load(Ordering::SeqCst), looks.in_vain.load(Ordering::SeqCst));
    assert!(after.0 > before.0, "it was not woken");
    assert_eq!(after.1, before.1, "it was woken before the place was free");
    ends.notify_waiters();
    let started = tokio::time::timeout(SOON, waits).await.expect("it sleeps on").unwrap();
    ends.notify_one();
    rest(started).await.unwrap();
    assert_eq!(engine.accepted(), 2);
}

#[tokio::test]
async fn a_place_that_is_free_is_not_kept_for_a_connection_that_does_not_come() {
    let ends = Arc::new(Notify::new());
    let told = Arc::clone(&ends);
    // The second connection is accepted, and nothing is said on it.
    let engine = Engine::start(move |stream, number| {
        let ends = Arc::clone(&told);
        async move {
            if number > 0 {
                return std::future::pending().await;
            }
            let Some(mut frames) = Frames::greet(stream, 1).await else { return };
            let first = frames.request().await.unwrap();
            frames.send(HEADERS, crate::frames::END_HEADERS, first, OK).await;
            frames.send(DATA, 0, first, b"o").await;
            ends.notified().await;
            frames.send(DATA, END_STREAM, first, b"k").await;
            frames.serve().await;
        }
    })
    .await;
    let upstream = Upstream::default();
    let origin = h2_origin(&engine, Limits { idle: 2, connections: 2 });
    let first = begin(&upstream, &origin).await.unwrap();
    let (mut opens, mut waits) = (pin!(ask(&upstream, &origin)), pin!(ask(&upstream, &origin)));
    let soon = Duration::from_millis(100);
    assert!(tokio::time::timeout(soon, &mut opens).await.is_err());
    let patience = Patience { connect: soon, ..PATIENCE };
    let failure = upstream.send(&origin, patience, || true, request).await.unwrap_err();
    assert_eq!(failure.phase(), Phase::Pool);
    let why = "no connection within 100 ms: a connection to the engine is still being opened";
    assert_eq!(failure.why(), why);
    assert!(tokio::time::timeout(soon, &mut waits).await.is_err());
    assert_eq!(stats(&upstream).waiting, 2, "one for its connection, one for any");
    ends.notify_one();
    let (whole, waited) = tokio::join!(rest(first), tokio::time::timeout(SOON, waits));
    assert_eq!((whole.unwrap(), waited.unwrap().unwrap()), ("ok".into(), "ok".into()));
}

#[tokio::test]
async fn who_leaves_while_waiting_or_opening_takes_no_place_along() {
    let ends = Arc::new(Notify::new());
    let engine = held(1, Arc::clone(&ends)).await;
    let upstream = Upstream::default();
    let origin = h2_origin(&engine, Limits { idle: 1, connections: 1 });
    for n in 0..20 {
        // Given up somewhere between the first step and the first data.
        let asked = begin(&upstream, &origin);
        let _ = tokio::time::timeout(Duration::from_micros(n * 150), asked).await;
        let held = begin(&upstream, &origin);
        ends.notify_waiters();
        let started = tokio::time::timeout(SOON, async {
            tokio::pin!(held);
            loop {
                tokio::select! {
                    started = &mut held => return started,
                    () = tokio::time::sleep(Duration::from_millis(5)) => ends.notify_waiters(),
                }
            }
        });
        let started = started.await.expect("a place is lost").unwrap();
        drop(started);
    }
    ends.notify_waiters();
    until("all is free", || {
        let stats = stats(&upstream);
        (stats.busy, stats.waiting) == (0, 0)
    })
    .await;
}
