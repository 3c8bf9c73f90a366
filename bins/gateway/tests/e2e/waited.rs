//! A decision that was made after waiting for room says so, in the decision log and everywhere else.

use std::path::Path;

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, Gateway, SOON, completion, pool, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_says_how_long_was_waited_before_a_decision() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut pool = pool("tiny", &[&engine]);
    pool["admission"] = json!({"max_requests": 1, "queue": {"places": 4, "max_wait_ms": 600_000}});
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("waited-{}", std::process::id()));
    let config = json!({"pools": [pool], "decision_log": {"directory": log}});
    let gateway = Gateway::start(config).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 1.0).await;
    engine.push([Reply::HangBeforeHead]);
    let body = completion(&[1, 2, 3]).to_string();
    let at_work = gateway.sent(COMPLETIONS, body.as_bytes()).await;
    engine.wait_for(1, SOON).await;
    let mut queued = gateway.sent(COMPLETIONS, body.as_bytes()).await;
    gateway.until_metric("kvasir_admission_waiting", &[], 1.0).await;
    at_work.close();
    assert_eq!(queued.response().await.unwrap().status, 200);
    let line = gateway.access_line(|line| line["waited_ms"].is_number()).await;
    let file = log.join("tiny.00000001.jsonl");
    let decisions = until(SOON, || async {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let made: Vec<Value> = lines.filter(|line| line["line"] == "decision").collect();
        if made.len() >= 2 { Ok(made) } else { Err(text) }
    })
    .await;
    let chosen: Vec<&Value> = decisions.iter().filter(|line| line["choice"].is_object()).collect();
    assert_eq!(chosen.len(), 2, "{decisions:#?}");
    assert!(chosen[0].get("waited_ms").is_none(), "{}", chosen[0]);
    let waited = chosen[1]["waited_ms"].as_f64().unwrap();
    let told = line["waited_ms"].as_f64().unwrap();
    // The decision is a moment before the end of the wait.
    assert!(waited <= told + 1.0 && told - waited < 5_000.0, "{waited} {told}");
    assert_eq!(line["decision_id"], chosen[1]["id"]);
    let _ = std::fs::remove_dir_all(&log);
}
