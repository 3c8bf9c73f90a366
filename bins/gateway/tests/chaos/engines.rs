//! Simulated engines, and what is done to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{CostModel, EngineConfig};
use kvasir_testkit::client;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::random::Random;

const BLOCKS: usize = 2_000;
/// For what must come true when the torment is over.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Engines(Vec<SimServer>);

impl Engines {
    pub(crate) async fn start(count: usize) -> Self {
        let mut engines = Vec::new();
        for _ in 0..count {
            let config = SimServerConfig::default();
            let engine = EngineConfig {
                num_blocks: BLOCKS,
                max_model_len: 4_096,
                cost: CostModel::DEMO,
                ..config.engine
            };
            let model = "tiny".to_owned();
            let config = SimServerConfig { engine, model, faults: true, ..config };
            engines.push(SimServer::start(config).await.expect("an engine starts"));
        }
        Self(engines)
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().map(SimServer::url).collect()
    }

    /// Does something bad to one of them, again and again.
    pub(crate) async fn torment(self: Arc<Self>, mut random: Random) {
        let requests = "/v1/completions";
        loop {
            let engine = random.of(&self.0);
            let once = |http: &str| json!({"http": http, "path": requests, "once": true});
            let (path, order, lasts) = match random.below(10) {
                0 => ("/sim/restart", json!({"down_ms": random.below(400)}), 0),
                1 => ("/sim/faults", json!({"http": "hang", "path": "", "once": false}), 400),
                2 => ("/sim/faults", json!({"http": "slow:150", "path": "", "once": false}), 300),
                3 => (
                    "/sim/faults",
                    json!({"http": "error:500", "path": requests, "once": false}),
                    100,
                ),
                4 => (
                    "/sim/faults",
                    json!({"http": "error:503", "path": requests, "once": false}),
                    100,
                ),
                5 => ("/sim/faults", once("error:429"), 20),
                6 => ("/sim/faults", once("garbage"), 20),
                7 | 8 => ("/sim/faults", once("reset_mid_body"), 20),
                _ => ("/sim/faults", json!({"keep_alive_ms": random.of(&[1, 20, 200])}), 200),
            };
            // One that is down takes no orders.
            let _ = order_to(engine, path, &order).await;
            sleep(Duration::from_millis(lasts)).await;
            if path == "/sim/faults" {
                let _ = order_to(engine, path, &calm()).await;
            }
            sleep(Duration::from_millis(random.below(40))).await;
        }
    }

    /// Ends all of it.
    pub(crate) async fn behave(&self) {
        for engine in &self.0 {
            let began = Instant::now();
            while order_to(engine, "/sim/faults", &calm()).await.is_err() {
                assert!(began.elapsed() < PATIENCE, "{} does not come back", engine.url());
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Waits until none of them has anything to do.
    pub(crate) async fn until_idle(&self) {
        let began = Instant::now();
        loop {
            let busy: Vec<_> = self.0.iter().map(SimServer::stats).collect();
            if busy.iter().all(|stats| stats.running == 0 && stats.waiting == 0) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "still at work: {busy:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn calm() -> Value {
    json!({"http": "ok", "path": "", "once": false, "keep_alive_ms": null})
}

async fn order_to(engine: &SimServer, path: &str, order: &Value) -> std::io::Result<()> {
    let url = engine.url();
    let addr: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
    let answer = client::post(addr, path, order.to_string().as_bytes()).await?;
    assert!(matches!(answer.status, 200 | 202), "{}", answer.text());
    Ok(())
}
