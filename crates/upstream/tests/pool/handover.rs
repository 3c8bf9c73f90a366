//! Which HTTP/1.1 connections go back to those kept, and which do not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvasir_upstream::{Limits, Upstream};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::engine::{
    ANSWER, Engine, PATIENCE, SOON, ask, begin, origin, read_request, request, rest, stats, until,
};

/// One that gives this answer to every request, and keeps its connections.
async fn says(answer: &'static [u8]) -> Engine {
    Engine::start(move |mut stream, _| async move {
        while read_request(&mut stream).await.is_some() {
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn only_a_connection_that_is_clean_is_used_again() {
    let cases: [(&[u8], bool); 8] = [
        (ANSWER, true),
        (b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", true),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", false),
        (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\ncontent-length: 2\r\n\r\nok", false),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", false),
        // More than was announced: nobody can tell whose answer the rest is.
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok!", false),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 500 No\r\n\r\n", false),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 ",
            false,
        ),
    ];
    for (answer, is_clean) in cases {
        let (engine, upstream) = (says(answer).await, Upstream::default());
        let origin = engine.origin();
        let said = String::from_utf8_lossy(answer);
        for n in 1..=3 {
            assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok", "{said:?}");
            assert_eq!(engine.accepted(), if is_clean { 1 } else { n }, "{said:?}");
        }
        let stats = stats(&upstream);
        assert_eq!(stats.reused, if is_clean { 2 } else { 0 }, "{said:?}");
        assert_eq!((stats.idle, stats.busy), (usize::from(is_clean), 0), "{said:?}");
    }
}

#[tokio::test]
async fn what_comes_unasked_while_a_connection_is_kept_ends_it() {
    let unasked = Arc::new(Notify::new());
    let told = Arc::clone(&unasked);
    let engine = Engine::start(move |mut stream, number| {
        let unasked = Arc::clone(&told);
        async move {
            while read_request(&mut stream).await.is_some() {
                stream.write_all(ANSWER).await.unwrap();
                if number == 0 {
                    unasked.notified().await;
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")
                        .await
                        .unwrap();
                }
            }
        }
    })
    .await;
    let (upstream, origin) = (Upstream::default(), engine.origin());
    assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
    assert_eq!(stats(&upstream).idle, 1);
    unasked.notify_one();
    until("it is closed", || stats(&upstream).idle == 0).await;
    assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
    assert_eq!(engine.accepted(), 2);
}

#[tokio::test]
async fn an_answer_left_half_way_takes_its_connection_along_and_no_other() {
    let engine = Engine::start(|mut stream, number| async move {
        while read_request(&mut stream).await.is_some() {
            let half: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nha";
            let answer = if number == 0 { half } else { ANSWER };
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    let (upstream, origin) = (Upstream::default(), engine.origin());
    let half = begin(&upstream, &origin).await.unwrap();
    assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
    drop(half);
    assert_eq!((stats(&upstream).idle, stats(&upstream).busy), (1, 0));
    assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
    assert_eq!((engine.accepted(), stats(&upstream).reused), (2, 1));
}

#[tokio::test]
async fn no_more_are_kept_than_allowed() {
    let gone = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&gone);
    let engine = Engine::start(move |mut stream, _| {
        let gone = Arc::clone(&seen);
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no").await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            let _ = stream.write_all(b"k").await;
            read_request(&mut stream).await;
            gone.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let upstream = Upstream::default();
    let origin = origin(engine.addr, Limits { idle: 2, connections: 8 });
    let mut begun = Vec::new();
    for _ in 0..5 {
        begun.push(begin(&upstream, &origin).await.unwrap());
    }
    assert_eq!((stats(&upstream).idle, stats(&upstream).busy), (0, 5));
    for started in begun {
        assert_eq!(rest(started).await.unwrap(), "ok");
    }
    assert_eq!((stats(&upstream).idle, stats(&upstream).busy), (2, 0));
    until("those beyond are closed", || gone.load(Ordering::SeqCst) == 3).await;
}

#[tokio::test]
async fn the_engine_that_may_have_got_it_is_asked_again_only_by_leave() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    // Every second request of the first connection breaks.
    let engine = Engine::start(move |mut stream, number| {
        let seen = Arc::clone(&seen);
        async move {
            for n in 0.. {
                if read_request(&mut stream).await.is_none() {
                    return;
                }
                seen.lock().unwrap().push(number);
                if number % 2 == 0 && n == 1 {
                    return;
                }
                stream.write_all(ANSWER).await.unwrap();
            }
        }
    })
    .await;
    let (upstream, origin) = (Upstream::default(), engine.origin());
    let asked = AtomicUsize::new(0);
    let may_repeat = || asked.fetch_add(1, Ordering::SeqCst) > 0;
    let sent = upstream.send(&origin, PATIENCE, may_repeat, request).await.unwrap();
    rest(sent).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 0, "nothing broke yet");
    upstream.send(&origin, PATIENCE, may_repeat, request).await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!((requests.lock().unwrap().len(), stats(&upstream).repeated), (2, 0));
    // With leave it is; and a connection that was just opened is not asked for.
    for _ in 0..2 {
        rest(upstream.send(&origin, PATIENCE, may_repeat, request).await.unwrap()).await.unwrap();
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn who_must_have_a_new_connection_does_not_lose_its_turn() {
    // The first connection breaks with its second request; there may be one at a time.
    let engine = Engine::start(|mut stream, number| async move {
        for n in 0.. {
            if read_request(&mut stream).await.is_none() || (number == 0 && n == 1) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            stream.write_all(ANSWER).await.unwrap();
        }
    })
    .await;
    let upstream = Upstream::default();
    let origin = origin(engine.addr, Limits { idle: 1, connections: 1 });
    ask(&upstream, &origin).await.unwrap();
    let many = |count: usize| {
        let mut all = JoinSet::new();
        for _ in 0..count {
            let (upstream, origin) = (upstream.clone(), origin.clone());
            all.spawn(async move { assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok") });
        }
        all
    };
    let before = many(16);
    // It waits behind those, and these behind it.
    until("one broke", || stats(&upstream).repeated == 1).await;
    let after = many(16);
    let all = async { (before.join_all().await, after.join_all().await) };
    tokio::time::timeout(SOON, all).await.expect("one waits for ever");
    // The first, the next in line's, and the one for the request that broke, which nobody else got.
    assert_eq!(engine.accepted(), 3);
    assert_eq!(stats(&upstream).repeated, 1);
}
