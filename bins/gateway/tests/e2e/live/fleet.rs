//! Two real engines and the gateway before them.

use std::path::Path;
use std::time::{Duration, Instant};

use kvasir_testkit::client;
use kvasir_testkit::live::LiveServer;
use serde_json::{Value, json};

use super::traffic::{Outcome, ask};
use crate::harness::{Gateway, MetricsPage, until};

/// For what an engine does on a machine that may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Looks at the metrics, 50 ms apart, that must all be alike before events count as over.
const QUIET: u32 = 4;

pub(crate) struct Fleet {
    pub(crate) engines: Vec<LiveServer>,
    pub(crate) gateway: Gateway,
}

/// The engines' own sums, both together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    pub(crate) queries: u64,
    pub(crate) hits: u64,
}

impl Fleet {
    pub(crate) async fn start(args: &[&str]) -> Self {
        let logs = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let begun = Instant::now();
        let mut engines: Vec<LiveServer> =
            (0..2).map(|_| LiveServer::start(args, logs).unwrap()).collect();
        for engine in &mut engines {
            engine.until_up().await;
        }
        println!("two engines are up after {:?}", begun.elapsed());
        let version = client::get(engines[0].addr(), "/version").await.unwrap();
        println!("vLLM {}", version.json()["version"]);
        let gateway = start_gateway(&engines).await;
        Self { engines, gateway }
    }

    /// Starts another gateway and hands over the one there was.
    pub(crate) async fn replace_gateway(&mut self) -> Gateway {
        let fresh = start_gateway(&self.engines).await;
        std::mem::replace(&mut self.gateway, fresh)
    }

    /// Waits for something on the gateway's metrics page.
    pub(crate) async fn until<T>(
        &self,
        deadline: Duration,
        look: impl Fn(&MetricsPage) -> Result<T, String>,
    ) -> T {
        until(deadline, || async { look(&self.gateway.metrics().await) }).await
    }

    /// Waits until these engines' streams are exact and prompts can be tokenised.
    pub(crate) async fn until_exact(&self, engines: &[usize]) {
        let urls: Vec<String> = engines.iter().map(|at| self.engines[*at].url()).collect();
        self.until(PATIENCE, |page| {
            let ready = page.sum("kvasir_pool_tokenizer_ready", &[]) == Some(1.0);
            let states: Vec<String> = urls.iter().map(|url| state(page, url)).collect();
            let exact = ready && states.iter().all(|state| state == "exact");
            exact.then_some(()).ok_or(format!("{states:?}, tokenizer {ready}"))
        })
        .await;
    }

    /// Waits until an engine earns no credit any more.
    pub(crate) async fn until_left(&self, engine: usize) {
        let url = self.engines[engine].url();
        self.until(PATIENCE, |page| {
            let state = state(page, &url);
            (state == "absent" || state == "suspect").then_some(()).ok_or(state)
        })
        .await;
    }

    /// Waits until nothing is under way and no more events come.
    pub(crate) async fn settle(&self) {
        let begun = Instant::now();
        let (mut last, mut alike) = (None, 0);
        while alike < QUIET {
            assert!(begun.elapsed() < PATIENCE, "events do not end");
            let page = self.gateway.metrics().await;
            let idle = page.sum("kvasir_endpoint_in_flight", &[]) == Some(0.0);
            let now = page.sum("kvasir_stream_batches_total", &[]);
            alike = if idle && now == last { alike + 1 } else { 0 };
            last = now;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends prompts one by one, each when the events of all before it have come. None may be
    /// predicted more than it is reported.
    pub(crate) async fn judge(
        &self,
        what: &str,
        prompts: impl Iterator<Item = Vec<u32>>,
    ) -> Vec<Outcome> {
        let mut all = Vec::new();
        for prompt in prompts {
            self.settle().await;
            let found = ask(self.gateway.addr(), &prompt).await;
            assert!(found.is_whole(), "{found:?}");
            all.push(found);
        }
        let count = |wanted: fn(&Outcome) -> bool| all.iter().filter(|found| wanted(found)).count();
        let equal = count(|found| found.predicted == found.reported);
        let less = count(|found| found.predicted < found.reported);
        let hits = count(|found| found.reported > 0);
        println!("{what}: {} one by one, {hits} hit: {equal} equal, {less} less", all.len());
        let more: Vec<&Outcome> =
            all.iter().filter(|found| found.predicted > found.reported).collect();
        assert!(more.is_empty(), "{what}: predicted more than was there: {more:#?}");
        all
    }

    pub(crate) async fn counters(&self) -> Counters {
        let mut sum = Counters { queries: 0, hits: 0 };
        for engine in &self.engines {
            let page = client::get(engine.addr(), "/metrics").await.unwrap().text();
            let of = |name: &str| -> u64 {
                let lines = page.lines().filter(|line| line.starts_with(name));
                lines
                    .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64)
                    .sum()
            };
            sum.queries += of("vllm:prefix_cache_queries_total{");
            sum.hits += of("vllm:prefix_cache_hits_total{");
        }
        sum
    }
}

fn state(page: &MetricsPage, url: &str) -> String {
    page.label("kvasir_endpoint_trust", &[("endpoint", url)], "state").to_owned()
}

async fn start_gateway(engines: &[LiveServer]) -> Gateway {
    let endpoints: Vec<Value> = engines
        .iter()
        .map(|engine| {
            // 0.20 does not say where it publishes.
            json!({"url": engine.url(), "events": engine.publisher(), "replay": engine.replay()})
        })
        .collect();
    Gateway::over(json!({"model": "tiny", "endpoints": endpoints})).await
}
