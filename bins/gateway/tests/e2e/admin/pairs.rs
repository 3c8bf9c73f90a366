//! What is explained of a pool that splits requests: what each plan costs, on either side.

use serde_json::{Value, json};

use super::{Admin, started};
use crate::harness::{COMPLETIONS, ConfigFile, Gateway, Replica, completion, ids, pool};

/// A prefill engine, two decode engines, and a gateway with this `select`.
async fn scene(select: &str) -> (Vec<Replica>, Gateway, Admin, ConfigFile) {
    let replicas = Replica::several(3).await;
    let engines: Vec<_> = replicas.iter().map(|replica| &replica.engine).collect();
    let mut tiny = pool("tiny", &engines);
    tiny["policy"] = json!("latency");
    tiny["disaggregation"] = json!({"protocol": "nixl", "select": select});
    for (place, role) in ["prefill", "decode", "decode"].into_iter().enumerate() {
        tiny["endpoints"][place]["role"] = role.into();
    }
    let (gateway, admin, file) = started(json!([tiny])).await;
    gateway.until_learned(&replicas.iter().collect::<Vec<_>>()).await;
    (replicas, gateway, admin, file)
}

async fn explained(admin: &Admin, body: &Value) -> Value {
    admin.done("POST", &format!("/api/v1/explain?path={COMPLETIONS}"), body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_each_plan_and_side_costs_is_explained() {
    let (replicas, _gateway, admin, _file) = scene("cost").await;
    let found = explained(&admin, &completion(&ids(1, 800))).await;
    let (plans, urls) = (&found["pair"]["plans"], [0, 1, 2].map(|at| replicas[at].engine.url()));
    assert_eq!(found["plan"], "split");
    assert_eq!((&plans[0]["plan"], &plans[1]["plan"]), (&json!("split"), &json!("decode_holds")));
    assert_eq!(
        (&plans[0]["computes"], &plans[0]["endpoint"]),
        (&found["prefill"]["endpoint"], &found["chosen"])
    );
    let cost = |of: &Value, term: &str| of[term].as_f64().unwrap_or_else(|| panic!("{term}: {of}"));
    assert!(cost(&plans[0], "cost_s") <= cost(&plans[1], "cost_s"), "{plans}");
    let prefill = &found["pair"]["prefill"][0];
    assert_eq!(prefill["endpoint"], urls[0]);
    let decode = found["pair"]["decode"].as_array().unwrap();
    assert_eq!(decode.len(), 2, "{decode:?}");
    for one in decode {
        assert!(urls[1..].iter().any(|url| one["endpoint"] == **url), "{one}");
        assert_eq!(one["transfer"]["tokens"], 800);
        let parts = ["wait_s", "pressure", "room_s", "load_s", "turn_s", "whole_s"];
        assert!(parts.iter().all(|part| cost(one, part) >= 0.0));
    }
    // All of a plan is its two sides.
    let sides = cost(prefill, "cost_s") + cost(&decode[0], "cost_s");
    assert!((sides - cost(&plans[0], "cost_s")).abs() < 1e-9, "{plans}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decode_engines_that_go_by_load_have_one() {
    for select in ["least_load", "e4"] {
        let (replicas, gateway, admin, _file) = scene(select).await;
        let found = explained(&admin, &completion(&ids(1, 64))).await;
        let loads = found["pair"]["decode_loads"].as_array().unwrap();
        assert_eq!(loads.len(), 2, "{found}");
        for load in loads {
            assert!(load["load"].is_number(), "{load}");
            assert!(
                replicas[1..].iter().any(|one| load["endpoint"] == *one.engine.url()),
                "{load}"
            );
        }
        assert_eq!(found["pair"]["plans"], json!([]));
        // Whoever computes was chosen by the policy, whoever answers was not.
        let answer = gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await;
        let reason = answer.head.header("x-kvasir-reason").unwrap();
        assert!(reason.contains("reason=least_latency_cold;"), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_split_says_so_of_prefill_engines() {
    let (replicas, _gateway, admin, _file) = scene("cost").await;
    let mut several = completion(&ids(1, 64));
    several["n"] = 2.into();
    let found = explained(&admin, &several).await;
    assert_eq!(
        (&found["plan"], &found["not_split"]),
        (&json!("not_split"), &json!("several_answers"))
    );
    for one in found["candidates"].as_array().unwrap() {
        let is_prefill = one["endpoint"] == *replicas[0].engine.url();
        let want = if is_prefill { json!("wrong_role") } else { Value::Null };
        assert_eq!(one["excluded"], want, "{one}");
    }
    assert_eq!(found["pair"]["plans"][0]["plan"], "not_split", "{}", found["pair"]);
}
