//! The JSON form, against one written by hand after opentelemetry-proto's example.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::super::Step;
use super::super::context::Context;
use super::super::record::{Attempt, Decided, Ended, Pattern, Phase, Record};
use super::*;

/// 2023-11-14 22:13:20.
const EPOCH_S: u64 = 1_700_000_000;

/// A request whose trace began at `began`, the client's.
fn record(began: Instant) -> Record {
    let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let header = (HeaderName::from_static("traceparent"), HeaderValue::from_static(text));
    let context = Context::of(&HeaderMap::from_iter([header])).unwrap();
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_S);
    Record::begin(context, 0x10, Pattern::Path, "http", (began, wall))
}

fn ended(started: Instant) -> Ended {
    Ended {
        started,
        method: "POST".into(),
        path: "/v1/completions".into(),
        request_id: "req-1".into(),
        model: Some("tiny".into()),
        endpoint: Some("http://b:8000".into()),
        prefill_endpoint: None,
        plan: None,
        status: 200,
        outcome: "complete",
        broken: None,
        decision: Some(decided(48)),
        tokens: "exact",
        attempts: 2,
        waited_ms: Some(7),
        reported_prompt_tokens: Some(50),
        reported_cached_tokens: None,
    }
}

fn decided(overlap_tokens: u64) -> Decided {
    Decided { policy: "latency", reason: "overlap", overlap_tokens, prompt_tokens: 50 }
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"intValue": value}})
}

fn parsed(record: Record) -> Value {
    serde_json::from_slice(&body("kvasir-gateway", "0.1.0", &[record])).unwrap()
}

fn spans_in(body: &Value) -> &Vec<Value> {
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap()
}

#[test]
fn a_retried_request_is_what_the_golden_says() {
    let began = Instant::now();
    let mut record = record(began);
    record.note(Step::Received, began + ms(1));
    record.note(Step::Tokenising, began + ms(1));
    record.note(Step::Tokenised, began + ms(3));
    for (at, id, url) in [(3, 0xa1, "http://a:8000"), (10, 0xb2, "http://b:8000")] {
        record.note(Step::Choosing, began + ms(at));
        record.note(Step::Chosen, began + ms(at + 1));
        record.choices.last_mut().unwrap().decision = Some(decided(at));
        let phase = Phase { began: began + ms(at + 1), ended: None };
        let (url, status, first_data, error) = (url.to_owned(), None, None, None);
        record.attempts.push(Attempt {
            id,
            url,
            rank: None,
            leg: None,
            phase,
            status,
            first_data,
            error,
        });
        match id {
            0xa1 => record.failed("broke", "connection reset by peer", began + ms(9)),
            _ => record.answered(200, began + ms(20)),
        }
    }
    record.end(ended(began - ms(2)), began + ms(50));
    assert_eq!(record.spans(), 7);
    let golden: Value = serde_json::from_str(include_str!("golden.json")).unwrap();
    assert_eq!(parsed(record), golden);
}

#[test]
fn an_answer_that_breaks_is_an_error_of_server_and_engine() {
    let began = Instant::now();
    let mut record = record(began);
    record.note(Step::Received, began);
    record.note(Step::Choosing, began);
    record.note(Step::Chosen, began);
    let phase = Phase { began, ended: None };
    let url = "https://[::1]".to_owned();
    let (status, first_data, error) = (None, None, None);
    record.attempts.push(Attempt {
        id: 7,
        url,
        rank: Some(3),
        leg: None,
        phase,
        status,
        first_data,
        error,
    });
    record.answered(200, began);
    let broken = Some("engine_broke_off");
    record.end(Ended { outcome: "engine_broke_off", broken, ..ended(began) }, began + ms(1));
    let body = parsed(record);
    let [server, _, _, upstream] = &spans_in(&body)[..] else { panic!("{body}") };
    for span in [server, upstream] {
        assert_eq!(span["status"], json!({"code": 2, "message": "engine_broke_off"}));
        let attributes = span["attributes"].as_array().unwrap();
        assert!(attributes.contains(&text("error.type", "engine_broke_off")), "{span}");
    }
    let attributes = upstream["attributes"].as_array().unwrap();
    for expected in [
        text("server.address", "::1"),
        number("server.port", "443"),
        number("kvasir.rank", "3"),
        number("http.response.status_code", "200"),
    ] {
        assert!(attributes.contains(&expected), "{expected} in {upstream}");
    }
}

#[test]
fn a_body_that_never_came_is_an_error_of_its_span() {
    let began = Instant::now();
    let mut record = record(began);
    let left = Ended { status: 0, outcome: "client_left", decision: None, ..ended(began) };
    record.end(left, began + ms(4));
    let body = parsed(record);
    let [server, receive] = &spans_in(&body)[..] else { panic!("{body}") };
    assert_eq!(server.get("status"), None, "whoever left is no error of the server");
    assert!(!server.to_string().contains("status_code"));
    assert_eq!(receive["status"], json!({"code": 2, "message": "client_left"}));
    assert_eq!(receive["endTimeUnixNano"], "1700000000004000000");
}

#[test]
fn what_clients_make_long_is_cut() {
    let began = Instant::now();
    let mut record = record(began);
    let (path, model) = ("/ü".repeat(1000), Some("ü".repeat(1000)));
    record.end(Ended { path, model, ..ended(began) }, began);
    let (ended, _) = record.ended.as_ref().unwrap();
    assert!(ended.path.len() <= 256 && ended.path.starts_with("/ü/ü"));
    assert_eq!(ended.model.as_ref().unwrap().len(), 256);
}

#[test]
fn of_two_legs_the_one_that_failed_ends_the_other() {
    let began = Instant::now();
    let mut record = record(began);
    record.note(Step::Received, began);
    for (id, leg) in [(1, Leg::Prefill), (2, Leg::Decode)] {
        let phase = Phase { began, ended: None };
        let (url, rank, leg) = ("http://a".to_owned(), None, Some(leg));
        let (status, first_data, error) = (None, None, None);
        record.attempts.push(Attempt { id, url, rank, leg, phase, status, first_data, error });
    }
    record.aborted(Leg::Decode, began + ms(3));
    record.failed("broke", "connection reset by peer", began + ms(3));
    record.end(ended(began), began + ms(9));
    let body = parsed(record);
    let [_, _, prefill, decode] = &spans_in(&body)[..] else { panic!("{body}") };
    for (span, leg, error) in [(prefill, "prefill", "broke"), (decode, "decode", "aborted")] {
        let attributes = span["attributes"].as_array().unwrap();
        let text = |key: &str| {
            let found = attributes.iter().find(|entry| entry["key"] == key);
            found.and_then(|entry| entry["value"]["stringValue"].as_str())
        };
        assert_eq!((text("kvasir.leg"), text("error.type")), (Some(leg), Some(error)));
        assert!(attributes.iter().all(|entry| entry["key"] != "http.request.resend_count"));
    }
}
