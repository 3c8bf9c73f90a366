//! What a pool takes at once, who waits, and who is turned away.

use std::time::{Duration, Instant};

use kvasir_testkit::client::{RawClient, Response};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Load, Recorded, Reply};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, ConfigFile, Gateway, SOON, completion, ids, pool, until};

/// How long an engine takes for a request.
const WORK: Duration = Duration::from_millis(200);
/// The same for the first one, behind which others gather.
const LONG: Duration = Duration::from_millis(1_500);

async fn engines(count: usize) -> Vec<FakeEngine> {
    let mut engines = Vec::new();
    for _ in 0..count {
        let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
        engine.set_default(Reply::after(WORK));
        engines.push(engine);
    }
    engines
}

/// A gateway over these engines that lets in as this says.
async fn over(engines: &[FakeEngine], admission: Value) -> Gateway {
    let mut pool = pool("tiny", &engines.iter().collect::<Vec<_>>());
    pool["policy"] = "least_load".into();
    pool["admission"] = admission;
    pool.as_object_mut().unwrap().remove("tokenizer_dir");
    Gateway::over(pool).await
}

/// Sends a request of its own prompt; its answer is read later.
async fn sent(gateway: &Gateway, name: &str, headers: &[(&str, &str)]) -> RawClient {
    let mut client = gateway.connect().await;
    let mut all = vec![("content-type", "application/json"), ("x-name", name)];
    all.extend_from_slice(headers);
    let body = completion(&ids(1, 40)).to_string();
    client.send("POST", COMPLETIONS, &all, body.as_bytes()).await.unwrap();
    client
}

async fn asked(gateway: &Gateway, headers: &[(&str, &str)]) -> Response {
    sent(gateway, "", headers).await.response().await.unwrap()
}

async fn waiting(gateway: &Gateway, count: f64) {
    gateway.until_metric("kvasir_admission_waiting", &[], count).await;
}

async fn outcomes(gateway: &Gateway, outcome: &str) -> f64 {
    let page = gateway.metrics().await;
    page.sum("kvasir_admission_total", &[("outcome", outcome)]).unwrap()
}

/// What engines got, in order, by the names that requests were given.
fn order(engines: &[FakeEngine]) -> Vec<String> {
    let mut all: Vec<Recorded> = engines.iter().flat_map(FakeEngine::requests).collect();
    all.sort_by_key(|request| request.at);
    all.iter().map(|request| request.header("x-name").to_owned()).collect()
}

/// An engine answers no sooner than `WORK` after it was asked: who came sooner came in between. The
/// first was asked for one that never ends, whose client leaves.
fn assert_one_at_a_time(engines: &[FakeEngine]) {
    for engine in engines {
        let requests = engine.requests();
        let times: Vec<Instant> = requests.iter().skip(1).map(|request| request.at).collect();
        assert!(times.windows(2).all(|two| two[1] - two[0] >= WORK), "{times:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_served_by_priority_and_no_engine_sees_two_at_once() {
    let engines = engines(2).await;
    let limits = json!({"endpoint": {"max_requests": 1}, "queue": {"places": 8, "max_wait_ms": 60000},
        "priority_header": "x-priority"});
    let gateway = over(&engines, limits).await;
    engines.iter().for_each(|engine| engine.push([Reply::HangBeforeHead]));
    let (mut at_work, mut clients) = (Vec::new(), Vec::new());
    for name in ["at once", "at once"] {
        at_work.push(sent(&gateway, name, &[]).await);
    }
    until(SOON, || async {
        let seen = order(&engines).len();
        if seen == 2 { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    let later = [("last", "-3"), ("last", "-3"), ("plain", "0"), ("plain", "what?")];
    let later = later.into_iter().chain([("plain", "0"), ("plain", "0")]);
    let later = later.chain([("first", "7"), ("first", "7")]);
    for (name, priority) in later {
        clients.push(sent(&gateway, name, &[("x-priority", priority)]).await);
    }
    waiting(&gateway, 8.0).await;
    at_work.into_iter().for_each(RawClient::close);
    for mut client in clients {
        assert_eq!(client.response().await.unwrap().status, 200);
    }
    let wanted = ["at once", "first", "plain", "plain", "last"];
    assert_eq!(order(&engines), wanted.map(|name| [name, name]).concat());
    assert_one_at_a_time(&engines);
    assert_eq!(outcomes(&gateway, "served").await, 8.0);
    let page = gateway.metrics().await;
    let unread = [("header", "priority")];
    assert_eq!(page.sum("kvasir_admission_unread_headers_total", &unread), Some(1.0));
    assert_eq!(page.sum("kvasir_admission_wait_seconds_count", &[]), Some(8.0));
    let line = gateway.line("the header", |line| line.contains("what?")).await;
    assert!(line.contains("x-priority"), "{line}");
    let waited = |line: &Value| line["waited_ms"].as_f64().is_some_and(|ms| ms > 100.0);
    gateway.access_line(waited).await;
    let at_once = |line: &Value| line["outcome"] == "client_left" && line["waited_ms"].is_null();
    gateway.access_line(at_once).await;
    gateway.until_idle().await;
    waiting(&gateway, 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_share_what_there_is() {
    let engines = engines(1).await;
    let limits = json!({"max_requests": 1, "queue": {"places": 20, "max_wait_ms": 60000},
        "tenant_header": "x-tenant-id"});
    let gateway = over(&engines, limits).await;
    engines[0].push([Reply::HangBeforeHead]);
    let (at_work, mut clients) = (sent(&gateway, "at once", &[]).await, Vec::new());
    engines[0].wait_for(1, SOON).await;
    for (count, name) in
        ["busy", "busy", "busy", "busy", "busy", "quiet", "quiet"].iter().enumerate()
    {
        clients.push(sent(&gateway, name, &[("x-tenant-id", name)]).await);
        if count == 0 {
            waiting(&gateway, 1.0).await;
        }
    }
    waiting(&gateway, 7.0).await;
    at_work.close();
    for mut client in clients {
        assert_eq!(client.response().await.unwrap().status, 200);
    }
    let order = order(&engines);
    let quiet = order[1..=4].iter().filter(|name| *name == "quiet").count();
    assert_eq!(quiet, 2, "{order:?}");
    assert_one_at_a_time(&engines);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_queue_the_answer_is_429_at_once() {
    let engines = engines(2).await;
    let gateway = over(&engines, json!({"endpoint": {"max_requests": 1}})).await;
    engines.iter().for_each(|engine| engine.set_default(Reply::HangBeforeHead));
    let _at_work = [sent(&gateway, "", &[]).await, sent(&gateway, "", &[]).await];
    gateway.until_metric("kvasir_endpoint_in_flight", &[], 2.0).await;
    let began = Instant::now();
    let refused = asked(&gateway, &[]).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["code"]), (429, &json!("overloaded")));
    assert_eq!(error["type"], "rate_limit_error");
    assert_eq!(refused.head.header("retry-after"), Some("1"));
    let line = gateway.access_line(|line| line["status"] == 429).await;
    assert_eq!((&line["outcome"], &line["attempts"]), (&json!("overloaded"), &json!(0)), "{line}");
    assert_eq!(outcomes(&gateway, "overloaded").await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_finds_the_queue_full_or_waits_too_long_is_told_when_to_come_again() {
    let engines = engines(1).await;
    let limits = json!({"max_requests": 1, "queue": {"places": 1, "max_wait_ms": 60000},
        "timeout_header": "x-timeout"});
    let gateway = over(&engines, limits).await;
    engines[0].push([Reply::HangBeforeHead]);
    let at_work = sent(&gateway, "", &[]).await;
    engines[0].wait_for(1, SOON).await;
    let began = Instant::now();
    let refused = asked(&gateway, &[("x-timeout", "0.3")]).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("queue_timeout")));
    assert!(refused.head.header("retry-after").is_some());
    let took = began.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(20)).contains(&took), "{took:?}");
    let mut queued = sent(&gateway, "", &[]).await;
    waiting(&gateway, 1.0).await;
    let refused = asked(&gateway, &[]).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("queue_full")));
    assert!(refused.head.header("retry-after").is_some());
    // The client of the one at work leaves: that is room.
    at_work.close();
    let answer = queued.response().await.unwrap();
    assert_eq!(answer.status, 200);
    let reason = answer.head.header("x-kvasir-reason").unwrap();
    assert!(reason.contains("; waited_ms="), "{reason}");
    assert_eq!(engines[0].requests().len(), 2);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_the_queue_frees_its_place() {
    let engines = engines(1).await;
    let limits = json!({"max_requests": 1, "queue": {"places": 1, "max_wait_ms": 60000}});
    let gateway = over(&engines, limits).await;
    engines[0].push([Reply::HangBeforeHead]);
    let at_work = sent(&gateway, "", &[]).await;
    engines[0].wait_for(1, SOON).await;
    let queued = sent(&gateway, "gone", &[]).await;
    waiting(&gateway, 1.0).await;
    queued.close();
    waiting(&gateway, 0.0).await;
    assert_eq!(outcomes(&gateway, "client_left").await, 1.0);
    let line = gateway.access_line(|line| line["outcome"] == "client_left").await;
    assert_eq!(line["attempts"], 0, "{line}");
    let mut next = sent(&gateway, "next", &[]).await;
    waiting(&gateway, 1.0).await;
    at_work.close();
    assert_eq!(next.response().await.unwrap().status, 200);
    assert_eq!(order(&engines), ["", "next"]);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_held_until_the_first_engine_is_there() {
    let engines = engines(2).await;
    for engine in &engines {
        engine.stop().await.unwrap();
    }
    let gateway = over(&engines, json!({"hold_ms": 60_000, "queue": {"places": 4}})).await;
    let mut held = [sent(&gateway, "a", &[]).await, sent(&gateway, "b", &[]).await];
    waiting(&gateway, 2.0).await;
    engines[1].resume().unwrap();
    for client in &mut held {
        assert_eq!(client.response().await.unwrap().status, 200);
    }
    assert_eq!((engines[0].requests().len(), engines[1].requests().len()), (0, 2));
    // One that goes while it is the only one: the next request finds that out, and waits too.
    engines[1].stop().await.unwrap();
    let mut held = sent(&gateway, "c", &[]).await;
    waiting(&gateway, 1.0).await;
    engines[1].resume().unwrap();
    assert_eq!(held.response().await.unwrap().status, 200);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_held_for_long_enough_gets_what_there_is() {
    let engines = engines(1).await;
    engines[0].stop().await.unwrap();
    let gateway = over(&engines, json!({"hold_ms": 400, "queue": {"places": 4}})).await;
    let began = Instant::now();
    let refused = asked(&gateway, &[]).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("no_endpoint")));
    let took = began.elapsed();
    assert!((Duration::from_millis(400)..Duration::from_secs(20)).contains(&took), "{took:?}");
    assert_eq!(outcomes(&gateway, "nobody").await, 1.0);
    let line = gateway.access_line(|line| line["status"] == 503).await;
    assert!(line["waited_ms"].as_f64().is_some_and(|ms| ms >= 300.0), "{line}");
}

/// Where caches are full, more requests do not get through sooner by waiting in engines until they
/// time out: they wait here, in order, or are told at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_kv_saturation_requests_wait_or_are_turned_away_instead_of_timing_out() {
    let engines = engines(2).await;
    let full = Load { kv_usage: Some(0.97), ..Load::default() };
    let room = Load { kv_usage: Some(0.5), ..Load::default() };
    engines.iter().for_each(|engine| engine.set_load(full));
    let limits =
        json!({"endpoint": {"max_kv_usage": 0.9}, "queue": {"places": 2, "max_wait_ms": 60000}});
    let gateway = over(&engines, limits).await;
    until(SOON, || async {
        let usage = gateway.metrics().await.sum("kvasir_endpoint_kv_usage", &[]);
        if usage == Some(1.94) { Ok(()) } else { Err(format!("{usage:?}")) }
    })
    .await;
    let mut queued = [sent(&gateway, "", &[]).await, sent(&gateway, "", &[]).await];
    waiting(&gateway, 2.0).await;
    let refused = asked(&gateway, &[]).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("queue_full")));
    assert!(refused.head.header("retry-after").is_some());
    assert!(engines.iter().all(|engine| engine.requests().is_empty()));
    engines[1].set_load(room);
    for client in &mut queued {
        assert_eq!(client.response().await.unwrap().status, 200);
    }
    assert_eq!((engines[0].requests().len(), engines[1].requests().len()), (0, 2));
    gateway.until_idle().await;
}

/// A prompt that is larger than the limit is served when there is nothing else, and counts until it
/// is computed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_larger_than_the_limit_of_tokens_is_served_alone() {
    let engines = engines(1).await;
    let limits = json!({"endpoint": {"max_prefill_tokens": 50},
        "queue": {"places": 8, "max_wait_ms": 60000}});
    let gateway = over(&engines, limits).await;
    let mut clients = Vec::new();
    for length in [20, 20, 200, 200] {
        let body = completion(&ids(1, length)).to_string();
        clients.push(gateway.sent(COMPLETIONS, body.as_bytes()).await);
    }
    for mut client in clients {
        assert_eq!(client.response().await.unwrap().status, 200);
    }
    assert_eq!(engines[0].requests().len(), 4);
    gateway.until_idle().await;
}

/// A request that was let in and has to go to another engine waits for room there before all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_waits_for_room_before_all_others() {
    let engines = engines(2).await;
    let limits = json!({"endpoint": {"max_requests": 1}, "queue": {"places": 8, "max_wait_ms": 60000},
        "priority_header": "x-priority"});
    let gateway = over(&engines, limits).await;
    let reset = || Reply::Delayed(Duration::from_millis(500), Box::new(Reply::ResetBeforeHead));
    for engine in &engines {
        engine.set_handler(|request| match request.header("x-name") {
            "long" => Some(Reply::after(LONG)),
            _ => None,
        });
    }
    let mut clients = vec![sent(&gateway, "long", &[]).await];
    gateway.until_metric("kvasir_endpoint_in_flight", &[], 1.0).await;
    until(SOON, || async {
        let seen = order(&engines).len();
        if seen == 1 { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    let idle = engines.iter().position(|engine| engine.requests().is_empty()).unwrap();
    // It breaks off twice and is then left to nobody for long: what waits goes to the other one too.
    engines[idle].push([reset(), Reply::after(Duration::from_secs(3))]);
    clients.push(sent(&gateway, "again", &[]).await);
    engines[idle].wait_for(1, SOON).await;
    for name in ["urgent", "urgent"] {
        clients.push(sent(&gateway, name, &[("x-priority", "9")]).await);
    }
    waiting(&gateway, 2.0).await;
    // One urgent request takes the idle engine's place, and the retry the next at the other one.
    for mut client in clients {
        assert_eq!(client.response().await.unwrap().status, 200);
    }
    let other: Vec<String> = order(&engines[1 - idle..][..1]);
    assert_eq!(other, ["long", "again", "urgent"]);
    gateway.until_idle().await;
}

/// Who waits finds engines that a reload brings, and goes to none that it took away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_while_the_configuration_changes_goes_by_the_new_one() {
    let engines = engines(2).await;
    let config = |engine: &FakeEngine, key: &str| {
        let mut pool = pool("tiny", &[engine]);
        pool["api_key"] = key.into();
        pool["admission"] =
            json!({"max_requests": 1, "queue": {"places": 4, "max_wait_ms": 60000}});
        pool.as_object_mut().unwrap().remove("tokenizer_dir");
        json!({"scrape_interval_ms": 100, "pools": [pool]})
    };
    engines[0].set_default(Reply::HangBeforeHead);
    let file = ConfigFile::of(&config(&engines[0], "old"));
    let gateway = Gateway::of_file(&file).await;
    let _at_work = sent(&gateway, "", &[]).await;
    engines[0].wait_for(1, SOON).await;
    let mut queued = sent(&gateway, "", &[]).await;
    waiting(&gateway, 1.0).await;
    gateway.reload(&file, &config(&engines[1], "new")).await;
    assert_eq!(queued.response().await.unwrap().status, 200);
    assert_eq!((engines[0].requests().len(), engines[1].requests().len()), (1, 1));
    // Each engine gets its own key.
    let key = |engine: &FakeEngine| engine.requests()[0].header("authorization").to_owned();
    assert_eq!((key(&engines[0]), key(&engines[1])), ("Bearer old".into(), "Bearer new".into()));
}

/// Who waits while the limits themselves change goes by those of now, in the queue it is in, and hears
/// of them at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_while_the_limits_change_goes_by_those_of_now() {
    let engines = engines(1).await;
    let config = |admission: Value| {
        let mut pool = pool("tiny", &[&engines[0]]);
        pool["admission"] = admission;
        pool.as_object_mut().unwrap().remove("tokenizer_dir");
        // Nothing else makes anybody look again.
        json!({"scrape_interval_ms": 3_600_000, "pools": [pool]})
    };
    let most = |requests: u32, places: u32| {
        config(json!({"max_requests": requests,
            "queue": {"places": places, "max_wait_ms": 60000}}))
    };
    engines[0].set_default(Reply::HangBeforeHead);
    let file = ConfigFile::of(&most(1, 4));
    let gateway = Gateway::of_file(&file).await;
    let mut clients = vec![sent(&gateway, "at work", &[]).await];
    engines[0].wait_for(1, SOON).await;
    for (count, name) in [(1.0, "first"), (2.0, "second"), (3.0, "third")] {
        clients.push(sent(&gateway, name, &[]).await);
        waiting(&gateway, count).await;
    }
    // A shorter queue: nobody has to go, and nobody else comes in.
    gateway.reload(&file, &most(1, 1)).await;
    waiting(&gateway, 3.0).await;
    let refused = asked(&gateway, &[]).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("queue_full")));
    // A higher limit: who came first is served first, and what is counted is counted on.
    gateway.reload(&file, &most(2, 4)).await;
    engines[0].wait_for(2, SOON).await;
    waiting(&gateway, 2.0).await;
    assert_eq!(outcomes(&gateway, "served").await, 1.0);
    assert_eq!(outcomes(&gateway, "queue_full").await, 1.0);
    // Who comes after the reload waits behind those who came before it.
    clients.push(sent(&gateway, "last", &[]).await);
    waiting(&gateway, 3.0).await;
    gateway.reload(&file, &most(3, 4)).await;
    engines[0].wait_for(3, SOON).await;
    assert_eq!(order(&engines), ["at work", "first", "second"]);
    // Without limits nobody waits any more.
    gateway.reload(&file, &config(json!({}))).await;
    engines[0].wait_for(5, SOON).await;
    let mut at_once = order(&engines).split_off(3);
    at_once.sort();
    assert_eq!(at_once, ["last", "third"]);
}
