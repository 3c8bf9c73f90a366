//! What is written down of changes, whoever waits for them, and of requests that are refused.

use kvasir_testkit::client::RawClient;
use kvasir_testkit::engine::{EngineConfig, FakeEngine};
use serde_json::{Value, json};

use super::{Admin, Scratch, WRITE, with_admin};
use crate::harness::{Gateway, SOON, pool, until};

async fn audited() -> (Gateway, Admin, Scratch, FakeEngine) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let audit = Scratch::new("audit.log");
    let mut config = with_admin(json!([pool("tiny", &[&engine])]));
    config["admin"]["audit_log"] = json!(audit.path());
    let gateway = Gateway::start(config).await;
    let admin = Admin::of(&gateway).await;
    (gateway, admin, audit, engine)
}

/// The lines, as soon as there are so many.
pub(super) async fn lines(audit: &Scratch, count: usize) -> Vec<Value> {
    until(SOON, || async {
        let text = std::fs::read_to_string(audit.path()).unwrap();
        if text.lines().count() < count {
            return Err(text);
        }
        Ok(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_client_leaves_is_made_and_written_down() {
    let (gateway, admin, audit, _engine) = audited().await;
    let token = format!("Bearer {WRITE}");
    for n in 1..=20 {
        let mut client = RawClient::connect(admin.addr).await.unwrap();
        let body = json!({"slo_ttft_ms": f64::from(n)}).to_string();
        let headers = [("authorization", token.as_str())];
        client.send("PATCH", "/api/v1/pools/tiny", &headers, body.as_bytes()).await.unwrap();
        client.close();
    }
    admin.done("PATCH", "/api/v1/pools/tiny", &json!({"slo_ttft_ms": 21.0})).await;
    // Of some nobody read all before they left: those are not made either.
    let lines = until(SOON, || async {
        let lines = lines(&audit, 2).await;
        let log = gateway.log_text();
        let made = log.matches("a change through the admin API is in effect").count();
        if lines.len() == made { Ok(lines) } else { Err(format!("{made}: {lines:?}")) }
    })
    .await;
    for line in &lines {
        assert_eq!((&line["status"], &line["result"]), (&json!(200), &json!("done")), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_refused_requests_some_are_written_and_the_rest_is_counted() {
    let (gateway, admin, audit, _engine) = audited().await;
    let stranger = admin.with(None);
    for _ in 0..70 {
        assert_eq!(stranger.ask("DELETE", "/api/v1/pools/tiny", b"").await.status, 401);
    }
    gateway.until_metric("kvasir_admin_audit_dropped_total", &[("reason", "rate")], 20.0).await;
    admin.done("PATCH", "/api/v1/pools/tiny", &json!({"policy": "random"})).await;
    // A change is never left out, and how many others were is said in the end.
    let lines = lines(&audit, 52).await;
    assert_eq!(lines[50]["result"], "done");
    assert_eq!(
        (&lines[51]["result"], &lines[51]["count"]),
        (&json!("refused_left_out"), &json!(20))
    );
}
