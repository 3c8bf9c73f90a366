//! One wrong belief at a time: the leg that is wrong is named, and no other.

use kvasir_doctor::{LegName, Target, Verdict};
use kvasir_engine_sim::{Algorithm, HashForm};

use crate::common::{probing, report, says, start, target, vllm};

fn believing(target: Target, algorithm: &str, seed: Option<&str>, block_size: u32) -> Target {
    let mut target = target;
    target.expected.algorithm = Some(algorithm.to_owned());
    target.expected.seed = Some(seed.map(str::to_owned));
    target.expected.block_size = Some(block_size);
    target
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seed() {
    for form in [HashForm::Int, HashForm::Bytes(32)] {
        let server = start(vllm(Algorithm::Sha256Cbor, Some("0"), form)).await;
        for (seed, shown) in [(Some("42"), "\"42\""), (None, "unset")] {
            let found = report(&believing(probing(&server), "sha256_cbor", seed, 16)).await;
            let parts = ["seed is \"0\"", &format!("expected {shown}"), "--expect-seed 0"];
            says(&found, LegName::HashContract, Verdict::Off, &parts);
            let leg = found.leg(LegName::HashContract).unwrap().to_string();
            assert!(!leg.contains("algorithm is"), "{leg}");
            says(&found, LegName::BlockSize, Verdict::Ok, &[]);
            says(&found, LegName::Prediction, Verdict::Ok, &[]);
        }
    }
}

/// A seed that is not among those tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_seed_nobody_would_guess() {
    let server = start(vllm(Algorithm::Sha256, Some("987654"), HashForm::Int)).await;
    let found = report(&believing(probing(&server), "sha256", Some("42"), 16)).await;
    let parts = ["seed differs: it is not \"42\"", "PYTHONHASHSEED=42"];
    says(&found, LegName::HashContract, Verdict::Off, &parts);
    let found = report(&probing(&server)).await;
    let parts = ["seed not among 1028 tried", "--expect-seed"];
    says(&found, LegName::HashContract, Verdict::Unknown, &parts);
    let found = report(&believing(probing(&server), "sha256", Some("987654"), 16)).await;
    says(&found, LegName::HashContract, Verdict::Ok, &["seed \"987654\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_algorithm() {
    for form in [HashForm::Int, HashForm::Bytes(16)] {
        let mut config = vllm(Algorithm::Xxhash, Some("0"), form);
        // Even if /metrics say what is believed, the hashes tell.
        config.hash_algorithm = "sha256_cbor".to_owned();
        let server = start(config).await;
        let found = report(&believing(probing(&server), "sha256_cbor", Some("0"), 16)).await;
        let parts = ["algorithm is xxhash, expected sha256_cbor", "--expect-algo xxhash"];
        says(&found, LegName::HashContract, Verdict::Off, &parts);
        let leg = found.leg(LegName::HashContract).unwrap().to_string();
        assert!(!leg.contains("seed is"), "{leg}");
        says(&found, LegName::BlockSize, Verdict::Ok, &[]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_algorithm_that_the_engine_does_not_have() {
    let server = start(vllm(Algorithm::Sha256, Some("0"), HashForm::Int)).await;
    let found = report(&believing(target(&server), "builtin", Some("0"), 16)).await;
    says(&found, LegName::HashContract, Verdict::Off, &["no hash algorithm builtin"]);
    let found = report(&believing(target(&server), "md5", Some("0"), 16)).await;
    says(&found, LegName::HashContract, Verdict::Off, &["\"md5\" is not a vLLM hash algorithm"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_block_size() {
    let server = start(vllm(Algorithm::Sha256, Some("0"), HashForm::Int)).await;
    let found = report(&believing(probing(&server), "sha256", Some("0"), 32)).await;
    let parts = ["events 16", "cache_config_info 16", "expected 32", "--expect-block-size 16"];
    says(&found, LegName::BlockSize, Verdict::Off, &parts);
    says(&found, LegName::HashContract, Verdict::Ok, &["seed \"0\""]);
}

/// Metrics alone tell an algorithm and a block size from others.
#[tokio::test(flavor = "multi_thread")]
async fn without_events_metrics_tell() {
    let mut config = vllm(Algorithm::Sha256Cbor, Some("0"), HashForm::Int);
    (config.events, config.replay) = (None, None);
    let server = start(config).await;
    let found = report(&believing(target(&server), "xxhash", Some("0"), 32)).await;
    let parts = ["algorithm is sha256_cbor (cache_config_info), expected xxhash"];
    says(&found, LegName::HashContract, Verdict::Off, &parts);
    says(&found, LegName::BlockSize, Verdict::Off, &["cache_config_info 16, expected 32"]);
    let found = report(&believing(target(&server), "sha256_cbor", Some("0"), 16)).await;
    says(&found, LegName::HashContract, Verdict::Unknown, &["see the leg events"]);
    says(&found, LegName::BlockSize, Verdict::Ok, &[]);
}
