//! Requests to the gateway, one at a time or many at once.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kvasir_testkit::client::RawClient;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::fleet::PATIENCE;
use crate::harness::{COMPLETIONS, Decision};

/// What became of one request.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    /// 0 where no answer came.
    status: u16,
    error: Option<String>,
    pub(crate) endpoint: String,
    trust: String,
    pub(crate) tokens: u64,
    pub(crate) predicted: u64,
    /// What the engine said; 0 where it said nothing.
    pub(crate) reported: u64,
    pub(crate) told: Option<u64>,
}

impl Outcome {
    pub(crate) fn is_whole(&self) -> bool {
        self.status == 200 && self.error.is_none()
    }
}

/// A prompt of some family: it begins like the others of it, and goes on in its own way.
pub(crate) fn prompt(family: u32, member: u32) -> Vec<u32> {
    // Any fixed walk through the 4,096 ids of the model's vocabulary, less the special ones.
    let walk = |seed: u32, len: u32| {
        (0..len).map(move |at| {
            let mixed = (seed.wrapping_mul(2_654_435_761) ^ at.wrapping_mul(40_503)) >> 7;
            100 + (mixed.wrapping_add(at * 7)) % 3_900
        })
    };
    let common = 200 + family * 37 % 320;
    walk(family + 1, common)
        .chain(walk(10_000 + family * 100 + member, 20 + member * 13 % 90))
        .collect()
}

pub(crate) fn body(prompt: &[u32]) -> Value {
    json!({"model": "tiny", "prompt": prompt, "max_tokens": 3, "ignore_eos": true})
}

/// Sends one prompt on a connection of its own.
pub(crate) async fn ask(addr: SocketAddr, prompt: &[u32]) -> Outcome {
    let begun = Instant::now();
    let mut found = Outcome {
        begun,
        ended: begun,
        status: 0,
        error: None,
        endpoint: String::new(),
        trust: String::new(),
        tokens: prompt.len() as u64,
        predicted: 0,
        reported: 0,
        told: None,
    };
    let bytes = body(prompt).to_string();
    let answer = async {
        let mut client = RawClient::connect(addr).await?.with_deadline(PATIENCE);
        let headers = [("content-type", "application/json")];
        client.send("POST", COMPLETIONS, &headers, bytes.as_bytes()).await?;
        client.response().await
    };
    match answer.await {
        Ok(answer) => {
            found.status = answer.status;
            if found.status == 200 {
                let decision = Decision::of(&answer);
                let told = &answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"];
                found.told = told.as_u64();
                found.reported = found.told.unwrap_or(0);
                found.predicted = decision.overlap;
                (found.endpoint, found.trust) = (decision.endpoint, decision.trust);
            } else {
                found.error = Some(answer.text());
            }
        }
        Err(error) => found.error = Some(error.to_string()),
    }
    found.ended = Instant::now();
    found
}

/// Clients that send one request after the other until they are stopped.
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

struct Shared {
    addr: Mutex<SocketAddr>,
    stop: AtomicBool,
    next: AtomicU32,
    found: Mutex<Vec<Outcome>>,
}

impl Traffic {
    pub(crate) fn start(addr: SocketAddr, clients: u32, families: Range<u32>) -> Self {
        let shared = Arc::new(Shared {
            addr: Mutex::new(addr),
            stop: AtomicBool::new(false),
            next: AtomicU32::new(0),
            found: Mutex::default(),
        });
        let mut set = JoinSet::new();
        for _ in 0..clients {
            let (shared, families) = (Arc::clone(&shared), families.clone());
            set.spawn(async move {
                while !shared.stop.load(Ordering::Relaxed) {
                    let n = shared.next.fetch_add(1, Ordering::Relaxed);
                    let family = families.start + n * 7 % (families.end - families.start);
                    let addr = *shared.addr.lock().unwrap();
                    let found = ask(addr, &prompt(family, 100 + n)).await;
                    shared.found.lock().unwrap().push(found);
                }
            });
        }
        Self { shared, clients: set }
    }

    /// Requests answered so far, well or badly.
    pub(crate) fn count(&self) -> usize {
        self.shared.found.lock().unwrap().len()
    }

    /// Waits until so many requests are answered.
    pub(crate) async fn until(&self, count: usize) {
        let begun = Instant::now();
        while self.count() < count {
            assert!(begun.elapsed() < PATIENCE, "{} of {count} requests", self.count());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// New requests go there.
    pub(crate) fn turn_to(&self, addr: SocketAddr) {
        *self.shared.addr.lock().unwrap() = addr;
    }

    /// Ends when so many requests are answered.
    pub(crate) async fn after(self, count: usize) -> Vec<Outcome> {
        self.until(count).await;
        self.stop().await
    }

    /// Lets every client end its last request.
    pub(crate) async fn stop(mut self) -> Vec<Outcome> {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        std::mem::take(&mut self.shared.found.lock().unwrap())
    }
}
