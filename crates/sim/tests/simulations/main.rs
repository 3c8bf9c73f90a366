//! Whole simulations: small ones computed by hand, and what must hold of any.

mod advised;
mod by_hand;
mod collapse;
mod conformance;
mod default_policy;
mod faults;
mod split;
mod whole;

use std::path::PathBuf;

use kvasir_engine_sim::CostModel;
use kvasir_sim::{
    Asked, Comparison, Options, PolicyReport, Release, Segment, SimPolicy, Workload, simulate,
};

fn policy(name: &str) -> SimPolicy {
    name.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn play(workload: &Workload, options: &Options, policies: &[&str]) -> Comparison {
    let policies: Vec<SimPolicy> = policies.iter().map(|name| policy(name)).collect();
    simulate(workload, options, &policies, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

fn play_one(workload: &Workload, options: &Options, policy: &str) -> PolicyReport {
    play(workload, options, &[policy]).policies.remove(0)
}

fn asked(at: f64, prompt: &[(u64, u32)], output_tokens: u32) -> Asked {
    let prompt = prompt.iter().map(|&(id, tokens)| Segment { id, tokens }).collect();
    Asked { release: Release::At(at), prompt, output_tokens }
}

fn workload(requests: Vec<Asked>) -> Workload {
    Workload { name: "test".to_owned(), block_size: 16, requests }
}

/// 10 ms a step and 1 ms a token, whatever the context.
fn simple(replicas: usize) -> Options {
    let mut options = Options { replicas, ..Options::default() };
    options.engine.block_size = 16;
    options.engine.cost = CostModel {
        step_overhead: 0.01,
        weights: 0.0,
        per_token: 1e-3,
        per_request: 0.0,
        per_context_token: 0.0,
        per_attention_pair: 0.0,
        speed: 1.0,
    };
    options
}

fn trace(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces").join(name)
}

#[track_caller]
fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-3, "{found} instead of {expected}");
}
