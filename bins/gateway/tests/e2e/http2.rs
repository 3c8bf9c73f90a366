//! HTTP/2 in plain text, by prior knowledge; engines are spoken to in HTTP/1.1 all the same.

use std::time::Duration;

use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, StreamBody};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Fate, RawEnd, RawStep, Reply};
use kvasir_testkit::http_client::{HttpClient, data, full};
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::{
    COMPLETIONS, Gateway, Lockstep, SOON, completion, pool, pool_at, stops_in_good_order, stream,
};

async fn scene() -> (FakeEngine, Gateway) {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    (engine, gateway)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_reaches_the_engine_as_one_of_http_1() {
    let (engine, gateway) = scene().await;
    engine.set_default(Reply::Echo);
    let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
    let body = format!("{{\"prompt\":\"{}\"}}", "many words ".repeat(50_000));
    let request = Request::post("http://api.example/v1/completions?a=b")
        .header("content-type", "application/json")
        .header("cookie", "a=1")
        .header("cookie", "b=2; c=3")
        .header("te", "trailers")
        .header("x-many", "one")
        .header("x-many", "two")
        .body(full(body.clone()))
        .unwrap();
    let answer = client.ask(request).await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, body.as_bytes()));
    let got = engine.wait_for(1, SOON).await.pop().unwrap();
    assert_eq!(
        (&*got.method, &*got.path, &got.body[..]),
        ("POST", "/v1/completions?a=b", body.as_bytes())
    );
    let all = |name: &str| {
        got.headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(all("host"), [engine.addr().to_string()]);
    assert_eq!(all("cookie"), ["a=1; b=2; c=3"], "one line");
    assert_eq!(all("x-many"), ["one", "two"]);
    assert_eq!(all("x-forwarded-host"), ["api.example"]);
    assert_eq!(all("content-length"), [body.len().to_string()]);
    for name in ["te", "connection", "transfer-encoding"] {
        assert!(all(name).is_empty(), "{name}");
    }
    assert!(answer.headers.contains_key("x-request-id"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_one_connection_go_on_side_by_side() {
    let (engine, gateway) = scene().await;
    let gap = Duration::from_millis(5);
    engine.set_default(Reply::SlowTokens { first: gap, gap, count: 10 });
    let client = std::sync::Arc::new(tokio::sync::Mutex::new(
        HttpClient::h2c(gateway.addr()).await.unwrap(),
    ));
    let mut all = JoinSet::new();
    for n in 0..100 {
        let client = client.clone();
        all.spawn(async move {
            let request = {
                let client = client.lock().await;
                let body = stream(&[n, 2], 10).to_string();
                Request::post(client.uri(COMPLETIONS))
                    .header("content-type", "application/json")
                    .body(full(body))
                    .unwrap()
            };
            // Held only until the answer begins.
            let response = client.lock().await.begin(request).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(body.to_vec()).unwrap();
            assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    gateway.until_metric("kvasir_client_connections", &[], 2.0).await;
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_reset_is_given_up_at_the_engine() {
    let (engine, gateway) = scene().await;
    engine.set_default(Reply::HeadThenHang);
    engine.push([Reply::SlowTokens {
        first: Duration::ZERO,
        gap: Duration::from_millis(20),
        count: 2_000,
    }]);
    let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
    let request =
        Request::post(client.uri(COMPLETIONS)).body(full(stream(&[1], 2_000).to_string())).unwrap();
    let mut body = client.begin(request).await.unwrap().into_body();
    data(&mut body).await.unwrap().unwrap();
    drop(body);
    let seen = engine.wait_idle(SOON).await;
    assert_eq!(seen[0].fate, Fate::ClientGoneMidBody);
    // Also before the answer has begun; the connection serves others.
    let request =
        Request::post(client.uri(COMPLETIONS)).body(full(stream(&[1], 5).to_string())).unwrap();
    let begun = tokio::time::timeout(Duration::from_millis(300), client.begin(request)).await;
    assert!(begun.is_err(), "nothing came");
    engine.wait_idle(SOON).await;
    gateway.until_idle().await;
    engine.set_default(Reply::Default);
    assert_eq!(client.post(COMPLETIONS, &completion(&[1])).await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_pass_and_heads_are_bounded() {
    let (engine, gateway) = scene().await;
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\n{}\r\n0\r\nx-sum: 7\r\n\r\n";
    engine.push([Reply::Raw(vec![RawStep::Write(answer.into())], RawEnd::Close)]);
    let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
    let answer = client.post(COMPLETIONS, &completion(&[1])).await.unwrap();
    assert_eq!(answer.trailers.unwrap()["x-sum"], "7");
    let mut request = Request::get(client.uri("/v1/models"));
    for n in 0..150 {
        request = request.header(format!("x-{n}"), "1");
    }
    let answer = client.ask(request.body(full("")).unwrap()).await.unwrap();
    assert_eq!(answer.status, 431);
    // Requests' own trailers are dropped.
    let mut trailers = HeaderMap::new();
    trailers.insert("x-late", "1".parse().unwrap());
    let whole = completion(&[1]).to_string();
    let frames = [
        Ok(http_body::Frame::data(whole.clone().into())),
        Ok(http_body::Frame::trailers(trailers)),
    ];
    let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
    let request = Request::post(client.uri(COMPLETIONS)).body(body).unwrap();
    assert_eq!(client.ask(request).await.unwrap().status, 200);
    let got = engine.wait_idle(SOON).await.pop().unwrap();
    assert_eq!((&got.body[..], got.header("x-late")), (whole.as_bytes(), ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_names_for_the_host_are_refused() {
    let (engine, gateway) = scene().await;
    let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
    for (host, status) in [("other", 400), ("localhost", 200)] {
        let request = Request::post(client.uri(COMPLETIONS)).header("host", host);
        let body = full(completion(&[1]).to_string());
        assert_eq!(client.ask(request.body(body).unwrap()).await.unwrap().status, status, "{host}");
    }
    assert_eq!(engine.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_can_be_switched_off() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "listener": {"http2": false}});
    let gateway = Gateway::start(config).await;
    if let Ok(mut client) = HttpClient::h2c(gateway.addr()).await {
        client.get("/health").await.expect_err("HTTP/2 is not spoken");
    }
    assert_eq!(gateway.get("/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_streams_finish_and_sends_clients_away() {
    let (engine, gateway) = scene().await;
    let idle = HttpClient::h2c(gateway.addr()).await.unwrap();
    let client = HttpClient::h2c(gateway.addr()).await.unwrap();
    stops_in_good_order(gateway, &engine, idle, client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_of_a_stream_arrives_before_the_next_one_is_sent() {
    let mut engine = Lockstep::start().await;
    let gateway = Gateway::over(pool_at("tiny", &[engine.url()])).await;
    let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
    // Small events, and one that does not fit into what h2 sends in one frame.
    for size in [1, 300, 40_000] {
        let request = Request::post(client.uri(COMPLETIONS));
        let request = request.body(full(stream(&[1, 2, 3], 4).to_string())).unwrap();
        let begun = client.begin(request);
        let answering = async {
            let mut exchange = engine.next().await;
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
            exchange.write(head).await;
            exchange.chunk(b"data: first\n\n").await;
            exchange
        };
        let (response, mut exchange) = tokio::join!(begun, answering);
        let mut body = response.unwrap().into_body();
        assert_eq!(data(&mut body).await.unwrap().unwrap(), &b"data: first\n\n"[..]);
        for n in 0..20 {
            let event = format!("data: {n} {}\n\n", "x".repeat(size));
            exchange.chunk(event.as_bytes()).await;
            let mut heard = Vec::new();
            while heard.len() < event.len() {
                heard.extend_from_slice(&data(&mut body).await.unwrap().unwrap());
            }
            assert_eq!(heard, event.as_bytes());
        }
        exchange.chunk(b"data: [DONE]\n\n").await;
        assert_eq!(data(&mut body).await.unwrap().unwrap(), &b"data: [DONE]\n\n"[..]);
        exchange.write(b"0\r\n\r\n").await;
        // Its end is a frame without data.
        while let Some(rest) = data(&mut body).await.unwrap() {
            assert!(rest.is_empty(), "{rest:?}");
        }
    }
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_tells_every_stream_why_it_is_cut_off() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let config = json!({"pools": [pool("tiny", &[&engine])], "shutdown_grace_s": 0});
    let mut gateway = Gateway::start(config).await;
    let mut client = HttpClient::h2c(gateway.addr()).await.unwrap();
    let ask = |client: &HttpClient| {
        let request = Request::post(client.uri(COMPLETIONS)).header("host", "localhost");
        request.body(full(stream(&[1], 5).to_string())).unwrap()
    };
    let gap = Duration::from_millis(10);
    engine.push([Reply::SlowTokens { first: gap, gap, count: 10_000 }]);
    let request = ask(&client);
    let mut body = client.begin(request).await.unwrap().into_body();
    data(&mut body).await.unwrap().unwrap();
    gateway.terminate();
    let rest = body.collect().await.expect("in good order").to_bytes();
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("\"code\":\"stopping\"") && !rest.contains("[DONE]"), "{rest}");
    assert_eq!(gateway.exit_status().await, Some(1));
}
