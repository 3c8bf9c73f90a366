//! Clients that leave, at every stage: engines stop computing for them, and nothing stays counted.

use kvasir_testkit::client::RawClient;
use kvasir_testkit::eventually_async;

use super::{SLOW, Sim, ask, body, open, over};
use crate::harness::{COMPLETIONS, Gateway, SOON, ids};

/// When a client leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Upload,
    /// The engine has the request and has not begun to answer.
    BeforeHead {
        streamed: bool,
    },
    /// Of an answer that comes as a whole, some of it is computed.
    WhileComputing,
    AfterEvents(usize),
}

const STAGES: [Stage; 6] = [
    Stage::Upload,
    Stage::BeforeHead { streamed: false },
    Stage::BeforeHead { streamed: true },
    Stage::WhileComputing,
    Stage::AfterEvents(1),
    Stage::AfterEvents(10),
];

/// Sends a request and gets as far as this with it.
async fn reach(stage: Stage, gateway: &Gateway, sim: &Sim, prompt: &[u32]) -> RawClient {
    let before = sim.stats();
    let there = || sim.stats().running + sim.stats().waiting > 0;
    match stage {
        Stage::Upload => {
            let mut client = gateway.connect().await;
            let whole = body(prompt, 1_000, true);
            let head = format!(
                "POST {COMPLETIONS} HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n\r\n",
                whole.len()
            );
            client.write(head.as_bytes()).await.unwrap();
            client.write(&whole.as_bytes()[..whole.len() / 2]).await.unwrap();
            client
        }
        Stage::BeforeHead { streamed } => {
            let client = gateway.sent(COMPLETIONS, body(prompt, 1_000, streamed).as_bytes()).await;
            eventually_async(SOON, there).await;
            client
        }
        Stage::WhileComputing => {
            let client = gateway.sent(COMPLETIONS, body(prompt, 1_000, false).as_bytes()).await;
            let tokens = before.generation_tokens + 3;
            eventually_async(SOON, || sim.stats().generation_tokens >= tokens).await;
            client
        }
        Stage::AfterEvents(count) => {
            let (mut client, _) = open(gateway.addr(), prompt, 1_000).await;
            for _ in 0..count {
                client.event().await.unwrap().unwrap();
            }
            assert!(there());
            client
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_forgotten_by_engine_and_gateway() {
    let sims = [Sim::start(4_000, SLOW).await];
    let (gateway, sim) = (over(&sims, "latency").await, &sims[0]);
    let mut left = 0;
    for (number, stage) in (0..).zip(STAGES) {
        for reset in [true, false] {
            // A new one each time: its prefill takes a tenth of a second.
            let prompt = ids(1_000_000 * number + 10_000 * u32::from(reset), 1_000);
            let client = reach(stage, &gateway, sim, &prompt).await;
            if reset {
                client.abort().unwrap();
            } else {
                client.close();
            }
            left += 1;
            eventually_async(SOON, || gateway.access_lines().len() == left).await;
            gateway.until_idle().await;
            eventually_async(SOON, || {
                let stats = sim.stats();
                (stats.running, stats.waiting, stats.used_blocks) == (0, 0, 0)
            })
            .await;
            assert_eq!(sim.stats().finished, 0, "{stage:?}: computed to the end for nobody");
        }
    }
    let outcomes: Vec<_> = gateway.access_lines().iter().map(|l| l["outcome"].clone()).collect();
    let gone = |outcome: &serde_json::Value| outcome == "client_left";
    assert!(outcomes[2..].iter().all(gone), "{outcomes:?}");
    assert_eq!(ask(&gateway, &ids(1, 20), 2).await.tokens, 2);
}
