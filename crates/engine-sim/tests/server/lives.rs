//! Restarts and ends.

use std::io::ErrorKind;

use kvasir_testkit::client::{RawClient, get};
use serde_json::json;
use tokio::net::TcpStream;

use crate::common::{addr, complete, metric, prompt, quick, send, slow, start, stream, until};
use crate::events::{Picture, workload};

#[tokio::test]
async fn a_restart_is_a_new_life_on_the_same_ports() {
    let server = start(quick()).await;
    let (url, events) = (server.url(), server.events_endpoint());
    let mut picture = Picture::of_rank(&server, 0, true);
    workload(&server, 1).await;
    picture.equals("first life", &server, 0).await;
    let started = metric(&server, "process_start_time_seconds").await;
    let forgotten = picture.forgotten;

    server.restart().await;
    assert_eq!((server.url(), server.events_endpoint()), (url, events));
    assert!(metric(&server, "process_start_time_seconds").await > started);
    assert_eq!(metric(&server, "vllm:prompt_tokens_total").await, 0.0);
    assert_eq!(server.stats().finished, 0);
    picture.until("empty", |p| p.forgotten > forgotten && p.blocks.is_empty()).await;
    workload(&server, 2).await;
    picture.equals("second life", &server, 0).await;
    for life in 3..8 {
        server.restart().await;
        complete(&server, &prompt(life, 100), 1).await;
        picture.until("next life", |p| p.blocks.len() == 6).await;
        picture.equals("next life", &server, 0).await;
    }
}

#[tokio::test]
async fn a_restart_breaks_what_is_open() {
    let server = start(slow(0.01)).await;
    let long = json!({"model": "tiny", "prompt": prompt(1, 100), "max_tokens": 1_900});
    let mut client = stream(&server, "/v1/completions", &long).await;
    client.event().await.unwrap();
    server.restart().await;
    let broken = loop {
        match client.event().await {
            Ok(Some(event)) => assert_ne!(event, "[DONE]"),
            other => break other,
        }
    };
    assert!(broken.is_err(), "{broken:?}");
    assert_eq!((server.stats().running, server.stats().used_blocks), (0, 0));
    let cold = complete(&server, &prompt(1, 100), 1).await;
    assert_eq!(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[tokio::test]
async fn a_step_does_not_hold_up_a_restart_or_the_end() {
    let server = start(slow(3_600.0)).await;
    let body = json!({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 3});
    let mut client = stream(&server, "/v1/completions", &body).await;
    server.restart().await;
    assert!(client.event().await.is_err());
    let mut client = stream(&server, "/v1/completions", &body).await;
    server.stop().await;
    assert!(client.event().await.is_err());
}

#[tokio::test]
async fn a_restart_can_be_asked_for_over_http() {
    let server = start(quick()).await;
    complete(&server, &prompt(1, 100), 1).await;
    let started = metric(&server, "process_start_time_seconds").await;
    let asked = send(&server, "/sim/restart", &json!({"down_ms": 1_000})).await;
    assert_eq!((asked.status, asked.json()), (202, json!({"restarting": true})));
    let down = until(async || TcpStream::connect(addr(&server)).await.err(), Option::is_some).await;
    assert_eq!(down.map(|e| e.kind()), Some(ErrorKind::ConnectionRefused));
    until(async || get(addr(&server), "/health").await.is_ok(), |up| *up).await;
    assert!(metric(&server, "process_start_time_seconds").await > started);
    assert_eq!(server.stats().finished, 0);
    for body in [json!({"down_ms": -1}), json!({"down": 3}), json!({"down_ms": 600_001})] {
        assert_eq!(send(&server, "/sim/restart", &body).await.status, 400, "{body}");
    }
}

#[tokio::test]
async fn a_stopped_server_leaves_its_ports() {
    let server = start(quick()).await;
    let (address, events, replay) =
        (addr(&server), server.events_endpoint(), server.replay_endpoint());
    let open = RawClient::connect(address).await.unwrap();
    server.stop().await;
    let mut config = quick();
    (config.listen, config.events, config.replay) = (address, events, replay);
    // The same ports at once, all of them.
    let again = start(config).await;
    assert_eq!(addr(&again), address);
    drop(open);
    drop(again);
    until(async || TcpStream::connect(address).await.is_err(), |gone| *gone).await;
}
