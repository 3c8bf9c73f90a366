//! SGLang's legs: both come at once and meet in a room.

use std::time::Duration;

use kvasir_engine_sim::server::{EngineKind, PdRole, SimServer, SimServerConfig, SimServerError};
use kvasir_testkit::client::{RawClient, get};
use serde_json::{Value, json};

use crate::common::{addr, chunks, fetch, metric, send, stream, until};
use crate::pair::{Pair, alone, bodies, streamed, tokens, with_role, with_room};

#[tokio::test]
async fn split_and_whole_give_the_same() {
    let alone = alone().await;
    let pair = Pair::of(EngineKind::Sglang).await;
    for (number, (path, body)) in (1_u64..).zip(bodies()) {
        let whole = tokens(&send(&alone, path, &body).await.json());
        let leg = with_room(&body, &pair.prefill, number);
        let legs = (send(&pair.prefill, path, &leg), send(&pair.decode, path, &leg));
        let (first, split) = tokio::join!(legs.0, legs.1);
        assert_eq!((first.status, split.status), (200, 200), "{}", split.text());
        assert_eq!(tokens(&first.json()), whole[..1], "one token is all a prefill leg makes");
        assert_eq!(tokens(&split.json()), whole);

        // Whoever comes first waits.
        let mut leg = with_room(&body, &pair.prefill, number + 100);
        leg["cache_salt"] = json!("streams");
        let mut decode = tokio::spawn(raw(addr(&pair.decode), path, leg.clone()));
        until(|| metric(&pair.prefill, "sim_rooms"), |rooms| *rooms == 1.0).await;
        let waits = tokio::time::timeout(Duration::from_millis(20), &mut decode).await;
        assert!(waits.is_err());
        let events = chunks(&mut stream(&pair.prefill, path, &leg).await).await;
        assert_eq!(streamed(&events), whole[..1]);
        assert_eq!(tokens(&decode.await.unwrap()), whole);
    }
    pair.is_clean().await;
}

async fn raw(addr: std::net::SocketAddr, path: &str, body: Value) -> Value {
    kvasir_testkit::client::post(addr, path, body.to_string().as_bytes()).await.unwrap().json()
}

#[tokio::test]
async fn a_room_is_used_once() {
    let pair = Pair::of(EngineKind::Sglang).await;
    let (path, body) = bodies().remove(1);
    let leg = with_room(&body, &pair.prefill, 1 << 62);
    let both = async || {
        let legs = (send(&pair.prefill, path, &leg), send(&pair.decode, path, &leg));
        let (first, second) = tokio::join!(legs.0, legs.1);
        (first.status, second.status)
    };
    assert_eq!(both().await, (200, 200));
    assert_eq!(both().await, (400, 400));
    assert!(send(&pair.prefill, path, &leg).await.text().contains("has been used"));
    pair.is_clean().await;
}

#[tokio::test]
async fn who_waits_in_vain_fails() {
    let wait = Duration::from_millis(100);
    let pair = Pair::with(EngineKind::Sglang, |pd| pd.rendezvous = wait).await;
    let (path, body) = bodies().remove(0);
    for (room, server) in [(1, &pair.prefill), (2, &pair.decode)] {
        let begun = std::time::Instant::now();
        let response = send(server, path, &with_room(&body, &pair.prefill, room)).await;
        assert_eq!(response.status, 500, "{}", response.text());
        assert!(begun.elapsed() >= wait);
        assert_eq!(response.json()["error"]["code"], 500);
        pair.is_clean().await;
    }
    assert_eq!(metric(&pair.prefill, "sim_transfers_failed_total").await, 1.0);
    assert_eq!(metric(&pair.decode, "sim_transfers_failed_total").await, 1.0);
}

#[tokio::test]
async fn a_leg_that_leaves_frees_the_other() {
    let pair = Pair::with(EngineKind::Sglang, |pd| {
        pd.transfer_time = Duration::from_secs(60);
        pd.rendezvous = Duration::from_secs(60);
    })
    .await;
    let (path, body) = bodies().remove(0);
    let sides: [(&SimServer, &SimServer); 2] =
        [(&pair.prefill, &pair.decode), (&pair.decode, &pair.prefill)];
    for (room, (leaves, stays)) in (1..).zip(sides) {
        let leg = with_room(&body, &pair.prefill, room);
        let mut leaver = RawClient::connect(addr(leaves)).await.unwrap();
        leaver.send("POST", path, &[], leg.to_string().as_bytes()).await.unwrap();
        let mut stayer = RawClient::connect(addr(stays)).await.unwrap();
        stayer.send("POST", path, &[], leg.to_string().as_bytes()).await.unwrap();
        // The prompt has been computed and is on its way.
        let held = |state: &Value| state["ranks"][0]["held_requests"] == 1;
        until(|| fetch(&pair.prefill, "/sim/state"), held).await;
        until(|| metric(&pair.decode, "sim_pulls"), |pulls| *pulls == 1.0).await;
        drop(leaver);
        assert_eq!(stayer.response().await.unwrap().status, 500);
        pair.is_clean().await;
    }
    // One that leaves before its partner has come is not waited for.
    let leg = with_room(&body, &pair.prefill, 9);
    let mut leaver = RawClient::connect(addr(&pair.decode)).await.unwrap();
    leaver.send("POST", path, &[], leg.to_string().as_bytes()).await.unwrap();
    until(|| metric(&pair.prefill, "sim_rooms"), |rooms| *rooms == 1.0).await;
    drop(leaver);
    pair.is_clean().await;
    assert_eq!(send(&pair.prefill, path, &leg).await.status, 400);
}

#[tokio::test]
async fn a_server_of_one_role_takes_its_legs_only() {
    let pair = Pair::of(EngineKind::Sglang).await;
    let (path, body) = bodies().remove(0);
    for server in [&pair.prefill, &pair.decode] {
        assert_eq!(send(server, path, &body).await.status, 400, "no room");
        for room in [json!("1"), json!(-1), json!(u64::MAX)] {
            let mut leg = with_room(&body, &pair.prefill, 1);
            leg["bootstrap_room"] = room;
            assert_eq!(send(server, path, &leg).await.status, 400);
        }
    }
    let mut leg = with_room(&body, &pair.prefill, 1);
    leg["bootstrap_port"] = Value::Null;
    assert_eq!(send(&pair.decode, path, &leg).await.status, 400);
    let both: SimServerConfig = with_role(EngineKind::Sglang, PdRole::Both);
    let refused = SimServer::start(both).await.unwrap_err();
    assert!(matches!(refused, SimServerError::Setting { name: "pd", .. }), "{refused}");
}

#[tokio::test]
async fn pages_are_those_of_the_kind() {
    let pair = Pair::of(EngineKind::Sglang).await;
    assert_eq!(fetch(&pair.prefill, "/v1/models").await["data"][0]["owned_by"], "sglang");
    let info = fetch(&pair.decode, "/server_info").await;
    assert_eq!((&info["page_size"], &info["dp_size"]), (&json!(16), &json!(1)));
    assert_eq!(info["disaggregation_mode"], "decode");
    assert_eq!(get(addr(&pair.decode), "/kv_event_sources").await.unwrap().status, 404);
    let page = get(addr(&pair.decode), "/metrics").await.unwrap().text();
    assert!(page.contains("sglang:num_running_reqs{dp_rank=\"0\",model_name=\"tiny\"} 0.0"));
    assert!(!page.contains("vllm:"), "{page}");
}
