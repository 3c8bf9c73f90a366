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
    for of_the_change in ["persisted", "changes", "warnings"] {
        again[of_the_change] = set[of_the_change].clone();
    }
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

/// The gateway's configuration with another pool that has this engine.
fn with_other(config: &Value, engine: &FakeEngine) -> Value {
    let mut config = config.clone();
    config["pools"].as_array_mut().unwrap().push(pool("other", &[engine]));
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_do_not_fit_the_file_stop_nothing_and_are_put_aside() {
    let (one, two) = (engine().await, engine().await);
    let store = Scratch::new("aside.redb");
    let config = kept(&store, &[&one]);
    let mut gateway = Gateway::start(config.clone()).await;
    let admin = Admin::of(&gateway).await;
    let new = json!({"url": two.url(), "weight": 40});
    admin.done("POST", "/api/v1/pools/tiny/endpoints", &new).await;
    admin.done("PATCH", "/api/v1/pools/tiny", &json!({"slo_ttft_ms": 700.0})).await;
    assert_eq!(admin.get("/api/v1/config/dropped").await, json!({"dropped": []}));
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));

    // The file has the engine itself now, with another weight.
    let mut gateway = Gateway::start(with_other(&config, &two)).await;
    let admin = Admin::of(&gateway).await;
    let dropped = admin.get("/api/v1/config/dropped").await;
    let [one_dropped] = dropped["dropped"].as_array().unwrap().as_slice() else {
        panic!("{dropped}")
    };
    assert_eq!(one_dropped["value"], new);
    let change = one_dropped["change"].as_str().unwrap();
    assert!(change.contains("pool `tiny`") && change.contains(&two.addr().to_string()), "{change}");
    assert!(change.contains("weight"), "{change}");
    gateway.line("the change", |line| line.contains("is dropped") && line.contains(change)).await;
    gateway.until_metric("kvasir_config_changes_dropped_total", &[], 1.0).await;
    let tiny = admin.get("/api/v1/pools/tiny").await;
    assert_eq!(
        (&tiny["patched"], tiny["endpoints"].as_array().unwrap().len()),
        (&json!(["slo_ttft_ms"]), 1)
    );
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));

    // It does not come back by itself.
    let gateway = Gateway::start(config).await;
    let admin = Admin::of(&gateway).await;
    let tiny = admin.get("/api/v1/pools/tiny").await;
    assert_eq!(tiny["endpoints"].as_array().unwrap().len(), 1);
    assert_eq!(admin.get("/api/v1/config/dropped").await, dropped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_read_anew_drops_what_does_not_fit_and_says_so() {
    let (one, two) = (engine().await, engine().await);
    let config = with_admin(json!([pool("tiny", &[&one])]));
    let file = ConfigFile::of(&config);
    let gateway = Gateway::of_file(&file).await;
    let admin = Admin::of(&gateway).await;
    let new = json!({"url": two.url(), "weight": 40});
    admin.done("POST", "/api/v1/pools/tiny/endpoints", &new).await;
    file.replace(&with_other(&config, &two));
    let reloaded = admin.done("POST", "/api/v1/config/reload", &Value::Null).await;
    // The look at the file may have come first.
    let dropped = admin.get("/api/v1/config/dropped").await["dropped"].clone();
    assert_eq!(dropped[0]["value"], new, "{reloaded}");
    assert!(reloaded["dropped"] == dropped || reloaded["dropped"] == json!([]), "{reloaded}");
    assert_eq!(admin.get("/api/v1/pools/other").await["endpoints"][0]["weight"], 100);
    file.replace(&config);
    admin.done("POST", "/api/v1/config/reload", &Value::Null).await;
    let tiny = admin.get("/api/v1/pools/tiny").await;
    assert_eq!(tiny["endpoints"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_file_that_has_no_end_or_is_a_pipe_is_an_error_at_the_start() {
    let one = engine().await;
    let pipe = Scratch::new("pipe");
    let made = std::process::Command::new("mkfifo").arg(pipe.path()).status().unwrap();
    assert!(made.success());
    for path in [std::path::Path::new("/dev/zero"), pipe.path()] {
        let mut config = with_admin(json!([pool("tiny", &[&one])]));
        config["admin"] = json!({"listen": "127.0.0.1:0", "write_token_file": path});
        let file = ConfigFile::of(&config);
        let args = ["--config".into(), file.path().as_os_str().to_owned()];
        let (status, log) = run_to_end(args).await;
        assert_eq!(status, Some(78), "{log}");
        let named = format!("{}: is no regular file", path.display());
        assert!(log.contains("admin.write_token_file") && log.contains(&named), "{log}");
    }
}
