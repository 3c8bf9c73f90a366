//! What the API shows, held against its own document and against what was sent.

use serde_json::{Value, json};

use super::started;
use crate::harness::{COMPLETIONS, Decision, Replica, SOON, completion, ids, pool, until};

/// What of a value is not as a schema says.
fn differs(document: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(to) = schema["$ref"].as_str() {
        let named = document.pointer(to.trim_start_matches('#')).unwrap();
        return differs(document, named, value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = any.iter().any(|one| differs(document, one, value, at).is_none());
        return (!fits).then(|| format!("{at}: {value} is none of them"));
    }
    if let Some(words) = schema["enum"].as_array() {
        return (!words.contains(value)).then(|| format!("{at}: {value} is not in {words:?}"));
    }
    let is = |kind: &str| match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    let fits = match &schema["type"] {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().any(|kind| is(kind.as_str().unwrap())),
        _ => true,
    };
    if !fits {
        return Some(format!("{at}: {value} is no {}", schema["type"]));
    }
    for key in schema["required"].as_array().into_iter().flatten() {
        if value.get(key.as_str().unwrap()).is_none() {
            return Some(format!("{at}: {key} is missing"));
        }
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let inner = properties.filter_map(|(key, schema)| {
        differs(document, schema, value.get(key)?, &format!("{at}.{key}"))
    });
    let items = value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| differs(document, &schema["items"], one, &format!("{at}[]")));
    inner.chain(items).next()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_that_reads_answers_as_the_document_says() {
    let replicas = Replica::several(2).await;
    let engines = [&replicas[0].engine, &replicas[1].engine];
    let (gateway, admin, _file) = started(json!([pool("tiny", &engines)])).await;
    gateway.until_learned(&[&replicas[0], &replicas[1]]).await;
    gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await;
    admin.done("PATCH", "/api/v1/routing/tiny", &json!({"slo_latency_ms": 9000.0})).await;
    let document = admin.get("/api/v1/openapi.json").await;
    let endpoint = replicas[0].engine.addr().to_string();
    let mut seen = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let asked = path.replace("{model}", "tiny").replace("{endpoint}", &endpoint);
        let asked = asked.replace("{file}", "page.js");
        for (method, operation) in operations.as_object().unwrap() {
            let is_explain = path == "/api/v1/explain";
            if method != "get" && !is_explain {
                continue;
            }
            let (body, asked) = match is_explain {
                true => {
                    (completion(&ids(1, 64)).to_string(), format!("{asked}?path={COMPLETIONS}"))
                }
                false => (String::new(), asked.clone()),
            };
            let answer = admin.ask(&method.to_uppercase(), &asked, body.as_bytes()).await;
            assert_eq!(answer.status, 200, "{asked}: {}", answer.text());
            let content = &operation["responses"]["200"]["content"];
            let schema = &content["application/json"]["schema"];
            if schema.is_object() {
                assert_eq!(differs(&document, schema, &answer.json(), path), None);
            } else if path == "/" || path.starts_with("/page/") {
                assert!(answer.text().len() > 1000, "{asked}");
            } else {
                assert!(answer.text().contains("kvasir_pool_ready"), "{asked}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 18, "{seen}");
    // Unknown values of a query, paths and methods are named.
    for (method, path, status, field) in [
        ("GET", "/api/v1/decisions?limt=3", 422, Some("limt")),
        ("GET", "/api/v1/decisions?limit=0", 422, Some("limit")),
        ("GET", "/api/v1/pools/none", 404, None),
        ("GET", "/api/v1/pools/tiny/endpoints/h:1", 404, None),
        ("GET", "/api/v1/nowhere", 404, None),
        ("PUT", "/api/v1/pools", 405, None),
        ("GET", "/api/v1/routing/tiny?tenant=acme", 422, Some("tenant")),
        ("POST", "/api/v1/explain?path=/nope", 404, None),
        ("POST", "/api/v1/explain", 400, None),
    ] {
        let (found, _, of) = admin.refused(method, path, "{").await;
        assert_eq!((found, of.as_deref()), (status, field), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_explained_is_what_is_then_done_and_nothing_else_changes() {
    let replicas = Replica::several(3).await;
    let engines: Vec<_> = replicas.iter().map(|replica| &replica.engine).collect();
    let mut tiny = pool("tiny", &engines);
    tiny["policy"] = json!("round_robin");
    let (gateway, admin, _file) = started(json!([tiny])).await;
    gateway.until_learned(&replicas.iter().collect::<Vec<_>>()).await;
    let path = format!("/api/v1/explain?path={COMPLETIONS}");
    for n in 0..6 {
        let body = completion(&ids(1 + 100 * (n % 2), 64));
        let explained = admin.done("POST", &path, &body).await;
        for _ in 0..5 {
            assert_eq!(admin.done("POST", &path, &body).await["chosen"], explained["chosen"]);
        }
        let answer = gateway.post(COMPLETIONS, &body).await;
        let decision = Decision::of(&answer);
        assert_eq!(explained["chosen"], decision.endpoint.as_str());
        assert_eq!(explained["prompt_tokens"], 64);
        let chosen = explained["candidates"].as_array().unwrap().iter();
        let chosen = chosen.clone().find(|one| one["endpoint"] == explained["chosen"]).unwrap();
        assert_eq!(chosen["overlap"], decision.overlap);
    }
    let stats = admin.get("/api/v1/stats").await;
    assert_eq!((&stats["requests"], &stats["pools"]["tiny"]["requests"]), (&json!(6), &json!(6)));
    let sent: usize = replicas.iter().map(|replica| replica.engine.requests().len()).sum();
    assert_eq!(sent, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_inventory_and_samples_tell_of_what_was_sent() {
    let replica = Replica::start().await;
    let (gateway, admin, _file) = started(json!([pool("tiny", &[&replica.engine])])).await;
    gateway.until_learned(&[&replica]).await;
    gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await;
    gateway.until_blocks(&replica, 4).await;
    gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await;
    let decisions = until(SOON, || async {
        let found = admin.get("/api/v1/decisions?limit=10&model=tiny").await;
        let len = found["decisions"].as_array().map_or(0, Vec::len);
        if len == 2 { Ok(found) } else { Err(found.to_string()) }
    })
    .await;
    let (last, first) = (&decisions["decisions"][0], &decisions["decisions"][1]);
    assert_eq!((&last["overlap"], &first["overlap"]), (&json!(48), &json!(0)));
    assert_eq!((&last["outcome"], &last["status"]), (&json!("complete"), &json!(200)));
    assert_eq!(last["reported_cached_tokens"], 48);
    let inventory = admin.get("/api/v1/inventory").await;
    assert_eq!(inventory["blocks"], 4);
    let addr = replica.engine.addr();
    let samples = admin.get(&format!("/api/v1/inventory/{addr}?limit=3")).await;
    let samples = samples["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 3);
    assert!(samples.iter().all(|one| one["key"].as_str().unwrap().len() == 16));
    let parity = admin.get("/api/v1/parity").await;
    assert_eq!((&parity["ok"], &parity["pools"][0]["problems"]), (&json!(true), &json!([])));
    let config = admin.get("/api/v1/config").await;
    assert_eq!(config["admin"]["write_token"], "***");
}
