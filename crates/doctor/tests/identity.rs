//! Recorded engines: their contracts are found in their own events, and a gateway that knows blocks
//! by the engines' hashes predicts what they reported.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::path::{Path, PathBuf};

use kvasir_doctor::{Capture, Residency, residency, residency_by};
use kvasir_fleet::{BlockIdentity, EngineHashing, HashAlgorithm};

/// A recording, and by its name what its server was started with.
struct Recorded {
    name: String,
    capture: Capture,
    algorithm: String,
    seed: Option<&'static str>,
}

fn recordings() -> Vec<Recorded> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let recorded = files.iter().filter_map(|path| {
        let name = path.file_stem()?.to_str()?.to_owned();
        let parts: Vec<&str> = name.split('-').collect();
        let [_, algorithm, "int" | "bytes", ..] = parts[..] else { return None };
        let seed = if parts.contains(&"noseed") { None } else { Some("0") };
        let capture = Capture::read(&std::fs::read(path).unwrap()[..]).unwrap();
        Some(Recorded { algorithm: algorithm.to_owned(), name, capture, seed })
    });
    recorded.collect()
}

fn engine(algorithm: &str, seed: Option<&str>) -> BlockIdentity {
    BlockIdentity::Engine(EngineHashing {
        algorithm: HashAlgorithm::Vllm(algorithm.parse().unwrap()),
        seed: seed.map(str::to_owned),
        version: None,
    })
}

/// Requests, and those of them that hit.
fn agreeing(found: &Residency, name: &str) -> (usize, usize) {
    for request in &found.requests {
        let (predicted, reported) =
            (request.predicted_cached_tokens, request.reported_cached_tokens);
        assert_eq!(predicted, reported, "{name} {}", request.step);
    }
    let hits = found.requests.iter().filter(|request| request.reported_cached_tokens > 0);
    (found.requests.len(), hits.count())
}

#[test]
fn every_recorded_contract_is_found_and_verified() {
    let all = recordings();
    assert_eq!(all.len(), 16);
    for recorded in all {
        let found = residency(&recorded.capture).unwrap();
        let expected = format!("verified(vllm {})", recorded.algorithm);
        assert_eq!(found.hash_contracts, [expected], "{}", recorded.name);
    }
}

#[test]
fn by_the_engines_hashes_predictions_are_what_was_reported() {
    for recorded in recordings() {
        let Recorded { name, capture, algorithm, seed } = &recorded;
        let by_tokens = agreeing(&residency(capture).unwrap(), name);
        let found = residency_by(capture, &engine(algorithm, *seed)).unwrap();
        assert_eq!(agreeing(&found, name), by_tokens);
        assert!(by_tokens.1 >= 3, "{name}: {by_tokens:?} hit");
        assert_eq!(found.hash_contracts, [format!("verified(vllm {algorithm})")], "{name}");
    }
}

#[test]
fn a_wrong_seed_is_named_and_earns_nothing() {
    for recorded in recordings() {
        let Recorded { name, capture, algorithm, .. } = &recorded;
        let found = residency_by(capture, &engine(algorithm, Some("42"))).unwrap();
        assert_eq!(found.hash_contracts, [format!("mismatch(vllm {algorithm}: seed)")], "{name}");
        assert!(
            found.requests.iter().all(|request| request.predicted_cached_tokens == 0),
            "{name}"
        );
        assert_eq!(found.steps.last().unwrap().trust, "suspect(hash_mismatch)", "{name}");
    }
}
