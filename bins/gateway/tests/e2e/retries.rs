//! Requests that go to another engine: when, how often, and what the client gets where nobody does
//! better.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kvasir_testkit::client::Response;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, RawEnd, RawStep, Reply};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, Gateway, SOON, completion, pool, until};

/// Engines that get requests in turn, behind a gateway with these settings besides.
async fn scene(count: usize, settings: Value) -> (Vec<FakeEngine>, Gateway) {
    let mut engines = Vec::new();
    for _ in 0..count {
        engines.push(FakeEngine::start(EngineConfig::default()).await.unwrap());
    }
    let mut pool = pool("tiny", &engines.iter().collect::<Vec<_>>());
    pool["policy"] = "round_robin".into();
    let mut config = json!({"pools": [pool], "forward_paths": ["/any"]});
    config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let gateway = Gateway::start(config).await;
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    gateway.until_metric("kvasir_endpoint_up", &[], count as f64).await;
    (engines, gateway)
}

async fn ask(gateway: &Gateway) -> Response {
    gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await
}

fn busy(status: u16, retry_after: Option<&'static str>) -> Reply {
    let retry_after =
        retry_after.map(|value| (header::RETRY_AFTER, HeaderValue::from_static(value)));
    let body = Bytes::from_static(b"{\"error\":{\"code\":\"own\"}}");
    Reply::Status(StatusCode::from_u16(status).unwrap(), HeaderMap::from_iter(retry_after), body)
}

fn asked(engines: &[FakeEngine]) -> Vec<usize> {
    engines.iter().map(|engine| engine.requests().len()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_and_failing_engines_are_passed_over_and_bad_requests_are_not() {
    let (engines, gateway) =
        scene(2, json!({"retries": {"budget_min_per_s": 1000}, "health": {"failures": 1000}}))
            .await;
    for (status, passed_over) in [
        (400, false),
        (404, false),
        (422, false),
        (501, false),
        (429, true),
        (500, true),
        (502, true),
        (503, true),
        (504, true),
    ] {
        engines[0].set_default(busy(status, None));
        let mut answers = HashMap::new();
        for _ in 0..4 {
            let response = ask(&gateway).await;
            if response.status != 200 {
                assert_eq!(response.json()["error"]["code"], "own");
            }
            *answers.entry(response.status).or_insert(0) += 1;
        }
        let expected = if passed_over {
            HashMap::from([(200, 4)])
        } else {
            HashMap::from([(200, 2), (status, 2)])
        };
        assert_eq!(answers, expected, "{status}");
    }
    let page = gateway.metrics().await;
    assert_eq!(page.sum("kvasir_failed_attempts_total", &[]), None, "answers are no breaks");
    let retried = |cause| {
        page.sum("kvasir_retries_total", &[("cause", cause), ("result", "ok")]).unwrap_or(0.0)
    };
    assert_eq!((retried("busy"), retried("error")), (8.0, 12.0));
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_are_busy_the_client_gets_the_last_one_s_own_answer() {
    let (engines, gateway) = scene(4, json!({})).await;
    for engine in &engines {
        engine.set_default(busy(503, Some("17")));
    }
    let response = ask(&gateway).await;
    assert_eq!((response.status, response.text()), (503, "{\"error\":{\"code\":\"own\"}}".into()));
    assert_eq!(response.head.header("retry-after"), Some("17"));
    let mut seen = asked(&engines);
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 1, 1], "three attempts, none twice at the same engine");
    let line = gateway.access_line(|line| line["status"] == 503).await;
    assert_eq!((&line["attempts"], &line["no_retry"]), (&json!(3), &json!("attempts")), "{line}");
    assert_eq!(line["endpoint"].as_str(), response.head.header("x-kvasir-endpoint"));
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_two_engines_is_the_request_s_own_and_is_passed_on() {
    let (engines, gateway) = scene(4, json!({})).await;
    // Longer than is read ahead: the rest is passed on from where it is.
    let long = Bytes::from(vec![b'x'; 300_000]);
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    for engine in &engines {
        engine.set_default(Reply::Status(status, HeaderMap::new(), long.clone()));
    }
    let response = ask(&gateway).await;
    assert_eq!((response.status, response.body), (500, long));
    let mut seen = asked(&engines);
    seen.sort_unstable();
    assert_eq!(seen, [0, 0, 1, 1]);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_error_is_the_answer_when_the_next_engine_breaks_off() {
    let (engines, gateway) = scene(2, json!({})).await;
    for (first, second) in [(0, 1), (1, 0)] {
        engines[first].set_default(busy(502, None));
        engines[second].set_default(Reply::ResetBeforeHead);
        let mut statuses = Vec::new();
        for _ in 0..2 {
            let response = ask(&gateway).await;
            assert_eq!(response.json()["error"]["code"], "own");
            statuses.push(response.status);
        }
        assert_eq!(statuses, [502, 502]);
    }
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_retry_after_is_waited_for_once_and_a_long_one_is_passed_on() {
    let (engines, gateway) = scene(1, json!({"retries": {"max_retry_after_s": 1}})).await;
    engines[0].push([busy(503, Some("1"))]);
    let began = Instant::now();
    assert_eq!(ask(&gateway).await.status, 200);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(asked(&engines), [2]);
    engines[0].push([busy(429, Some("1")), busy(429, Some("1"))]);
    assert_eq!(ask(&gateway).await.status, 429, "once is enough");
    assert_eq!(asked(&engines), [4]);
    // Without a time, or with a long one, nothing is waited for.
    until(SOON, || async {
        let ready = gateway.get("/readyz").await.json();
        let state = ready["pools"]["tiny"]["endpoints"][engines[0].url()].clone();
        if state == "ready" { Ok(()) } else { Err(state.to_string()) }
    })
    .await;
    for (count, reply) in [busy(503, None), busy(503, Some("30"))].into_iter().enumerate() {
        engines[0].push([reply]);
        assert_eq!(ask(&gateway).await.status, 503);
        assert_eq!(asked(&engines), [5 + count], "it is not asked once more");
    }
    // The only engine of a pool is asked all the same: it may have meant another client.
    assert_eq!(ask(&gateway).await.status, 200);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_says_when_to_come_again_is_left_alone_until_then() {
    let (engines, gateway) = scene(2, json!({})).await;
    engines[0].push([busy(503, Some("3"))]);
    let began = Instant::now();
    for _ in 0..10 {
        assert_eq!(ask(&gateway).await.status, 200);
        // On a machine so slow that its time is over it is asked again, rightly.
        let seen = asked(&engines);
        assert!(seen[0] == 1 || began.elapsed() >= Duration::from_secs(3), "{seen:?}");
    }
    let ready = gateway.get("/readyz").await;
    let state = &ready.json()["pools"]["tiny"]["endpoints"][engines[0].url()];
    let is_left_alone = state == "back_pressure" || began.elapsed() >= Duration::from_secs(3);
    assert!(ready.status == 200 && is_left_alone, "{state}");
    let labels = [("endpoint", &*engines[0].url()), ("state", "closed")];
    gateway.until_metric("kvasir_endpoint_breaker", &labels, 1.0).await;
    until(SOON, || async {
        ask(&gateway).await;
        if asked(&engines)[0] > 1 { Ok(()) } else { Err(format!("{:?}", asked(&engines))) }
    })
    .await;
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_of_a_pool_bounds_its_retries() {
    let retries = json!({"budget_percent": 0, "budget_min_per_s": 1});
    let (engines, gateway) = scene(2, json!({"retries": retries})).await;
    engines[0].set_default(busy(503, None));
    let mut refused = 0;
    for _ in 0..40 {
        refused += u32::from(ask(&gateway).await.status == 503);
    }
    // Ten go on, and each takes two turns; then every second one meets the busy engine.
    assert!((12..=16).contains(&refused), "{refused} were not sent again");
    let page = gateway.metrics().await;
    let denied = page.sum("kvasir_retries_total", &[("result", "no_budget"), ("cause", "busy")]);
    assert_eq!(denied, Some(f64::from(refused)));
    let line = gateway.access_line(|line| line["status"] == 503).await;
    assert_eq!((&line["no_retry"], &line["attempts"]), (&json!("budget"), &json!(1)), "{line}");
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_had_an_effect_is_not_sent_again() {
    let (engines, gateway) = scene(2, json!({})).await;
    for engine in &engines {
        engine.set_default(busy(503, Some("1")));
    }
    assert_eq!(gateway.post("/any", &json!({})).await.status, 503);
    assert_eq!(asked(&engines).iter().sum::<usize>(), 1);
    let line = gateway.access_line(|line| line["path"] == "/any").await;
    assert_eq!(line["no_retry"], "not_repeatable", "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_breaks_off_is_no_answer() {
    let (engines, gateway) = scene(2, json!({})).await;
    let cut = b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf ";
    let half = || Reply::Raw(vec![RawStep::Write(Bytes::from_static(cut))], RawEnd::Close);
    engines[0].set_default(half());
    for _ in 0..2 {
        assert_eq!(ask(&gateway).await.status, 200);
    }
    // Where nobody else is left it is passed on as it is, and breaks for the client too.
    engines[1].set_default(half());
    let mut client = gateway.sent(COMPLETIONS, completion(&[1, 2, 3]).to_string().as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 503);
    client.body().await.expect_err("the end was forged");
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_says_nothing_in_time_is_named_and_no_other_is_asked() {
    for (key, code) in [("first_data_ms", "first_data_timeout"), ("request_ms", "request_timeout")]
    {
        let timeouts = json!({"connect_ms": 1000, key: 300});
        let (engines, gateway) = scene(2, json!({"timeouts": timeouts})).await;
        for engine in &engines {
            engine.set_default(Reply::HangBeforeHead);
        }
        let response = ask(&gateway).await;
        let error = response.json()["error"].clone();
        assert_eq!((response.status, &error["code"]), (504, &json!(code)), "{error}");
        assert_eq!(asked(&engines).iter().sum::<usize>(), 1);
        gateway.until_idle().await;
    }
}
