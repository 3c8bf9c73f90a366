//! What is shown of a gateway, and changes of endpoints.

use std::io::{BufRead as _, BufReader};
use std::process::Command;

use kvasir_testkit::engine::{Model, Reply};
use serde_json::json;

use super::Home;
use crate::admin::started;
use crate::harness::{
    BLOCK, COMPLETIONS, Replica, ReplicaOptions, SOON, completion, ids, pool, stream, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_shown_as_a_table_and_as_the_apis_document() {
    let model = || ReplicaOptions { models: vec![Model::base("org/tiny")], ..Default::default() };
    let replicas = [Replica::with(model()).await, Replica::with(model()).await];
    let engines = [&replicas[0].engine, &replicas[1].engine];
    let (gateway, admin, _file) = started(json!([pool("org/tiny", &engines)])).await;
    let home = Home::of(&admin);
    for replica in &replicas {
        gateway.until_trust(replica, "exact").await;
    }
    let mut body = completion(&ids(1, 4 * BLOCK));
    body["model"] = json!("org/tiny");
    assert_eq!(gateway.post(COMPLETIONS, &body).await.status, 200);
    until(SOON, || async {
        let made = admin.get("/api/v1/decisions").await;
        if made["decisions"].as_array().unwrap().len() == 1 {
            Ok(())
        } else {
            Err(made.to_string())
        }
    })
    .await;
    let name = replicas[0].engine.addr().to_string();
    for (args, path, parts) in [
        (vec!["get", "pools"], "/api/v1/pools", vec!["POOL", "org/tiny", "latency", "of 2"]),
        (vec!["get", "pools", "org/tiny"], "/api/v1/pools/org%2Ftiny", vec!["ENDPOINT", &*name]),
        (vec!["get", "endpoints"], "/api/v1/endpoints", vec!["TRUST", "exact", &*name]),
        (vec!["get", "inventory"], "/api/v1/inventory", vec!["BLOCKS", "blocks in all"]),
        (vec!["get", "parity"], "/api/v1/parity", vec!["pool org/tiny", "tokenizer", "problem"]),
        (vec!["get", "stats"], "/api/v1/stats", vec!["HIT RATE", "org/tiny", "least_"]),
        (vec!["get", "decisions"], "/api/v1/decisions", vec!["REASON", "complete"]),
        (vec!["get", "config"], "/api/v1/config", vec!["pools:", "***"]),
    ] {
        let table = home.ok(&args).await;
        for part in parts {
            assert!(table.contains(part), "{args:?} {part}: {table}");
        }
        let (shown, own) = (home.json(&args).await, admin.get(path).await);
        let keys = |value: &serde_json::Value| {
            value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(keys(&shown), keys(&own), "{args:?}");
        let yaml = home.ok(&[&args[..], &["-o", "yaml"]].concat()).await;
        assert!(yaml.contains(':') && !yaml.trim_start().starts_with('{'), "{yaml}");
    }
    let one = home.ok(&["get", "endpoints", &name]).await;
    assert!(one.contains("takes requests") && one.contains("exact"), "{one}");
    // What there is not, with what there is.
    let error = home.fails(&["get", "pools", "org/tinny"]).await;
    assert!(error.contains("did you mean `org/tiny`?"), "{error}");
    let error = home.fails(&["get", "endpoints", "h:1"]).await;
    assert!(error.contains("there is no endpoint `h:1`") && error.contains(&name), "{error}");
    let error = home.fails(&["explain", "--model", "org/tin", "--prompt", "x"]).await;
    assert!(error.contains("org/tiny"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_explained_names_stages_endpoints_and_terms() {
    let replicas = Replica::several(2).await;
    let engines = [&replicas[0].engine, &replicas[1].engine];
    let (gateway, admin, _file) = started(json!([pool("tiny", &engines)])).await;
    let home = Home::of(&admin);
    gateway.until_learned(&[&replicas[0], &replicas[1]]).await;
    let body = completion(&ids(1, 4 * BLOCK));
    gateway.post(COMPLETIONS, &body).await;
    home.put("body.json", &body.to_string(), 0o644);
    let explained = until(SOON, || async {
        let found = home.json(&["explain", "--file", "body.json"]).await;
        let held = found["candidates"].as_array().unwrap().iter().any(|one| one["overlap"] == 48);
        if held { Ok(found) } else { Err(found.to_string()) }
    })
    .await;
    let text = home.ok(&["explain", "--file", "body.json"]).await;
    let chosen = explained["chosen"].as_str().unwrap();
    for part in ["64 tokens, known as tokens", "STAGE", "eligibility", "SCORE", "IN FLIGHT", chosen]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let marked = text.lines().find(|line| line.starts_with('*')).unwrap();
    assert!(marked.contains(chosen) && marked.contains(" 48 "), "{text}");
    let chat = home.json(&["explain", "--model", "tiny", "--prompt", "hello"]).await;
    assert_eq!(chat["model"], "tiny");
    let error = home.fails(&["explain", "--file", "body.json", "--path", "/v1/nowhere"]).await;
    assert!(error.contains("/v1/nowhere"), "{error}");
    // Asking changed nothing.
    assert_eq!(home.json(&["get", "stats"]).await["requests"], 1);
    let seen = home.ok(&["watch", "--once"]).await;
    for part in ["1 request,", "POOL", "TRUST", "OUTCOME", "complete"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    assert!(!seen.contains('\u{1b}'));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_are_drained_weighed_and_activated() {
    let replicas = Replica::several(2).await;
    let engines = [&replicas[0].engine, &replicas[1].engine];
    let (gateway, admin, _file) = started(json!([pool("tiny", &engines)])).await;
    let home = Home::of(&admin);
    gateway.until_learned(&[&replicas[0], &replicas[1]]).await;
    replicas.iter().for_each(|replica| replica.engine.set_default(Reply::HangBeforeHead));
    let open = gateway.sent(COMPLETIONS, stream(&ids(1, 64), 4).to_string().as_bytes()).await;
    let busy = until(SOON, || async {
        let all = admin.get("/api/v1/endpoints").await;
        let busy = all["endpoints"].as_array().unwrap().iter().find(|one| one["in_flight"] == 1);
        busy.map(|one| one["name"].as_str().unwrap().to_owned()).ok_or_else(|| all.to_string())
    })
    .await;
    let ran = home.run(&["drain", &busy, "--wait", "--timeout", "1"]).await;
    assert_eq!(ran.status, Some(1));
    assert!(ran.err.contains("not within 1 s: 1 in flight"), "{}", ran.err);
    let waiting = home.command(&["drain", &busy, "--wait"]);
    let waiting = home.finish(waiting);
    let leave = async {
        drop(open);
    };
    let (ran, ()) = tokio::join!(waiting, leave);
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(ran.out.contains("drain") && ran.out.contains("0 in flight"), "{}", ran.out);
    let back = home.ok(&["activate", &busy, "--wait"]).await;
    assert!(back.contains("active") && back.contains("takes requests: yes"), "{back}");
    let weighed = home.json(&["weight", &busy, "40"]).await;
    assert_eq!((&weighed["weight"], &weighed["persisted"]), (&json!(40), &json!(false)));
    assert!(home.ok(&["disable", &busy]).await.contains("disabled"));
    let error = home.fails(&["weight", &busy, "10001"]).await;
    assert!(error.contains("weight: ") && error.contains("10000"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_watched_goes_on_until_a_signal() {
    let replica = Replica::start().await;
    let (_gateway, admin, _file) = started(json!([pool("tiny", &[&replica.engine])])).await;
    let home = Home::of(&admin);
    let mut watching = home.command(&["watch"]).spawn().unwrap();
    let mut frames = BufReader::new(watching.stdout.take().unwrap());
    let seen = tokio::task::spawn_blocking(move || {
        let (mut seen, mut line) = (0, String::new());
        while seen < 2 && frames.read_line(&mut line).unwrap() > 0 {
            seen += u32::from(line.contains("last 1 s: "));
            line.clear();
        }
        (seen, frames)
    });
    let seen = tokio::time::timeout(SOON, seen).await;
    let pid = watching.id().to_string();
    Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    let (seen, _open) = seen.unwrap().unwrap();
    assert_eq!(seen, 2);
    let ended = tokio::task::spawn_blocking(move || watching.wait().unwrap()).await.unwrap();
    assert_eq!(ended.code(), Some(0));
}
