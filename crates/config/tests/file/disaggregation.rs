//! Prefill and decode at different engines, as it is configured.

use kvasir_balance::PairSelect;
use kvasir_config::{Config, EndpointRole, TransferProtocol, differences};

use crate::parse;

fn of_roles(roles: &[&str], section: &str) -> String {
    let endpoint = |(place, role): (usize, &&str)| format!("{{url: 'http://e{place}', {role}}}");
    let endpoints: Vec<String> = roles.iter().enumerate().map(endpoint).collect();
    format!("pools: [{{model: m, endpoints: [{}], {section}}}]", endpoints.join(", "))
}

#[test]
fn roles_imply_that_requests_are_split() {
    let splits = |config: &Config| config.pools[0].splits().is_some();
    let plain = parse(&of_roles(&["weight: 1"], "")).unwrap();
    assert!(!splits(&plain));
    let config = parse(&of_roles(&["role: prefill", "role: decode", "weight: 1"], "")).unwrap();
    let roles: Vec<EndpointRole> = config.pools[0].endpoints.iter().map(|e| e.role).collect();
    assert_eq!(roles, [EndpointRole::Prefill, EndpointRole::Decode, EndpointRole::Unified]);
    let split = config.pools[0].splits().unwrap();
    assert_eq!((split.protocol, split.select), (TransferProtocol::Auto, PairSelect::Cost));
    assert_eq!((split.prefill_timeout().as_secs(), split.decode_timeout().as_secs()), (30, 30));
    assert_eq!((split.transfer_tokens_per_s, split.transfer().as_millis()), (200_000, 5));
    assert_eq!((split.bootstrap_port, split.lease().as_secs()), (8998, 30));
    // One side alone may be there: the other comes by a reload.
    assert!(splits(&parse(&of_roles(&["role: prefill"], "")).unwrap()));
    let off = of_roles(&["role: prefill", "role: decode"], "disaggregation: {enabled: false}");
    assert!(!splits(&parse(&off).unwrap()));
}

#[test]
fn all_of_it_can_be_said() {
    let section = "disaggregation: {protocol: sglang, select: e4, prefill_timeout_ms: 1, \
                   decode_timeout_ms: 2, transfer_tokens_per_s: 3, transfer_ms: 0, \
                   bootstrap_port: 9, lease_ms: 4}";
    let roles = ["role: prefill, bootstrap_port: 7, bootstrap_host: '10.0.0.1'", "role: decode"];
    let config = parse(&of_roles(&roles, section)).unwrap();
    let split = config.pools[0].splits().unwrap();
    assert_eq!((split.protocol, split.select), (TransferProtocol::Sglang, PairSelect::E4));
    assert_eq!((split.bootstrap_port, split.lease_ms, split.transfer_ms), (9, 4, 0));
    let endpoint = &config.pools[0].endpoints[0];
    assert_eq!(endpoint.bootstrap_port, Some(7));
    assert_eq!(endpoint.bootstrap_host.as_deref(), Some("10.0.0.1"));
}

#[test]
fn what_is_wrong_is_located() {
    for (roles, section, place) in [
        ("role: both", "", "line 1 column"),
        ("role: prefill, bootstrap_port: 0", "", "pools[0].endpoints[0].bootstrap_port: "),
        ("bootstrap_host: 'a:1'", "", "pools[0].endpoints[0].bootstrap_host: "),
        ("bootstrap_host: ''", "", "pools[0].endpoints[0].bootstrap_host: "),
        ("role: prefill", "{prefill_timeout_ms: 0}", "disaggregation.prefill_timeout_ms: must"),
        ("role: prefill", "{decode_timeout_ms: 3600001}", "disaggregation.decode_timeout_ms: must"),
        ("role: prefill", "{transfer_tokens_per_s: 0}", "disaggregation.transfer_tokens_per_s: "),
        ("role: prefill", "{transfer_ms: 3600001}", "disaggregation.transfer_ms: must"),
        ("role: prefill", "{bootstrap_port: 0}", "disaggregation.bootstrap_port: must"),
        ("role: prefill", "{lease_ms: 0}", "disaggregation.lease_ms: must"),
        ("role: prefill", "{protocol: mooncake}", "mooncake"),
        ("role: prefill", "{lease: 1}", "lease"),
    ] {
        let section =
            if section.is_empty() { String::new() } else { format!("disaggregation: {section}") };
        let error = parse(&of_roles(&[roles], &section)).unwrap_err().to_string();
        let place = place.replace("line 1 column", "kvasir.yaml:1:");
        assert!(error.contains(&place), "{roles} {section}: {error}");
    }
    let two = "pools:\n  - {model: m, endpoints: [{url: 'http://a', role: prefill}]}\n  \
               - {model: n, endpoints: [{url: 'http://a'}]}\n";
    let error = parse(two).unwrap_err().to_string();
    assert!(error.contains("pools[1].endpoints[0].role: http://a has another `role`"), "{error}");
}

#[test]
fn a_reload_names_roles_and_the_switch() {
    let before = of_roles(&["role: prefill", "role: decode"], "disaggregation: {enabled: true}");
    let after = of_roles(&["role: decode", "role: decode"], "disaggregation: {enabled: false}");
    let found: Vec<String> = differences(&before, &after).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "pools[m].disaggregation.enabled: true -> false",
            "pools[m].endpoints[http://e0].role: \"prefill\" -> \"decode\"",
        ]
    );
}
