//! Makes the synthetic recordings of `testdata/captures-synthetic`, and compares them with what is
//! there; with `KVASIR_WRITE_CAPTURES=1` they are written anew. What the gateway's own code can
//! follow today is played, too, and has to agree with them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

mod recorder;
mod scenes;

use std::path::{Path, PathBuf};

use kvasir_doctor::{Capture, Residency, residency};

use crate::scenes::SCENES;

fn file(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/captures-synthetic");
    dir.join(format!("{name}.jsonl"))
}

fn played(name: &str) -> Residency {
    let (_, scene) = SCENES.iter().find(|(known, _)| *known == name).unwrap();
    residency(&Capture::read(scene().as_bytes()).unwrap()).unwrap()
}

#[test]
fn the_files_are_what_is_made_here() {
    let write = std::env::var_os("KVASIR_WRITE_CAPTURES").is_some();
    for (name, scene) in SCENES {
        let made = scene();
        if write {
            std::fs::write(file(name), &made).unwrap();
        }
        let there = std::fs::read_to_string(file(name)).unwrap_or_default();
        assert!(there == made, "{name}: not as made here; set KVASIR_WRITE_CAPTURES=1 to write it");
    }
}

#[test]
fn what_can_be_followed_is_predicted() {
    for (name, hits) in [
        ("warm-divisible", 4),
        ("tiers", 5),
        ("prompt-logprobs", 1),
        ("reset", 1),
        ("sliding-window", 6),
        ("mamba", 3),
        ("lookahead", 4),
    ] {
        let found = played(name);
        assert!(found.requests.len() >= 3 && found.left_out.is_empty(), "{name}");
        for request in &found.requests {
            let [predicted, reported] =
                [request.predicted_cached_tokens, request.reported_cached_tokens];
            assert_eq!(predicted, reported, "{name} {}", request.step);
        }
        let hit = found.requests.iter().filter(|request| request.reported_cached_tokens > 0);
        assert_eq!(hit.count(), hits, "{name}: requests that hit");
        assert!(found.steps.iter().all(|step| step.trust == "exact"), "{name}: {:?}", found.steps);
    }
}

#[test]
fn what_is_not_announced_is_noted() {
    let noted = |name: &str| -> Vec<(String, &'static str, u64)> {
        let requests = played(name).requests;
        let noted = requests
            .into_iter()
            .filter_map(|request| Some((request.step, request.note?, request.held_tokens?)));
        noted.collect()
    };
    let step = |name: &str| name.to_owned();
    assert_eq!(
        noted("prompt-logprobs"),
        [
            (step("prompt_logprobs"), "prompt_logprobs", 96),
            (step("echo_logprobs"), "prompt_logprobs", 96)
        ]
    );
    assert_eq!(noted("reset"), [(step("after_reset"), "reset_not_announced", 96)]);
}

/// What the events say is what is predicted: EAGLE's dropped block is in none of them. A gateway
/// that has learned from answers that an engine drops one predicts what is reported from then on;
/// this test is then about the first requests only.
#[test]
fn without_a_learned_hit_profile_eagle_is_predicted_one_block_more() {
    let found = played("eagle");
    assert!(found.requests.len() == 24 && found.left_out.is_empty());
    for request in &found.requests {
        let [predicted, reported] =
            [request.predicted_cached_tokens, request.reported_cached_tokens];
        let dropped = if request.step.starts_with("warm_") { 16 } else { 0 };
        assert_eq!(predicted, reported + dropped, "{}", request.step);
        assert!(reported > 0 || dropped == 0, "{}", request.step);
        assert_eq!(request.note, None);
    }
    assert!(found.steps.iter().all(|step| step.trust == "exact"));
}

#[test]
fn tiers_are_told_apart() {
    let found = played("tiers");
    let blocks = |name: &str| {
        let step = found.steps.iter().find(|step| step.step == name).unwrap();
        let tiers = step.resident_blocks;
        [tiers.device, tiers.host, tiers.disk, tiers.remote]
    };
    assert_eq!(blocks("cold"), [6, 0, 0, 0]);
    assert_eq!(blocks("offloaded"), [6, 6, 0, 0]);
    assert_eq!(blocks("device_evicted"), [0, 6, 0, 0]);
    assert_eq!(blocks("to_disk"), [6, 2, 4, 0]);
    assert_eq!(blocks("only_colder"), [0, 2, 4, 2]);
    assert_eq!(blocks("host_gone"), [0, 0, 4, 2]);
}
