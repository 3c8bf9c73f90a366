//! Conversations stay, and tenants are kept apart.

use kvasir_sim::{Options, Tenants, conformance};

use crate::policy;

fn options() -> Options {
    let mut options = Options { replicas: 4, ..Options::default() };
    options.engine.block_size = Tenants::BLOCK_SIZE;
    options
}

#[test]
fn policies_that_know_caches_pass_and_the_control_fails() {
    for name in ["latency", "precise_cache_aware", "cache_aware"] {
        let found = conformance(Tenants::default(), &options(), &policy(name)).unwrap();
        assert!(found.passed, "{}", found.text());
        let (salted, unsalted) = (&found.salted, &found.unsalted);
        assert_eq!((salted.requests, salted.answered, salted.cross_salt_hits), (60, 60, 0));
        assert!(salted.affinity_rate.unwrap() >= 0.95, "{}", found.text());
        assert!(unsalted.cross_salt_hits > 0 && !unsalted.passed, "{}", found.text());
        assert_eq!(salted.distinct_prefixes, unsalted.distinct_prefixes);
        assert_eq!(unsalted.distinct_keys, unsalted.distinct_prefixes);
        // The system prompt is there once for each project: 64 blocks, two times more.
        assert_eq!(salted.distinct_keys, salted.distinct_prefixes + 2 * 64);
        assert!(found.text().ends_with("\npassed\n"));
    }
}

#[test]
fn a_policy_that_takes_turns_does_not_keep_conversations() {
    let found = conformance(Tenants::default(), &options(), &policy("round_robin")).unwrap();
    assert!(!found.passed && !found.salted.passed);
    assert_eq!(found.salted.cross_salt_hits, 0, "engines keep tenants apart all the same");
    assert!(found.salted.affinity_rate.unwrap() < 0.95);
    assert!(found.text().ends_with("\nfailed\n"));
}

#[test]
fn without_later_turns_there_is_no_affinity() {
    let trace = Tenants { turns: 1, ..Tenants::default() };
    let found = conformance(trace, &options(), &policy("latency")).unwrap();
    assert_eq!(found.salted.affinity_rate, None);
    let json: serde_json::Value = serde_json::from_str(&found.json()).unwrap();
    assert!(json["salted"]["affinity_rate"].is_null() && json["salted"]["cross_salt_hits"] == 0);
    assert!(found.passed);
}

#[test]
fn a_control_that_shows_nothing_is_no_pass() {
    // One project alone has nobody to hit anything of.
    let trace = Tenants { projects: 1, ..Tenants::default() };
    let found = conformance(trace, &options(), &policy("latency")).unwrap();
    assert!(found.salted.passed && !found.passed);
    assert!(found.text().contains("nothing is shown"));
    for trace in [Tenants { turns: 0, ..trace }, Tenants { sessions: usize::MAX, ..trace }] {
        conformance(trace, &options(), &policy("latency")).unwrap_err();
    }
}
