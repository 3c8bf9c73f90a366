//! A stop as clients and engines see it, whatever the connections speak.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use kvasir_testkit::engine::{FakeEngine, Fate, Reply};
use kvasir_testkit::http_client::{HttpClient, data, full};

use super::{COMPLETIONS, Gateway, stream};

/// Stops a gateway that has one connection with nothing on it and one with a stream: the first ends
/// at once, the second with the stream, both in good order.
pub(crate) async fn stops_in_good_order(
    mut gateway: Gateway,
    engine: &FakeEngine,
    mut idle: HttpClient,
    mut client: HttpClient,
) {
    let gap = Duration::from_millis(30);
    engine.push([Reply::SlowTokens { first: gap, gap, count: 30 }]);
    assert_eq!(idle.get("/health").await.unwrap().status, 200);
    let request = Request::post(client.uri(COMPLETIONS)).header("host", "localhost");
    let request = request.body(full(stream(&[1], 30).to_string())).unwrap();
    let mut body = client.begin(request).await.unwrap().into_body();
    data(&mut body).await.unwrap().unwrap();
    gateway.terminate();
    idle.closed().await.expect("in good order");
    assert_eq!(engine.requests()[0].fate, Fate::Open, "the stream is still going on");
    let rest = body.collect().await.unwrap().to_bytes();
    assert!(rest.ends_with(b"data: [DONE]\n\n"));
    client.closed().await.expect("in good order");
    assert_eq!(gateway.exit_status().await, Some(0));
}
