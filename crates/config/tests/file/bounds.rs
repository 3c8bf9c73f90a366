//! No number of the configuration is without a limit, and an engine has one weight.

use kvasir_config::Config;

use crate::{SMALL, error, parse};

/// Every number, with the least or most that is taken and the next one, which is not.
#[test]
fn every_number_has_bounds_and_what_is_beyond_is_located() {
    let of_pool = |key: &str, value: &str| {
        let rest = "endpoints: [{url: 'http://a'}]";
        format!("pools: [{{model: m, {rest}, {key}: {value}}}]\n")
    };
    let plain = |key: &str, value: &str| format!("{SMALL}{key}: {value}\n");
    for (key, taken, refused) in [
        ("scrape_interval_ms", "3600000", "3600001"),
        ("scrape_interval_ms", "50", "49"),
        ("shutdown_grace_s", "86400", "86401"),
        ("shutdown_delay_s", "86400", "18446744073709551615"),
        ("max_body_bytes", "17179869184", "17179869185"),
        ("max_body_bytes", "1", "0"),
        ("max_prompt_bytes", "17179869184", "17179869185"),
    ] {
        assert!(parse(&plain(key, taken)).is_ok(), "{key}: {taken}");
        let message = error(&plain(key, refused));
        assert!(
            crate::unplaced(&message).starts_with(&format!("kvasir.yaml: {key}: must be ")),
            "{message}"
        );
    }
    for (key, taken, refused, place) in [
        ("slo_ttft_ms", "86400000", "86400001", "slo_ttft_ms"),
        ("slo_ttft_ms", "1", "0", "slo_ttft_ms"),
        ("slo_ttft_ms", "1.5", ".nan", "slo_ttft_ms"),
        ("sticky", "{idle_s: 2592000}", "{idle_s: 2592001}", "sticky.idle_s"),
        ("sticky", "{capacity: 10000000}", "{capacity: 10000001}", "sticky.capacity"),
        ("sticky", "{idle_s: 1}", "{idle_s: 0}", "sticky.idle_s"),
        ("sticky", "{capacity: 1}", "{capacity: 0}", "sticky.capacity"),
        ("policy", "{name: session, idle_s: 1}", "{name: session, idle_s: 0}", "policy.idle_s"),
        (
            "policy",
            "{name: session, idle_s: 60}",
            "{name: session, idle_s: 18446744073709551615}",
            "policy.idle_s",
        ),
        (
            "fallback",
            "{name: cache_aware, bytes: 1048576}",
            "{name: cache_aware, bytes: 17592186044417}",
            "fallback.bytes",
        ),
        (
            "shadow",
            "{name: cache_aware}",
            "{name: cache_aware, threshold: 1.5}",
            "shadow.threshold",
        ),
        (
            "policy",
            "{name: cache_aware, guard: {imbalance: {absolute: 64, relative: 1.5}}}",
            "{name: cache_aware, guard: {imbalance: {absolute: 64, relative: -1.0}}}",
            "policy.guard.imbalance.relative",
        ),
        (
            "policy",
            "{name: cache_aware, guard: {bound: {load_factor_percent: 100}}}",
            "{name: cache_aware, guard: {bound: {load_factor_percent: 99}}}",
            "policy.guard.bound.load_factor_percent",
        ),
        (
            "policy",
            "{name: precise_cache_aware, load_penalty: 100000}",
            "{name: precise_cache_aware, load_penalty: 100001}",
            "policy.load_penalty",
        ),
        (
            "policy",
            "{name: precise_cache_aware, load_factor_percent: 100}",
            "{name: precise_cache_aware, load_factor_percent: 99}",
            "policy.load_factor_percent",
        ),
        (
            "fallback",
            "{name: chwbl, load_factor_percent: 1000}",
            "{name: chwbl, load_factor_percent: 1001}",
            "fallback.load_factor_percent",
        ),
    ] {
        assert!(parse(&of_pool(key, taken)).is_ok(), "{key}: {taken}");
        let message = error(&of_pool(key, refused));
        assert!(message.contains(&format!("pools[0].{place}: must be ")), "{message}");
    }
    let message = error(&plain("inventory", "{max_bytes: 17592186044417}"));
    assert!(message.contains("inventory.max_bytes: must be "), "{message}");
    let message = error(&plain("decision_log", "{directory: /x, max_bytes: 1099511627777}"));
    assert!(message.contains("at most 1099511627776"), "{message}");
}

#[test]
fn an_engine_has_one_weight() {
    let two = |one: u32, other: u32| {
        let pool = |model: &str, weight: u32| {
            format!("  - {{model: {model}, endpoints: [{{url: 'http://a', weight: {weight}}}]}}\n")
        };
        format!("pools:\n{}{}", pool("m", one), pool("n", other))
    };
    assert!(parse(&two(50, 50)).is_ok());
    let message = error(&two(50, 60));
    let wanted = "pools[1].endpoints[0].weight: http://a has the weight 50 in the pool `m`";
    assert!(message.contains(wanted), "{message}");
    let message = error(&two(10_001, 10_001));
    assert!(message.contains("pools[0].endpoints[0].weight: must be from 0 to 10000"), "{message}");
}

#[test]
fn keys_whose_values_are_others_are_named() {
    let before = parse(SMALL).unwrap();
    assert!(before.changed_since(&before).is_empty());
    let text = format!("{SMALL}retries: {{attempts: 2}}\nhealth: {{failures: 9}}\n");
    let now = parse(&text).unwrap();
    assert_eq!(now.changed_since(&before), ["retries", "health"]);
    let now = Config { decision_headers: true, ..before.clone() };
    assert_eq!(now.changed_since(&before), ["decision_headers"]);
}
