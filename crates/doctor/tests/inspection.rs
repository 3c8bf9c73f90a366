//! Legs read off an engine's HTTP server, against engines that misbehave.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use kvasir_doctor::{LegName, Report, Target, Verdict, check, compare};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Reply};
use serde_json::json;

fn target(engine: &FakeEngine) -> Target {
    let mut target = Target::new(engine.addr().to_string().parse().unwrap());
    target.patience = Duration::from_secs(2);
    target
}

/// Verdict, finding and remedy of a leg, in one text.
fn said(report: &Report, leg: LegName) -> (Verdict, String) {
    let leg = report.leg(leg).unwrap_or_else(|| panic!("no leg {leg:?} in {report:?}"));
    (leg.verdict, leg.to_string())
}

#[track_caller]
fn assert_says(report: &Report, leg: LegName, verdict: Verdict, parts: &[&str]) {
    let (found, text) = said(report, leg);
    assert_eq!(found, verdict, "{text}");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[tokio::test]
async fn a_healthy_engine_is_described() {
    let models = vec![Model::base("tiny"), Model::adapter("tuned", "tiny")];
    let engine =
        FakeEngine::start(EngineConfig { models, ..EngineConfig::default() }).await.unwrap();
    let report = check(&target(&engine)).await;
    assert_eq!(report.engine.as_deref(), Some("vllm 0.32.0"));
    assert_says(&report, LegName::Http, Verdict::Ok, &[]);
    assert_says(&report, LegName::Engine, Verdict::Ok, &["vllm 0.32.0", "generation G"]);
    let models = ["tiny (max_model_len 2048)", "tuned (/adapters/tuned)"];
    assert_says(&report, LegName::Models, Verdict::Ok, &models);
    assert_says(&report, LegName::PrefixCaching, Verdict::Ok, &["sha256"]);
    assert_says(&report, LegName::Metrics, Verdict::Ok, &["families"]);
    let generated = engine.requests().into_iter().filter(|r| r.path != "/tokenize").count();
    assert_eq!(generated, 0, "reading only must send no prompts");
}

#[tokio::test]
async fn versions_nobody_verified_are_unknown() {
    for version in ["0.99.0", "0.8.5", "0.33.1.dev5+gabc", "banana\u{1b}[31m"] {
        let config = EngineConfig { version: version.to_owned(), ..EngineConfig::default() };
        let engine = FakeEngine::start(config).await.unwrap();
        let report = check(&target(&engine)).await;
        assert_says(&report, LegName::Engine, Verdict::Unknown, &["hash generation unknown"]);
        assert!(!format!("{report:?}").contains("\u{1b}["), "{report:?}");
    }
}

#[tokio::test]
async fn a_model_that_is_not_served_is_off() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut target = target(&engine);
    target.model = Some("big".to_owned());
    let report = check(&target).await;
    assert_says(&report, LegName::Models, Verdict::Off, &["`big`", "tiny"]);
}

#[tokio::test]
async fn what_makes_http_fail_is_told_apart() {
    let page = |status, body: &'static str| {
        Reply::Status(status, HeaderMap::new(), Bytes::from_static(body.as_bytes()))
    };
    // What a TLS server says to plain text: a fatal alert.
    let alert = Reply::RawBytes(Bytes::from_static(b"\x15\x03\x01\x00\x02\x02\x46"));
    for (reply, parts) in [
        (page(StatusCode::UNAUTHORIZED, "no"), ["401", "--header 'authorization: Bearer"]),
        (page(StatusCode::NOT_FOUND, "no"), ["404", "OpenAI-compatible"]),
        (page(StatusCode::BAD_REQUEST, "no"), ["400", "say https://"]),
        (page(StatusCode::SERVICE_UNAVAILABLE, "no"), ["503", "starting"]),
        (page(StatusCode::FOUND, "no"), ["302", "redirections"]),
        (page(StatusCode::OK, "<html>"), ["/v1/models", "not with an OpenAI model list"]),
        (alert, ["broken answer", "say https://"]),
        (Reply::ResetBeforeHead, ["broken answer", "own HTTP port"]),
    ] {
        let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
        engine.set_page("/v1/models", reply);
        let report = check(&target(&engine)).await;
        assert_says(&report, LegName::Http, Verdict::Off, &parts);
        assert_eq!(
            report.answers,
            parts[0] != "broken answer",
            "{parts:?}: a refusal is an answer"
        );
        assert_eq!((report.engine, report.verdict), (None, Verdict::Off));
    }
}

#[tokio::test]
async fn silence_and_absence_are_told_apart() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_page("/v1/models", Reply::HangBeforeHead);
    assert_says(&check(&target(&engine)).await, LegName::Http, Verdict::Off, &["no answer within"]);
    engine.stop().await.unwrap();
    let gone = check(&target(&engine)).await;
    assert_says(&gone, LegName::Http, Verdict::Off, &["refused", "start"]);
    assert!(!gone.answers);
}

#[tokio::test]
async fn headers_go_with_every_question() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let mut target = target(&engine);
    target.headers.insert("authorization", HeaderValue::from_static("Bearer k"));
    check(&target).await;
    let seen = [engine.info_requests(), engine.requests()].concat();
    assert!(seen.len() >= 4, "{seen:?}");
    assert!(seen.iter().all(|r| r.headers.get("authorization").is_some()), "{seen:?}");
}

#[tokio::test]
async fn other_engines_are_recognised() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    let text = |text: &'static str| {
        Reply::Status(StatusCode::OK, HeaderMap::new(), Bytes::from_static(text.as_bytes()))
    };
    let gone = || Reply::status(StatusCode::NOT_FOUND);
    engine.set_page("/version", gone());
    engine.set_page("/metrics", text("sglang:num_running_reqs 0.0\n"));
    let info = json!({"version": "0.5.21", "page_size": 64, "disable_radix_cache": true});
    engine.set_page("/server_info", Reply::Json(StatusCode::OK, info));
    let report = check(&target(&engine)).await;
    assert_eq!(report.engine.as_deref(), Some("sglang 0.5.21"));
    assert_says(&report, LegName::PrefixCaching, Verdict::Off, &["--disable-radix-cache"]);
    assert_says(&report, LegName::Metrics, Verdict::Unknown, &["vLLM's families only"]);

    engine.set_page("/metrics", gone());
    engine.set_page("/version", Reply::Json(StatusCode::OK, json!({"version": "1.2.1"})));
    let models = |owner: &str| {
        let models = json!({"data": [{"id": "tiny", "owned_by": owner}]});
        Reply::Json(StatusCode::OK, models)
    };
    engine.set_page("/server_info", gone());
    engine.set_page("/v1/models", models("tensorrt_llm"));
    let report = check(&target(&engine)).await;
    assert_eq!(report.engine.as_deref(), Some("trtllm 1.2.1"));
    assert_says(&report, LegName::PrefixCaching, Verdict::Unknown, &["enable_block_reuse"]);

    engine.set_page("/v1/models", models("me"));
    let props = json!({"default_generation_settings": {}, "build_info": "b9999"});
    engine.set_page("/props", Reply::Json(StatusCode::OK, props));
    let report = check(&target(&engine)).await;
    assert_eq!(report.engine.as_deref(), Some("llama.cpp b9999"));

    engine.set_page("/props", gone());
    let report = check(&target(&engine)).await;
    assert_says(&report, LegName::Engine, Verdict::Unknown, &["unknown make", "1.2.1"]);
}

#[tokio::test]
async fn vllm_without_metrics_is_still_vllm() {
    let engine = FakeEngine::start(EngineConfig::default()).await.unwrap();
    engine.set_page("/metrics", Reply::status(StatusCode::NOT_FOUND));
    let report = check(&target(&engine)).await;
    assert_says(&report, LegName::Engine, Verdict::Ok, &["owned_by"]);
    assert_says(&report, LegName::PrefixCaching, Verdict::Unknown, &["/metrics"]);
    assert_says(&report, LegName::Metrics, Verdict::Off, &["404"]);
}

#[tokio::test]
async fn engines_of_one_pool_are_compared() {
    let start = async |max_model_len, version: &str| {
        let model = Model { max_model_len: Some(max_model_len), ..Model::base("tiny") };
        let (models, version) = (vec![model], version.to_owned());
        FakeEngine::start(EngineConfig { models, version, ..EngineConfig::default() })
            .await
            .unwrap()
    };
    let engines = [start(2048, "0.32.0").await, start(4096, "0.31.0").await];
    let mut reports = Vec::new();
    for engine in &engines {
        reports.push(check(&target(engine)).await);
    }
    let found = compare(reports);
    let verdict = |name| found.across.iter().find(|leg| leg.leg == name).unwrap().verdict;
    assert_eq!(verdict(LegName::MaxModelLen), Verdict::Off);
    assert_eq!(verdict(LegName::Versions), Verdict::Off);
    assert_eq!(verdict(LegName::BaseModels), Verdict::Ok);
    assert_eq!(verdict(LegName::BlockSizes), Verdict::Ok);
    assert_eq!(found.verdict, Verdict::Off);
}
