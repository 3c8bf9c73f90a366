//! What changes do to a configuration, and when they are refused.

use serde_json::{Value, json};

use super::*;
use crate::{Config, EndpointRole, EndpointState};

const FILE: &str = "
pools:
- model: m
  policy: latency
  endpoints: [{url: 'http://a:1', group: x}, {url: 'http://b:1', group: y}]
- model: n
  endpoints: [{url: 'http://a:1'}]
";

fn base() -> Config {
    Config::parse("f", FILE).unwrap()
}

fn patch(value: Value) -> Patch {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}

fn pool_patch(model: &str, value: Value) -> Change {
    Change::PatchPool { model: model.to_owned(), patch: patch(value) }
}

fn endpoint_patch(endpoint: &str, value: Value) -> Change {
    let (model, endpoint) = ("m".to_owned(), endpoint.to_owned());
    Change::PatchEndpoint { model, endpoint, patch: patch(value) }
}

fn create(model: &str, endpoint: Value) -> Change {
    Change::CreateEndpoint { model: model.to_owned(), endpoint }
}

fn delete(endpoint: &str) -> Change {
    Change::DeleteEndpoint { model: "m".to_owned(), endpoint: endpoint.to_owned() }
}

fn routing(value: Value) -> Change {
    let (model, at) = ("m".to_owned(), "now".to_owned());
    Change::PatchRouting { model, patch: patch(value), at }
}

fn all(changes: &[Change]) -> (Overlay, Config) {
    let mut now = (Overlay::default(), base());
    for change in changes {
        now = now.0.with(&base(), change).unwrap_or_else(|why| panic!("{change:?}: {why}"));
        // Kept as text and read again it is the same.
        let text = serde_json::to_string(&now.0).unwrap();
        assert_eq!(serde_json::from_str::<Overlay>(&text).unwrap(), now.0);
    }
    now
}

fn refused(overlay: &Overlay, change: &Change) -> (RefusedFor, Option<String>) {
    let why = overlay.with(&base(), change).unwrap_err();
    (why.why, why.field)
}

fn urls(config: &Config, pool: usize) -> Vec<String> {
    config.pools[pool].endpoints.iter().map(|one| one.url.to_string()).collect()
}

#[test]
fn endpoints_come_change_and_go() {
    let (overlay, config) = all(&[
        create("m", json!({"url": "http://c:1", "weight": 50})),
        endpoint_patch("c:1", json!({"weight": 10})),
        endpoint_patch("a:1", json!({"state": "drain"})),
        delete("b:1"),
    ]);
    assert_eq!(urls(&config, 0), ["http://a:1", "http://c:1"]);
    assert_eq!(config.pools[0].endpoints[1].weight, 10);
    // An engine has one state, wherever it is mentioned.
    assert_eq!(config.pools[0].endpoints[0].state, EndpointState::Drain);
    assert_eq!(config.pools[1].endpoints[0].state, EndpointState::Drain);
    assert!(overlay.made_endpoint("m", "c:1") && !overlay.made_endpoint("m", "a:1"));
    assert_eq!(overlay.patched_endpoint("m", "a:1"), ["state"]);
    // What was made goes without a trace; what was deleted can be made anew.
    let (overlay, _) = overlay.with(&base(), &delete("c:1")).unwrap();
    let (overlay, config) =
        overlay.with(&base(), &create("m", json!({"url": "http://b:1"}))).unwrap();
    assert_eq!(urls(&config, 0), ["http://a:1", "http://b:1"]);
    let (overlay, config) =
        overlay.with(&base(), &endpoint_patch("a:1", json!({"state": null}))).unwrap();
    assert_eq!(config.pools[0].endpoints[0].state, EndpointState::Active);
    let (_, config) = overlay.with(&base(), &delete("b:1")).unwrap();
    assert_eq!(urls(&config, 0), ["http://a:1"]);
}

#[test]
fn pools_come_change_and_go() {
    let new = json!({"model": "o", "endpoints": [{"url": "http://c:1"}, {"url": "http://d:1"}]});
    let of_new = |endpoint: &str| Change::DeleteEndpoint {
        model: "o".to_owned(),
        endpoint: endpoint.to_owned(),
    };
    let (overlay, config) = all(&[
        Change::CreatePool(new),
        of_new("d:1"),
        create("o", json!({"url": "http://e:1"})),
        of_new("e:1"),
        pool_patch("m", json!({"slo_ttft_ms": 250.0, "policy": "random"})),
        pool_patch("m", json!({"policy": null})),
        Change::DeletePool { model: "n".to_owned() },
    ]);
    let models: Vec<&str> = config.pools.iter().map(|pool| pool.model.as_str()).collect();
    assert_eq!(models, ["m", "o"]);
    assert_eq!(urls(&config, 1), ["http://c:1"]);
    assert_eq!(config.pools[0].slo_ttft_ms, Some(250.0));
    assert_eq!(config.pools[0].policy, base().pools[0].policy);
    assert_eq!(overlay.patched_pool("m"), ["slo_ttft_ms"]);
    let gone = Change::DeletePool { model: "o".to_owned() };
    let (overlay, _) = overlay.with(&base(), &gone).unwrap();
    assert!(!overlay.pools.contains_key("o"));
    let last = Change::DeletePool { model: "m".to_owned() };
    assert_eq!(refused(&overlay, &last).0, RefusedFor::Invalid);
}

#[test]
fn what_cannot_be_is_refused_with_its_field() {
    use RefusedFor::{Conflict, Invalid, NotFound};
    let pool = |value: Value| Change::CreatePool(value);
    let one = json!([{"url": "http://c:1"}]);
    for (change, why, field) in [
        (pool_patch("q", json!({})), NotFound, None),
        (delete("q:1"), NotFound, None),
        (pool_patch("m", json!({"modle": 1})), Invalid, Some("modle")),
        (pool_patch("m", json!({"policy": "best"})), Invalid, Some("policy")),
        (pool_patch("m", json!({"slo_ttft_ms": -1.0})), Invalid, Some("slo_ttft_ms")),
        (endpoint_patch("a:1", json!({"weight": 1_000_000})), Invalid, Some("weight")),
        (endpoint_patch("a:1", json!({"weight": "much"})), Invalid, Some("weight")),
        (endpoint_patch("a:1", json!({"url": "http://x:1"})), Invalid, Some("url")),
        (create("m", json!({"url": "http://a:1"})), Conflict, Some("url")),
        (create("m", json!({"url": "HTTP://A:01/"})), Conflict, Some("url")),
        (create("m", json!({"url": "http://c:1#1"})), Invalid, Some("url")),
        (create("m", json!({"url": "ftp://a:1"})), Invalid, Some("url")),
        (create("m", json!({"url": "http://c:1", "rnk": 1})), Invalid, Some("rnk")),
        (create("m", json!({"weight": 1})), Invalid, Some("url")),
        (create("n", json!({"url": "http://b:1", "weight": 7})), Invalid, Some("weight")),
        (pool(json!({"model": "m", "endpoints": one})), Conflict, Some("model")),
        (pool(json!({"model": "o", "endpoints": []})), Invalid, Some("endpoints")),
        (pool(json!({"model": "o"})), Invalid, Some("endpoints")),
        (pool(json!({"model": 7, "endpoints": one})), Invalid, Some("model")),
        (pool(json!({"model": "o", "endpoints": [{"url": 1}]})), Invalid, Some("endpoints[0].url")),
        (pool(json!({"model": "o", "api_key": "s", "endpoints": one})), Invalid, Some("api_key")),
        (
            pool(json!({"model": "o", "api_key_env": "HOME", "endpoints": one})),
            Invalid,
            Some("api_key_env"),
        ),
        (
            pool(json!({"model": "o", "api_key_file": "/etc/passwd", "endpoints": one})),
            Invalid,
            Some("api_key_file"),
        ),
        (routing(json!({"mode": "fastest"})), Invalid, Some("mode")),
        (routing(json!({"slo_latency_ms": 0.0})), Invalid, Some("slo_latency_ms")),
        (routing(json!({"disaggregate": true})), Invalid, Some("prefill_pool")),
        (routing(json!({"disaggregate": true, "prefill_pool": "x"})), Invalid, Some("decode_pool")),
        (
            routing(json!({"disaggregate": true, "prefill_pool": "x", "decode_pool": "z"})),
            Invalid,
            Some("decode_pool"),
        ),
        (Change::DeleteRouting { model: "m".to_owned() }, NotFound, None),
    ] {
        let found = refused(&Overlay::default(), &change);
        assert_eq!(found, (why, field.map(str::to_owned)), "{change:?}");
    }
}

#[test]
fn routing_settings_are_patched_and_begin_as_round_robin() {
    let (overlay, config) = all(&[routing(json!({"slo_latency_ms": 500.0}))]);
    assert_eq!(overlay.routing("m").unwrap().mode, RoutingMode::RoundRobin);
    assert_eq!(config.pools[0].policy.name(), "round_robin");
    assert_eq!(config.pools[0].slo_ttft_ms, Some(500.0));
    let more = routing(json!({"mode": "cache_aware"}));
    let (overlay, config) = overlay.with(&base(), &more).unwrap();
    assert_eq!(overlay.routing("m").unwrap().slo_latency_ms, Some(500.0));
    assert_eq!(config.pools[0].policy.name(), "precise_cache_aware");
    let back = Change::DeleteRouting { model: "m".to_owned() };
    let (overlay, config) = overlay.with(&base(), &back).unwrap();
    assert!(overlay.is_empty());
    assert_eq!(config, base());
}

#[test]
fn groups_become_the_sides_of_a_pool() {
    let file = FILE.replace("- model: n\n  endpoints: [{url: 'http://a:1'}]\n", "");
    let base = Config::parse("f", &file).unwrap();
    let split = json!({"disaggregate": true, "prefill_pool": "x", "decode_pool": "y"});
    let (overlay, config) = Overlay::default().with(&base, &routing(split)).unwrap();
    let roles: Vec<_> = config.pools[0].endpoints.iter().map(|one| one.role).collect();
    assert_eq!(roles, [EndpointRole::Prefill, EndpointRole::Decode]);
    assert!(config.pools[0].splits().is_some());
    let (_, config) = overlay.with(&base, &routing(json!({"disaggregate": false}))).unwrap();
    assert!(config.pools[0].splits().is_none());
}

#[test]
fn what_the_file_does_not_have_any_more_is_dropped_by_name() {
    let (overlay, _) = all(&[
        endpoint_patch("b:1", json!({"weight": 10})),
        create("m", json!({"url": "http://c:1"})),
        pool_patch("n", json!({"policy": "random"})),
        routing(json!({"mode": "cache_aware"})),
    ]);
    let file =
        "pools: [{model: m, endpoints: [{url: 'http://a:1'}, {url: 'http://c:1', weight: 3}]}]";
    let newer = Config::parse("f", file).unwrap();
    let (config, dropped) = newer.with_overlay(&overlay);
    let named: Vec<String> = dropped.iter().map(ToString::to_string).collect();
    assert_eq!(
        named,
        [
            "pool `m`, endpoint c:1, made: the configuration has such an endpoint itself",
            "pool `n`, `policy`: there is no such pool",
            "engine b:1, `weight`: no pool has this engine",
        ]
    );
    assert_eq!(config.pools[0].endpoints[1].weight, 3);
    assert_eq!(config.pools[0].policy.name(), "precise_cache_aware");
    let kept = overlay.without(&dropped);
    assert_eq!(newer.with_overlay(&kept), (config, Vec::new()));
    assert!(kept.pools.is_empty() && kept.routing("m").is_some());
}

#[test]
fn what_an_engine_has_once_holds_in_pools_that_come_later() {
    let (overlay, _) = all(&[endpoint_patch("b:1", json!({"weight": 10, "group": "z"}))]);
    let patched = overlay.patched_endpoint("m", "b:1");
    assert!(patched.contains(&"group") && patched.contains(&"weight"), "{patched:?}");
    let later =
        |endpoint: Value| Change::CreatePool(json!({"model": "o", "endpoints": [endpoint]}));
    let (overlay, config) = overlay.with(&base(), &later(json!({"url": "http://b:1"}))).unwrap();
    let of_b: Vec<_> = config.pools.iter().flat_map(|pool| &pool.endpoints).collect();
    let of_b: Vec<_> = of_b.iter().filter(|one| one.url.authority() == "b:1").collect();
    assert_eq!(of_b.iter().map(|one| one.weight).collect::<Vec<_>>(), [10, 10]);
    assert_eq!(of_b.iter().map(|one| one.group.as_deref()).collect::<Vec<_>>(), [Some("z"), None]);
    // What is said otherwise of a new endpoint would be without effect.
    let (before, _) = all(&[endpoint_patch("b:1", json!({"weight": 10}))]);
    let other = later(json!({"url": "http://b:1", "weight": 20}));
    assert_eq!(refused(&before, &other).1.as_deref(), Some("endpoints[0].weight"));
    let other = create("n", json!({"url": "http://b:1", "weight": 20}));
    assert_eq!(refused(&before, &other).1.as_deref(), Some("weight"));
    // It lasts as long as a pool has the engine.
    let (overlay, _) = overlay.with(&base(), &delete("b:1")).unwrap();
    assert!(overlay.engines.contains_key("b:1"));
    let gone = Change::DeletePool { model: "o".to_owned() };
    let (overlay, _) = overlay.with(&base(), &gone).unwrap();
    assert!(overlay.engines.is_empty());
}

#[test]
fn an_overlay_of_an_earlier_form_is_understood() {
    let text =
        r#"{"pools": {"m": {"endpoints": {"B:01": {"patch": {"weight": 10, "group": "z"}}}}}}"#;
    let overlay = serde_json::from_str::<Overlay>(text).unwrap().in_present_form();
    let (now, _) = all(&[endpoint_patch("b:1", json!({"weight": 10, "group": "z"}))]);
    assert_eq!(overlay, now);
}

#[test]
fn keys_that_routing_settings_win_over_are_named() {
    let (overlay, _) = all(&[
        pool_patch("m", json!({"policy": "random", "slo_ttft_ms": 9.0, "fallback": "random"})),
        routing(json!({"mode": "round_robin"})),
    ]);
    assert_eq!(overlay.ignored_pool("m"), ["policy"]);
    let more = routing(json!({"mode": "cache_aware", "slo_latency_ms": 5.0}));
    let (overlay, _) = overlay.with(&base(), &more).unwrap();
    let mut ignored = overlay.ignored_pool("m");
    ignored.sort_unstable();
    assert_eq!(ignored, ["fallback", "policy", "slo_ttft_ms"]);
    assert!(overlay.ignored_pool("n").is_empty());
}

fn fitted(base: &Config, overlay: Overlay) -> Result<(Overlay, Vec<String>), String> {
    let fitted = base
        .fitted(overlay, |config| config.check().map_err(|(key, why)| format!("{key}: {why}")))?;
    Ok((fitted.overlay, fitted.dropped.iter().map(ToString::to_string).collect()))
}

#[test]
fn of_changes_that_do_not_fit_together_the_fewest_are_dropped() {
    let (overlay, _) = all(&[
        create("m", json!({"url": "http://c:1", "weight": 50})),
        pool_patch("m", json!({"slo_ttft_ms": 250.0})),
    ]);
    // The file has the engine now, with another weight.
    let newer =
        Config::parse("f", &format!("{FILE}- model: o\n  endpoints: [{{url: 'http://c:1'}}]\n"));
    let newer = newer.unwrap();
    let (kept, dropped) = fitted(&newer, overlay.clone()).unwrap();
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    let why = "pool `m`, endpoint c:1, made: pools[2].endpoints[0].weight: ";
    assert!(dropped[0].starts_with(why), "{dropped:?}");
    assert_eq!(kept.patched_pool("m"), ["slo_ttft_ms"]);
    assert!(!kept.made_endpoint("m", "c:1"));
    // All that fits stays.
    assert_eq!(fitted(&base(), overlay.clone()).unwrap(), (overlay.clone(), Vec::new()));
    let lost = overlay.each().into_iter().next().unwrap();
    assert_eq!(overlay.said(&lost), json!({"url": "http://c:1", "weight": 50}));
}

#[test]
fn where_no_single_change_is_to_blame_what_was_laid_first_stays() {
    let (overlay, _) = all(&[
        create("m", json!({"url": "http://c:1", "weight": 50})),
        create("m", json!({"url": "http://d:1", "weight": 50})),
        endpoint_patch("a:1", json!({"weight": 7})),
        routing(json!({"mode": "cache_aware"})),
    ]);
    let both = "- model: o\n  endpoints: [{url: 'http://c:1'}, {url: 'http://d:1'}]\n";
    let newer = Config::parse("f", &format!("{FILE}{both}")).unwrap();
    let (kept, dropped) = fitted(&newer, overlay).unwrap();
    assert_eq!(dropped.len(), 2, "{dropped:?}");
    assert!(dropped[0].contains("c:1, made") && dropped[1].contains("d:1, made"), "{dropped:?}");
    assert_eq!(kept.patched_endpoint("m", "a:1"), ["weight"]);
    assert!(kept.routing("m").is_some());
}

#[test]
fn a_configuration_that_cannot_be_used_itself_costs_no_change() {
    let (overlay, _) = all(&[pool_patch("m", json!({"slo_ttft_ms": 250.0}))]);
    let broken = base().fitted(overlay, |_| Err::<(), _>("a file is missing".to_owned()));
    assert_eq!(broken.unwrap_err(), "a file is missing");
}

#[test]
fn of_a_section_what_is_left_out_stays() {
    let text = FILE.replace("policy: latency", "disaggregation: {protocol: nixl, lease_ms: 7000}");
    let base = Config::parse("f", &text).unwrap();
    let mut overlay = Overlay::default();
    let mut split = |value: Value| {
        let change = pool_patch("m", json!({ "disaggregation": value }));
        let (next, config) = overlay.with(&base, &change).unwrap();
        overlay = next;
        let split = config.pools[0].disaggregation.clone().unwrap();
        (
            split.enabled,
            split.protocol == crate::TransferProtocol::Nixl,
            split.lease_ms,
            split.transfer_ms,
        )
    };
    assert_eq!(split(json!({"enabled": false})), (false, true, 7000, 5));
    assert_eq!(split(json!({"transfer_ms": 9, "lease_ms": 8000})), (false, true, 8000, 9));
    assert_eq!(split(json!({"lease_ms": null})), (false, true, 7000, 9));
    assert_eq!(split(json!({"enabled": null})), (true, true, 7000, 9));
    assert_eq!(split(Value::Null), (true, true, 7000, 5));
    assert_eq!(split(json!({"enabled": null})), (true, true, 7000, 5));
    // A pool without one has none again when all is reset.
    let (overlay, _) = all(&[
        pool_patch("m", json!({"sticky": {"idle_s": 5}})),
        pool_patch("m", json!({"sticky": {"idle_s": null}})),
    ]);
    assert_eq!(base.with_overlay(&overlay).0.pools[0].sticky, None);
}
