//! Another configuration for a running gateway.

use std::time::Duration;

use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use serde_json::{Value, json};

use crate::harness::{
    COMPLETIONS, ConfigFile, Decision, Gateway, Replica, SOON, completion, ids, pool, stream, until,
};

async fn engine() -> FakeEngine {
    FakeEngine::start(EngineConfig::default()).await.unwrap()
}

fn over(engines: &[&FakeEngine]) -> Value {
    json!({ "pools": [pool("tiny", engines)] })
}

/// Where requests go, several of them.
async fn endpoints_of(gateway: &Gateway, requests: u32) -> Vec<String> {
    let mut seen = Vec::new();
    for n in 0..requests {
        let answer = gateway.post(COMPLETIONS, &completion(&ids(n, 8))).await;
        seen.push(Decision::of(&answer).endpoint);
    }
    seen.sort();
    seen.dedup();
    seen
}

async fn until_up(gateway: &Gateway, engines: &[&FakeEngine]) {
    for engine in engines {
        gateway.until_metric("kvasir_endpoint_up", &[("endpoint", &engine.url())], 1.0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_file_is_taken_up_and_what_changed_is_said() {
    let (one, two) = (engine().await, engine().await);
    let mut config = over(&[&one]);
    config["pools"][0]["api_key"] = json!("hush");
    let file = ConfigFile::of(&config);
    let gateway = Gateway::of_file(&file).await;
    until_up(&gateway, &[&one]).await;
    assert_eq!(endpoints_of(&gateway, 2).await, [one.url()]);
    let mut config = over(&[&one, &two]);
    config["pools"][0]["policy"] = json!("round_robin");
    config["pools"][0]["api_key"] = json!("murmur");
    config["decision_headers"] = json!(true);
    config["listen"] = json!("127.0.0.1:1");
    config["inventory"] = json!({"max_bytes": 2_000_000});
    // No signal: the file is looked at.
    file.replace(&config);
    let applied = [("result", "applied")];
    gateway.until_metric("kvasir_config_reloads_total", &applied, 1.0).await;
    until_up(&gateway, &[&two]).await;
    let mut both = [one.url(), two.url()];
    both.sort();
    assert_eq!(endpoints_of(&gateway, 4).await, both);
    for wanted in [
        "pools[tiny].policy: added, \\\"round_robin\\\"",
        "pools[tiny].api_key: *** -> ***",
        "pools changed: tiny; selections begun anew: tiny",
        "selection settings changed: what the policy remembered is gone",
    ] {
        gateway.line(wanted, |line| line.contains(wanted)).await;
    }
    // The address is given by a flag, which wins over the file.
    for key in ["inventory"] {
        let line = |line: &str| line.contains("needs a restart") && line.contains(key);
        gateway.line("what waits for a restart", line).await;
    }
    assert!(!gateway.log().contains("hush") && !gateway.log().contains("murmur"));
    let loaded = gateway.metrics().await.sum("kvasir_config_loaded_timestamp_seconds", &[]);
    assert!(loaded.is_some_and(|at| at > 1.7e9), "{loaded:?}");
    assert_eq!(one.requests().last().unwrap().headers["authorization"], "Bearer murmur");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_file_leaves_the_old_configuration_and_says_where_it_is_bad() {
    let one = engine().await;
    let file = ConfigFile::of(&over(&[&one]));
    let gateway = Gateway::of_file(&file).await;
    until_up(&gateway, &[&one]).await;
    let rejected = [("result", "rejected")];
    for (count, (text, wanted)) in [
        ("pools: [\n", "yaml:"),
        ("pools: []\nlisten_on: x\n", "yaml:2:1: "),
        ("{}", "pools: at least one pool is needed"),
        (
            "pools: [{model: m, api_key_file: /nonexistent, endpoints: [{url: 'http://a'}]}]",
            "api_key_file: /nonexistent",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        file.replace_text(text);
        gateway.hang_up();
        let count = count as f64 + 1.0;
        gateway.until_counted("kvasir_config_reloads_total", &rejected, count).await;
        let is_it = |line: &str| line.contains("the old one stays") && line.contains(wanted);
        gateway.line(wanted, is_it).await;
        assert_eq!(endpoints_of(&gateway, 1).await, [one.url()]);
    }
    std::fs::remove_file(file.path()).unwrap();
    gateway.hang_up();
    let why = format!("cannot read {}", file.path().display());
    let is_it = |line: &str| line.contains("the old one stays") && line.contains(&why);
    gateway.line("that it is gone", is_it).await;
    assert_eq!(gateway.get("/readyz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_keeps_the_settings_it_began_with() {
    let one = engine().await;
    let file = ConfigFile::of(&over(&[&one]));
    let gateway = Gateway::of_file(&file).await;
    until_up(&gateway, &[&one]).await;
    one.push([Reply::Delayed(Duration::from_secs(1), Box::new(Reply::Default))]);
    let mut client = gateway.sent(COMPLETIONS, completion(&[1]).to_string().as_bytes()).await;
    one.wait_for(1, SOON).await;
    let mut changed = over(&[&one]);
    changed["decision_headers"] = json!(false);
    changed["max_body_bytes"] = json!(100);
    gateway.reload(&file, &changed).await;
    assert!(client.head().await.unwrap().header("x-kvasir-endpoint").is_some());
    let small = gateway.post(COMPLETIONS, &completion(&[1])).await;
    assert_eq!((small.status, small.head.header("x-kvasir-endpoint")), (200, None));
    assert_eq!(gateway.post(COMPLETIONS, &completion(&ids(1, 100))).await.status, 413);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_leaves_finishes_its_streams_and_vanishes() {
    let (stays, leaves) = (Replica::start().await, Replica::start().await);
    let only = over(&[&leaves.engine]);
    let file = ConfigFile::of(&only);
    let gateway = Gateway::of_file(&file).await;
    gateway.until_learned(&[&leaves]).await;
    gateway.post(COMPLETIONS, &completion(&ids(1, 64))).await;
    gateway.until_blocks(&leaves, 4).await;
    let gap = Duration::from_millis(100);
    leaves.engine.push([Reply::SlowTokens { first: gap, gap, count: 40 }]);
    let mut client = gateway.sent(COMPLETIONS, stream(&[1, 2], 40).to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client.event().await.unwrap().unwrap();
    let url = leaves.url();
    let (at, state) = ([("endpoint", &*url)], [("endpoint", &*url), ("state", "leaving")]);
    let with_another = over(&[&stays.engine]);
    gateway.reload(&file, &with_another).await;
    gateway.until_metric("kvasir_endpoint_state", &state, 1.0).await;
    gateway.until_metric("kvasir_endpoint_in_flight", &at, 1.0).await;
    until_up(&gateway, &[&stays.engine]).await;
    assert_eq!(endpoints_of(&gateway, 3).await, [stays.url()]);
    // It comes back before that, with its load and its blocks.
    gateway.reload(&file, &over(&[&leaves.engine, &stays.engine])).await;
    let page = gateway.metrics().await;
    assert_eq!(page.sum("kvasir_endpoint_in_flight", &at), Some(1.0));
    assert_eq!(page.sum("kvasir_endpoint_decoding", &at), Some(1.0));
    assert!(page.sum("kvasir_endpoint_resident_blocks", &at) >= Some(4.0));
    assert_eq!(page.label("kvasir_endpoint_trust", &at, "state"), "exact");
    gateway.reload(&file, &with_another).await;
    let mut last = String::new();
    while let Some(event) = client.event().await.unwrap() {
        last = event;
    }
    assert_eq!(last, "[DONE]");
    until(SOON, || async {
        let seen = gateway.metrics().await.sum("kvasir_endpoint_in_flight", &at);
        if seen.is_none() { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    gateway.line("its end", |line| line.contains("endpoint is gone")).await;
    let asked = leaves.engine.info_requests().len();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(leaves.engine.info_requests().len(), asked, "nobody asks it any more");
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_endpoint_keeps_its_conversations_and_all_drained_is_said() {
    let (one, two) = (engine().await, engine().await);
    let states = |of_one: &str, of_two: &str| {
        let mut config = over(&[&one, &two]);
        config["pools"][0]["sticky"] = json!({});
        config["pools"][0]["endpoints"][0]["state"] = json!(of_one);
        config["pools"][0]["endpoints"][1]["state"] = json!(of_two);
        config
    };
    let file = ConfigFile::of(&states("active", "disabled"));
    let gateway = Gateway::of_file(&file).await;
    until_up(&gateway, &[&one, &two]).await;
    let mut body = completion(&[1, 2]);
    body["user"] = json!("ada");
    let answer = gateway.post(COMPLETIONS, &body).await;
    assert_eq!(Decision::of(&answer).endpoint, one.url());
    gateway.reload(&file, &states("drain", "active")).await;
    assert_eq!(endpoints_of(&gateway, 4).await, [two.url()]);
    let answer = gateway.post(COMPLETIONS, &body).await;
    assert_eq!(Decision::of(&answer).endpoint, one.url(), "it is pinned there");
    let ready = gateway.get("/readyz").await.json();
    assert_eq!(ready["pools"]["tiny"]["endpoints"][one.url()], "draining");
    gateway.reload(&file, &states("drain", "disabled")).await;
    let refused = gateway.post(COMPLETIONS, &completion(&[1])).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("no_endpoint")));
    let why = "all of them were taken out of service (1 draining, 1 disabled)";
    assert!(refused.text().contains(why), "{}", refused.text());
    assert_eq!(gateway.get("/readyz").await.status, 503);
    gateway.reload(&file, &states("active", "active")).await;
    assert_eq!(gateway.post(COMPLETIONS, &completion(&[1])).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_load_of_an_answer_that_comes_as_a_whole_is_decoding_after_its_prefill() {
    let one = engine().await;
    let gateway = Gateway::over(pool("tiny", &[&one])).await;
    until_up(&gateway, &[&one]).await;
    let gap = Duration::from_millis(100);
    one.push([Reply::SlowTokens { first: gap, gap, count: 30 }]);
    let mut client =
        gateway.sent(COMPLETIONS, completion(&ids(1, 64)).to_string().as_bytes()).await;
    let at = [("endpoint", &*one.url())];
    gateway.until_metric("kvasir_endpoint_decoding", &at, 1.0).await;
    let page = gateway.metrics().await;
    assert_eq!(page.sum("kvasir_endpoint_in_flight", &at), Some(1.0));
    assert_eq!(page.sum("kvasir_endpoint_queued_prefill_tokens", &at), Some(0.0));
    assert_eq!(client.response().await.unwrap().status, 200);
    gateway.until_idle().await;
    gateway.until_metric("kvasir_endpoint_decoding", &at, 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_followed_anew_only_where_it_is_another() {
    let replicas = Replica::several(2).await;
    let [one, two] = &replicas[..] else { unreachable!() };
    let mut config = over(&[&one.engine, &two.engine]);
    let file = ConfigFile::of(&config);
    let gateway = Gateway::of_file(&file).await;
    gateway.until_learned(&[one, two]).await;
    let followed = |replica: &Replica| {
        let is_it =
            |line: &&str| line.contains("following events") && line.contains(&replica.url());
        gateway.log().lines().filter(is_it).count()
    };
    let asked = two.engine.info_requests().len();
    config["pools"][0]["api_key"] = json!("another");
    config["pools"][0]["policy"] = json!("least_load");
    config["pools"][0]["endpoints"][0]["weight"] = json!(50);
    config["scrape_interval_ms"] = json!(150);
    gateway.reload(&file, &config).await;
    config["pools"][0]["endpoints"][0]["events"] = json!(one.publisher.endpoint());
    gateway.reload(&file, &config).await;
    until(SOON, || async {
        let count = followed(one);
        if count == 2 { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    gateway.until_trust(one, "partial(joined_late)").await;
    gateway.until_trust(two, "exact").await;
    assert_eq!((followed(one), followed(two)), (2, 1));
    let with_key = |recorded: &kvasir_testkit::engine::Recorded| {
        recorded.headers.get("authorization").is_some_and(|key| key == "Bearer another")
    };
    assert!(two.engine.info_requests()[asked..].iter().any(with_key), "probes have the new key");
}
