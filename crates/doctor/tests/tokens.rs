//! The legs of tokenizer and chat template, against a server with a real tokenizer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;
use kvasir_doctor::{Leg, LegName, Report, Target, Verdict, check};
use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_testkit::engine::{EngineConfig, FakeEngine, Model, Reply};
use serde_json::json;

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

/// A model's directory made of these files.
fn model_dir(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor-tokens").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    for (file, from) in files {
        fs::copy(testdata(from), dir.join(file)).unwrap();
    }
    dir
}

/// Another model: another vocabulary and another template.
fn other_model(name: &str) -> PathBuf {
    model_dir(
        name,
        &[
            ("tokenizer.json", "chat-models/tokenizer.json"),
            ("tokenizer_config.json", "chat-models/granite/tokenizer_config.json"),
            ("chat_template.jinja", "chat-models/granite/chat_template.jinja"),
        ],
    )
}

async fn serve(root: Option<PathBuf>) -> SimServer {
    let config = SimServerConfig { root, events: None, replay: None, ..SimServerConfig::default() };
    SimServer::start(config).await.unwrap()
}

fn target(url: &str) -> Target {
    let mut target = Target::new(url.strip_prefix("http://").unwrap().parse().unwrap());
    target.patience = Duration::from_secs(20);
    target
}

#[track_caller]
fn leg(report: &Report, name: LegName) -> Leg {
    report.leg(name).unwrap_or_else(|| panic!("no leg {name:?} in {report:?}")).clone()
}

#[track_caller]
fn assert_says(report: &Report, name: LegName, verdict: Verdict, parts: &[&str]) {
    let leg = leg(report, name);
    assert_eq!(leg.verdict, verdict, "{leg}");
    for part in parts {
        assert!(leg.to_string().contains(part), "no {part:?} in: {leg}");
    }
}

#[tokio::test]
async fn the_engines_own_files_give_its_tokens() {
    let server = serve(Some(testdata("models/tiny"))).await;
    let report = check(&target(&server.url())).await;
    assert_says(&report, LegName::Tokenizer, Verdict::Ok, &["13 of 13", "(engine root)"]);
    assert_says(&report, LegName::ChatTemplate, Verdict::Ok, &["11 of 11"]);
    server.stop().await;
}

#[tokio::test]
async fn every_golden_template_compares_equal_with_itself() {
    for name in ["chatml", "command-r", "glm4", "llama2", "mistral-v3", "phi"] {
        let config = format!("chat-models/{name}/tokenizer_config.json");
        let template = format!("chat-models/{name}/chat_template.jinja");
        let dir = model_dir(
            &format!("self-{name}"),
            &[
                ("tokenizer.json", "chat-models/tokenizer.json"),
                ("tokenizer_config.json", &config),
                ("chat_template.jinja", &template),
            ],
        );
        let server = serve(Some(dir)).await;
        let report = check(&target(&server.url())).await;
        assert_says(&report, LegName::ChatTemplate, Verdict::Ok, &["11 of 11"]);
        server.stop().await;
    }
}

#[tokio::test]
async fn another_models_tokenizer_is_caught_with_an_example() {
    let server = serve(Some(testdata("models/tiny"))).await;
    let mut target = target(&server.url());
    target.tokenizer = Some(other_model("other"));
    let report = check(&target).await;
    let parts = ["of 13 texts equal", "parts at token", "own [", "engine [", "--tokenizer"];
    assert_says(&report, LegName::Tokenizer, Verdict::Off, &parts);
    assert_says(&report, LegName::ChatTemplate, Verdict::Off, &["tokenizer right first"]);
    let longest = leg(&report, LegName::Tokenizer).finding.chars().count();
    assert!(longest < 600, "{longest}");
    server.stop().await;
}

#[tokio::test]
async fn another_template_alone_is_the_templates_fault() {
    let server = serve(Some(testdata("models/tiny"))).await;
    let dir = model_dir(
        "other-template",
        &[
            ("tokenizer.json", "models/tiny/tokenizer.json"),
            ("tokenizer_config.json", "models/tiny/tokenizer_config.json"),
            ("chat_template.jinja", "chat-models/llama2/chat_template.jinja"),
        ],
    );
    let mut target = target(&server.url());
    target.tokenizer = Some(dir);
    let report = check(&target).await;
    assert_says(&report, LegName::Tokenizer, Verdict::Ok, &["13 of 13"]);
    assert_says(&report, LegName::ChatTemplate, Verdict::Off, &["of 11 chats", "--chat-template"]);
    server.stop().await;
}

#[tokio::test]
async fn a_template_on_one_side_only_is_a_difference() {
    let tiny = "models/tiny/tokenizer.json";
    let bare = |name| model_dir(name, &[("tokenizer.json", tiny)]);
    let server = serve(Some(testdata("models/tiny"))).await;
    let mut asked = target(&server.url());
    asked.tokenizer = Some(bare("bare"));
    let report = check(&asked).await;
    let parts = ["no chat template", "engine serves chats"];
    assert_says(&report, LegName::ChatTemplate, Verdict::Off, &parts);
    server.stop().await;

    let server = serve(Some(bare("bare-too"))).await;
    let report = check(&target(&server.url())).await;
    assert_says(&report, LegName::Tokenizer, Verdict::Ok, &[]);
    assert_says(&report, LegName::ChatTemplate, Verdict::Ok, &["engine refuses chats, too"]);
    server.stop().await;
}

#[tokio::test]
async fn chats_encoded_as_harmony_cannot_be_judged_by_the_template() {
    let tiny = "models/tiny/tokenizer.json";
    let template = ("chat_template.jinja", "chat-models/llama2/chat_template.jinja");
    let dir = model_dir("harmony", &[("tokenizer.json", tiny), template]);
    fs::write(dir.join("config.json"), r#"{"model_type":"gpt_oss"}"#).unwrap();
    let server = serve(Some(testdata("models/tiny"))).await;
    let mut asked = target(&server.url());
    asked.tokenizer = Some(dir);
    let report = check(&asked).await;
    assert_says(&report, LegName::Tokenizer, Verdict::Ok, &["13 of 13"]);
    assert_says(&report, LegName::ChatTemplate, Verdict::Unknown, &["harmony", "cannot be judged"]);
    server.stop().await;
}

#[tokio::test]
async fn where_a_tokenizer_is_looked_for() {
    let server = serve(None).await;
    let report = check(&target(&server.url())).await;
    assert_says(&report, LegName::Tokenizer, Verdict::Off, &["no tokenizer for model `sim`"]);
    assert_says(&report, LegName::ChatTemplate, Verdict::Unknown, &["see leg `tokenizer`"]);
    server.stop().await;

    let server = serve(Some(testdata("models/tiny"))).await;
    let staged = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor-staged");
    let _ = fs::remove_dir_all(&staged);
    fs::create_dir_all(staged.join("sim")).unwrap();
    // Told to look nowhere else, the engine's own directory does not stand in.
    let mut only = target(&server.url());
    only.tokenizer = Some(staged.clone());
    let report = check(&only).await;
    assert_says(&report, LegName::Tokenizer, Verdict::Off, &["doctor-staged", "`sim`"]);
    fs::copy(testdata("models/tiny/tokenizer.json"), staged.join("sim/tokenizer.json")).unwrap();
    assert_says(&check(&only).await, LegName::Tokenizer, Verdict::Ok, &["(staged)"]);
    server.stop().await;
}

async fn fake_with_tokenizer() -> FakeEngine {
    let root = testdata("models/tiny").display().to_string();
    let models = vec![Model { root, ..Model::base("tiny") }];
    FakeEngine::start(EngineConfig { models, ..EngineConfig::default() }).await.unwrap()
}

#[tokio::test]
async fn engines_that_do_not_tokenise_are_unknown() {
    let answer = |status, body| Reply::Json(status, body);
    for (reply, part) in [
        (answer(StatusCode::NOT_FOUND, json!({"detail": "Not Found"})), "no /tokenize"),
        (answer(StatusCode::UNAUTHORIZED, json!({})), "--header"),
        (answer(StatusCode::OK, json!({"tokens": "many"})), "no token ids"),
        (answer(StatusCode::OK, json!({"tokens": [-1]})), "no token ids"),
        (answer(StatusCode::BAD_GATEWAY, json!({})), "502"),
        (Reply::ResetBeforeHead, "broken answer"),
    ] {
        let engine = fake_with_tokenizer().await;
        engine.set_default(reply);
        let report = check(&target(&engine.url())).await;
        assert_says(&report, LegName::Tokenizer, Verdict::Unknown, &[part]);
        assert_says(&report, LegName::ChatTemplate, Verdict::Unknown, &[part]);
        let asked = engine.requests().iter().filter(|r| r.path == "/tokenize").count();
        assert_eq!(asked, 1, "a standing reason is heard once");
    }
}

#[tokio::test]
async fn a_silent_tokenize_costs_one_wait() {
    let engine = fake_with_tokenizer().await;
    engine.set_default(Reply::HangBeforeHead);
    let mut target = target(&engine.url());
    target.patience = Duration::from_millis(300);
    let report = check(&target).await;
    assert_says(&report, LegName::Tokenizer, Verdict::Unknown, &["no answer within"]);
}

#[tokio::test]
async fn an_engine_that_refuses_what_is_tokenised_here_differs() {
    let engine = fake_with_tokenizer().await;
    let error = json!({"error": {"message": "nobody\nlikes this", "code": 400}});
    engine.set_default(Reply::Json(StatusCode::BAD_REQUEST, error));
    let report = check(&target(&engine.url())).await;
    let parts = ["0 of 13", "engine refuses", "nobody\\nlikes this"];
    assert_says(&report, LegName::Tokenizer, Verdict::Off, &parts);
}
