//! `kvasirctl calibrate` through the real binary, against simulated engines whose costs are known.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use std::process::{Command, Output, Stdio};

use http::StatusCode;
use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{CostModel, EngineConfig};
use kvasir_testkit::engine::{EngineConfig as FakeConfig, FakeEngine, Load, Recorded, Reply};
use serde_json::{Value, json};

/// Steps of tens of milliseconds: a scheduler that is a millisecond late changes little.
const TRUTH: CostModel = CostModel {
    step_overhead: 4e-3,
    weights: 1.6e-2,
    per_token: 1e-4,
    per_request: 2e-3,
    per_context_token: 1e-5,
    per_attention_pair: 1e-7,
    speed: 1.0,
};

async fn engine() -> SimServer {
    let engine = EngineConfig {
        num_blocks: 1_001,
        max_model_len: 2_048,
        max_num_batched_tokens: 512,
        max_num_seqs: 32,
        cost: TRUTH,
        ..EngineConfig::default()
    };
    let config = SimServerConfig {
        engine,
        model: "known".to_owned(),
        max_model_len: 2_048,
        ..SimServerConfig::default()
    };
    SimServer::start(config).await.unwrap()
}

async fn calibrate(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasirctl"));
    command.arg("calibrate").args(args.split_whitespace()).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How far a number is from the true one, as a part of that.
fn off(found: &Value, true_: f64) -> f64 {
    (found.as_f64().unwrap() / true_ - 1.0).abs()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_costs_are_found_again() {
    let server = engine().await;
    let output = calibrate(&format!(
        "--engine {} --model known --repeats 3 --fit least --prompts 8,200,500,1000,1500 --answer-tokens 8 \
         --batches 6 --max-num-batched-tokens 512 --max-num-seqs 32 --check-requests 10 --json",
        server.url()
    ))
    .await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    // No terminal, no progress.
    assert_eq!(text(&output.stderr), "");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("{found:#}");
    let cost = &found["cost"];
    assert!(off(&cost["per_token"], TRUTH.per_token) < 0.2, "{cost}");
    assert!(off(&cost["per_attention_pair"], TRUTH.per_attention_pair) < 0.2, "{cost}");
    assert!(off(&cost["per_context_token"], TRUTH.per_context_token) < 0.2, "{cost}");
    assert!(off(&cost["per_request"], TRUTH.per_request) < 0.3, "{cost}");
    let of = |name: &str| cost[name].as_f64().unwrap();
    let once = of("step_overhead") + of("weights") + of("per_request");
    let truth = TRUTH.step_overhead + TRUTH.weights + TRUTH.per_request;
    assert!((once / truth - 1.0).abs() < 0.15, "{cost}");
    assert!(found["dispatch_delay_s"].as_f64().unwrap() < 0.01, "{found:#}");
    assert!(found["off"]["mean"].as_f64().unwrap() < 0.1, "{found:#}");
    assert_eq!(found["points"][0]["samples"], 3);
    assert_eq!(found["limits"]["cache_tokens"], 16_000);
    assert_eq!(found["limits"]["assumed"], json!([]));
    assert_eq!((&found["notes"], &found["check_error"]), (&json!([]), &Value::Null));
    // The simulator with these costs is the engine: the same workload takes the same time.
    let check = &found["check"];
    assert_eq!(check["requests"], 10);
    assert!(off(&check["simulated_over_live"]["e2e_mean"], 1.0) < 0.35, "{check:#}");
    let rate = |side: &str| check[side]["token_hit_rate"].as_f64().unwrap();
    assert!(rate("live") > 0.05 && (rate("live") - rate("simulated")).abs() < 0.1, "{check:#}");
    let arguments = found["arguments"].as_str().unwrap();
    let simulated = Command::new(env!("CARGO_BIN_EXE_kvasirctl"))
        .args("simulate --workload rag --requests 5 --replicas 1".split(' '))
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(simulated.status.success(), "{arguments}: {}", text(&simulated.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_measured_is_said() {
    let server = engine().await;
    let url = server.url();
    let quick = "--repeats 1 --answer-tokens 4 --no-check";
    for (args, part) in [
        ("--engine http://127.0.0.1:1 --model known".to_owned(), "http://127.0.0.1:1/v1/models"),
        (
            format!("--engine {url} --model other"),
            "the engine does not serve other; it serves known",
        ),
        (
            format!("--engine {url} --model known --prompts 8,4000"),
            "--prompts: 4000 tokens and an answer of 4 exceed what the engine holds, 2048",
        ),
        (format!("--engine {url} --model known --prompts 8,20"), "three lengths of prompts"),
    ] {
        let output = calibrate(&format!("{args} {quick}")).await;
        assert_eq!(output.status.code(), Some(1), "{args}");
        assert!(text(&output.stderr).contains(part), "{args}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_a_comparison_is_a_model() {
    let server = engine().await;
    // Told a longer context than the engine has, the check asks for more than it takes.
    let args = format!(
        "--engine {} --model known --repeats 1 --prompts 8,400,900 --answer-tokens 8 --batches 6 \
         --max-num-batched-tokens 512 --max-num-seqs 1 --max-model-len 8192 --check-requests 10",
        server.url()
    );
    let json = calibrate(&format!("{args} --json")).await;
    let tables = calibrate(&args).await;
    let apart = "step_overhead and per_request cannot be told apart";
    let failed = "the comparison of a workload failed: ";
    assert_eq!(json.status.code(), Some(0), "{}", text(&json.stderr));
    let found: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(found["check"].is_null(), "{found:#}");
    let error = found["check_error"].as_str().unwrap();
    assert!(error.contains("/v1/completions") && error.contains("status 400"), "{error}");
    let notes: Vec<&str> =
        found["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert_eq!(notes[0], "--batches are not measured: max_num_seqs is 1");
    assert!(notes[1].contains(apart), "{notes:?}");
    assert_eq!(notes[2], format!("{failed}{error}"));
    assert!(found["cost"]["per_token"].as_f64().unwrap() > 0.0, "{found:#}");
    let out = text(&tables.stdout);
    assert_eq!(tables.status.code(), Some(0), "{}", text(&tables.stderr));
    assert!(out.contains("For kvasirctl simulate:"), "{out}");
    for part in [apart, failed] {
        let said = |line: &str| line.starts_with("note: ") && line.contains(part);
        assert!(out.lines().any(said), "{out}");
    }
}

/// A stream of four tokens, as an engine sends it that counts as it goes.
fn stream(prompt: usize, cached: u64) -> Vec<String> {
    let usage = |tokens: usize| {
        json!({"prompt_tokens": prompt, "completion_tokens": tokens,
            "prompt_tokens_details": {"cached_tokens": cached}})
    };
    let piece = |tokens: usize| json!({"choices": [{"text": "x"}], "usage": usage(tokens)});
    (1..=4)
        .map(piece)
        .chain([json!({"choices": [], "usage": usage(4)})])
        .map(|v| v.to_string())
        .collect()
}

fn prompt(request: &Recorded) -> usize {
    request.json()["prompt"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_cannot_be_believed_are_found_out() {
    type Answer = fn(&Recorded) -> Reply;
    let cases: [(Answer, &str); 5] = [
        (|r| Reply::sse(stream(prompt(r), 16)), "found 16 tokens of a random prompt in its cache"),
        (|_| Reply::Json(StatusCode::OK, json!({})), "the answer is application/json"),
        (|r| Reply::sse(stream(prompt(r), 0).split_off(3)), "in 1 pieces: something collects"),
        (|r| Reply::sse(stream(prompt(r) + 1, 0)), "in a prompt of 8 token ids"),
        (|_| Reply::status(StatusCode::UNAUTHORIZED), "status 401"),
    ];
    for (answer, part) in cases {
        let engine = FakeEngine::start(FakeConfig::default()).await.unwrap();
        engine.set_handler(move |request| Some(answer(request)));
        let args = format!("--engine {} --model tiny --answer-tokens 4", engine.url());
        let output = calibrate(&args).await;
        assert_eq!(output.status.code(), Some(1), "{part}");
        assert!(text(&output.stderr).contains(part), "{part}: {}", text(&output.stderr));
    }
    let engine = FakeEngine::start(FakeConfig::default()).await.unwrap();
    engine.set_load(Load { running: Some(2), waiting: 1, ..Load::default() });
    let output = calibrate(&format!("--engine {} --model tiny", engine.url())).await;
    let said = text(&output.stderr);
    assert!(said.contains("has 3 requests under way: only an idle one"), "{said}");
    assert!(engine.requests().is_empty());
}
