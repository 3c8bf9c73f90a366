//! Many clients, each with one connection and one request at a time.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kvasir_testkit::client::RawClient;
use tokio::time::timeout;

use crate::answers::{Asked, Ended};
use crate::random::Random;

/// Above all time limits of the gateway, for a machine that is slow.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Load {
    addr: SocketAddr,
    requests: u64,
    begun: AtomicU64,
    stopped: AtomicBool,
    complete: AtomicU64,
    errors: AtomicU64,
    broken_streams: AtomicU64,
}

/// How requests ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) all: u64,
    pub(crate) complete: u64,
    pub(crate) errors: u64,
    pub(crate) broken_streams: u64,
}

impl Load {
    pub(crate) fn new(addr: SocketAddr, requests: u64) -> Self {
        Self {
            addr,
            requests,
            begun: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            complete: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            broken_streams: AtomicU64::new(0),
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn share_done(&self) -> f64 {
        self.begun.load(Ordering::Relaxed) as f64 / self.requests as f64
    }

    pub(crate) fn is_done(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.share_done() >= 1.0
    }

    pub(crate) fn seen(&self) -> Seen {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (complete, errors) = (read(&self.complete), read(&self.errors));
        let broken_streams = read(&self.broken_streams);
        Seen { all: complete + errors + broken_streams, complete, errors, broken_streams }
    }

    /// One client, until all requests are made. Panics where an answer is none.
    pub(crate) async fn client(self: Arc<Self>, client: u64, mut random: Random) {
        let mut connection = None;
        while !self.is_done() {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests {
                break;
            }
            let asked = asked(&format!("chaos-{client}-{number}-"), &mut random);
            let ended = timeout(DEADLINE, self.one(&asked, &mut connection)).await;
            let ended = ended.unwrap_or_else(|_| Err("no end in time".to_owned()));
            let count = match ended {
                Ok(Ended::Complete) => &self.complete,
                Ok(Ended::Error) => &self.errors,
                Ok(Ended::BrokenStream) => &self.broken_streams,
                Err(why) => {
                    self.stop();
                    panic!("{why}; for {} (stream {})", asked.id, asked.stream);
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn one(&self, asked: &Asked, kept: &mut Option<RawClient>) -> Result<Ended, String> {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => {
                let connected = RawClient::connect(self.addr).await;
                connected.map_err(|error| format!("connect: {error}"))?.with_deadline(DEADLINE)
            }
        };
        asked.send(&mut connection).await.map_err(|error| format!("send: {error}"))?;
        let ended = asked.answer(&mut connection).await?;
        *kept = Some(connection);
        Ok(ended)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, complete, errors, broken_streams } = self;
        write!(
            f,
            "{all} requests: {complete} complete, {errors} errors, {broken_streams} streams with an error at their end"
        )
    }
}

/// A prompt of some of twenty prefixes, and a rest of its own.
pub(crate) fn asked(id: &str, random: &mut Random) -> Asked {
    let prefix = u32::try_from(random.below(20)).unwrap_or_default() * 200;
    let mut prompt: Vec<u32> = (prefix..prefix + 16 * (prefix / 200 + 1)).collect();
    prompt.extend((0..8).map(|_| u32::try_from(random.below(4_000)).unwrap_or_default()));
    let stream = random.below(2) == 0;
    Asked { id: id.to_owned(), prompt, tokens: 1 + random.below(12), stream }
}
