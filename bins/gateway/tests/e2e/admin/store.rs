//! Changes and counts that outlive the process.

use kvasir_testkit::engine::{EngineConfig, FakeEngine};
use serde_json::{Value, json};

use super::{Admin, Scratch, with_admin};
use crate::harness::{
    COMPLETIONS, ConfigFile, Gateway, SOON, completion, ids, pool, run_to_end, until,
};

async fn engine() -> FakeEngine {
    FakeEngine::start(EngineConfig::default()).await.unwrap()
}

fn kept(store: &Scratch, engines: &[&FakeEngine]) -> Value {
    let mut config = with_admin(json!([pool("tiny", engines)]));
    config["admin"]["store"] = json!(store.path());
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r5_settings_and_counts_survive_a_restart() {
    let (one, two) = (engine().await, engine().await);
    let store = Scratch::new("kept.redb");
    let config = kept(&store, &[&one]);
    let mut gateway = Gateway::start(config.clone()).await;
    let admin = Admin::of(&gateway).await;
    let new = json!({"url": two.url(), "weight": 40});
    let made = admin.done("POST", "/api/v1/pools/tiny/endpoints", &new).await;
    assert_eq!(made["persisted"], true);
    let mode = json!({"mode": "cache_aware", "slo_latency_ms": 500.0});
    let set = admin.done("PATCH", "/api/v1/routing/tiny", &mode).await;
    gateway.until_known().await;
    for n in 0..3 {
        assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(n, 8))).await.status, 200);
    }
    let stats = "/api/v1/routing/tiny/stats";
    let before = until(SOON, || async {
        let found = admin.get(stats).await;
        if found["stats"]["total"] == 3 { Ok(found) } else { Err(found.to_string()) }
    })
    .await;
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    let gateway = Gateway::start(config).await;
    let admin = Admin::of(&gateway).await;
    let mut again = admin.get("/api/v1/routing/tiny").await;
    again["persisted"] = set["persisted"].clone();
    again["changes"] = set["changes"].clone();
    assert_eq!(again, set);
    let endpoint = format!("/api/v1/pools/tiny/endpoints/{}", two.addr());
    let endpoint = admin.get(&endpoint).await;
    assert_eq!((&endpoint["weight"], &endpoint["origin"]), (&json!(40), &json!("admin")));
    assert_eq!(admin.get(stats).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_used_is_an_error_at_the_start() {
    let one = engine().await;
    let (damaged, shared) = (Scratch::new("damaged.redb"), Scratch::new("shared.redb"));
    std::fs::write(damaged.path(), vec![7_u8; 5000]).unwrap();
    let file = ConfigFile::of(&kept(&damaged, &[&one]));
    let listen = ["--listen", "127.0.0.1:0", "--config"].map(std::ffi::OsString::from);
    let args = |file: &ConfigFile| {
        listen.iter().cloned().chain([file.path().as_os_str().to_owned()]).collect::<Vec<_>>()
    };
    let (status, log) = run_to_end(args(&file)).await;
    assert_eq!(status, Some(78), "{log}");
    assert!(log.contains("admin.store") && log.contains("damaged.redb"), "{log}");
    assert!(!log.contains("panicked"), "{log}");

    let config = kept(&shared, &[&one]);
    let gateway = Gateway::start(config.clone()).await;
    let file = ConfigFile::of(&config);
    let (status, log) = run_to_end(args(&file)).await;
    assert_eq!(status, Some(78), "{log}");
    assert!(log.contains("another process uses it"), "{log}");
    drop(gateway);
}
