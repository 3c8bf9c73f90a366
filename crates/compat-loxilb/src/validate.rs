//! What a rule may not say. The texts are the reference's; the statuses say whose fault it is.

use serde_json::{Map, Value};

use crate::answer::Refusal;
use crate::rule::{Engine, Rule, Service, is_nothing};

/// The most endpoints of a rule.
const MOST_ENDPOINTS: usize = 32;
const ALGORITHMS: [&str; 4] = ["sha256_cbor", "xxhash_cbor", "sha256_sglang", "blockhash_trtllm"];

/// Fields that are taken and change nothing here: Kvasir does by itself what they ask for, or does it
/// otherwise (`docs/loxilb.md`).
const WITHOUT_EFFECT: [&str; 27] = [
    "backend_keepalive_interval_sec",
    "backend_protocol",
    "cb_enable",
    "chwbl_enable_cache_salt",
    "chwbl_mean_load_factor",
    "chwbl_prefix_hash_flags",
    "chwbl_prefix_hash_level",
    "chwbl_replication",
    "inactiveTimeOut",
    "managed",
    "monitor",
    "path_match_mode",
    "pd_balance_abs_threshold",
    "pd_cache_threshold",
    "probeRetries",
    "probeTimeout",
    "probeport",
    "probereq",
    "proberesp",
    "probetype",
    "nixl_port",
    "backup",
    "monitorAddress",
    "httpMethod",
    "urlPath",
    "expectedCodes",
    "block",
];

/// Whether a rule can be served.
pub(crate) fn check(rule: &Rule) -> Result<(), Refusal> {
    let service = &rule.service;
    check_texts(rule)?;
    check_engine(service)?;
    check_listener(service)?;
    check_endpoints(rule)?;
    check_others("serviceArguments", &service.other)?;
    rule.endpoints.iter().try_for_each(|one| check_others("endpoints", &one.other))?;
    if !rule.secondary.is_empty() {
        return Err(Refusal::declined(
            "secondaryIPs are not supported: make a rule for each address",
        ));
    }
    Ok(())
}

/// Modes, roles and selectors.
fn check_texts(rule: &Rule) -> Result<(), Refusal> {
    let service = &rule.service;
    let is_proxy = service.mode == 4;
    let bad = |text: &str| Err(Refusal::bad(text));
    let selector = match service.sel {
        5 => Some("n2(5)"),
        8 => Some("chwbl(8)"),
        9 => Some("gpuaware(9)"),
        10 => Some("chwbl-wrr(10)"),
        _ => None,
    };
    if let Some(selector) = selector.filter(|_| !is_proxy) {
        let why = "requires mode=fullproxy (no L4 datapath selector)";
        return Err(Refusal::bad(format!("sel={selector} {why}")));
    }
    let has = |role| rule.endpoints.iter().any(|endpoint| endpoint.role == role);
    if service.pd && !is_proxy {
        return bad("pd-disagg requires mode=fullproxy");
    }
    // An order to attach or detach names some of the endpoints only.
    if service.pd && service.oper == 0 && !(has(1) && has(2)) {
        return bad(
            "pd-disagg requires at least 1 prefill (ep_role=1) and 1 decode (ep_role=2) endpoint",
        );
    }
    if service.pd_cache_aware && !rule.splits() {
        return bad("pd-cache-aware requires pd_disagg_mode=true");
    }
    match service.kv_exact_mode {
        0 | 2 => Ok(()),
        1 if service.oper == 0 && !rule.splits() => bad(
            "kv-exact zmq mode requires pd_disagg_mode=true (use kvExactMode=3 for a single pool)",
        ),
        1 if !is_proxy => bad("pd-disagg requires mode=fullproxy"),
        3 if service.pd => bad(
            "kv-exact single-role mode is incompatible with pd-disagg (use kvExactMode=1 for P/D)",
        ),
        3 if !is_proxy => bad("kv-exact single-role mode requires mode=fullproxy"),
        1 | 3 => Ok(()),
        _ => bad("kvExactMode must be within 0..3"),
    }
}

fn check_engine(service: &Service) -> Result<(), Refusal> {
    let bad = |text: String| Err(Refusal::bad(text));
    if service.kv_engine_type == "llamacpp" {
        return Err(Refusal::declined(
            "kv-engine-type llamacpp publishes no events; make a pool in the configuration file",
        ));
    }
    let Some(engine) = Engine::of(&service.kv_engine_type) else {
        return bad(r#"kv-engine-type must be one of "vllm", "sglang", "trtllm""#.to_owned());
    };
    if service.kv_dp_rank_count > 8 {
        return bad("kv-dp-rank-count must be within 1..8 (0 = default 1)".to_owned());
    }
    if service.kv_zmq_port > 65_535 {
        return bad("kvZmqPort must be within 1..65535".to_owned());
    }
    let algorithm = service.kv_hash_algo.as_str();
    if !algorithm.is_empty() && !ALGORITHMS.contains(&algorithm) {
        return bad(format!("kv-hash-algo must be one of {}", ALGORITHMS.join(", ")));
    }
    let fits = match engine {
        Engine::Vllm => algorithm.ends_with("_cbor"),
        Engine::Sglang | Engine::Trtllm => algorithm == engine.algorithm(),
    };
    if !algorithm.is_empty() && !fits {
        let (name, default) = (engine.name(), engine.algorithm());
        return bad(format!(
            "kv-hash-algo \"{algorithm}\" is incompatible with kv-engine-type \"{name}\" (omit \
             kvHashAlgo to take the engine default \"{default}\")"
        ));
    }
    let splits = service.pd || service.kv_exact_mode == 1;
    if service.pd_bootstrap_port != 0 && !(splits && engine == Engine::Sglang) {
        let why = "pd-bootstrap-port requires pd_disagg_mode=true and kv-engine-type sglang";
        return bad(why.to_owned());
    }
    if service.pd_bootstrap_port > 65_535 {
        return bad("pdBootstrapPort must be within 1..65535".to_owned());
    }
    if engine != Engine::Trtllm {
        return Ok(());
    }
    if service.kv_exact_mode == 2 {
        let why = "kv-engine-type trtllm supports kvExactMode 1 or 3 (HTTP-polled event plane)";
        return bad(why.to_owned());
    }
    if !matches!(service.kv_zmq_port, 0 | 5557) {
        let why = "kvZmqPort is meaningless for kv-engine-type trtllm (its events are polled)";
        return bad(why.to_owned());
    }
    if service.kv_dp_rank_count > 1 {
        let why = "kvDpRankCount is meaningless for kv-engine-type trtllm (its events are polled)";
        return bad(why.to_owned());
    }
    Ok(())
}

/// What Kvasir does not do at a port.
fn check_listener(service: &Service) -> Result<(), Refusal> {
    let declined = |text: &str| Err(Refusal::declined(text));
    if service.port == 0 {
        return Err(Refusal::bad("port must be within 1..65535"));
    }
    if !matches!(service.protocol.as_str(), "" | "tcp") {
        return declined("protocol: only tcp is served");
    }
    if service.mode != 4 {
        return declined("mode: only 4 (fullproxy) is served, Kvasir is no L4 load balancer");
    }
    if matches!(service.sel, 5..=7) || service.sel > 10 {
        return declined("sel: 0, 1, 2, 3, 4, 8, 9 and 10 are served");
    }
    if service.port_max != 0 && service.port_max != service.port {
        return declined("portMax: ranges of ports are not served");
    }
    if service.security != 0 {
        return declined("security: TLS of clients is set up in the file (listener.tls)");
    }
    let is_matched = service.other.get("path_match_mode");
    let is_matched = is_matched.is_some_and(|mode| !is_nothing(mode) && mode != "disabled");
    if !service.host.is_empty() || !service.path_prefix.is_empty() || is_matched {
        return declined("host and path_prefix: rules are told apart by address, port and model");
    }
    if service.oper > 2 {
        return Err(Refusal::bad("oper must be 0 (create), 1 (attach) or 2 (detach)"));
    }
    Ok(())
}

fn check_endpoints(rule: &Rule) -> Result<(), Refusal> {
    let endpoints = &rule.endpoints;
    if endpoints.is_empty() {
        return Err(Refusal::bad("endpoints: at least one is required"));
    }
    if endpoints.len() > MOST_ENDPOINTS {
        return Err(Refusal::bad(format!("endpoints: at most {MOST_ENDPOINTS} in a rule")));
    }
    for (at, endpoint) in endpoints.iter().enumerate() {
        if endpoint.target_port == 0 {
            return Err(Refusal::bad(format!("endpoints[{at}].targetPort is required")));
        }
        if endpoint.role > 2 {
            return Err(Refusal::bad(format!("endpoints[{at}].ep_role must be within 0..2")));
        }
        let twice = |other: &&crate::rule::Endpoint| {
            (other.ip, other.target_port) == (endpoint.ip, endpoint.target_port)
        };
        if endpoints[..at].iter().any(|other| twice(&other)) {
            return Err(Refusal::bad(format!("endpoints[{at}] is listed twice")));
        }
    }
    Ok(())
}

/// Fields nobody here knows are refused where they say something.
fn check_others(place: &str, fields: &Map<String, Value>) -> Result<(), Refusal> {
    let says = |(key, value): &(&String, &Value)| {
        !is_nothing(value) && !WITHOUT_EFFECT.contains(&key.as_str())
    };
    match fields.iter().find(says) {
        Some((key, _)) => Err(Refusal::declined(format!("{place}.{key} is not supported"))),
        None => Ok(()),
    }
}
