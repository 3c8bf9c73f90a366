//! How many connections there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvasir_upstream::{Limits, Patience, Phase, Upstream};
use tokio::io::AsyncWriteExt as _;

use crate::engine::{ANSWER, Engine, SOON, ask, begin, origin, read_request, request, rest, stats};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_allowed_are_open_and_none_is_lost() {
    let open = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counts = Arc::clone(&open);
    let engine = Engine::start(move |mut stream, number| {
        let counts = Arc::clone(&counts);
        async move {
            let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
            counts.1.fetch_max(now, Ordering::SeqCst);
            // Some are closed after a few answers, so that places are passed on as well.
            for n in 0.. {
                if read_request(&mut stream).await.is_none() || (number % 2 == 0 && n == 5) {
                    break;
                }
                stream.write_all(ANSWER).await.unwrap();
            }
            counts.0.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    let upstream = Upstream::default();
    let origin = origin(engine.addr, Limits { idle: 2, connections: 3 });
    let clients: Vec<_> = (0..40_u64)
        .map(|n| {
            let (upstream, origin) = (upstream.clone(), origin.clone());
            tokio::spawn(async move {
                for _ in 0..25 {
                    // Some leave while they wait.
                    if n % 4 == 0 {
                        let asked = ask(&upstream, &origin);
                        let _ = tokio::time::timeout(Duration::from_micros(n * 100), asked).await;
                    }
                    assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    // The engine may learn of a closed one a moment after its place was given on.
    let most = open.1.load(Ordering::SeqCst);
    assert!(most <= 6, "{most} were open at a time");
    let stats = stats(&upstream);
    assert_eq!((stats.busy, stats.waiting), (0, 0), "{stats:?}");
    assert!(stats.idle <= 2, "{stats:?}");
}

#[tokio::test]
async fn waiting_for_a_connection_has_an_end_and_says_so() {
    let engine = Engine::start(|mut stream, _| async move {
        read_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbegun").await.unwrap();
        read_request(&mut stream).await;
    })
    .await;
    let upstream = Upstream::default();
    let origin = origin(engine.addr, Limits { idle: 1, connections: 1 });
    let held = begin(&upstream, &origin).await.unwrap();
    let patience = Patience { connect: Duration::from_millis(60), first_data: SOON };
    let asked = Instant::now();
    let failure = upstream.send(&origin, patience, || true, request).await.unwrap_err();
    assert!(asked.elapsed() >= patience.connect);
    assert_eq!(failure.phase(), Phase::Pool);
    let why = "no connection within 60 ms: all 1 connections to the engine are busy";
    assert_eq!(failure.why(), why);
    assert_eq!(stats(&upstream).connects, [1, 1, 0, 0, 0]);
    // The next in line gets the place of what is dropped.
    let (waits, ()) = tokio::join!(begin(&upstream, &origin), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(stats(&upstream).waiting, 1);
        drop(held);
    });
    waits.unwrap();
}

#[tokio::test]
async fn the_next_in_line_gets_a_connection_that_is_done_with() {
    let engine = Engine::plain().await;
    let upstream = Upstream::default();
    let origin = origin(engine.addr, Limits { idle: 0, connections: 1 });
    let held = begin(&upstream, &origin).await.unwrap();
    // An answer that is complete holds nothing.
    rest(held).await.unwrap();
    let all = (0..20).map(|_| ask(&upstream, &origin));
    let all: Vec<_> = futures(all).await;
    assert!(all.iter().all(|answer| answer == "ok"));
    assert!(engine.accepted() < 20, "{}", engine.accepted());
    assert_eq!(stats(&upstream).idle, 0);
}

async fn futures<T: Send + 'static>(
    all: impl Iterator<Item = impl Future<Output = Result<T, kvasir_upstream::Failure>>>,
) -> Vec<T> {
    let mut done = Vec::new();
    let mut all: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        all.retain_mut(|one| match one.as_mut().poll(cx) {
            std::task::Poll::Ready(value) => {
                done.push(value.unwrap());
                false
            }
            std::task::Poll::Pending => true,
        });
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}
