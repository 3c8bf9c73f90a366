//! Connections that are kept, and what engines do to them meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kvasir_upstream::{Limits, Options, Phase, Upstream};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::engine::{
    ANSWER, Engine, PATIENCE, ask, begin, origin, read_request, request, rest, stats, until,
};

#[tokio::test]
async fn a_connection_is_used_again_after_each_kind_of_answer() {
    let engine = Engine::start(|mut stream, _| async move {
        let answers: [&[u8]; 4] = [
            ANSWER,
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ];
        for answer in answers.iter().cycle() {
            if read_request(&mut stream).await.is_none() {
                return;
            }
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    let (upstream, origin) = (Upstream::default(), engine.origin());
    for _ in 0..3 {
        for expected in ["ok", "ok", "", ""] {
            assert_eq!(ask(&upstream, &origin).await.unwrap(), expected);
        }
    }
    assert_eq!(engine.accepted(), 1);
    let stats = stats(&upstream);
    assert_eq!((stats.idle, stats.busy, stats.reused, stats.connects), (1, 0, 11, [1, 0, 0, 0, 0]));
}

#[tokio::test]
async fn the_request_is_as_it_should_be_on_the_wire() {
    let engine = Engine::start(|mut stream, _| async move {
        let seen = read_request(&mut stream).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", seen.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&seen).await.unwrap();
    })
    .await;
    let seen = ask(&Upstream::default(), &engine.origin()).await.unwrap();
    let seen = String::from_utf8(seen.to_vec()).unwrap();
    assert!(seen.starts_with("POST /v1/completions?a=b HTTP/1.1\r\n"), "{seen}");
    assert_eq!(seen.matches(&format!("host: {}\r\n", engine.addr)).count(), 1, "{seen}");
    assert!(seen.ends_with("\r\n\r\n{\"prompt\":1}"), "{seen}");
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_closes_its_connection() {
    let closed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&closed);
    let engine = Engine::start(move |mut stream, _| {
        let closed = Arc::clone(&seen);
        async move {
            read_request(&mut stream).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbegun").await.unwrap();
            assert!(read_request(&mut stream).await.is_none(), "it was used again");
            closed.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let (upstream, origin) = (Upstream::default(), engine.origin());
    for n in 1..4 {
        drop(begin(&upstream, &origin).await.unwrap());
        until("the engine learns of it", || closed.load(Ordering::SeqCst) == n).await;
    }
    // A request whose answer has not begun, likewise.
    let silent = Engine::start(|mut stream, _| async move {
        read_request(&mut stream).await.unwrap();
        read_request(&mut stream).await;
    })
    .await;
    let origin = silent.origin();
    let asked = tokio::time::timeout(Duration::from_millis(50), begin(&upstream, &origin)).await;
    assert!(asked.is_err());
    assert!(upstream.stats().iter().all(|stats| (stats.idle, stats.busy) == (0, 0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_meet_connections_that_are_just_being_closed() {
    // Every connection carries one answer, or three, and is closed with the next request on its way.
    let engine = Engine::start(|mut stream, number| async move {
        for _ in 0..=(number % 3) {
            if read_request(&mut stream).await.is_none() {
                return;
            }
            stream.write_all(ANSWER).await.unwrap();
        }
        match number % 4 {
            0 => {}
            1 => tokio::task::yield_now().await,
            // What was sent meanwhile is not read: the engine's side resets.
            2 => tokio::time::sleep(Duration::from_millis(1)).await,
            _ => stream.set_zero_linger().unwrap(),
        }
    })
    .await;
    let (upstream, origin) = (Upstream::default(), engine.origin());
    let clients = (0..8).map(|_| {
        let (upstream, origin) = (upstream.clone(), origin.clone());
        tokio::spawn(async move {
            for _ in 0..1_250 {
                assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let stats = stats(&upstream);
    assert!(stats.reused > 100, "{stats:?}");
    assert!(stats.unsent + stats.repeated > 100, "the race was not met: {stats:?}");
}

#[tokio::test]
async fn only_what_may_be_repeated_is_sent_twice_and_only_once_more() {
    for (repeatable, times) in [(false, 1), (true, 2)] {
        let broken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&broken);
        // The first request is answered, all others break as soon as they were read.
        let engine = Engine::start(move |mut stream, number| {
            let count = Arc::clone(&count);
            async move {
                if number == 0 {
                    read_request(&mut stream).await.unwrap();
                    stream.write_all(ANSWER).await.unwrap();
                }
                if read_request(&mut stream).await.is_some() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
        .await;
        let (upstream, origin) = (Upstream::default(), engine.origin());
        rest(upstream.send(&origin, PATIENCE, || repeatable, request).await.unwrap())
            .await
            .unwrap();
        let failure = upstream.send(&origin, PATIENCE, || repeatable, request).await.unwrap_err();
        assert_eq!((failure.phase(), failure.was_repeated()), (Phase::Broke, repeatable));
        assert_eq!(broken.load(Ordering::SeqCst), times);
        // Over a new connection a break is the engine's, whatever may be repeated.
        let failure = upstream.send(&origin, PATIENCE, || repeatable, request).await.unwrap_err();
        assert_eq!((failure.phase(), failure.was_repeated()), (Phase::Broke, false));
        assert_eq!(broken.load(Ordering::SeqCst), times + 1);
    }
}

#[tokio::test]
async fn a_kept_connection_that_breaks_later_is_the_engines_fault() {
    let engine = Engine::start(|mut stream, _| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
        read_request(&mut stream).await.unwrap();
        // At work on it for longer than a connection takes to close.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    })
    .await;
    let (upstream, origin) = (Upstream::default(), engine.origin());
    ask(&upstream, &origin).await.unwrap();
    let failure = ask(&upstream, &origin).await.unwrap_err();
    assert_eq!((failure.phase(), failure.was_repeated()), (Phase::Broke, false));
    assert_eq!(engine.accepted(), 1);
}

#[tokio::test]
async fn a_request_that_takes_its_engine_with_it_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = origin(listener.local_addr().unwrap(), Limits::default());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
        read_request(&mut stream).await.unwrap();
        // Nobody can connect any more when the connection ends.
        drop(listener);
    });
    let upstream = Upstream::default();
    ask(&upstream, &origin).await.unwrap();
    let failure = ask(&upstream, &origin).await.unwrap_err();
    assert_eq!((failure.phase(), failure.was_repeated()), (Phase::Broke, true), "{failure}");
    assert_eq!(stats(&upstream).connects, [1, 0, 0, 1, 0]);
}

#[tokio::test]
async fn what_the_engine_closed_is_not_kept_until_it_is_used() {
    let engine = Engine::start(|mut stream, _| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
    })
    .await;
    let upstream = Upstream::default();
    ask(&upstream, &engine.origin()).await.unwrap();
    let origin = engine.origin();
    let started = begin(&upstream, &origin).await.unwrap();
    rest(started).await.unwrap();
    until("closed ones are gone", || {
        upstream.stats().iter().all(|stats| (stats.idle, stats.busy) == (0, 0))
    })
    .await;
}

#[tokio::test]
async fn connections_are_kept_for_as_long_as_either_side_says() {
    let engine = Engine::start(|mut stream, _| async move {
        let kept = b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok";
        while read_request(&mut stream).await.is_some() {
            stream.write_all(kept).await.unwrap();
        }
    })
    .await;
    let (told, origin) = (Upstream::default(), engine.origin());
    ask(&told, &origin).await.unwrap();
    ask(&told, &origin).await.unwrap();
    assert_eq!((stats(&told).idle, engine.accepted()), (1, 1));
    tokio::time::sleep(Duration::from_millis(600)).await;
    ask(&told, &origin).await.unwrap();
    assert_eq!(engine.accepted(), 2, "half a second before the engine closes it, it is not used");

    let plain = Engine::plain().await;
    let idle = Duration::from_millis(30);
    let upstream = Upstream::new(Options { idle, ..Options::default() });
    ask(&upstream, &plain.origin()).await.unwrap();
    until("unused ones are closed", || stats(&upstream).idle == 0).await;

    let lifetime = Duration::from_millis(100);
    let upstream = Upstream::new(Options { lifetime, ..Options::default() });
    let origin = plain.origin();
    let before = plain.accepted();
    let start = std::time::Instant::now();
    while start.elapsed() < lifetime * 2 {
        ask(&upstream, &origin).await.unwrap();
    }
    assert!(plain.accepted() >= before + 2, "an old one is replaced though it was never idle");
}

#[tokio::test]
async fn what_nobody_needs_any_more_is_closed() {
    let closed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&closed);
    let engine = Engine::start(move |mut stream, _| {
        let closed = Arc::clone(&seen);
        async move {
            while read_request(&mut stream).await.is_some() {
                stream.write_all(ANSWER).await.unwrap();
            }
            closed.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let upstream = Upstream::new(Options { idle: Duration::from_secs(600), ..Options::default() });
    ask(&upstream, &engine.origin()).await.unwrap();
    until("an origin that is gone", || upstream.stats().is_empty()).await;
    until("its connection is closed", || closed.load(Ordering::SeqCst) == 1).await;
    let origin = engine.origin();
    ask(&upstream, &origin).await.unwrap();
    drop(upstream);
    until("connections go with their owner", || closed.load(Ordering::SeqCst) == 2).await;
}
