//! What people are told of a pool whose requests are not split although it is set up so.

use kvasir_engine_sim::CostModel;
use kvasir_engine_sim::server::EngineKind;
use serde_json::{Value, json};

use super::{Engine, Split, config, plan};
use crate::admin::{Admin, with_admin};
use crate::ctl::Home;
use crate::harness::{COMPLETIONS, ConfigFile, Gateway};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_hands_nothing_over_is_a_problem_with_a_remedy() {
    let plain = || Engine::start(EngineKind::Vllm, None, CostModel::DEMO);
    let (prefill, decode) = (vec![plain().await], vec![plain().await]);
    let mut whole = config(&prefill, &decode, &json!({"protocol": "auto"}));
    whole["admin"] = with_admin(json!([]))["admin"].clone();
    // It is looked at as long as the gateway runs.
    let file = ConfigFile::of(&whole);
    let gateway = Gateway::of_file(&file).await;
    let admin = Admin::of(&gateway).await;
    gateway.until_metric("kvasir_endpoint_trust", &[("state", "exact")], 2.0).await;
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let split = Split { prefill, decode, gateway };
    let home = Home::of(&admin);
    let ran = home.run(&["doctor"]).await;
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
    for turn in 0..3 {
        assert_eq!(plan(&split.ask(turn * 300).await), "params_missing");
    }
    let parity = admin.get("/api/v1/parity").await;
    let problems = parity["pools"][0]["problems"].as_array().unwrap();
    assert_eq!((problems.len(), &parity["ok"]), (1, &json!(false)), "{parity}");
    assert_eq!(problems[0]["cause"], "no_hand_over");
    assert_eq!(problems[0]["endpoint"], split.prefill[0].url());
    let ran = home.run(&["doctor"]).await;
    assert_eq!(ran.status, Some(1), "{}", ran.out);
    for part in ["no_hand_over", "left out of split requests", "-> start the engine with its KV"] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let asked = json!({"path": COMPLETIONS, "body": super::body(7_000)});
    let explained = admin.done("POST", "/api/v1/explain", &asked).await;
    let of = |engine: &Engine| -> Value {
        let candidates = explained["candidates"].as_array().unwrap();
        candidates.iter().find(|one| one["endpoint"] == engine.url()).unwrap()["hand_over"].clone()
    };
    assert_eq!(of(&split.prefill[0]), "left_out", "{explained}");
    assert_eq!(of(&split.decode[0]), Value::Null, "{explained}");
}
