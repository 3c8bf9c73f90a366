//! Many pairs of legs at once, some of which are given up on the way.

use std::net::SocketAddr;
use std::time::Duration;

use kvasir_engine_sim::server::EngineKind;
use kvasir_testkit::client::{RawClient, post};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{addr, prompt};
use crate::pair::{Pair, nixl_prefill, with_room};

const PATH: &str = "/v1/completions";

/// Sends a leg, and leaves after so long if its number says so.
async fn leg(at: SocketAddr, body: Value, number: u32) -> Option<Value> {
    let answered = async {
        let client = RawClient::connect(at).await.unwrap();
        let mut client = client.with_deadline(Duration::from_secs(30));
        client.send("POST", PATH, &[], body.to_string().as_bytes()).await.unwrap();
        client.response().await.unwrap()
    };
    let patience = match number % 4 {
        0 => Duration::from_millis(u64::from(number % 13)),
        _ => Duration::from_secs(20),
    };
    let answer = timeout(patience, answered).await.ok()?;
    Some(answer.json()).filter(|_| answer.status == 200)
}

fn body(number: u32) -> Value {
    json!({"model": "tiny", "prompt": prompt(number, 40), "max_tokens": 4,
        "return_token_ids": true})
}

#[tokio::test]
async fn leases_do_not_leak() {
    let pair = Pair::with(EngineKind::Vllm, |pd| pd.lease = Duration::from_secs(2)).await;
    let (prefill, decode) = (addr(&pair.prefill), addr(&pair.decode));
    let mut tasks = JoinSet::new();
    for number in 1..80 {
        tasks.spawn(async move {
            let first = nixl_prefill(&body(number)).to_string();
            let first = post(prefill, PATH, first.as_bytes()).await.unwrap().json();
            let mut second = body(number);
            second["kv_transfer_params"] = first["kv_transfer_params"].clone();
            (number, first, leg(decode, second, number).await)
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (number, first, second) = done.unwrap();
        if number % 4 > 0 {
            let second = second.unwrap();
            let ids = |answer: &Value| answer["choices"][0]["token_ids"].clone();
            assert_eq!(ids(&first)[0], ids(&second)[0]);
        }
    }
    pair.is_clean().await;
}

#[tokio::test]
async fn rooms_do_not_leak() {
    // Some never arrive: their partners wait in vain.
    let pair = Pair::with(EngineKind::Sglang, |pd| pd.rendezvous = Duration::from_secs(3)).await;
    let (prefill, decode) = (addr(&pair.prefill), addr(&pair.decode));
    let mut tasks = JoinSet::new();
    for number in 1..80 {
        let both = with_room(&body(number), &pair.prefill, u64::from(number));
        tasks.spawn(async move {
            // Of those that leave, one leaves first on this side, the next on the other.
            let (a, b) = if number % 8 < 4 { (number, 1) } else { (1, number) };
            let legs = (leg(prefill, both.clone(), a), leg(decode, both, b));
            (number, tokio::join!(legs.0, legs.1))
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (number, (first, second)) = done.unwrap();
        assert!(number % 4 == 0 || (first.is_some() && second.is_some()), "{number}");
    }
    pair.is_clean().await;
}
