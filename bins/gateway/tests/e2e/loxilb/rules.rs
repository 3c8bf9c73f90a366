//! Rules: made, listed, changed, taken away; and what is refused.

use std::net::SocketAddr;

use kvasir_testkit::client::RawClient;
use serde_json::{Value, json};

use super::{Engines, Lox, RULES, complete, free_port, prompt, single};
use crate::harness::{COMPLETIONS, SOON, until};

#[tokio::test]
async fn two_ports_serve_one_model_with_engines_of_their_own() {
    let (a, b) =
        (Engines::start(13, "tiny", &[None]).await, Engines::start(14, "tiny", &[None]).await);
    let lox = Lox::start().await;
    let mut ports = Vec::new();
    for engines in [&a, &b] {
        let made = lox.made(&single("127.0.13.9", free_port(), "tiny", engines)).await;
        ports.push(made["bound"].as_str().unwrap().parse::<SocketAddr>().unwrap());
    }
    for (port, net) in ports.iter().zip(["127.0.13.1", "127.0.14.1"]) {
        for first in [10, 400, 800] {
            let answer = complete(*port, &prompt("tiny", first)).await;
            let backend = answer.head.header("x-kvasir-endpoint").unwrap().to_owned();
            assert!(backend.contains(net), "{backend}");
        }
    }
    // The gateway's own port has no pool of theirs.
    let own = lox.gateway.post(COMPLETIONS, &prompt("tiny", 10)).await;
    assert_eq!(own.status, 503, "{}", own.text());
}

#[tokio::test]
async fn rules_are_listed_replaced_and_deleted() {
    let engines = Engines::start(15, "tiny", &[None, None]).await;
    let lox = Lox::start().await;
    let port = free_port();
    let mut rule = single("127.0.15.9", port, "tiny", &engines);
    rule["serviceArguments"]["name"] = json!("one");
    // Indices go by address, not by the order in the document.
    rule["endpoints"].as_array_mut().unwrap().reverse();
    let made = lox.made(&rule).await;
    assert_eq!(made["service_id"], 1);
    let listed = lox.list().await;
    assert_eq!(listed[0]["endpoints"][0]["endpointIP"], "127.0.15.1");
    let service = listed[0]["serviceArguments"].as_object().unwrap();
    assert_eq!(service["kvExactMode"], 3);
    assert!(!service.contains_key("pd_disagg_mode") && !service.contains_key("kvHashAlgo"));
    let again = lox.post(&rule).await;
    assert_eq!((again.status, &again.json()["message"]), (409, &json!("lbrule-exists error")));
    rule["serviceArguments"]["kvEngineType"] = json!("sglang");
    let other = lox.post(&rule).await;
    assert_eq!(other.status, 409);
    assert!(other.text().contains("cant modify rule kv engine type"), "{}", other.text());
    // Detached, the stream ends; attached again it keeps to the end of the order.
    let service = json!({"externalIP": "127.0.15.9", "port": port, "mode": 4, "oper": 2,
        "model_name": "tiny", "kvExactMode": 3});
    let first = &engines.endpoints(&[0, 0])[0];
    let mut change = json!({"serviceArguments": service, "endpoints": [first]});
    lox.made(&change).await;
    lox.until_sum("loxilb_kv_subscriber_connected", &[], |seen| seen == 1.0).await;
    change["serviceArguments"]["oper"] = json!(1);
    lox.made(&change).await;
    lox.until_sum("loxilb_kv_subscriber_connected", &[], |seen| seen == 2.0).await;
    let listed = lox.list().await;
    assert_eq!(listed[0]["endpoints"][1]["endpointIP"], "127.0.15.1");
    let gone = lox.call("DELETE", &format!("{RULES}/name/one"), &Value::Null).await;
    assert_eq!(gone.status, 200);
    assert_eq!(lox.list().await, json!([]));
    until(SOON, || async {
        let closed = RawClient::connect(format!("127.0.15.9:{port}").parse().unwrap()).await;
        closed.map_or(Ok(()), |_| Err("the port is still open".to_owned()))
    })
    .await;
    let path = format!("{RULES}/externalipaddress/127.0.15.9/port/{port}/protocol/tcp");
    assert_eq!(lox.call("DELETE", &path, &Value::Null).await.status, 404);
    rule["serviceArguments"]["kvEngineType"] = json!("vllm");
    assert_eq!(lox.made(&rule).await["service_id"], 2);
    assert_eq!(lox.call("DELETE", &path, &Value::Null).await.status, 200);
    lox.made(&rule).await;
    let all = format!("{RULES}/all");
    assert_eq!(lox.call("DELETE", &all, &Value::Null).await.status, 200);
    assert_eq!(lox.list().await, json!([]));
}

#[tokio::test]
async fn rules_outlive_the_process() {
    let engines = Engines::start(16, "tiny", &[None]).await;
    let directory = std::env::temp_dir().join(format!("kvasir-loxilb-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let store = json!({"store": directory.join("rules.json")});
    let lox = Lox::with(store.clone()).await;
    let made = lox.made(&single("127.0.16.9", free_port(), "", &engines)).await;
    drop(lox);
    let lox = Lox::with(store).await;
    assert_eq!(lox.list().await[0]["service_id"], 1);
    complete(made["bound"].as_str().unwrap().parse().unwrap(), &prompt("tiny", 5)).await;
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_texts_of_the_reference() {
    let lox = Lox::start().await;
    let one =
        |role| json!({"endpointIP": "127.0.0.1", "targetPort": 9, "weight": 1, "ep_role": role});
    for (fields, status, text) in [
        (json!({"mode": 0, "sel": 8}), 400, "sel=chwbl(8) requires mode=fullproxy"),
        (json!({"mode": 0, "pd_disagg_mode": true}), 400, "pd-disagg requires mode=fullproxy"),
        (json!({"pd_disagg_mode": true}), 400, "requires at least 1 prefill (ep_role=1)"),
        (json!({"pd_cache_aware_mode": true}), 400, "pd-cache-aware requires pd_disagg_mode=true"),
        (json!({"kvExactMode": 1}), 400, "kv-exact zmq mode requires pd_disagg_mode=true"),
        (json!({"kvExactMode": 3, "mode": 0}), 400, "single-role mode requires mode=fullproxy"),
        (json!({"kvEngineType": "x"}), 400, "kv-engine-type must be one of"),
        (json!({"kvDpRankCount": 9}), 400, "kv-dp-rank-count must be within 1..8"),
        (json!({"kvHashAlgo": "md5"}), 400, "kv-hash-algo must be one of"),
        (json!({"kvHashAlgo": "sha256_sglang"}), 400, "is incompatible with kv-engine-type"),
        (json!({"pdBootstrapPort": 8998}), 400, "pd-bootstrap-port requires pd_disagg_mode"),
        (json!({"kvEngineType": "trtllm", "kvExactMode": 2}), 400, "supports kvExactMode 1 or 3"),
        (json!({"kvEngineType": "trtllm", "kvZmqPort": 1}), 400, "kvZmqPort is meaningless"),
        (
            json!({"kvEngineType": "trtllm", "kvDpRankCount": 2}),
            400,
            "kvDpRankCount is meaningless",
        ),
        (json!({"mode": 2}), 501, "only 4 (fullproxy) is served"),
        (json!({"host": "a"}), 501, "rules are told apart by address, port and model"),
        (json!({"fc_enable": true}), 501, "serviceArguments.fc_enable is not supported"),
        (json!({"security": 1}), 501, "security"),
    ] {
        let mut service = json!({"externalIP": "127.0.0.9", "port": 9, "mode": 4});
        for (key, value) in fields.as_object().unwrap() {
            service[key] = value.clone();
        }
        let answer = lox.post(&json!({"serviceArguments": service, "endpoints": [one(0)]})).await;
        let body = answer.json();
        assert_eq!(answer.status, status, "{fields}: {body}");
        assert!(body["message"].as_str().unwrap().contains(text), "{fields}: {body}");
        assert_eq!((&body["code"], &body["result"]), (&json!(status), &body["message"]));
    }
    assert_eq!(lox.call("POST", RULES, &json!({"x": 1})).await.status, 400);
    assert_eq!(lox.list().await, json!([]));
}

#[tokio::test]
async fn other_paths() {
    let lox = Lox::start().await;
    let get = async |path: &str| lox.call("GET", path, &Value::Null).await;
    let inventory = "/netlox/v1/config/ai/kv/inventory";
    for (query, status, error) in [
        ("?service_id=x&ep_idx=0", 400, "invalid service_id"),
        ("?service_id=1", 400, "invalid ep_idx"),
        ("?service_id=1&ep_idx=0", 404, "service or endpoint not found"),
    ] {
        let answer = get(&format!("{inventory}{query}")).await;
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.json()["error"].as_str().unwrap().starts_with(error), "{query}");
    }
    assert_eq!(lox.call("POST", inventory, &json!({})).await.status, 405);
    for path in
        ["config/ai/apikey", "config/ai/tenant/ratelimit", "config/pii/rules", "config/opa/watcher"]
    {
        assert_eq!(get(&format!("/netlox/v1/{path}")).await.status, 501, "{path}");
    }
    assert_eq!(get("/metrics").await.status, 200);
    let switch = "/netlox/v1/config/metrics";
    assert_eq!(lox.call("DELETE", switch, &Value::Null).await.status, 204);
    assert_eq!(get("/metrics").await.status, 503);
    assert_eq!(get(switch).await.json(), json!({"prometheus": false}));
    assert_eq!(lox.call("POST", switch, &json!({"prometheus": true})).await.status, 204);
    assert_eq!(get("/netlox/v1/metrics").await.status, 200);
}

#[tokio::test]
async fn a_token_is_asked_for_where_there_is_one() {
    let lox = Lox::with(json!({"token": "a-token-of-some-length"})).await;
    assert_eq!(lox.call("GET", &format!("{RULES}/all"), &Value::Null).await.status, 401);
    let mut client = RawClient::connect(lox.api).await.unwrap().with_deadline(SOON);
    let shown = [("authorization", "Bearer a-token-of-some-length")];
    client.send("GET", &format!("{RULES}/all"), &shown, b"").await.unwrap();
    assert_eq!(client.response().await.unwrap().status, 200);
}
