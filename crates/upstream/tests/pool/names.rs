//! Names: looked up anew, remembered for a while, followed when they move.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvasir_upstream::{Limits, Lookup, Options, Origin, Phase, Resolve, Upstream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::engine::{Engine, ask, stats, until};

/// Answers as told; the last answer again and again.
#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<(VecDeque<Said>, usize)>>);

type Said = Result<Vec<SocketAddr>, &'static str>;

impl Fake {
    fn says(answers: impl IntoIterator<Item = Said>) -> Self {
        Self(Arc::new(Mutex::new((answers.into_iter().collect(), 0))))
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl Resolve for Fake {
    fn resolve(&self, host: &str, port: u16) -> Lookup {
        assert_eq!((host, port), ("engine.test", 8000));
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        let next = match state.0.len() {
            1 => state.0[0].clone(),
            _ => state.0.pop_front().unwrap(),
        };
        Box::pin(async move { next.map_err(io::Error::other) })
    }
}

fn over(fake: &Fake, lifetime: Duration) -> (Upstream, Origin) {
    let resolver = Arc::new(fake.clone());
    let upstream = Upstream::new(Options { lifetime, resolver, ..Options::default() });
    let authority = "engine.test:8000".parse().unwrap();
    (upstream, Origin::new(authority, None, false, Limits::default()))
}

#[tokio::test]
async fn an_engine_is_followed_to_its_new_address() {
    let (old, new) = (Engine::plain().await, Engine::plain().await);
    let fake = Fake::says([Ok(vec![old.addr]), Ok(vec![new.addr])]);
    let (upstream, origin) = over(&fake, Duration::from_millis(200));
    let start = std::time::Instant::now();
    while new.accepted() == 0 {
        ask(&upstream, &origin).await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(30), "still at the old address");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(old.accepted() > 1, "it was there for a while");
    // A name is remembered for five seconds, not asked for with every connection.
    assert!(start.elapsed() >= Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(fake.asked(), 2);
}

#[tokio::test]
async fn all_addresses_are_tried() {
    let engine = Engine::plain().await;
    // Nobody listens there.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fake = Fake::says([Ok(vec![gone, engine.addr])]);
    let (upstream, origin) = over(&fake, Duration::from_secs(300));
    assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
    let fake = Fake::says([Ok(vec![gone])]);
    let (upstream, origin) = over(&fake, Duration::from_secs(300));
    let failure = ask(&upstream, &origin).await.unwrap_err();
    assert_eq!(failure.phase(), Phase::Tcp);
    assert!(failure.why().contains(&gone.to_string()), "{failure}");
}

#[tokio::test]
async fn without_an_answer_the_last_one_does() {
    let engine = Engine::plain().await;
    let fake = Fake::says([Err("no name server")]);
    let (upstream, origin) = over(&fake, Duration::from_millis(1));
    let failure = ask(&upstream, &origin).await.unwrap_err();
    assert_eq!(failure.phase(), Phase::Dns);
    assert_eq!(failure.why(), "cannot look up `engine.test`: no name server");
    assert_eq!(stats(&upstream).connects, [0, 0, 1, 0, 0]);

    let fake = Fake::says([Ok(vec![engine.addr]), Err("no name server")]);
    let (upstream, origin) = over(&fake, Duration::from_millis(1));
    let start = std::time::Instant::now();
    while upstream.stale_names() == 0 {
        assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
        assert!(start.elapsed() < Duration::from_secs(30), "never asked again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // While one asks, or just has, the others need not.
    ask(&upstream, &origin).await.unwrap();
    assert_eq!(fake.asked(), 2);
}

/// Answers when told.
struct Slow {
    asked: AtomicUsize,
    go: Notify,
    said: Said,
}

/// A [`Slow`] that is shared.
struct Shared(Arc<Slow>);

impl Resolve for Shared {
    fn resolve(&self, _: &str, _: u16) -> Lookup {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let slow = Arc::clone(&self.0);
        Box::pin(async move {
            slow.go.notified().await;
            slow.said.clone().map_err(io::Error::other)
        })
    }
}

#[tokio::test]
async fn a_name_is_looked_up_once_for_all_who_need_it() {
    let engine = Engine::plain().await;
    for said in [Ok(vec![engine.addr]), Err("no name server")] {
        let slow =
            Arc::new(Slow { asked: AtomicUsize::new(0), go: Notify::new(), said: said.clone() });
        let resolver = Arc::new(Shared(Arc::clone(&slow)));
        let upstream = Upstream::new(Options { resolver, ..Options::default() });
        let authority = "engine.test:8000".parse().unwrap();
        let origin = Origin::new(authority, None, false, Limits::default());
        // Who asked first leaves.
        let first = tokio::time::timeout(Duration::from_millis(20), ask(&upstream, &origin));
        assert!(first.await.is_err());
        let mut all = JoinSet::new();
        for _ in 0..50 {
            let (upstream, origin) = (upstream.clone(), origin.clone());
            all.spawn(async move { ask(&upstream, &origin).await });
        }
        until("all wait", || stats(&upstream).busy == 50).await;
        assert_eq!(slow.asked.load(Ordering::SeqCst), 1);
        slow.go.notify_one();
        for answer in all.join_all().await {
            match (&said, answer) {
                (Ok(_), answer) => assert_eq!(answer.unwrap(), "ok"),
                (Err(why), answer) => {
                    let failure = answer.unwrap_err();
                    assert_eq!(failure.why(), format!("cannot look up `engine.test`: {why}"));
                }
            }
        }
        assert_eq!(slow.asked.load(Ordering::SeqCst), 1, "{said:?}");
        // What failed is not remembered.
        slow.go.notify_one();
        let again = ask(&upstream, &origin).await;
        assert_eq!(again.is_ok(), said.is_ok());
        assert_eq!(slow.asked.load(Ordering::SeqCst), 1 + usize::from(said.is_err()));
    }
}

#[tokio::test]
async fn a_name_server_that_says_nothing_keeps_nobody_from_the_last_address() {
    let engine = Engine::plain().await;
    let slow = Arc::new(Slow {
        asked: AtomicUsize::new(0),
        go: Notify::new(),
        said: Ok(vec![engine.addr]),
    });
    let resolver = Arc::new(Shared(Arc::clone(&slow)));
    let lifetime = Duration::from_millis(1);
    let upstream = Upstream::new(Options { lifetime, resolver, ..Options::default() });
    let authority = "engine.test:8000".parse().unwrap();
    let origin = Origin::new(authority, None, false, Limits::default());
    slow.go.notify_one();
    let start = std::time::Instant::now();
    while upstream.stale_names() == 0 {
        let asked = std::time::Instant::now();
        assert_eq!(ask(&upstream, &origin).await.unwrap(), "ok");
        assert!(asked.elapsed() < Duration::from_secs(8), "it waited for the name server");
        assert!(start.elapsed() < Duration::from_secs(30), "never asked again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It is still being asked: the others need not wait at all.
    ask(&upstream, &origin).await.unwrap();
    assert_eq!(slow.asked.load(Ordering::SeqCst), 2);
}
