//! Selections as they are configured and logged.

#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use kvasir_balance::{Blend, PolicyKind, PolicySpec, PreciseOptions, SelectionSpec};
use serde_json::{from_str, from_value, json, to_value};

#[test]
fn a_policy_is_a_name_or_a_map() {
    for kind in PolicyKind::ALL {
        let spec: PolicySpec = from_value(json!(kind.name())).unwrap();
        assert_eq!((spec.kind(), spec.name()), (kind, kind.name()));
        assert_eq!(from_value::<PolicySpec>(to_value(&spec).unwrap()).unwrap(), spec);
        assert_eq!(spec.build().name(), kind.name());
        let as_map: PolicySpec = from_value(json!({ "name": kind.name() })).unwrap();
        assert_eq!(as_map, spec);
    }
    let soft = json!({ "name": "precise_cache_aware", "blend": "soft", "load_penalty": 64 });
    let wanted = PreciseOptions { blend: Blend::Soft, load_penalty: 64, ..Default::default() };
    assert_eq!(from_value::<PolicySpec>(soft).unwrap(), PolicySpec::PreciseCacheAware(wanted));
}

#[test]
fn mistakes_are_named() {
    let error = |text: &str| from_str::<PolicySpec>(text).unwrap_err().to_string();
    assert!(error(r#""latencey""#).contains("expected one of `latency`"));
    assert!(error(r#"{"name": "chwbl", "load_faktor": 3}"#).contains("load_faktor"));
    assert!(error(r#"{"name": "precise_cache_aware", "blend": "softer"}"#).contains("softer"));
    assert!(error("7").contains("a policy's name"));
}

#[test]
fn a_selection_has_its_stages() {
    let spec: SelectionSpec = from_value(json!({
        "policy": "chwbl", "slo_ttft_ms": 800.0, "sticky": { "idle_s": 60 }, "shadow": "random",
    }))
    .unwrap();
    assert_eq!(spec.fallback.kind(), PolicyKind::LeastLoad);
    let selection = spec.build(1);
    assert_eq!(selection.shadow(), Some("random"));
    assert!(selection.needs().session && selection.needs().head);
    assert_eq!(from_value::<SelectionSpec>(to_value(&spec).unwrap()).unwrap(), spec);
}
