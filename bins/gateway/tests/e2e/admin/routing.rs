//! Routing settings and their counts, in E4's words.

use serde_json::json;

use super::started;
use crate::harness::{COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, pool, until};

async fn endpoint(gateway: &Gateway, prompt: u32) -> String {
    let answer = gateway.post(COMPLETIONS, &completion(&ids(prompt, 64))).await;
    Decision::of(&answer).endpoint
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_begin_as_round_robin_and_are_in_effect_at_once() {
    let replicas = Replica::several(2).await;
    let engines: Vec<_> = replicas.iter().map(|replica| &replica.engine).collect();
    let (gateway, admin, _file) = started(json!([pool("tiny", &engines)])).await;
    gateway.until_learned(&replicas.iter().collect::<Vec<_>>()).await;
    let place = "/api/v1/routing/tiny";
    assert_eq!(admin.ask("GET", place, b"").await.status, 404);
    let set = admin.done("PATCH", place, &json!({"slo_latency_ms": 60000})).await;
    assert_eq!((&set["mode"], &set["tenant"]), (&json!("round_robin"), &json!("default")));
    assert_eq!(set["slo_latency_ms"], 60000.0);
    let (one, two) = (endpoint(&gateway, 1).await, endpoint(&gateway, 1).await);
    assert_ne!(one, two, "each in turn, whoever holds the prompt");
    // What is left out stays.
    let set = admin.done("PATCH", place, &json!({"mode": "cache_aware"})).await;
    assert_eq!((&set["mode"], &set["slo_latency_ms"]), (&json!("cache_aware"), &json!(60000.0)));
    let holder = endpoint(&gateway, 501).await;
    until(SOON, || async {
        let body = completion(&ids(501, 64));
        let path = format!("/api/v1/explain?path={COMPLETIONS}");
        let explained = admin.done("POST", &path, &body).await;
        let is_it = explained["reason"] == "longest_prefix" && explained["chosen"] == holder;
        if is_it { Ok(()) } else { Err(explained.to_string()) }
    })
    .await;
    for _ in 0..3 {
        assert_eq!(endpoint(&gateway, 501).await, holder);
    }
    let stats = until(SOON, || async {
        let stats = admin.get(&format!("{place}/stats")).await;
        if stats["stats"]["total"] == 6 { Ok(stats) } else { Err(stats.to_string()) }
    })
    .await;
    assert_eq!(stats["config"]["mode"], "cache_aware");
    let counts = &stats["stats"]["by_decision"];
    assert_eq!(counts, &json!({"round_robin": 2, "load_aware": 1, "affinity": 3}));
    let hits = stats["stats"]["hits"].as_u64().unwrap();
    assert!((3..=4).contains(&hits), "{stats}");
    assert_eq!(admin.get("/api/v1/routing").await["routing"][0]["model"], "tiny");
    admin.done("DELETE", place, &serde_json::Value::Null).await;
    assert_eq!(admin.get("/api/v1/pools/tiny").await["policy"], "latency");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_become_prefill_and_decode_pools() {
    let replicas = Replica::several(2).await;
    let engines: Vec<_> = replicas.iter().map(|replica| &replica.engine).collect();
    let mut tiny = pool("tiny", &engines);
    tiny["endpoints"][0]["group"] = json!("fast");
    tiny["endpoints"][1]["group"] = json!("large");
    let (_gateway, admin, _file) = started(json!([tiny])).await;
    let place = "/api/v1/routing/tiny";
    let body = r#"{"disaggregate": true, "prefill_pool": "fast", "decode_pool": "none"}"#;
    let refused = admin.refused("PATCH", place, body).await;
    assert_eq!((refused.0, refused.2.as_deref()), (422, Some("decode_pool")));
    let split = json!({"disaggregate": true, "prefill_pool": "fast", "decode_pool": "large"});
    let set = admin.done("PATCH", place, &split).await;
    assert_eq!((&set["disaggregate"], &set["decode_pool"]), (&json!(true), &json!("large")));
    let pool = admin.get("/api/v1/pools/tiny").await;
    let roles: Vec<&str> =
        pool["endpoints"].as_array().unwrap().iter().map(|e| e["role"].as_str().unwrap()).collect();
    assert_eq!((roles, &pool["splits"]), (vec!["prefill", "decode"], &json!(true)));
    let set = admin.done("PATCH", place, &json!({"disaggregate": false})).await;
    assert_eq!(set["disaggregate"], false);
}
