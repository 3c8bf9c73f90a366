//! The breaker of each engine: what opens it, what closes it, and who may try meanwhile.

use std::time::Duration;

use http::StatusCode;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use serde_json::{Value, json};

use crate::harness::{COMPLETIONS, Gateway, SOON, completion, pool, until};

async fn scene(count: usize, health: Value) -> (Vec<FakeEngine>, Gateway) {
    let mut engines = Vec::new();
    for _ in 0..count {
        engines.push(FakeEngine::start(EngineConfig::default()).await.unwrap());
    }
    let mut pool = pool("tiny", &engines.iter().collect::<Vec<_>>());
    pool["policy"] = "round_robin".into();
    let gateway = Gateway::start(json!({"pools": [pool], "health": health})).await;
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    gateway.until_metric("kvasir_endpoint_up", &[], count as f64).await;
    (engines, gateway)
}

fn error(status: StatusCode) -> Reply {
    Reply::Json(status, json!({"error": {"code": "own"}}))
}

async fn ask(gateway: &Gateway) -> (u16, String) {
    let response = gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
    let endpoint = response.head.header("x-kvasir-endpoint").unwrap_or_default();
    (response.status, endpoint.to_owned())
}

async fn state(gateway: &Gateway, engine: &FakeEngine) -> String {
    let page = gateway.metrics().await;
    page.label("kvasir_endpoint_breaker", &[("endpoint", &engine.url())], "state")
}

async fn until_state(gateway: &Gateway, engine: &FakeEngine, wanted: &str) {
    until(SOON, || async {
        let seen = state(gateway, engine).await;
        if seen == wanted { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// Half-open without waiting for the end of a rest: an engine that was gone and is there again.
async fn reappears(gateway: &Gateway, engine: &FakeEngine) {
    engine.stop().await.unwrap();
    gateway.until_metric("kvasir_endpoint_up", &[("endpoint", &engine.url())], 0.0).await;
    engine.resume().unwrap();
    until_state(gateway, engine, "half_open").await;
}

/// Three faults in a row.
async fn break_it(gateway: &Gateway, engine: &FakeEngine, reply: Reply) {
    engine.set_default(reply);
    until(SOON, || async {
        assert_eq!(ask(gateway).await.0, 200, "somebody else answers");
        let seen = state(gateway, engine).await;
        if seen == "open" { Ok(()) } else { Err(seen) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_open_it_and_one_answered_request_closes_it() {
    for reply in [
        error(StatusCode::INTERNAL_SERVER_ERROR),
        Reply::ResetBeforeHead,
        Reply::ResetMidBody(Vec::new()),
        Reply::RawBytes(bytes::Bytes::from_static(b"SSH-2.0-not-http\r\n\r\n")),
    ] {
        let (engines, gateway) = scene(2, json!({"open_s": 1})).await;
        break_it(&gateway, &engines[0], reply.clone()).await;
        engines[0].set_default(Reply::Default);
        // It opens after the third was sent, and not before a second is over it is tried again.
        let third = engines[0].requests()[2].at;
        let rests = || third.elapsed() < Duration::from_secs(1);
        let ready = gateway.get("/readyz").await.json();
        let told = &ready["pools"]["tiny"]["endpoints"][engines[0].url()];
        assert!(told == "breaker_open" || !rests(), "{reply:?}: {told}");
        for _ in 0..4 {
            let answered = ask(&gateway).await;
            assert!(answered == (200, engines[1].url()) || !rests(), "{answered:?}");
            let asked = engines[0].requests().len();
            assert!(asked == 3 || !rests(), "it is left alone; its pages still answer");
        }
        until(SOON, || async {
            // A machine so slow that somebody has tried it.
            let seen = state(&gateway, &engines[0]).await;
            if seen == "open" { Err(seen) } else { Ok(()) }
        })
        .await;
        assert!(!rests());
        until(SOON, || async {
            let (_, used) = ask(&gateway).await;
            if used == engines[0].url() { Ok(()) } else { Err(used) }
        })
        .await;
        assert_eq!(state(&gateway, &engines[0]).await, "closed");
        let page = gateway.metrics().await;
        for (to, reason) in [("open", "faults"), ("half_open", "rest_over"), ("closed", "answered")]
        {
            let labels = [("to", to), ("reason", reason)];
            assert_eq!(page.sum("kvasir_breaker_transitions_total", &labels), Some(1.0), "{to}");
        }
        gateway.until_idle().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_bad_requests_nor_busy_answers_open_it() {
    let (engines, gateway) = scene(2, json!({"failures": 1})).await;
    for status in [400, 401, 404, 422, 429, 503] {
        engines[0].set_default(error(StatusCode::from_u16(status).unwrap()));
        for _ in 0..6 {
            ask(&gateway).await;
        }
        assert_eq!(state(&gateway, &engines[0]).await, "closed", "{status}");
    }
    assert!(engines[0].requests().len() >= 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_tries_at_a_time_and_a_client_that_leaves_frees_the_place() {
    // A trial keeps others away for as long.
    let (engines, gateway) = scene(2, json!({"open_s": 600})).await;
    break_it(&gateway, &engines[0], Reply::ResetBeforeHead).await;
    engines[0].set_default(Reply::HangBeforeHead);
    let before = engines[0].requests().len();
    reappears(&gateway, &engines[0]).await;
    let body = completion(&[1, 2, 3]).to_string();
    let trial = until(SOON, || async {
        let client = gateway.sent(COMPLETIONS, body.as_bytes()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        if engines[0].requests().len() > before { Ok(client) } else { Err("not tried".into()) }
    })
    .await;
    for _ in 0..6 {
        assert_eq!(ask(&gateway).await, (200, engines[1].url()), "nobody else tries");
    }
    assert_eq!(engines[0].requests().len(), before + 1);
    let ready = gateway.get("/readyz").await.json();
    assert_eq!(ready["pools"]["tiny"]["endpoints"][engines[0].url()], "half_open");
    drop(trial);
    gateway.until_idle().await;
    engines[0].set_default(Reply::Default);
    until(SOON, || async {
        let (_, used) = ask(&gateway).await;
        if used == engines[0].url() { Ok(()) } else { Err(used) }
    })
    .await;
    assert_eq!(state(&gateway, &engines[0]).await, "closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_make_one_trial() {
    const REQUESTS: usize = 32;
    let (engines, gateway) = scene(2, json!({"open_s": 600})).await;
    break_it(&gateway, &engines[0], Reply::ResetBeforeHead).await;
    let before = engines[0].requests().len();
    engines[0].set_default(Reply::HangBeforeHead);
    reappears(&gateway, &engines[0]).await;
    let mut burst = tokio::task::JoinSet::new();
    for _ in 0..REQUESTS {
        let addr = gateway.addr();
        burst.spawn(async move {
            let body = completion(&[1, 2, 3]).to_string();
            kvasir_testkit::client::post(addr, COMPLETIONS, body.as_bytes()).await.unwrap().status
        });
    }
    // The trial takes longer than all others.
    for _ in 1..REQUESTS {
        assert_eq!(burst.join_next().await.unwrap().unwrap(), 200);
    }
    assert_eq!(engines[0].requests().len(), before + 1);
    burst.shutdown().await;
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trial_that_fails_opens_it_for_longer() {
    let (engines, gateway) = scene(2, json!({"open_s": 1})).await;
    break_it(&gateway, &engines[0], Reply::ResetBeforeHead).await;
    until_state(&gateway, &engines[0], "half_open").await;
    until(SOON, || async {
        ask(&gateway).await;
        let seen = state(&gateway, &engines[0]).await;
        if seen == "open" { Ok(()) } else { Err(seen) }
    })
    .await;
    let trial = engines[0].requests()[3].at;
    assert_eq!(engines[0].requests().len(), 4);
    until_state(&gateway, &engines[0], "half_open").await;
    assert!(trial.elapsed() >= Duration::from_secs(2), "{:?}", trial.elapsed());
    let labels = [("to", "open"), ("reason", "trial_failed")];
    gateway.until_metric("kvasir_breaker_transitions_total", &labels, 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_engine_is_asked_all_the_same_and_closes_it_by_answering() {
    let (engines, gateway) = scene(1, json!({"open_s": 600})).await;
    engines[0].set_default(error(StatusCode::INTERNAL_SERVER_ERROR));
    for _ in 0..5 {
        assert_eq!(ask(&gateway).await.0, 500, "its own word, not ours");
    }
    assert_eq!(state(&gateway, &engines[0]).await, "open");
    engines[0].set_default(Reply::Default);
    assert_eq!(ask(&gateway).await.0, 200);
    assert_eq!(state(&gateway, &engines[0]).await, "closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_was_gone_is_tried_as_soon_as_it_answers_a_page() {
    let (engines, gateway) = scene(2, json!({"failures": 1, "open_s": 600})).await;
    // Up again, but not well: the page that answers does not close it.
    break_it(&gateway, &engines[0], Reply::ResetBeforeHead).await;
    reappears(&gateway, &engines[0]).await;
    let before = engines[0].requests().len();
    until(SOON, || async {
        ask(&gateway).await;
        let seen = state(&gateway, &engines[0]).await;
        if seen == "open" { Ok(()) } else { Err(seen) }
    })
    .await;
    assert_eq!(engines[0].requests().len(), before + 1);
    for _ in 0..4 {
        assert_eq!(ask(&gateway).await, (200, engines[1].url()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_health_page_counts_where_one_is_configured() {
    let health = json!({"probe_path": "/health", "probe_timeout_ms": 200});
    let (engines, gateway) = scene(2, health).await;
    let unwell = || async {
        let ready = gateway.get("/readyz").await.json();
        let state = ready["pools"]["tiny"]["endpoints"][engines[0].url()].clone();
        if state == "unhealthy" { Ok(()) } else { Err(state.to_string()) }
    };
    for page in [Reply::status(StatusCode::SERVICE_UNAVAILABLE), Reply::HangBeforeHead] {
        engines[0].set_page("/health", page);
        until(SOON, unwell).await;
        for _ in 0..4 {
            assert_eq!(ask(&gateway).await, (200, engines[1].url()));
        }
        engines[0].set_page("/health", None);
        until(SOON, || async {
            let (_, used) = ask(&gateway).await;
            if used == engines[0].url() { Ok(()) } else { Err(used) }
        })
        .await;
    }
}
