//! Spans of requests: what reaches a collector, what engines are told, and what a collector that is
//! not there costs.

use std::time::{Duration, Instant};

use http::StatusCode;
use kvasir_testkit::client::Response;
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Reply};
use serde_json::{Value, json};

use crate::harness::{CHAT, COMPLETIONS, Gateway, SOON, completion, pool, until};

const TRACES: &str = "/v1/traces";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Engines that get requests in turn, a collector, and a gateway between.
struct Scene {
    engines: Vec<FakeEngine>,
    collector: FakeEngine,
    gateway: Gateway,
}

/// A span as it came.
#[derive(Clone, Debug)]
struct Span(Value);

impl Span {
    fn field(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    /// Empty where there is none.
    fn attribute(&self, key: &str) -> &str {
        let all = self.0["attributes"].as_array().unwrap();
        let Some(found) = all.iter().find(|attribute| attribute["key"] == key) else { return "" };
        let value = &found["value"];
        value.get("stringValue").unwrap_or(&value["intValue"]).as_str().unwrap_or_default()
    }

    fn nanos(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap()
    }
}

impl Scene {
    async fn new(engines: usize, tracing: Value) -> Self {
        let collector = FakeEngine::start(EngineConfig::default()).await.unwrap();
        collector.set_default(Reply::Json(StatusCode::OK, json!({"partialSuccess": {}})));
        let mut running = Vec::new();
        for _ in 0..engines {
            running.push(FakeEngine::start(EngineConfig::default()).await.unwrap());
        }
        let mut pool = pool("tiny", &running.iter().collect::<Vec<_>>());
        pool["policy"] = "round_robin".into();
        let mut settings = json!({"otlp_endpoint": collector.url(), "sample_ratio": 1.0});
        settings.as_object_mut().unwrap().extend(tracing.as_object().unwrap().clone());
        let gateway = Gateway::start(json!({"pools": [pool], "tracing": settings})).await;
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        gateway.until_metric("kvasir_endpoint_up", &[], engines as f64).await;
        Self { engines: running, collector, gateway }
    }

    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let body = json!({"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 2,
            "messages": [{"role": "user", "content": "Hi"}]});
        let mut client = self.gateway.connect().await;
        let json = [("content-type", "application/json")];
        let all = [&json[..], headers].concat();
        client.send("POST", path, &all, body.to_string().as_bytes()).await.unwrap();
        client.response().await.unwrap()
    }

    /// All spans that have come when so many have.
    async fn spans(&self, count: usize) -> Vec<Span> {
        until(SOON, || async {
            let spans = self.seen();
            if spans.len() >= count { Ok(spans) } else { Err(format!("{spans:#?}")) }
        })
        .await
    }

    fn seen(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for posted in self.collector.requests().iter().filter(|posted| posted.body_complete) {
            assert_eq!((&*posted.method, &*posted.path), ("POST", TRACES));
            assert_eq!(posted.header("content-type"), "application/json");
            let body = posted.json();
            let [resource] = &body["resourceSpans"].as_array().unwrap()[..] else {
                panic!("{body}")
            };
            let name = &resource["resource"]["attributes"][0];
            assert_eq!(name["key"], "service.name");
            assert_eq!(name["value"]["stringValue"], "kvasir-gateway");
            spans.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().iter().cloned());
        }
        spans.into_iter().map(Span).collect()
    }
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.0["name"] == name).collect()
}

/// `traceparent`, in its parts.
fn parts(header: &str) -> [&str; 4] {
    let parts: Vec<&str> = header.split('-').collect();
    parts.try_into().unwrap_or_else(|_| panic!("`{header}`"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_part_of_its_clients_trace_and_the_engine_of_ours() {
    // Chance alone would sample nothing.
    let scene = Scene::new(1, json!({"sample_ratio": 0})).await;
    let given = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("traceparent", &*given), ("tracestate", "a=1,b=2"), ("x-request-id", "req-1")];
    let response = scene.ask(CHAT, &headers).await;
    assert_eq!(response.status, 200);
    let spans = scene.spans(5).await;
    let names: Vec<&str> = spans.iter().map(|span| span.field("name")).collect();
    let server = format!("POST {CHAT}");
    assert_eq!(names, [&*server, "receive", "tokenise", "choose", "upstream"]);
    let (server, children) = spans.split_first().unwrap();
    assert_eq!((server.field("parentSpanId"), &server.0["kind"]), (PARENT, &json!(2)));
    for (key, value) in [
        ("http.request.method", "POST"),
        ("url.path", CHAT),
        ("http.response.status_code", "200"),
        ("gen_ai.request.model", "tiny"),
        ("kvasir.endpoint", &*scene.engines[0].url()),
        ("kvasir.policy", "round_robin"),
        ("kvasir.outcome", "complete"),
        ("kvasir.request_id", "req-1"),
    ] {
        assert_eq!(server.attribute(key), value, "{key}");
    }
    let reason = response.head.header("x-kvasir-reason").unwrap();
    assert!(reason.contains(&format!("reason={};", server.attribute("kvasir.reason"))), "{reason}");
    for span in children {
        assert_eq!(span.field("parentSpanId"), server.field("spanId"));
        assert!(span.nanos("startTimeUnixNano") >= server.nanos("startTimeUnixNano"));
        assert!(span.nanos("endTimeUnixNano") <= server.nanos("endTimeUnixNano"));
    }
    for span in &spans {
        assert_eq!(span.field("traceId"), TRACE);
        assert!(span.nanos("startTimeUnixNano") <= span.nanos("endTimeUnixNano"), "{span:?}");
        assert_eq!(span.0.get("status"), None);
    }
    let mut ids: Vec<&str> = spans.iter().map(|span| span.field("spanId")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5, "{ids:?}");
    let [upstream] = named(&spans, "upstream")[..] else { panic!("{spans:?}") };
    assert_eq!(upstream.0["kind"], 3);
    assert_eq!(upstream.attribute("server.address"), "127.0.0.1");
    assert_eq!(upstream.attribute("server.port"), scene.engines[0].addr().port().to_string());
    let event = &upstream.0["events"][0];
    assert_eq!(event["name"], "first data");
    let at: u64 = event["timeUnixNano"].as_str().unwrap().parse().unwrap();
    assert!(at >= upstream.nanos("startTimeUnixNano") && at <= upstream.nanos("endTimeUnixNano"));
    let asked = &scene.engines[0].requests()[0];
    assert_eq!(parts(asked.header("traceparent")), ["00", TRACE, upstream.field("spanId"), "01"]);
    assert_eq!(asked.header("tracestate"), "a=1,b=2");
    scene.gateway.until_metric("kvasir_spans_total", &[("result", "sent")], 5.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_not_sampled_sends_no_spans_and_its_context_passes() {
    let scene = Scene::new(1, json!({})).await;
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let headers = [("traceparent", &*unsampled), ("tracestate", "a=1")];
    for _ in 0..3 {
        assert_eq!(scene.ask(COMPLETIONS, &headers).await.status, 200);
    }
    // A context that is none: the trace begins here, and its state is nobody's.
    let none = format!("00-{}-{PARENT}-01", "0".repeat(32));
    let headers = [("traceparent", &*none), ("tracestate", "a=1")];
    assert_eq!(scene.ask(COMPLETIONS, &headers).await.status, 200);
    let spans = scene.spans(5).await;
    assert_eq!(spans.len(), 5, "of the last request alone: {spans:?}");
    assert_eq!(spans[0].0.get("parentSpanId"), None);
    let asked = scene.engines[0].requests();
    for request in &asked[..3] {
        assert_eq!(request.header("traceparent"), unsampled);
        assert_eq!(request.header("tracestate"), "a=1");
    }
    let [_, trace, parent, flags] = parts(asked[3].header("traceparent"));
    assert_eq!((trace, flags), (spans[0].field("traceId"), "01"));
    assert_eq!(parent, named(&spans, "upstream")[0].field("spanId"));
    assert_ne!(trace.trim_matches('0'), "");
    assert_eq!(asked[3].header("tracestate"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retried_request_has_a_span_of_each_attempt() {
    let scene = Scene::new(2, json!({})).await;
    for (reply, error) in
        [(Reply::ResetBeforeHead, "broke"), (Reply::status(StatusCode::SERVICE_UNAVAILABLE), "503")]
    {
        let before = scene.seen().len();
        // Both get requests in turn: one of the two requests meets it first.
        scene.engines[0].push([reply]);
        let asked: Vec<usize> = scene.engines.iter().map(|e| e.requests().len()).collect();
        for _ in 0..2 {
            assert_eq!(scene.ask(COMPLETIONS, &[]).await.status, 200);
        }
        // Of one request five, of the other a choice and an attempt more.
        let spans = scene.spans(before + 12).await.split_off(before);
        assert_eq!(spans.len(), 12, "{spans:#?}");
        let failed: Vec<&Span> = named(&spans, "upstream")
            .into_iter()
            .filter(|span| span.0["status"]["code"] == 2)
            .collect();
        let [failed] = failed[..] else { panic!("{spans:#?}") };
        assert_eq!(failed.attribute("error.type"), error);
        let siblings: Vec<&Span> = named(&spans, "upstream")
            .into_iter()
            .filter(|span| span.field("parentSpanId") == failed.field("parentSpanId"))
            .collect();
        let [first, second] = siblings[..] else { panic!("{siblings:?}") };
        assert_eq!(first.field("spanId"), failed.field("spanId"));
        assert!(first.nanos("endTimeUnixNano") <= second.nanos("startTimeUnixNano"));
        assert_eq!(second.attribute("http.request.resend_count"), "1");
        for (engine, span) in [(0, first), (1, second)] {
            let requests = scene.engines[engine].requests();
            let told = requests[asked[engine]..].iter().map(|r| parts(r.header("traceparent"))[2]);
            assert!(told.into_iter().any(|id| id == span.field("spanId")), "{engine}");
            assert_eq!(span.attribute("kvasir.endpoint"), scene.engines[engine].url());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_sent_before_a_clean_end() {
    let mut scene = Scene::new(1, json!({})).await;
    assert_eq!(scene.ask(COMPLETIONS, &[]).await.status, 200);
    scene.gateway.until_idle().await;
    scene.gateway.terminate();
    assert_eq!(scene.gateway.exit_status().await, Some(0));
    assert_eq!(scene.spans(5).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_not_there_costs_requests_nothing() {
    let mut scene = Scene::new(1, json!({})).await;
    scene.collector.stop().await.unwrap();
    let failed = [("result", "failed")];
    for round in 1..=2 {
        assert_eq!(scene.ask(COMPLETIONS, &[]).await.status, 200);
        let spans = f64::from(round) * 5.0;
        scene.gateway.until_metric("kvasir_spans_total", &failed, spans).await;
    }
    let lost = |log: &str| log.matches("spans are lost").count();
    assert_eq!(lost(&scene.gateway.log_text()), 1, "said once");
    scene.collector.resume().unwrap();
    assert_eq!(scene.ask(COMPLETIONS, &[]).await.status, 200);
    scene.gateway.line("that it works", |line| line.contains("takes spans again")).await;
    // One that takes what is sent and says nothing holds up neither requests nor a stop.
    scene.collector.set_default(Reply::HangBeforeHead);
    let began = scene.collector.requests().len();
    assert_eq!(scene.ask(COMPLETIONS, &[]).await.status, 200);
    scene.collector.wait_for(began + 1, SOON).await;
    let start = Instant::now();
    for _ in 0..20 {
        let response = scene.gateway.post(COMPLETIONS, &completion(&[1, 2, 3])).await;
        assert_eq!(response.status, 200);
    }
    scene.gateway.until_idle().await;
    scene.gateway.terminate();
    assert_eq!(scene.gateway.exit_status().await, Some(0));
    let took = start.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}: the collector's ten seconds were waited for");
    let log = scene.gateway.log_text();
    assert!(log.contains("the last spans were not sent in time"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_contexts_pass_whatever_they_are() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let gateway = Gateway::over(pool("tiny", &[&engine])).await;
    for (count, context) in ["not-a-context", "00-00-00-00"].into_iter().enumerate() {
        let mut client = gateway.connect().await;
        let headers = [("traceparent", context), ("tracestate", "a=1")];
        let body = completion(&[1]).to_string();
        client.send("POST", COMPLETIONS, &headers, body.as_bytes()).await.unwrap();
        assert_eq!(client.response().await.unwrap().status, 200);
        let asked = &engine.requests()[count];
        assert_eq!((asked.header("traceparent"), asked.header("tracestate")), (context, "a=1"));
    }
    assert_eq!(gateway.metrics().await.sum("kvasir_spans_total", &[]), None);
}
