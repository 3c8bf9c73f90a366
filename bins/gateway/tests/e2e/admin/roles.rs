//! Who may do what, and what is written down of it.

use kvasir_testkit::engine::{EngineConfig, FakeEngine};
use serde_json::{Value, json};

use super::{Admin, READ, Scratch, WRITE, started, with_admin};
use crate::harness::{ConfigFile, Gateway, pool};

async fn engine() -> FakeEngine {
    FakeEngine::start(EngineConfig::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_told_apart() {
    let engine = engine().await;
    let (_gateway, writer, _file) = started(json!([pool("tiny", &[&engine])])).await;
    let (reader, nobody) = (writer.with(Some(READ)), writer.with(None));
    let stranger = writer.with(Some("some-other-token-0123"));
    for (who, open, read, write) in [
        (&nobody, 200, 401, 401),
        (&stranger, 200, 401, 401),
        (&reader, 200, 200, 403),
        (&writer, 200, 200, 200),
    ] {
        assert_eq!(who.ask("GET", "/healthz", b"").await.status, open);
        assert_eq!(who.ask("GET", "/api/v1/openapi.json", b"").await.status, open);
        for path in ["/api/v1/pools", "/metrics", "/api/v1/config", "/api/v1/decisions"] {
            assert_eq!(who.ask("GET", path, b"").await.status, read, "{path}");
        }
        let body = br#"{"slo_ttft_ms": 900.0}"#;
        assert_eq!(who.ask("PATCH", "/api/v1/pools/tiny", body).await.status, write);
    }
    let refused = nobody.ask("GET", "/api/v1/pools", b"").await;
    assert!(refused.head.header("www-authenticate").is_some());
    let foreign = [("origin", "http://evil.example")];
    let refused = writer.ask_with("GET", "/api/v1/pools", &foreign, b"").await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (403, &json!("origin_refused")));
    // The document says nothing of itself that is not so.
    let document = nobody.get("/api/v1/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_reading_is_open_on_loopback_and_changes_are_off() {
    let engine = engine().await;
    let mut config = with_admin(json!([pool("tiny", &[&engine])]));
    config["admin"] = json!({"listen": "127.0.0.1:0"});
    let gateway = Gateway::start(config).await;
    let admin = Admin::of(&gateway).await.with(None);
    assert_eq!(admin.get("/api/v1/pools").await["pools"][0]["model"], "tiny");
    let refused = admin.refused("PATCH", "/api/v1/pools/tiny", "{}").await;
    assert_eq!(refused, (403, "writes_disabled".to_owned(), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_at_a_change_leaves_a_line() {
    let engine = engine().await;
    let audit = Scratch::new("audit.log");
    let mut config = with_admin(json!([pool("tiny", &[&engine])]));
    config["admin"]["audit_log"] = json!(audit.path());
    let gateway = Gateway::start(config).await;
    let admin = Admin::of(&gateway).await;
    admin.done("PATCH", "/api/v1/pools/tiny", &json!({"policy": "random"})).await;
    admin.refused("POST", "/api/v1/pools", r#"{"model": "x", "api_key": "sk-hush"}"#).await;
    admin.with(Some(READ)).refused("DELETE", "/api/v1/pools/tiny", "").await;
    admin.get("/api/v1/pools").await;
    let lines = super::audit::lines(&audit, 3).await;
    let text = std::fs::read_to_string(audit.path()).unwrap();
    let told = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
        (
            text("role"),
            text("method"),
            text("path"),
            line["status"].as_u64().unwrap(),
            text("result"),
        )
    };
    let line = |role: &str, method: &str, path: &str, status: u64, result: &str| {
        let text = |word: &str| word.to_owned();
        (text(role), text(method), text(path), status, text(result))
    };
    assert_eq!(
        lines.iter().map(told).collect::<Vec<_>>(),
        [
            line("write", "PATCH", "/api/v1/pools/tiny", 200, "done"),
            line("write", "POST", "/api/v1/pools", 422, "invalid"),
            line("unknown", "DELETE", "/api/v1/pools/tiny", 403, "read_only"),
        ]
    );
    assert_eq!(lines[0]["body"], json!({"policy": "random"}));
    assert!(lines[0]["remote"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(!text.contains("sk-hush") && !text.contains(WRITE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_change_with_the_file() {
    let engine = engine().await;
    let (gateway, admin, file) = started(json!([pool("tiny", &[&engine])])).await;
    let mut config = with_admin(json!([pool("tiny", &[&engine])]));
    config["admin"]["write_token"] = json!("another-token-0123456789");
    gateway.reload(&file, &config).await;
    assert_eq!(admin.ask("GET", "/api/v1/pools", b"").await.status, 401);
    let newer = admin.with(Some("another-token-0123456789"));
    newer.done("POST", "/api/v1/config/reload", &Value::Null).await;
    drop::<ConfigFile>(file);
    let (status, code, _) = newer.refused("POST", "/api/v1/config/reload", "").await;
    assert_eq!((status, code.as_str()), (422, "invalid"));
}
