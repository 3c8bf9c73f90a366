//! The model against vLLM's own scheduler and block pool, step by step: which tokens of which
//! request a step computes, whom it puts back, what it generates, evicts, stores and counts
//! (`testdata/golden/vllm-scheduler`). Here requests compete, unlike in most recordings.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

use std::path::Path;

use kvasir_engine_sim::{
    Algorithm, Engine, EngineConfig, Event, ExtraKey, FinishReason, Hashing, NextToken, Request,
    RequestId, StepOutcome, TokenRequest, Version,
};
use serde_json::{Value, json};

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// The prompt's first token is the family times 1,000; its number comes with the id.
fn token_of(request: &TokenRequest<'_>) -> NextToken {
    let (family, number) = (u64::from(request.prompt[0] / 1_000), request.id.0);
    let token = family * 131 + (number % 2) * number * 17 + request.output.len() as u64 * 7;
    NextToken::Token((token % 5_000) as u32)
}

fn engine(version: Version, config: &Value) -> Engine {
    let config = EngineConfig {
        version,
        block_size: number(&config["block_size"]),
        num_blocks: number(&config["num_blocks"]),
        max_model_len: number(&config["max_model_len"]),
        max_num_seqs: number(&config["max_num_seqs"]),
        max_num_batched_tokens: number(&config["max_num_batched_tokens"]),
        watermark: config["watermark"].as_f64().unwrap(),
        reserve_full_prompt: config["reserve_full_prompt"].as_bool().unwrap(),
        hashing: Hashing::of_engine(version, Algorithm::Sha256Cbor, Some("0")).unwrap(),
        ..EngineConfig::default()
    };
    Engine::with_source(config, Box::new(token_of)).unwrap()
}

fn request(submit: &Value) -> Request {
    let family = number(&submit["family"]) as u32;
    let prompt = (0..number(&submit["length"]) as u32)
        .map(|i| (family * 1_000 + i * (family + 1)) % 5_000)
        .collect();
    let id = RequestId(submit["number"].as_u64().unwrap());
    Request {
        ignore_eos: true,
        cache_salt: submit["salt"].as_str().map(str::to_owned),
        ..Request::new(id, prompt, number(&submit["max_tokens"]))
    }
}

fn show(event: &Event) -> Value {
    match event {
        Event::Stored(stored) => {
            let keys = |keys: &Vec<ExtraKey>| match keys.as_slice() {
                [] => Value::Null,
                [ExtraKey::Text(salt)] => json!([**salt]),
                other => panic!("{other:?}"),
            };
            json!({
                "stored": stored.block_hashes.iter().map(|h| h.to_u64().to_string()).collect::<Vec<_>>(),
                "parent": stored.parent_block_hash.map(|hash| hash.to_u64().to_string()),
                "tokens": stored.token_ids.len(),
                "extra_keys": stored.extra_keys.as_ref().map(|all| all.iter().map(keys).collect::<Vec<_>>()),
            })
        }
        Event::Removed(removed) => {
            json!({"removed": [removed.block_hashes[0].to_u64().to_string()]})
        }
        Event::Cleared => json!({"cleared": true}),
    }
}

/// The outcome in the file's form. What each request computed is not in it: the sum is.
fn summary(engine: &Engine, outcome: &StepOutcome) -> Value {
    let mut preempted: Vec<_> = outcome.preempted.iter().map(|id| id.0).collect();
    preempted.sort_unstable();
    let outputs = outcome.outputs.iter().map(|output| {
        json!([output.id.0, output.token, output.finished.map(FinishReason::as_str)])
    });
    let stats = engine.stats();
    json!({
        "tokens": outcome.load.prefill_tokens + outcome.load.decode_requests,
        "requests": outcome.load.prefill_requests + outcome.load.decode_requests,
        "preempted": preempted,
        "outputs": outputs.collect::<Vec<_>>(),
        "events": outcome.events.iter().map(show).collect::<Vec<_>>(),
        "running": stats.running,
        "waiting": stats.waiting,
        "free_blocks": stats.usable_blocks - stats.used_blocks,
    })
}

fn recorded(step: &Value) -> Value {
    let scheduled = step["scheduled"].as_object().unwrap();
    json!({
        "tokens": scheduled.values().map(number).sum::<usize>(),
        "requests": scheduled.len(),
        "preempted": step["preempted"],
        "outputs": step["outputs"],
        "events": step["events"],
        "running": step["running"],
        "waiting": step["waiting"],
        "free_blocks": step["free_blocks"],
    })
}

#[test]
fn every_step_equals_that_of_the_engines_own_scheduler() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/golden/vllm-scheduler/scheduler-vllm-0.32.0.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let version = file["version"].as_str().unwrap().parse().unwrap();
    let (mut steps, mut preemptions, mut removals) = (0, 0, 0);
    for (index, scenario) in file["scenarios"].as_array().unwrap().iter().enumerate() {
        let mut engine = engine(version, &scenario["config"]);
        for (at, call) in scenario["calls"].as_array().unwrap().iter().enumerate() {
            let place = format!("call {at} of scenario {index}: {}", scenario["config"]);
            let (kind, value) = call.as_object().unwrap().iter().next().unwrap();
            match kind.as_str() {
                "submit" => engine.submit(request(value)).unwrap(),
                "abort" => assert!(engine.abort(RequestId(value.as_u64().unwrap())), "{place}"),
                "reset" => assert_eq!(json!(engine.reset_prefix_cache()), *value, "{place}"),
                "reset_all" => {
                    assert_eq!(json!(engine.reset_prefix_cache_and_requests()), *value, "{place}");
                }
                "step" => {
                    let outcome = engine.step().unwrap();
                    let made = summary(&engine, &outcome);
                    assert_eq!(made, recorded(value), "{place}");
                    steps += 1;
                    preemptions += outcome.preempted.len();
                    removals +=
                        outcome.events.iter().filter(|e| matches!(e, Event::Removed(_))).count();
                }
                other => panic!("call {other}"),
            }
        }
        assert!(engine.is_idle());
        let totals = (engine.stats().prefix_queries, engine.stats().prefix_hits);
        let total = |name: &str| scenario[name].as_u64().unwrap();
        assert_eq!(totals, (total("prefix_queries"), total("prefix_hits")), "scenario {index}");
    }
    println!("{steps} steps with {preemptions} preemptions and {removals} evictions, all equal");
    assert!(steps > 4_000 && preemptions > 100 && removals > 2_000);
}
