//! The controller's judgement: snapshots from a registry and pages.

use std::time::Duration;

use kvasir_advice::controller::telemetry::Reading;
use kvasir_advice::controller::{Advisor, AdvisorSettings, Verdict};
use kvasir_advice::registry::Registry;
use kvasir_advice::wire::aictrl::{Ack, AckStatus, EpState, Role, Snapshot};

const S: fn(u64) -> Duration = Duration::from_secs;

/// Three engines of speeds 1, 2 and 4 with caches of 100, 200 and 400 blocks; more lines of the first.
fn registry(first: &str) -> Registry {
    let host = |name: &str, place: u32, speed: u32, more: &str| {
        format!(
            "  {name}:\n    gpu_model: G\n    hbm_gb: 1\n    role: unified\n    port: 80\n    \
             ep_idx: {place}\n    expected_num_gpu_blocks: {}\n    serving_throughput_prior: {speed}\n{more}",
            speed * 100,
        )
    };
    let hosts =
        [host("10.0.0.1", 0, 1, first), host("10.0.0.2", 1, 2, ""), host("10.0.0.4", 2, 4, "")];
    let text = format!("service: {{key: m}}\nepoch_period_sec: 10\nhosts:\n{}", hosts.concat());
    Registry::parse("f", &text).unwrap()
}

fn advisor(first: &str) -> Advisor {
    Advisor::new(registry(first), AdvisorSettings::default(), "boot".to_owned())
}

fn page(blocks: u64) -> Result<Reading, String> {
    let text =
        format!("vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"{blocks}\"}} 1\n");
    Reading::parse(&text)
}

fn all_answer(advisor: &mut Advisor, now: Duration) {
    for (name, blocks) in [("10.0.0.1", 100), ("10.0.0.2", 200), ("10.0.0.4", 400)] {
        advisor.read(name, page(blocks), now);
    }
}

fn weights(snapshot: &Snapshot) -> Vec<(u32, u32)> {
    snapshot.services[0].eps.iter().map(|entry| (entry.ep_idx, entry.weight)).collect()
}

#[test]
fn nothing_is_advised_before_an_engine_was_heard_of() {
    let mut advisor = advisor("");
    assert_eq!(advisor.tick(S(0), 0), None);
    assert!(advisor.is_fleet_stale(S(0)));
    assert!(advisor.page(S(0)).contains("\naictrl_fleet_stale 1\n"));
    all_answer(&mut advisor, S(1));
    let first = advisor.tick(S(1), 1_000).unwrap();
    assert_eq!(weights(&first), [(0, 25), (1, 50), (2, 100)]);
    assert_eq!(
        (first.epoch, &*first.boot_id, first.staleness_deadline_unix_ms),
        (1, "boot", 31_000)
    );
    let entry = &first.services[0].eps[0];
    assert_eq!(
        (&*entry.ep_addr, entry.role, entry.state),
        ("10.0.0.1:80", Role::Unspecified as i32, EpState::Active as i32)
    );
    assert_eq!(advisor.tick(S(10), 10_000), None, "at most one an epoch");
    all_answer(&mut advisor, S(11));
    assert_eq!(advisor.tick(S(11), 11_000).unwrap().epoch, 2);
}

#[test]
fn a_fleet_that_fell_silent_is_not_advised_on() {
    let mut advisor = advisor("");
    all_answer(&mut advisor, S(0));
    assert!(advisor.tick(S(0), 0).is_some());
    for name in ["10.0.0.1", "10.0.0.2", "10.0.0.4"] {
        advisor.read(name, Err("no answer".to_owned()), S(5));
    }
    assert!(advisor.tick(S(15), 0).is_some(), "fresh still");
    assert_eq!(advisor.tick(S(30), 0), None);
    all_answer(&mut advisor, S(31));
    assert!(advisor.tick(S(31), 0).is_some());
}

#[test]
fn one_that_fell_silent_glides_to_neutral_and_is_left_out() {
    let mut advisor = advisor("");
    all_answer(&mut advisor, S(0));
    let mut seen = Vec::new();
    for n in 0..7 {
        let now = S(10 * n);
        advisor.read("10.0.0.2", page(200), now);
        advisor.read("10.0.0.4", page(400), now);
        let entries = weights(&advisor.tick(now, 0).unwrap());
        seen.push(entries.iter().find(|(idx, _)| *idx == 0).map(|(_, weight)| *weight));
    }
    assert_eq!(seen, [Some(25), Some(25), Some(45), Some(63), Some(74), None, None]);
}

/// A fingerprint of an L4 with 100 blocks of 16 tokens.
fn calibrated(fingerprint: &str) -> String {
    format!(
        "    calibration:\n      throughput_ratio: 3\n      fingerprint: {fingerprint}\n      \
         fingerprint_fields: {{gpu_sku: L4, num_gpu_blocks: 100, block_size: 16}}\n"
    )
}

fn l4(blocks: u64) -> String {
    let fields = [
        ("gpu_sku", "L4".to_owned()),
        ("num_gpu_blocks", blocks.to_string()),
        ("block_size", "16".to_owned()),
    ];
    kvasir_advice::fingerprint(&fields.map(|(key, value)| (key.to_owned(), value)).into())
}

#[test]
fn a_calibration_counts_while_the_engine_is_what_was_measured() {
    let mut advisor = advisor(&calibrated(&l4(100)));
    all_answer(&mut advisor, S(0));
    assert_eq!(advisor.verdict("10.0.0.1"), Verdict::Verified);
    assert_eq!(weights(&advisor.tick(S(0), 0).unwrap()), [(0, 75), (1, 50), (2, 100)]);
}

#[test]
fn another_cache_size_is_reported_and_the_prior_counts() {
    let mut advisor = advisor(&calibrated(&l4(100)));
    all_answer(&mut advisor, S(0));
    advisor.read("10.0.0.1", page(90), S(0));
    assert_eq!(advisor.verdict("10.0.0.1"), Verdict::BlocksDiffer { expected: 100, live: 90 });
    assert_eq!(weights(&advisor.tick(S(0), 0).unwrap()), [(0, 25), (1, 50), (2, 100)]);
    advisor.read("10.0.0.1", page(90), S(1));
    let page = advisor.page(S(1));
    assert!(page.contains("aictrl_registry_mismatch_total{source=\"10.0.0.1\"} 1\n"), "{page}");
    assert!(page.contains("aictrl_registry_mismatch_total{source=\"10.0.0.2\"} 0\n"), "{page}");
    assert!(page.contains("aictrl_ep_weight{service=\"m\",ep_idx=\"0\"} 25\n"), "{page}");
}

#[test]
fn another_fingerprint_is_reported_and_the_prior_counts() {
    let mut advisor = advisor(&calibrated(&l4(101)));
    all_answer(&mut advisor, S(0));
    let differs = Verdict::FingerprintDiffers { expected: l4(101), live: l4(100) };
    assert_eq!(advisor.verdict("10.0.0.1"), differs);
    assert_eq!(weights(&advisor.tick(S(0), 0).unwrap()), [(0, 25), (1, 50), (2, 100)]);
    let page = advisor.page(S(0));
    assert!(page.contains("aictrl_fingerprint_mismatch_total{source=\"10.0.0.1\"} 1\n"), "{page}");
}

#[test]
fn an_engine_is_drained_from_the_registry_and_comes_back() {
    let mut advisor = advisor("");
    all_answer(&mut advisor, S(0));
    advisor.tick(S(0), 0).unwrap();
    let states = |snapshot: &Snapshot| -> Vec<i32> {
        snapshot.services[0].eps.iter().map(|entry| entry.state).collect()
    };
    let (active, draining) = (EpState::Active as i32, EpState::Draining as i32);
    advisor.take_registry(registry("    state: draining\n"));
    assert_eq!(states(&advisor.tick(S(10), 0).unwrap()), [draining, active, active]);
    advisor.take_registry(registry(""));
    let back = advisor.tick(S(15), 0);
    assert_eq!(back, None, "an epoch apart");
    all_answer(&mut advisor, S(20));
    assert_eq!(states(&advisor.tick(S(20), 0).unwrap()), [active; 3]);
}

#[test]
fn hosts_without_an_address_keep_their_prior_until_the_gateway_tells() {
    let text = "service: {key: m}\nhosts:\n  ep0: {gpu_model: G, hbm_gb: 1, role: prefill, port: 80, \
                ep_idx: 0, expected_num_gpu_blocks: 100, serving_throughput_prior: 1}\n  \
                ep1: {gpu_model: G, hbm_gb: 1, role: prefill, port: 80, ep_idx: 1, \
                expected_num_gpu_blocks: 100, serving_throughput_prior: 4}\n";
    let registry = Registry::parse("f", text).unwrap();
    let mut advisor = Advisor::new(registry, AdvisorSettings::default(), "b".to_owned());
    assert!(advisor.needs_gateway() && advisor.to_ask().is_empty());
    let first = advisor.tick(S(0), 0).unwrap();
    assert_eq!(weights(&first), [(0, 25), (1, 100)]);
    assert!(first.services[0].eps.iter().all(|entry| entry.ep_addr.is_empty()));
    assert!(advisor.page(S(0)).contains("aictrl_source_unresolved{source=\"ep0\"} 1\n"));
    advisor.resolve(&["10.0.0.1:8000".to_owned(), "10.0.0.2:8000".to_owned()]);
    let asked = [("ep0", "10.0.0.1:8000"), ("ep1", "10.0.0.2:8000")];
    assert_eq!(advisor.to_ask(), asked.map(|(name, at)| (name.to_owned(), at.to_owned())));
    advisor.read("ep0", page(100), S(10));
    let second = advisor.tick(S(10), 0).unwrap();
    assert_eq!(second.services[0].eps[0].ep_addr, "10.0.0.1:8000");
    assert!(advisor.page(S(10)).contains("aictrl_source_unresolved{source=\"ep0\"} 0\n"));
}

#[test]
fn acknowledgements_are_counted_by_gateway() {
    let mut advisor = advisor("");
    let ack = |gateway: &str, status: AckStatus| Ack {
        gateway_id: gateway.to_owned(),
        status: status as i32,
        ..Ack::default()
    };
    advisor.note_ack(&ack("g\"1", AckStatus::Applied));
    advisor.note_ack(&ack("g\"1", AckStatus::Applied));
    advisor.note_ack(&ack("g2", AckStatus::Rejected));
    let page = advisor.page(S(0));
    assert!(page.contains("aictrl_acks_applied_total{gateway=\"g\\\"1\"} 2\n"), "{page}");
    assert!(page.contains("aictrl_acks_rejected_total{gateway=\"g2\"} 1\n"), "{page}");
}
