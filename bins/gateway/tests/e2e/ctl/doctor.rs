//! `kvasirctl doctor` and `get parity` against a running gateway.

use kvasir_testkit::engine::{EngineConfig, FakeEngine};
use serde_json::{Value, json};

use super::Home;
use crate::admin::started;
use crate::harness::{COMPLETIONS, Replica, ReplicaOptions, SOON, completion, ids, pool, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_are_named_with_a_remedy_and_the_status_says_that_there_are_some() {
    let (sound, silent) =
        (Replica::start().await, FakeEngine::start(EngineConfig::default()).await.unwrap());
    let pools = json!([pool("tiny", &[&sound.engine])]);
    let (gateway, admin, file) = started(pools).await;
    let home = Home::of(&admin);
    gateway.until_learned(&[&sound]).await;
    let ran = home.run(&["doctor"]).await;
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
    assert!(ran.out.ends_with("1 pool: 0 problems\n"), "{}", ran.out);
    // A drained endpoint is no problem, and not forgotten either.
    home.ok(&["drain", &sound.engine.addr().to_string()]).await;
    let ran = home.run(&["doctor"]).await;
    assert!(ran.out.contains("note: ") && ran.out.contains("is `drain`"), "{}", ran.out);
    home.ok(&["activate", &sound.engine.addr().to_string()]).await;

    let name = silent.addr().to_string();
    let body = json!({"url": silent.url()});
    admin.done("POST", "/api/v1/pools/tiny/endpoints", &body).await;
    let found: Value = until(SOON, || async {
        let ran = home.run(&["doctor", "--json"]).await;
        let found: Value = serde_json::from_str(&ran.out).unwrap();
        // Until the engine was asked its events are only not connected yet, which has another remedy.
        let problem = &found["problems"][0];
        let is_asked = problem["finding"].as_str().is_some_and(|it| !it.contains("connecting"));
        let is_it = problem["cause"] == "no_events" && is_asked && ran.status == Some(1);
        if is_it { Ok(found) } else { Err(ran.out) }
    })
    .await;
    assert_eq!(found["verdict"], "off");
    let problem = &found["problems"][0];
    assert!(problem["endpoint"].as_str().unwrap().contains(&name), "{problem}");
    assert!(problem["remedy"].as_str().unwrap().contains("KV events"), "{problem}");
    for text in [home.run(&["doctor"]).await.out, home.ok(&["get", "parity"]).await] {
        assert!(
            text.contains("no_events") && text.contains("-> ") && text.contains(&name),
            "{text}"
        );
    }
    let error = home.fails(&["doctor", "--pool", "tinny"]).await;
    assert!(error.contains("did you mean `tiny`?"), "{error}");
    let ran = home.run(&["doctor", "--probe"]).await;
    assert_eq!(ran.status, Some(2), "{}", ran.err);
    // The checks of a configuration's engines go on as they were, and both can be had at once.
    let config = file.path().to_str().unwrap().to_owned();
    let url = format!("http://{}", admin.addr);
    let engines = home.run(&["doctor", "--config", &config]).await;
    assert!(!engines.out.contains("gateway http"), "{}", engines.out);
    let both = home.run(&["doctor", "--config", &config, "--admin", &url]).await;
    assert_eq!(both.status, Some(1));
    let both = both.out;
    assert!(both.contains("gateway http") && both.contains("prefix_caching"), "{both}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_were_lost_for_good_are_told_from_those_that_never_came() {
    let options = ReplicaOptions { replay: false, ..ReplicaOptions::default() };
    let replica = Replica::with(options).await;
    let (gateway, admin, _file) = started(json!([pool("tiny", &[&replica.engine])])).await;
    let home = Home::of(&admin);
    gateway.until_metric("kvasir_pool_tokenizer_ready", &[], 1.0).await;
    let ask = |first: u32| {
        let gateway = &gateway;
        async move { gateway.post(COMPLETIONS, &completion(&ids(first, 64))).await }
    };
    ask(1).await;
    gateway.until_blocks(&replica, 4).await;
    replica.lose_next_batch();
    ask(501).await;
    ask(901).await;
    gateway.until_trust(&replica, "partial(lost_batch)").await;
    let ran = home.run(&["doctor"]).await;
    assert_eq!(ran.status, Some(1), "{}", ran.out);
    for part in ["lost_events", "1 gap", "-> give the engine a replay socket"] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    assert!(!ran.out.contains("no_events"), "{}", ran.out);
}
