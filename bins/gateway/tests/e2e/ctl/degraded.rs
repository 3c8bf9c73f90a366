//! What a gateway does not do although it was told to, and that `doctor`, `get parity` and `watch` say so.

use kvasir_testkit::engine::{EngineConfig, FakeEngine};
use serde_json::{Value, json};

use super::Home;
use crate::admin::{Admin, started, with_admin};
use crate::harness::{ConfigFile, Gateway, Replica, SOON, pool, until};

/// The problem with this cause, once `doctor` tells of it, and whether it is the gateway's.
async fn problem(home: &Home, cause: &str) -> Value {
    until(SOON, || async {
        let ran = home.run(&["doctor", "--json"]).await;
        let found: Value = serde_json::from_str(&ran.out).unwrap_or_default();
        let problems = found["problems"].as_array().cloned().unwrap_or_default();
        let it = problems.into_iter().find(|problem| problem["cause"] == cause);
        it.filter(|_| ran.status == Some(1)).ok_or(ran.out)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_serves_nothing_is_a_problem() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut only = pool("tiny", &[&engine]);
    only["endpoints"][0]["role"] = "prefill".into();
    only["disaggregation"] = json!({"enabled": true});
    let (gateway, admin, _file) = started(json!([only])).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 1.0).await;
    assert_eq!(gateway.get("/readyz").await.status, 503);
    let it = problem(&Home::of(&admin), "not_ready").await;
    assert_eq!((&it["pool"], &it["endpoint"]), (&json!("tiny"), &Value::Null));
    let finding = it["finding"].as_str().unwrap();
    assert!(finding.contains("no decode or unified endpoint to answer"), "{finding}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alias_that_no_engine_serves_is_a_problem() {
    let replica = Replica::start().await;
    let mut named = pool("tiny", &[&replica.engine]);
    named["aliases"] = json!(["small"]);
    let (gateway, admin, _file) = started(json!([named])).await;
    gateway.until_learned(&[&replica]).await;
    let it = problem(&Home::of(&admin), "model_not_served").await;
    assert!(it["finding"].as_str().unwrap().contains("`small`"), "{it}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_file_is_a_problem_of_the_gateway_until_it_is_mended() {
    let replica = Replica::start().await;
    let config = with_admin(json!([pool("tiny", &[&replica.engine])]));
    let (gateway, admin, file) = started(config["pools"].clone()).await;
    let home = Home::of(&admin);
    gateway.until_learned(&[&replica]).await;
    file.replace_text("pools: []\nlisten_on: x\n");
    gateway.hang_up();
    let it = problem(&home, "config_refused").await;
    assert!(it["finding"].as_str().unwrap().contains("yaml:2:1: "), "{it}");
    assert_eq!(it["pool"], Value::Null);
    // A change through the API does not make it another file.
    home.ok(&["drain", &replica.engine.addr().to_string()]).await;
    home.ok(&["activate", &replica.engine.addr().to_string()]).await;
    for args in [&["doctor"][..], &["get", "parity"], &["watch", "--once"]] {
        let out = home.run(args).await.out;
        assert!(out.contains("config_refused") && out.contains("listen_on"), "{args:?}: {out}");
    }
    let parity = admin.get("/api/v1/parity").await;
    assert_eq!((&parity["ok"], &parity["pools"][0]["problems"]), (&json!(false), &json!([])));
    let sound = ConfigFile::of(&config);
    file.replace_text(&std::fs::read_to_string(sound.path()).unwrap());
    gateway.hang_up();
    until(SOON, || async {
        let ran = home.run(&["doctor"]).await;
        if ran.status == Some(0) { Ok(()) } else { Err(ran.out) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_gone_is_a_problem_and_that_it_is_back_is_said() {
    let replica = Replica::start().await;
    let token = ConfigFile::new("a-token-of-some-length-0");
    let mut config = with_admin(json!([pool("tiny", &[&replica.engine])]));
    config["admin"]["write_token"].take();
    config["admin"]["write_token_file"] = token.path().to_str().unwrap().into();
    let file = ConfigFile::of(&config);
    let gateway = Gateway::of_file(&file).await;
    let home = Home::of(&Admin::of(&gateway).await.with(None));
    gateway.until_learned(&[&replica]).await;
    token.replace_text("a-token-of-some-length-1");
    gateway.hang_up();
    gateway.line("the token", |line| line.contains("settings changed: admin tokens")).await;
    let aside = file.path().with_extension("aside");
    std::fs::rename(file.path(), &aside).unwrap();
    gateway.until_metric("kvasir_config_stale", &[], 1.0).await;
    home.put(
        ".config/kvasir/ctl.yaml",
        &format!(
            "admin: http://{}\ntoken: a-token-of-some-length-1\n",
            Admin::of(&gateway).await.addr
        ),
        0o600,
    );
    let it = problem(&home, "config_refused").await;
    assert!(it["finding"].as_str().unwrap().contains("cannot read"), "{it}");
    std::fs::rename(&aside, file.path()).unwrap();
    gateway.until_metric("kvasir_config_stale", &[], 0.0).await;
    gateway.line("that it is back", |line| line.contains("is in effect again")).await;
}
