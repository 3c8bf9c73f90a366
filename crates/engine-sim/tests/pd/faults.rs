//! Legs and transfers that fail on purpose.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use kvasir_engine_sim::server::{EngineKind, SimServer};
use kvasir_testkit::client::RawClient;
use serde_json::{Value, json};

use crate::common::{addr, ask, complete, fetch, metric, prompt, send, stream, until};
use crate::pair::{Pair, bodies, nixl_decode, nixl_prefill, with_room};

async fn set(server: &SimServer, faults: Value) {
    ask(server, "/sim/faults", &faults).await;
}

#[tokio::test]
async fn a_transfer_that_fails() {
    let pair = Pair::with(EngineKind::Vllm, |pd| pd.lease = Duration::from_millis(300)).await;
    let (path, body) = bodies().remove(0);
    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    set(&pair.decode, json!({"transfer": "fail", "once": true})).await;
    assert_eq!(send(&pair.decode, path, &leg).await.status, 500);
    assert_eq!(metric(&pair.decode, "vllm:nixl_num_failed_transfers_total").await, 1.0);
    // The prompt is still there for another attempt.
    assert_eq!(send(&pair.decode, path, &leg).await.status, 200);
    pair.is_clean().await;
    set(&pair.decode, json!({"transfer": "slow:150", "once": true})).await;
    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    let begun = Instant::now();
    assert_eq!(send(&pair.decode, path, &leg).await.status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    pair.is_clean().await;
}

#[tokio::test]
async fn in_a_room_both_legs_fail() {
    let pair = Pair::of(EngineKind::Sglang).await;
    let (path, body) = bodies().remove(0);
    set(&pair.decode, json!({"transfer": "fail", "once": true})).await;
    for (room, status) in [(1, 500), (2, 200)] {
        let leg = with_room(&body, &pair.prefill, room);
        let legs = (send(&pair.prefill, path, &leg), send(&pair.decode, path, &leg));
        let (first, second) = tokio::join!(legs.0, legs.1);
        assert_eq!((first.status, second.status), (status, status));
    }
    pair.is_clean().await;
}

#[tokio::test]
async fn a_lease_that_is_over_at_once() {
    let pair = Pair::of(EngineKind::Vllm).await;
    let (path, body) = bodies().remove(0);
    set(&pair.prefill, json!({"lease": "expired", "once": true})).await;
    let (first, leg) = nixl_decode(&pair.prefill, path, &body).await;
    assert!(first["kv_transfer_params"].is_object(), "nobody is told");
    let expired = "vllm:nixl_num_kv_expired_reqs_total";
    until(|| metric(&pair.prefill, expired), |count| *count == 1.0).await;
    assert_eq!(send(&pair.decode, path, &leg).await.status, 500);
    pair.is_clean().await;
}

#[tokio::test]
async fn a_dead_prefill_server() {
    let Pair { prefill, decode } = Pair::of(EngineKind::Vllm).await;
    let (path, body) = bodies().remove(0);
    let (_, leg) = nixl_decode(&prefill, path, &body).await;
    prefill.stop().await;
    let response = send(&decode, path, &leg).await;
    assert_eq!(
        (response.status, &response.json()["error"]["type"]),
        (500, &json!("InternalServerError"))
    );
    let state = fetch(&decode, "/sim/state").await;
    assert_eq!((&state["pd"]["pulls"], &state["pd"]["failed"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn a_prefill_server_that_dies_during_the_transfer() {
    let pair = Pair::of(EngineKind::Vllm).await;
    let (path, body) = bodies().remove(0);
    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    set(&pair.decode, json!({"transfer": "slow:60000", "once": true})).await;
    let mut client = RawClient::connect(addr(&pair.decode)).await.unwrap();
    client.send("POST", path, &[], leg.to_string().as_bytes()).await.unwrap();
    until(|| metric(&pair.decode, "sim_pulls"), |pulls| *pulls == 1.0).await;
    pair.prefill.restart().await;
    assert_eq!(client.response().await.unwrap().status, 500);
    pair.is_clean().await;
}

#[tokio::test]
async fn legs_fail_and_other_requests_do_not() {
    let pair = Pair::of(EngineKind::Vllm).await;
    let (path, body) = bodies().remove(0);
    let prefill = nixl_prefill(&body).to_string();
    let post = async |server: &SimServer, body: &str| {
        let client = RawClient::connect(addr(server)).await.unwrap();
        let mut client = client.with_deadline(Duration::from_secs(10));
        client.send("POST", path, &[], body.as_bytes()).await.unwrap();
        client
    };
    // Refused, hanging, dying.
    set(&pair.prefill, json!({"leg": "prefill", "http": "error:503"})).await;
    let mut client = post(&pair.prefill, &prefill).await;
    assert_eq!(client.response().await.unwrap().status, 503);
    set(&pair.prefill, json!({"http": "reset"})).await;
    let mut client = post(&pair.prefill, &prefill).await;
    assert_eq!(client.head().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    set(&pair.prefill, json!({"http": "hang"})).await;
    let mut client = post(&pair.prefill, &prefill).await.with_deadline(Duration::from_millis(50));
    assert_eq!(client.head().await.unwrap_err().kind(), ErrorKind::TimedOut);
    complete(&pair.prefill, &prompt(1, 20), 1).await;
    set(&pair.prefill, json!({"http": "ok"})).await;

    let (_, leg) = nixl_decode(&pair.prefill, path, &body).await;
    set(&pair.decode, json!({"leg": "decode", "http": "error:500"})).await;
    assert_eq!(send(&pair.decode, path, &leg).await.status, 500);
    set(&pair.decode, json!({"http": "reset"})).await;
    let mut client = post(&pair.decode, &leg.to_string()).await;
    assert_eq!(client.head().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    complete(&pair.decode, &prompt(1, 20), 1).await;
    assert_eq!(metric(&pair.prefill, "sim_leases").await, 1.0, "none of them has fetched it");
    // And after the first data.
    set(&pair.decode, json!({"http": "reset_mid_body"})).await;
    let mut client = stream(&pair.decode, path, &leg).await;
    let first: Value = serde_json::from_str(&client.event().await.unwrap().unwrap()).unwrap();
    assert!(first["choices"][0]["text"].is_string(), "{first}");
    assert_eq!(client.event().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    pair.is_clean().await;
}
