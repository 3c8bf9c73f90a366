//! Every way in which vLLM 0.32 hashes, with an adapter and a salt, is recognised.

use kvasir_doctor::{LegName, Verdict};
use kvasir_engine_sim::{Algorithm, HashForm, Hashing};
use kvasir_kv_hash::vllm::Contract;

use crate::common::{complete, probing, release, report, says, start, state, target, vllm};

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::Sha256, Algorithm::Sha256Cbor, Algorithm::Xxhash, Algorithm::XxhashCbor];

fn bytes(algorithm: Algorithm) -> HashForm {
    HashForm::Bytes(algorithm.digest_len())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reproducible_contract_is_ok() {
    for algorithm in ALGORITHMS {
        for (form, words) in [(HashForm::Int, "integer hashes"), (bytes(algorithm), "byte hashes")]
        {
            for seed in [None, Some("0"), Some("42")] {
                let random = matches!(algorithm, Algorithm::Xxhash | Algorithm::XxhashCbor);
                if random && seed.is_none() {
                    continue;
                }
                let server = start(vllm(algorithm, seed, form)).await;
                let mut target = probing(&server);
                target.expected.algorithm = Some(algorithm.to_string());
                target.expected.seed = Some(seed.map(str::to_owned));
                target.expected.block_size = Some(16);
                let report = report(&target).await;
                let name = algorithm.to_string();
                let shown = seed.map_or("seed unset".to_owned(), |seed| format!("seed {seed:?}"));
                let parts = [&name, &shown, "generation G", words, "with cache_salt and lora"];
                says(&report, LegName::HashContract, Verdict::Ok, &parts);
                // Four prompts of three or four new blocks each were stored, and one more block.
                says(&report, LegName::HashContract, Verdict::Ok, &["13 of 13 blocks verified"]);
                says(&report, LegName::Wire, Verdict::Ok, &["maps", words, "extra keys published"]);
                says(&report, LegName::BlockSize, Verdict::Ok, &["events 16", "expected 16"]);
                says(&report, LegName::Events, Verdict::Ok, &["trust exact"]);
                says(
                    &report,
                    LegName::Replay,
                    Verdict::Ok,
                    &["nothing was published before this check"],
                );
                let parts = ["8 of 8 probes", "(0, 48, 48, 0, 48, 0, 48, 0)"];
                says(&report, LegName::Prediction, Verdict::Ok, &parts);
            }
        }
    }
}

/// A start that nobody can compute is no fault, and is said to be none.
#[tokio::test(flavor = "multi_thread")]
async fn random_starts_are_unknown() {
    let version = "0.32.0".parse().unwrap();
    for form in [HashForm::Int, bytes(Algorithm::Xxhash)] {
        let mut config = vllm(Algorithm::Xxhash, Some("0"), form);
        let start_of_life = [7; 16];
        let contract = Contract::with_none_hash(version, Algorithm::Xxhash, start_of_life).unwrap();
        config.engine.hashing = Hashing::Contract(contract);
        let server = start(config).await;
        let mut target = probing(&server);
        let found = report(&target).await;
        let parts = ["random", "the gateway needs no seed"];
        says(&found, LegName::HashContract, Verdict::Unknown, &parts);
        says(&found, LegName::Prediction, Verdict::Ok, &["8 of 8"]);

        target.expected.algorithm = Some("xxhash".to_owned());
        target.expected.seed = Some(None);
        let found = report(&target).await;
        says(&found, LegName::HashContract, Verdict::Unknown, &["not reproducible"]);

        target.expected.seed = Some(Some("42".to_owned()));
        let found = report(&target).await;
        let parts = ["seed differs", "\"42\"", "PYTHONHASHSEED=42"];
        says(&found, LegName::HashContract, Verdict::Off, &parts);
    }
}

/// A history is enough: nothing has to be sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_is_verified_without_sending_anything() {
    for version in ["0.20.2", "0.24.0", "0.32.0"] {
        let server =
            start(release(version, Algorithm::Sha256Cbor, Some("42"), HashForm::Int)).await;
        for first in [100, 200] {
            let tokens: Vec<u32> = (first..first + 80).collect();
            complete(&server, &tokens).await;
        }
        let before = state(&server).await;
        let mut target = target(&server);
        target.events = server.events_endpoint();
        target.replay = server.replay_endpoint();
        let report = report(&target).await;
        let parts = ["sha256_cbor, seed \"42\"", "10 of 10 blocks"];
        says(&report, LegName::HashContract, Verdict::Ok, &parts);
        let form = if version == "0.20.2" { "arrays" } else { "maps" };
        says(&report, LegName::Wire, Verdict::Ok, &[form]);
        says(&report, LegName::Replay, Verdict::Ok, &["holds 2 batches, back to the first"]);
        says(&report, LegName::Prediction, Verdict::Unknown, &["--probe"]);
        let after = state(&server).await;
        assert_eq!(before["ranks"][0]["finished"], 2);
        assert_eq!(before["ranks"][0]["prefix_queries"], after["ranks"][0]["prefix_queries"]);
        assert_eq!(before["ranks"][0]["finished"], after["ranks"][0]["finished"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_without_leave_sends_nothing() {
    let server = start(vllm(Algorithm::Sha256, None, HashForm::Int)).await;
    let report = report(&target(&server)).await;
    assert_eq!(state(&server).await["ranks"][0]["prefix_queries"], 0);
    assert_eq!(state(&server).await["ranks"][0]["steps"], 0);
    says(&report, LegName::Events, Verdict::Ok, &["no batch yet"]);
    for leg in [LegName::Wire, LegName::HashContract, LegName::Prediction] {
        says(&report, leg, Verdict::Unknown, &["--probe"]);
    }
    says(&report, LegName::BlockSize, Verdict::Ok, &["cache_config_info 16"]);
}
