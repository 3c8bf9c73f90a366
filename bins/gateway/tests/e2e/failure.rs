//! Engines that fail: requests go elsewhere while they can, and break honestly when they cannot.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, RawEnd, RawStep, Reply};
use serde_json::json;

use crate::harness::{COMPLETIONS, Decision, Gateway, Replica, SOON, completion, ids, pool, until};

async fn engines(count: usize) -> Vec<FakeEngine> {
    let mut engines = Vec::new();
    for _ in 0..count {
        engines.push(FakeEngine::start(EngineConfig::default()).await.unwrap());
    }
    engines
}

/// Every request goes to the engines in turn, so that each gets its share of first attempts.
async fn in_turn(engines: &[FakeEngine]) -> Gateway {
    let mut pool = pool("tiny", &engines.iter().collect::<Vec<_>>());
    pool["policy"] = "round_robin".into();
    Gateway::over(pool).await
}

async fn ask(gateway: &Gateway) -> Decision {
    Decision::of(&gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await)
}

fn raw(text: &'static str, end: RawEnd) -> Reply {
    Reply::Raw(vec![RawStep::Write(Bytes::from_static(text.as_bytes()))], end)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_engine_is_left_out_until_it_is_back() {
    let engines = engines(2).await;
    let gateway = in_turn(&engines).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 2.0).await;
    let (dead, alive) = (engines[0].url(), engines[1].url());
    engines[0].stop().await.unwrap();
    for _ in 0..6 {
        assert_eq!(ask(&gateway).await.endpoint, alive);
    }
    gateway.until_metric("kvasir_endpoint_up", &[("endpoint", &dead)], 0.0).await;
    let ready = gateway.get("/readyz").await;
    assert_eq!(
        (ready.status, &ready.json()["pools"]["tiny"]["endpoints"][&dead]),
        (200, &json!("unreachable"))
    );
    let failed = gateway.metrics().await.sum("kvasir_failed_attempts_total", &[]).unwrap_or(0.0);
    // One is enough to know; an answer read a moment ago may speak for it once more.
    assert!(failed <= 2.0, "{failed} requests ran into the dead engine");
    engines[0].restart().await.unwrap();
    until(SOON, || async {
        let used = ask(&gateway).await.endpoint;
        if used == dead { Ok(()) } else { Err(used) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_dies_is_replaced_and_gets_no_credit_when_it_is_back() {
    let (holder, other) = (Replica::start().await, Replica::start().await);
    let gateway = Gateway::over(pool("tiny", &[&holder.engine, &other.engine])).await;
    gateway.until_learned(&[&holder, &other]).await;
    let body = completion(&ids(1, 64));
    let addr = holder.engine.addr();
    kvasir_testkit::client::post(addr, COMPLETIONS, body.to_string().as_bytes()).await.unwrap();
    gateway.until_blocks(&holder, 4).await;
    holder.engine.stop().await.unwrap();
    holder.publisher.go_down();
    let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
    assert_eq!(decision.endpoint, other.url());
    gateway.until_trust(&holder, "absent(disconnected)").await;
    holder.restart().await;
    gateway.until_metric("kvasir_endpoint_up", &[("endpoint", &holder.url())], 1.0).await;
    gateway.until_blocks(&holder, 0).await;
    gateway.until_blocks(&other, 4).await;
    let decision = Decision::of(&gateway.post(COMPLETIONS, &body).await);
    assert_eq!((decision.endpoint, decision.overlap), (other.url(), 48));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_breaks_before_its_first_data_is_not_asked_again() {
    for reply in [
        Reply::ResetBeforeHead,
        // The head is no answer yet.
        Reply::ResetMidBody(Vec::new()),
        Reply::CloseMidBody(Vec::new()),
        Reply::RawBytes(Bytes::from_static(b"SSH-2.0-not-http\r\n\r\n")),
        Reply::RawBytes(Bytes::new()),
        raw("HTTP/1.1 200 OK\r\ncontent-le", RawEnd::Close),
        raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", RawEnd::Close),
    ] {
        let engines = engines(3).await;
        engines[0].set_default(reply.clone());
        // A random one of the idle: nothing but its failure speaks against a broken one.
        let mut pool = pool("tiny", &engines.iter().collect::<Vec<_>>());
        pool["policy"] = "least_load".into();
        let gateway = Gateway::over(pool).await;
        for n in 0..32 {
            let id = format!("req-{n}");
            let mut client = gateway.connect().await;
            let body = completion(&[1, 2, 3]).to_string();
            client
                .send("POST", COMPLETIONS, &[("x-request-id", &id)], body.as_bytes())
                .await
                .unwrap();
            let response = client.response().await.unwrap();
            assert_ne!(Decision::of(&response).endpoint, engines[0].url(), "{reply:?}");
        }
        for engine in &engines {
            let mut seen: HashMap<String, u32> = HashMap::new();
            for request in engine.requests() {
                *seen.entry(request.header("x-request-id").to_owned()).or_default() += 1;
            }
            assert!(seen.values().all(|times| *times == 1), "{reply:?}: {seen:?}");
        }
        let attempts = engines.iter().map(|engine| engine.requests().len()).sum::<usize>();
        assert!(attempts > 32, "{reply:?}: nothing was tried elsewhere");
        gateway.until_idle().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_breaks_two_engines_goes_to_no_third() {
    let engines = engines(4).await;
    for engine in &engines {
        engine.set_default(Reply::ResetBeforeHead);
    }
    let gateway = in_turn(&engines).await;
    let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["error"]["code"], "engine_broke_off");
    let mut tried: Vec<usize> = engines.iter().map(|engine| engine.requests().len()).collect();
    tried.sort_unstable();
    assert_eq!(tried, [0, 0, 1, 1]);
    let line = gateway.access_line(|line| line["status"] == 502).await;
    assert_eq!((&line["attempts"], &line["outcome"]), (&json!(2), &json!("engine_broke_off")));
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_protocol_is_no_answer() {
    let engines = engines(2).await;
    let switching = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    for engine in &engines {
        engine.set_default(raw(switching, RawEnd::Close));
    }
    let gateway = in_turn(&engines).await;
    let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["error"]["code"], "engine_broke_off");
    let failed = [("cause", "not_http")];
    assert_eq!(gateway.metrics().await.sum("kvasir_failed_attempts_total", &failed), Some(2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forwarded_unread_is_sent_again_only_if_nobody_got_it() {
    let engines = engines(2).await;
    let mut pool = pool("tiny", &[&engines[0], &engines[1]]);
    pool["policy"] = "round_robin".into();
    let gateway = Gateway::start(json!({"pools": [pool], "forward_paths": ["/any"]})).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 2.0).await;
    for engine in &engines {
        engine.set_default(Reply::ResetBeforeHead);
    }
    assert_eq!(gateway.post("/any", &json!({})).await.status, 502);
    let asked = engines.iter().map(|engine| engine.requests().len()).sum::<usize>();
    assert_eq!(asked, 1, "it may have had an effect");
    engines[0].stop().await.unwrap();
    engines[1].set_default(Reply::Echo);
    for _ in 0..2 {
        assert_eq!(gateway.post("/any", &json!({})).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_engine_gets_a_second_chance_and_no_third() {
    let engines = engines(1).await;
    let gateway = in_turn(&engines).await;
    engines[0].push([Reply::ResetBeforeHead]);
    assert_eq!(ask(&gateway).await.endpoint, engines[0].url());
    assert_eq!(engines[0].requests().len(), 2);
    engines[0].set_default(Reply::ResetBeforeHead);
    let response = gateway.post(COMPLETIONS, &completion(&[1])).await;
    assert_eq!((response.status, engines[0].requests().len()), (502, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_answer_that_breaks_in_the_middle_is_broken_for_the_client_too() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\nonly this";
    for reply in [raw(cut, RawEnd::Close), raw(cut, RawEnd::Reset)] {
        let engines = engines(2).await;
        for engine in &engines {
            engine.set_default(reply.clone());
        }
        let gateway = in_turn(&engines).await;
        let mut client = gateway.sent(COMPLETIONS, &completion_bytes()).await;
        let head = client.head().await.unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-length"), Some("2000000"));
        let error = client.body().await.expect_err("the end was forged");
        let broken = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
        assert!(broken.contains(&error.kind()), "{reply:?}: {error:?}");
        let line = gateway.access_line(|line| line["outcome"] == "engine_broke_off").await;
        assert_eq!((&line["status"], &line["attempts"]), (&json!(200), &json!(1)), "{line}");
        asked_once(&engines, &gateway).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_not_streamed_comes_whole_or_as_an_error() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    for (end, status, code) in [
        (RawEnd::Close, 502, "engine_broke_off"),
        (RawEnd::Reset, 502, "engine_broke_off"),
        (RawEnd::Hold, 504, "idle_timeout"),
    ] {
        let engines = engines(2).await;
        for engine in &engines {
            engine.set_default(raw(cut, end));
        }
        let refs: Vec<&FakeEngine> = engines.iter().collect();
        let timeouts = json!({"connect_ms": 1000, "idle_ms": 300});
        let pools = json!([pool("tiny", &refs)]);
        let gateway = Gateway::start(json!({"pools": pools, "timeouts": timeouts})).await;
        let answer = gateway.post_bytes(COMPLETIONS, &completion_bytes()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_eq!(answer.json()["error"]["code"], code);
        asked_once(&engines, &gateway).await;
    }
    // In pieces it is put together again.
    let engines = engines(1).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n";
    let pieces = [head, "{\"a\"", ": [1, ", "2]}"];
    let steps = pieces.iter().flat_map(|piece| {
        [
            RawStep::Write(Bytes::from_static(piece.as_bytes())),
            RawStep::Pause(Duration::from_millis(20)),
        ]
    });
    engines[0].set_default(Reply::Raw(steps.collect(), RawEnd::Close));
    let gateway = in_turn(&engines).await;
    let answer = gateway.post_bytes(COMPLETIONS, &completion_bytes()).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "{\"a\": [1, 2]}"));
}

fn completion_bytes() -> Vec<u8> {
    completion(&[1, 2, 3]).to_string().into_bytes()
}

/// What was heard once is not computed again, and nothing is counted any more.
async fn asked_once(engines: &[FakeEngine], gateway: &Gateway) {
    let asked = engines.iter().map(|engine| engine.requests().len()).sum::<usize>();
    assert_eq!(asked, 1);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_engines_down_the_client_is_told_at_once_and_in_json() {
    let engines = engines(3).await;
    let gateway = in_turn(&engines).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 3.0).await;
    for engine in &engines {
        engine.stop().await.unwrap();
    }
    for _ in 0..3 {
        let asked = Instant::now();
        let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
        assert_eq!(response.status, 503, "{}", response.text());
        assert_eq!(response.head.header("content-type"), Some("application/json"));
        assert!(response.head.header("retry-after").is_some());
        let error = response.json()["error"].clone();
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!("no_endpoint"), &json!("server_error"))
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("tiny"), "{message}");
        let told = |engine: &FakeEngine| message.contains(&engine.addr().port().to_string());
        assert!(!engines.iter().any(told), "{message}: where engines are is not for clients");
    }
    gateway.until_metric("kvasir_pool_ready", &[], 0.0).await;
    assert_eq!(gateway.get("/readyz").await.status, 503);
    assert_eq!(gateway.get("/health").await.status, 200, "the gateway itself is well");
    engines[1].resume().unwrap();
    until(SOON, || async {
        let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
        if response.status == 200 { Ok(()) } else { Err(response.text()) }
    })
    .await;
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_hangs_holds_up_nobody_else() {
    let engines = engines(2).await;
    let mut pool = pool("tiny", &[&engines[0], &engines[1]]);
    pool["policy"] = "least_load".into();
    let gateway = Gateway::over(pool).await;
    engines[0].set_default(Reply::HangBeforeHead);
    // With equal load the choice is random: of two at the same time each gets one.
    let body = completion(&[1, 2, 3]).to_string();
    engines[1].push([Reply::HangBeforeHead]);
    let one = gateway.sent(COMPLETIONS, body.as_bytes()).await;
    let is_first = until(SOON, || async {
        let seen = [&engines[0], &engines[1]].map(|engine| engine.requests().len());
        if seen == [0, 0] { Err("no request yet".to_owned()) } else { Ok(seen == [1, 0]) }
    })
    .await;
    let two = gateway.sent(COMPLETIONS, body.as_bytes()).await;
    for engine in &engines {
        engine.wait_for(1, SOON).await;
    }
    let (hanging, other) = if is_first { (one, two) } else { (two, one) };
    other.close();
    gateway.until_metric("kvasir_endpoint_in_flight", &[], 1.0).await;
    for _ in 0..10 {
        let asked = Instant::now();
        assert_eq!(ask(&gateway).await.endpoint, engines[1].url());
        assert!(asked.elapsed() < PROMPT_ANSWER, "{:?}", asked.elapsed());
    }
    assert!(engines[0].requests().iter().all(|request| request.fate == Fate::Open));
    drop(hanging);
    gateway.until_idle().await;
}

/// Requests behind a hanging engine take as long as any.
const PROMPT_ANSWER: Duration = SOON;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_one_engine_do_not_wait_for_each_other() {
    let engines = engines(1).await;
    let gateway = in_turn(&engines).await;
    engines[0].push([Reply::HangBeforeHead, Reply::HeadThenHang]);
    let body = completion(&[1, 2, 3]).to_string();
    let mut hanging = Vec::new();
    for n in 1..=2 {
        hanging.push(gateway.sent(COMPLETIONS, body.as_bytes()).await);
        engines[0].wait_for(n, SOON).await;
    }
    for _ in 0..5 {
        assert_eq!(ask(&gateway).await.endpoint, engines[0].url());
    }
    drop(hanging);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_or_broken_metrics_pages_are_no_reason_to_leave_an_engine_out() {
    let engines = engines(1).await;
    for path in ["/metrics", "/health", "/version"] {
        engines[0].set_page(path, Reply::ResetBeforeHead);
    }
    let gateway = in_turn(&engines).await;
    gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
    for page in [Reply::status(StatusCode::INTERNAL_SERVER_ERROR), Reply::HangBeforeHead] {
        engines[0].set_page("/metrics", page);
        for _ in 0..5 {
            assert_eq!(ask(&gateway).await.endpoint, engines[0].url());
        }
    }
    assert_eq!(gateway.get("/readyz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_alive_connection_that_the_engine_closed_costs_nothing() {
    let engines = engines(1).await;
    let gateway = in_turn(&engines).await;
    for _ in 0..5 {
        ask(&gateway).await;
        // Closes every connection; the next request must not meet a dead one.
        engines[0].stop().await.unwrap();
        engines[0].resume().unwrap();
        assert_eq!(ask(&gateway).await.endpoint, engines[0].url());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_dead_engines_is_passed_over_to_find_a_live_one() {
    let engines = engines(6).await;
    let pool = pool("tiny", &engines.iter().collect::<Vec<_>>());
    // Nobody looks after the engines meanwhile: requests find out themselves.
    let config = json!({"pools": [pool], "scrape_interval_ms": 3_600_000});
    let gateway = Gateway::start(config).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 6.0).await;
    for engine in &engines[1..] {
        engine.stop().await.unwrap();
    }
    assert_eq!(ask(&gateway).await.endpoint, engines[0].url());
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_comes_back_with_another_model_is_left_out() {
    let engines = engines(2).await;
    let gateway = in_turn(&engines).await;
    gateway.until_metric("kvasir_endpoint_up", &[], 2.0).await;
    let changed = engines[0].url();
    let labels = [("endpoint", &*changed)];
    engines[0].stop().await.unwrap();
    gateway.until_metric("kvasir_endpoint_up", &labels, 0.0).await;
    let models = json!({"object": "list", "data": [{"id": "other", "root": "/models/other"}]});
    engines[0].set_page("/v1/models", Reply::Json(StatusCode::OK, models));
    engines[0].resume().unwrap();
    gateway.until_metric("kvasir_endpoint_up", &labels, 1.0).await;
    until(SOON, || async {
        let ready = gateway.get("/readyz").await.json();
        let state = &ready["pools"]["tiny"]["endpoints"][&changed];
        if state == "model_not_served" { Ok(()) } else { Err(state.to_string()) }
    })
    .await;
    for _ in 0..4 {
        assert_eq!(ask(&gateway).await.endpoint, engines[1].url());
    }
}
