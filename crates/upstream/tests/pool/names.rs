//! Names: looked up anew, remembered for a while, followed when they move.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kvasir_upstream::{Limits, Lookup, Options, Origin, Phase, Resolve, Upstream};

use crate::engine::{Engine, ask, stats};

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
