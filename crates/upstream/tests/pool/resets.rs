//! What h2 engines do to single requests, and whether these are sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use kvasir_upstream::{Broken, Failure, Fault, Limits, Origin, Phase, Retry, Started, Upstream};

use crate::engine::{Engine, PATIENCE, ask, begin, request, rest, stats};
use crate::frames::{DATA, END_HEADERS, Frames, HEADERS, OK};

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;
const HTTP_1_1_REQUIRED: u32 = 13;

/// What an engine does to a request.
#[derive(Clone, Copy, Debug)]
enum Does {
    Reset(u32),
    /// Goes away after the stream so far before this one, for this reason.
    GoAway(u32, u32),
    Close,
}

pub(crate) fn h2_origin(engine: &Engine, limits: Limits) -> Origin {
    Origin::new(engine.addr.to_string().parse().unwrap(), None, true, limits)
}

/// An engine whose first connection answers one request and does that to the second; others answer
/// all. With the number of requests it got.
async fn engine_that(does: Does) -> (Engine, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let engine = Engine::start(move |stream, number| {
        let count = Arc::clone(&count);
        async move {
            let Some(mut frames) = Frames::greet(stream, 100).await else { return };
            for n in 0.. {
                let Some(stream) = frames.request().await else { return };
                count.fetch_add(1, Ordering::SeqCst);
                match does {
                    _ if number > 0 || n != 1 => frames.answer(stream).await,
                    Does::Reset(code) => frames.reset(stream, code).await,
                    Does::GoAway(before, code) => {
                        frames.go_away(stream - before, code).await;
                        return;
                    }
                    Does::Close => return,
                }
            }
        }
    })
    .await;
    (engine, requests)
}

async fn second(does: Does, may_repeat: bool) -> (Result<Started, Failure>, Upstream, usize) {
    let (engine, requests) = engine_that(does).await;
    let (upstream, origin) = (Upstream::default(), h2_origin(&engine, Limits::default()));
    assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
    let sent = upstream.send(&origin, PATIENCE, || may_repeat, request).await;
    (sent, upstream, requests.load(Ordering::SeqCst))
}

#[tokio::test]
async fn what_the_engine_did_nothing_with_is_sent_again_whatever_it_is() {
    for does in [
        Does::Reset(REFUSED_STREAM),
        Does::GoAway(2, NO_ERROR),
        Does::GoAway(2, ENHANCE_YOUR_CALM),
        Does::GoAway(2, INTERNAL_ERROR),
    ] {
        let (sent, upstream, requests) = second(does, false).await;
        let answer = rest(sent.unwrap_or_else(|failure| panic!("{does:?}: {failure}"))).await;
        assert_eq!((answer.unwrap(), requests), ("ok".into(), 3), "{does:?}");
        let stats = stats(&upstream);
        assert_eq!((stats.refused, stats.repeated, stats.connects[0]), (1, 0, 2), "{does:?}");
    }
}

#[tokio::test]
async fn what_the_engine_may_have_worked_on_is_not_sent_again() {
    for does in [
        Does::Reset(NO_ERROR),
        Does::Reset(INTERNAL_ERROR),
        Does::Reset(CANCEL),
        Does::Reset(ENHANCE_YOUR_CALM),
        Does::Reset(HTTP_1_1_REQUIRED),
        Does::GoAway(0, NO_ERROR),
        Does::GoAway(0, INTERNAL_ERROR),
        Does::Close,
    ] {
        let (sent, upstream, requests) = second(does, true).await;
        let failure = sent.unwrap_err();
        assert_eq!((failure.phase(), requests), (Phase::Broke, 2), "{does:?}: {failure}");
        let said = (failure.fault(), failure.retry(), failure.was_repeated());
        assert_eq!(said, (Fault::Engine, Retry::IfRepeatable, false), "{does:?}");
        let stats = stats(&upstream);
        assert_eq!((stats.refused, stats.repeated, stats.unsent), (0, 0, 0), "{does:?}");
    }
}

#[tokio::test]
async fn an_engine_that_refuses_again_is_busy_and_not_asked_a_third_time() {
    for connections in [1, 8] {
        let refused = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refused);
        let engine = Engine::start(move |stream, _| {
            let count = Arc::clone(&count);
            async move {
                let Some(mut frames) = Frames::greet(stream, 100).await else { return };
                while let Some(stream) = frames.request().await {
                    count.fetch_add(1, Ordering::SeqCst);
                    frames.reset(stream, REFUSED_STREAM).await;
                }
            }
        })
        .await;
        let upstream = Upstream::default();
        let origin = h2_origin(&engine, Limits { idle: 8, connections });
        let failure = ask(&upstream, &origin).await.unwrap_err();
        assert_eq!(failure.phase(), Phase::Refused, "{failure}");
        assert!(failure.was_repeated());
        assert_eq!((failure.fault(), failure.retry()), (Fault::Nobody, Retry::Safe));
        assert!(failure.why().starts_with("h2: the engine refused the request"), "{failure}");
        assert_eq!(refused.load(Ordering::SeqCst), 2);
        // Over another connection, where there may be one.
        assert_eq!(engine.accepted(), connections.min(2));
        assert_eq!(stats(&upstream).refused, 1);
    }
}

#[tokio::test]
async fn a_stream_given_up_in_good_order_is_no_complete_answer() {
    for data in [&b""[..], b"begun"] {
        let engine = Engine::start(move |stream, _| async move {
            let Some(mut frames) = Frames::greet(stream, 100).await else { return };
            let Some(stream) = frames.request().await else { return };
            frames.send(HEADERS, END_HEADERS, stream, OK).await;
            if !data.is_empty() {
                frames.send(DATA, 0, stream, data).await;
            }
            frames.reset(stream, NO_ERROR).await;
            frames.request().await;
        })
        .await;
        let origin = h2_origin(&engine, Limits::default());
        let begun = begin(&Upstream::default(), &origin).await;
        if data.is_empty() {
            assert_eq!(begun.unwrap_err().phase(), Phase::Broke);
        } else {
            let broken = rest(begun.unwrap()).await.unwrap_err();
            assert!(matches!(broken, Broken::Short), "{broken}");
        }
    }
}

#[tokio::test]
async fn a_request_that_h2_cannot_say_is_its_own_fault() {
    let (engine, requests) = engine_that(Does::Close).await;
    let connect = || {
        let mut request = request();
        *request.method_mut() = http::Method::CONNECT;
        request
    };
    let origin = h2_origin(&engine, Limits::default());
    let sent = Upstream::default().send(&origin, PATIENCE, || true, connect).await;
    let failure = sent.unwrap_err();
    assert_eq!(failure.phase(), Phase::Invalid, "{failure}");
    assert_eq!((failure.fault(), failure.retry()), (Fault::Client, Retry::Never));
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}

/// A complete answer to a request of which the engine wants no more (RFC 9113, 8.1).
#[tokio::test]
async fn a_complete_answer_stays_one_when_the_rest_of_the_request_is_not_wanted() {
    let engine = Engine::start(|stream, _| async move {
        let Some(mut frames) = Frames::greet(stream, 100).await else { return };
        while let Some(stream) = frames.head().await {
            frames.answer(stream).await;
            frames.reset(stream, NO_ERROR).await;
        }
    })
    .await;
    // More than the window of a stream, so that it is still being sent.
    let large = || {
        let (parts, _) = request().into_parts();
        http::Request::from_parts(parts, Full::new(Bytes::from(vec![b' '; 1 << 20])))
    };
    let (upstream, origin) = (Upstream::default(), h2_origin(&engine, Limits::default()));
    for _ in 0..3 {
        let started = upstream.send(&origin, PATIENCE, || true, large).await.unwrap();
        assert_eq!(rest(started).await.unwrap(), "ok");
    }
    assert_eq!(stats(&upstream).connects[0], 1, "nothing was wrong with the connection");
}
