//! Faults made on purpose, one by one.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use kvasir_engine_sim::server::SimServer;
use kvasir_inventory::Trust;
use kvasir_testkit::client::{RawClient, get};
use serde_json::{Value, json};

use crate::common::{
    DEADLINE, addr, ask, chunks, complete, fetch, prompt, quick, send, slow, start, stream,
};
use crate::events::Picture;

async fn set(server: &SimServer, faults: Value) {
    let all = ask(server, "/sim/faults", &faults).await;
    for (key, value) in faults.as_object().unwrap() {
        assert_eq!(all[key], *value);
    }
}

/// Publishes until a subscriber hears it live: what is published before its subscription has
/// arrived is lost to it.
async fn hears(server: &SimServer, picture: &mut Picture) {
    let begun = Instant::now();
    for number in 100.. {
        let before = picture.batches;
        complete(server, &prompt(number, 100), 1).await;
        let soon = Duration::from_millis(50);
        let heard = picture.wait("a batch", |p| p.batches > before);
        if tokio::time::timeout(soon, heard).await.is_ok() {
            return;
        }
        assert!(begun.elapsed() < DEADLINE);
    }
}

#[tokio::test]
async fn wrong_faults_are_refused() {
    let server = start(quick()).await;
    for body in
        [json!({"http": "explode"}), json!({"event": "drop"}), json!({"once": 1}), json!([])]
    {
        assert_eq!(send(&server, "/sim/faults", &body).await.status, 400, "{body}");
    }
    for (body, wanted) in [
        (
            json!({"http": "none"}),
            "unknown HTTP fault `none`, expected one of ok, hang, slow:MS, error:STATUS, reset, \
             reset_mid_body, garbage",
        ),
        (
            json!({"events": "lose"}),
            "unknown event fault `lose`, expected one of ok, drop, duplicate, delay_ms:N",
        ),
        (json!({"lease": "none"}), "unknown lease fault `none`, expected one of ok, expired"),
        (
            json!({"event": "drop"}),
            "unknown fault `event`, expected one of events, http, path, leg, transfer, lease, gone, once, \
             keep_alive_ms",
        ),
    ] {
        let said = send(&server, "/sim/faults", &body).await.text();
        assert!(said.contains(wanted), "{body}: {said}");
    }
    let none = json!({"events": "ok", "http": "ok", "path": "", "leg": "", "transfer": "ok",
        "lease": "ok", "gone": "ok", "once": false, "keep_alive_ms": null});
    assert_eq!(fetch(&server, "/sim/faults").await, none);
    assert_eq!(fetch(&server, "/sim/state").await["faults"], none);
}

#[tokio::test]
async fn dropped_batches_are_in_the_replay() {
    let server = start(quick()).await;
    let mut picture = Picture::of_rank(&server, 0, true);
    let mut no_replay = Picture::of_rank(&server, 0, false);
    hears(&server, &mut picture).await;
    hears(&server, &mut no_replay).await;
    set(&server, json!({"events": "drop"})).await;
    for number in 2..5 {
        complete(&server, &prompt(number, 100), 1).await;
    }
    // Found without another batch, by asking after a while of silence.
    picture.equals("dropped", &server, 0).await;
    set(&server, json!({"events": "drop", "once": true})).await;
    complete(&server, &prompt(5, 100), 1).await;
    complete(&server, &prompt(6, 100), 1).await;
    picture.equals("dropped once", &server, 0).await;
    // Without a replay socket the gap shows with the next batch that comes.
    let partial = |p: &Picture| matches!(p.trust, Trust::Partial(_)) && p.blocks.len() == 6;
    no_replay.wait("a gap", partial).await;
    assert_eq!(fetch(&server, "/sim/faults").await["events"], "ok");
}

#[tokio::test]
async fn duplicated_batches_change_nothing() {
    let server = start(quick()).await;
    let mut picture = Picture::of_rank(&server, 0, true);
    hears(&server, &mut picture).await;
    picture.equals("before", &server, 0).await;
    set(&server, json!({"events": "duplicate"})).await;
    let forgotten = picture.forgotten;
    for number in 0..30 {
        complete(&server, &prompt(number, 300), 10).await;
    }
    picture.equals("duplicated", &server, 0).await;
    assert_eq!((picture.forgotten, picture.trust), (forgotten, Trust::Exact));
}

#[tokio::test]
async fn delayed_batches_come_late_and_in_order() {
    let server = start(quick()).await;
    let mut picture = Picture::of_rank(&server, 0, true);
    hears(&server, &mut picture).await;
    picture.equals("before", &server, 0).await;
    let before = picture.blocks.len();
    set(&server, json!({"events": "delay_ms:3000"})).await;
    // Long enough for two answers of a machine that is busy.
    let delay = Duration::from_secs(3);
    let begun = Instant::now();
    complete(&server, &prompt(1, 100), 1).await;
    set(&server, json!({"events": "ok"})).await;
    complete(&server, &prompt(2, 100), 1).await;
    assert!(begun.elapsed() < delay, "answers do not wait for events");
    let forgotten = picture.forgotten;
    picture.until("delayed", |p| p.blocks.len() > before).await;
    assert!(begun.elapsed() >= delay);
    picture.equals("both", &server, 0).await;
    assert_eq!((picture.blocks.len(), picture.forgotten), (before + 12, forgotten));
}

#[tokio::test]
async fn errors_and_slow_answers() {
    let server = start(quick()).await;
    set(&server, json!({"http": "error:503", "path": "/v1/", "once": true})).await;
    assert_eq!(get(addr(&server), "/health").await.unwrap().status, 200);
    let body = json!({"model": "tiny", "prompt": [1], "max_tokens": 1});
    let refused = send(&server, "/v1/completions", &body).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!(503)));
    assert_eq!(send(&server, "/v1/completions", &body).await.status, 200);
    assert_eq!(server.stats().finished, 1);

    set(&server, json!({"http": "slow:150", "path": "", "once": true})).await;
    let begun = Instant::now();
    assert_eq!(get(addr(&server), "/health").await.unwrap().status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert_eq!(fetch(&server, "/sim/faults").await["http"], "ok");
}

#[tokio::test]
async fn a_hanging_server_answers_nothing_but_its_admin() {
    let server = start(quick()).await;
    set(&server, json!({"http": "hang"})).await;
    let mut client =
        RawClient::connect(addr(&server)).await.unwrap().with_deadline(Duration::from_millis(100));
    client.send("GET", "/health", &[], b"").await.unwrap();
    assert_eq!(client.head().await.unwrap_err().kind(), ErrorKind::TimedOut);
    set(&server, json!({"http": "ok"})).await;
    // What hangs goes on hanging; what comes is served.
    assert_eq!(client.head().await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(get(addr(&server), "/health").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_reset_in_the_middle_of_a_body() {
    let server = start(slow(0.002)).await;
    let body = json!({"model": "tiny", "prompt": prompt(1, 100), "max_tokens": 50});
    set(&server, json!({"http": "reset_mid_body", "once": true})).await;
    let mut client = stream(&server, "/v1/completions", &body).await;
    let first: Value = serde_json::from_str(&client.event().await.unwrap().unwrap()).unwrap();
    assert_eq!(first["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(client.event().await.unwrap_err().kind(), ErrorKind::ConnectionReset);

    set(&server, json!({"http": "reset_mid_body", "once": true})).await;
    let mut client = RawClient::connect(addr(&server)).await.unwrap();
    client.send("POST", "/v1/completions", &[], body.to_string().as_bytes()).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.body().await.unwrap_err().kind(), ErrorKind::ConnectionReset);

    let whole = chunks(&mut stream(&server, "/v1/completions", &body).await).await;
    assert_eq!(whole.len(), 50);
}

#[tokio::test]
async fn a_reset_before_any_answer() {
    let server = start(quick()).await;
    set(&server, json!({"http": "reset", "once": true})).await;
    let mut client = RawClient::connect(addr(&server)).await.unwrap();
    client.send("GET", "/health", &[], b"").await.unwrap();
    assert_eq!(client.head().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(get(addr(&server), "/health").await.unwrap().status, 200);
}

#[tokio::test]
async fn garbage_in_place_of_an_answer() {
    let server = start(quick()).await;
    set(&server, json!({"http": "garbage", "once": true})).await;
    let mut client = RawClient::connect(addr(&server)).await.unwrap();
    client.send("GET", "/health", &[], b"").await.unwrap();
    let raw = client.read_raw().await.unwrap();
    assert!(!raw.is_empty() && !raw.starts_with(b"HTTP/"), "{raw:?}");
    assert_eq!(get(addr(&server), "/health").await.unwrap().status, 200);
}

#[tokio::test]
async fn idle_connections_are_closed_only_while_they_are_idle() {
    let server = start(slow(0.01)).await;
    set(&server, json!({"keep_alive_ms": 30})).await;
    let mut client = RawClient::connect(addr(&server)).await.unwrap();
    let body = json!({"model": "tiny", "prompt": prompt(1, 10), "max_tokens": 20});
    client.send("POST", "/v1/completions", &[], body.to_string().as_bytes()).await.unwrap();
    // Takes much longer than that.
    let answer = client.response().await.unwrap();
    assert_eq!((answer.status, answer.head.header("connection")), (200, None));
    assert_eq!(client.read_raw().await.unwrap(), "", "closed without a word");
}
