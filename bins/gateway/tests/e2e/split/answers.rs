//! What passes between clients and two engines that do as they are told: `usage`, headers, and how answers
//! end.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use kvasir_testkit::client::Response;
use kvasir_testkit::engine::{
    EngineConfig, FakeEngine, RawEnd, RawStep, Recorded, Reply, SseChunk,
};
use serde_json::{Value, json};

use super::{count, plan};
use crate::harness::{COMPLETIONS, Gateway, SOON, completion};

/// One engine of each role, in vLLM's protocol.
struct Scene {
    prefill: FakeEngine,
    decode: FakeEngine,
    gateway: Gateway,
}

impl Scene {
    async fn new() -> Self {
        Self::with(json!({}), [1, 1]).await
    }

    /// With more said of the pool, and so many endpoints up.
    async fn with(pool: Value, endpoints: [u32; 2]) -> Self {
        let prefill = FakeEngine::start(EngineConfig::default()).await.unwrap();
        let decode = FakeEngine::start(EngineConfig::default()).await.unwrap();
        let [first, second] = endpoints;
        let mut all = json!({"model": "tiny", "policy": "round_robin", "token_parity": "off",
            "disaggregation": {"protocol": "nixl"}, "endpoints": [
                {"url": prefill.url(), "role": "prefill", "ranks": first},
                {"url": decode.url(), "role": "decode", "ranks": second}]});
        all.as_object_mut().unwrap().extend(pool.as_object().unwrap().clone());
        let gateway = Gateway::start(json!({"pools": [all]})).await;
        gateway.until_metric("kvasir_pool_ready", &[], 1.0).await;
        gateway.until_metric("kvasir_endpoint_up", &[], f64::from(first + second)).await;
        Self { prefill, decode, gateway }
    }

    /// From now on the prefill engine says so of the prompt.
    fn prefill_says(&self, details: Option<&str>) {
        let usage = usage(details);
        let text = format!(
            "{{\"choices\":[{{\"text\":\"a\",\"finish_reason\":\"length\"}}],\"usage\":{usage},\
             \"kv_transfer_params\":{{\"do_remote_prefill\":true}}}}"
        );
        self.prefill.set_default(answer("application/json", &text, None));
    }

    async fn ask(&self, streamed: bool) -> Response {
        self.ask_with(streamed, &[]).await
    }

    async fn ask_with(&self, streamed: bool, headers: &[(&str, &str)]) -> Response {
        let mut body = completion(&[1, 2, 3]);
        if streamed {
            body["stream"] = true.into();
        }
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        let mut client = self.gateway.connect().await;
        client.send("POST", COMPLETIONS, &all, body.to_string().as_bytes()).await.unwrap();
        client.response().await.unwrap()
    }

    /// The last request of each.
    fn legs(&self) -> [Recorded; 2] {
        [&self.prefill, &self.decode].map(|engine| engine.requests().last().unwrap().clone())
    }
}

/// A usage with these details; `None` where it has none.
fn usage(details: Option<&str>) -> String {
    let details = details.map(|raw| format!(", \"prompt_tokens_details\":{raw}"));
    format!("{{\"prompt_tokens\":3, \"total_tokens\":5{}}}", details.unwrap_or_default())
}

fn answer(kind: &str, text: &str, coding: Option<&str>) -> Reply {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_str(kind).unwrap());
    if let Some(coding) = coding {
        headers.insert(http::header::CONTENT_ENCODING, HeaderValue::from_str(coding).unwrap());
    }
    Reply::Status(StatusCode::OK, headers, text.to_owned().into())
}

fn whole(usage: &str) -> String {
    format!("{{\"choices\":[{{\"text\":\"b\",\"finish_reason\":\"stop\"}}], \"usage\" : {usage}}}")
}

fn events(usage: &str) -> Vec<String> {
    vec![
        "{\"choices\":[{\"text\":\"b\",\"finish_reason\":\"stop\"}],\"usage\":null}".to_owned(),
        format!("{{\"choices\":[], \"usage\" : {usage}}}"),
    ]
}

fn stream_of(events: &[String]) -> Reply {
    let chunk = |data: &String| SseChunk { gap: Duration::ZERO, data: data.clone() };
    let chunks = events.iter().map(chunk).collect();
    Reply::Sse { head_delay: Duration::ZERO, chunks, done: true }
}

fn text_of(events: &[String]) -> String {
    let events: Vec<String> = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    format!("{}data: [DONE]\n\n", events.concat())
}

#[tokio::test]
async fn usage_is_what_the_engine_that_computed_the_prompt_would_say_alone() {
    let scene = Scene::new().await;
    let told = "{\"cached_tokens\":2, \"created_cache_tokens\":1}";
    let none = "{\"cached_tokens\":0, \"created_cache_tokens\":0}";
    for (prefill, decode, want) in [
        (Some(told), Some(none), Some(told)),
        // The decode engine is not told to report, or has nothing to.
        (Some(told), Some("null"), Some(told)),
        (Some(told), None, Some(told)),
        (Some(none), Some("null"), Some(none)),
        // The prefill engine is not: nobody invents a number.
        (Some("null"), Some("null"), Some("null")),
        (None, None, None),
        (Some("null"), Some(none), Some(none)),
    ] {
        scene.prefill_says(prefill);
        scene.decode.set_default(answer("application/json", &whole(&usage(decode)), None));
        let got = scene.ask(false).await;
        assert_eq!(plan(&got), "split");
        assert_eq!(Value::Object(usage_of(&got.text())), json_of(want), "{prefill:?} {decode:?}");
        assert_eq!(got.head.header("content-length"), Some(&*got.body.len().to_string()));
        scene.decode.set_default(stream_of(&events(&usage(decode))));
        let got = scene.ask(true).await.text();
        let lines: Vec<&str> = got.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 3, "{got}");
        assert_eq!(lines[0], format!("data: {}", events("")[0]));
        let usage = usage_of(lines[1].strip_prefix("data: ").unwrap());
        assert_eq!(Value::Object(usage), json_of(want), "{prefill:?} {decode:?}");
        assert_eq!(lines[2], "data: [DONE]");
    }
    scene.gateway.until_idle().await;
}

fn usage_of(text: &str) -> serde_json::Map<String, Value> {
    let answer: Value = serde_json::from_str(text).unwrap();
    answer["usage"].as_object().unwrap().clone()
}

fn json_of(details: Option<&str>) -> Value {
    serde_json::from_str(&usage(details)).unwrap()
}

#[tokio::test]
async fn what_a_prefill_engine_reports_is_nothing_that_the_decode_engine_reports() {
    let scene = Scene::new().await;
    scene.prefill_says(Some("{\"cached_tokens\":2}"));
    scene.decode.set_default(answer("application/json", &whole(&usage(Some("null"))), None));
    scene.ask(false).await;
    let line = scene.gateway.access_line(|line| line["plan"] == "split").await;
    assert_eq!(line["reported_cached_tokens"], 2, "{line}");
    // From then on its silence would mean that it had nothing.
    scene.prefill.set_default(Reply::status(StatusCode::SERVICE_UNAVAILABLE));
    scene.ask(false).await;
    let line = scene.gateway.access_line(|line| line["plan"] == "prefill_failed").await;
    assert_eq!(line["reported_cached_tokens"], Value::Null, "{line}");
}

#[tokio::test]
async fn a_compressed_answer_passes_as_it_is_and_prefill_answers_are_not_compressed() {
    let scene = Scene::new().await;
    scene.prefill_says(Some("{\"cached_tokens\":2}"));
    let accepts = [("accept-encoding", "gzip, br")];
    // What is called compressed is not looked into, be it what it may.
    let usage = usage(Some("{\"cached_tokens\":0}"));
    for (streamed, kind, text) in [
        (false, "application/json", whole(&usage)),
        (true, "text/event-stream", text_of(&events(&usage))),
        (false, "application/json", "\u{1f}\u{8b}\u{8}\"usage\" \"prompt_tokens\"".to_owned()),
    ] {
        scene.decode.set_default(answer(kind, &text, Some("gzip")));
        let got = scene.ask_with(streamed, &accepts).await;
        assert_eq!((plan(&got), got.text()), ("split".to_owned(), text), "{kind}");
        assert_eq!(got.head.header("content-encoding"), Some("gzip"));
        let coding = |leg: &Recorded| leg.headers[http::header::ACCEPT_ENCODING].clone();
        assert_eq!(scene.legs().each_ref().map(coding), ["identity", "gzip, br"]);
    }
    // Where nothing is asked for, an engine could compress whatever it likes.
    scene.ask(false).await;
    let [prefill, decode] = scene.legs();
    assert_eq!(prefill.headers[http::header::ACCEPT_ENCODING], "identity");
    assert!(!decode.headers.contains_key(http::header::ACCEPT_ENCODING));
    scene.gateway.until_idle().await;
}

#[tokio::test]
async fn legs_carry_the_ranks_of_their_own_endpoints() {
    const RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");
    let client = [("x-data-parallel-rank", "7")];
    let names = |leg: &Recorded| leg.headers.get_all(&RANK).iter().cloned().collect::<Vec<_>>();
    let scene = Scene::new().await;
    scene.prefill_says(None);
    let got = scene.ask_with(false, &client).await;
    assert_eq!(plan(&got), "split");
    let none: Vec<HeaderValue> = Vec::new();
    assert_eq!(scene.legs().each_ref().map(names), [none.clone(), none]);
    // A rank is one of an engine: of three here, of two there.
    let scene = Scene::with(json!({"rank_addressing": "header"}), [2, 3]).await;
    scene.prefill_says(None);
    let mut seen = [Vec::new(), Vec::new()];
    for _ in 0..6 {
        let got = scene.ask_with(false, &client).await;
        assert_eq!(plan(&got), "split");
        for (seen, leg) in seen.iter_mut().zip(scene.legs()) {
            assert_eq!(names(&leg).len(), 1);
            seen.push(names(&leg)[0].to_str().unwrap().parse::<u32>().unwrap());
        }
        let rank = got.head.header("x-kvasir-rank").unwrap();
        assert_eq!(rank.parse::<u32>().unwrap(), *seen[1].last().unwrap());
    }
    let [prefill, decode] = seen;
    assert!(prefill.iter().all(|rank| *rank < 2) && prefill.contains(&0) && prefill.contains(&1));
    assert!(decode.iter().all(|rank| *rank < 3), "{decode:?}");
    scene.gateway.until_idle().await;
}

#[tokio::test]
async fn a_prompt_whose_answer_ends_at_once_is_no_lack_of_params() {
    let scene = Scene::new().await;
    // As connectors do that keep blocks of answers only that reach their limit.
    let text = whole(&usage(None));
    scene.prefill.set_default(answer("application/json", &text, None));
    let got = scene.ask(false).await;
    assert_eq!((plan(&got), got.status), ("ended_early".to_owned(), 200));
    let page = scene.gateway.metrics().await;
    assert_eq!(count(&page, "kvasir_pd_params_missing_total"), 0.0);
    let text = text.replace("stop", "length");
    scene.prefill.set_default(answer("application/json", &text, None));
    assert_eq!(plan(&scene.ask(false).await), "params_missing");
    let page = scene.gateway.metrics().await;
    assert_eq!(count(&page, "kvasir_pd_params_missing_total"), 1.0);
    scene.gateway.until_idle().await;
}

/// A stream of events that ends without its end after these pieces.
fn broken_after(pieces: &[&str]) -> Reply {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let pieces = pieces.iter().filter(|piece| !piece.is_empty());
    let chunks = pieces.map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len()));
    let steps = std::iter::once(head.to_owned()).chain(chunks);
    Reply::Raw(steps.map(|text| RawStep::Write(text.into())).collect(), RawEnd::Close)
}

#[tokio::test]
async fn the_error_that_ends_a_stream_comes_in_one_piece() {
    let scene = Scene::new().await;
    scene.prefill_says(Some("{\"cached_tokens\":2}"));
    let begun = format!("data: {}\n\n", events("")[0].replace("\"stop\"", "null"));
    for half in
        ["", "data: {\"choices\":[]", "data: {\"choices\":[], \"usage\":{\"prompt_tokens\":3"]
    {
        scene.decode.set_default(broken_after(&[&begun, half]));
        let mut body = completion(&[1, 2, 3]);
        body["stream"] = true.into();
        let mut client = scene.gateway.sent(COMPLETIONS, body.to_string().as_bytes()).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        let mut frames = Vec::new();
        while let Some(frame) = client.frame().await.unwrap() {
            frames.push(String::from_utf8(frame.to_vec()).unwrap());
        }
        let last = frames.pop().unwrap();
        assert!(last.starts_with("data: {\"error\":") && last.ends_with("}\n\n"), "{last:?}");
        assert_eq!(last.matches("\n\n").count(), 1, "{last:?}");
        assert_eq!(frames.concat(), begun);
    }
    scene.decode.wait_idle(SOON).await;
    scene.gateway.until_idle().await;
}
