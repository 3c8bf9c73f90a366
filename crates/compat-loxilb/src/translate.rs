//! From a rule to a pool of our own configuration. Pure: the same rule gives the same pool.
//!
//! Blocks are known by their tokens, which engines' events carry, so `kvHashAlgo` and `kvBlockSize` need
//! not agree with anything: they are shown, and the engines' own are used. Weights are shares: the
//! greatest of a rule is a full one.

use std::path::PathBuf;

use kvasir_balance::{PolicyKind, PolicySpec, SessionSource, StickyOptions};
use kvasir_config::{
    DisaggregationConfig, EndpointConfig, EndpointRole, EngineUrl, PoolConfig, TransferProtocol,
};

use crate::answer::Refusal;
use crate::rule::{Endpoint, Engine, Rule, Service};

/// The port of event publishers where a rule names none.
const ZMQ_PORT: u32 = 5557;
/// How long a connection to an engine may take where a rule does not say, in milliseconds.
const CONNECT_MS: u64 = 500;

/// What rules do not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The directory of staged tokenizers.
    pub tokenizer_dir: Option<PathBuf>,
    /// How far replay sockets are above event ports; 0 for none.
    pub replay_port_offset: u16,
}

/// The pool of a rule that was checked. `endpoints` in the order of their `ep_idx`.
pub(crate) fn pool(
    rule: &Rule,
    endpoints: &[&Endpoint],
    defaults: &Defaults,
) -> Result<PoolConfig, Refusal> {
    let service = &rule.service;
    let selector = selector(service.sel);
    let is_exact = matches!(service.kv_exact_mode, 1 | 3);
    let mut pool = PoolConfig::named(service.model_name.clone());
    pool.tokenizer_dir.clone_from(&defaults.tokenizer_dir);
    if is_exact {
        // It says why it has no say, and leaves the request to the selector then: as Tier 1.5 does.
        pool.policy = PolicyKind::PreciseCacheAware.into();
        pool.fallback = fallback(service);
    } else {
        pool.policy = selector;
    }
    if let Some(source) = session(&service.session_header_name)? {
        pool.sessions = vec![source];
    }
    if service.pd_session_ttl_sec != 0 {
        let idle_s = service.pd_session_ttl_sec;
        pool.sticky = Some(StickyOptions { idle_s, ..StickyOptions::default() });
    }
    let connect = if service.connect_ms == 0 { CONNECT_MS } else { service.connect_ms };
    pool.timeouts.connect_ms = Some(connect);
    if service.max_stream_duration_sec != 0 {
        pool.timeouts.request_ms = Some(service.max_stream_duration_sec.saturating_mul(1000));
    }
    if rule.splits() {
        pool.disaggregation = Some(split(service)?);
    }
    let most = endpoints.iter().map(|endpoint| endpoint.weight).max().unwrap_or(0).max(1);
    let engines = endpoints.iter().map(|one| engine(one, rule, most, defaults));
    pool.endpoints = engines.collect::<Result<_, _>>()?;
    Ok(pool)
}

/// The policy of a selector, by what the selector's name says.
fn selector(sel: u32) -> PolicySpec {
    let kind = match sel {
        1 | 9 | 10 => PolicyKind::ConsistentHash,
        2 => PolicyKind::Weighted,
        3 => PolicyKind::Session,
        4 => PolicyKind::LeastLoad,
        8 => PolicyKind::Chwbl,
        _ => PolicyKind::RoundRobin,
    };
    kind.into()
}

/// What chooses where the caches have no say. It must always have one, so it is none that goes by what a
/// request may lack; rules of mode 1 go by load, as in the reference.
fn fallback(service: &Service) -> PolicySpec {
    match (service.kv_exact_mode, service.sel) {
        (3, 0) => PolicyKind::RoundRobin.into(),
        (3, 2) => PolicyKind::Weighted.into(),
        _ => PolicyKind::LeastLoad.into(),
    }
}

fn session(name: &str) -> Result<Option<SessionSource>, Refusal> {
    match name.split_once(':') {
        None if name.is_empty() => Ok(None),
        None if name == "basic-auth" => {
            Err(Refusal::declined("session_header_name: basic-auth is not supported"))
        }
        None => Ok(Some(SessionSource::Header(name.to_ascii_lowercase()))),
        Some(("cookie", cookie)) => Ok(Some(SessionSource::Cookie(cookie.to_owned()))),
        Some(_) => Err(Refusal::declined("session_header_name: a header or cookie:NAME")),
    }
}

fn split(service: &Service) -> Result<DisaggregationConfig, Refusal> {
    let protocol = match service.engine() {
        Engine::Vllm => TransferProtocol::Nixl,
        Engine::Sglang => TransferProtocol::Sglang,
        Engine::Trtllm => TransferProtocol::Trtllm,
    };
    let mut split = DisaggregationConfig { protocol, ..DisaggregationConfig::default() };
    if service.pd_bootstrap_port != 0 {
        let port = u16::try_from(service.pd_bootstrap_port);
        split.bootstrap_port = port.map_err(|_| Refusal::bad("pdBootstrapPort is out of range"))?;
    }
    Ok(split)
}

fn engine(
    endpoint: &Endpoint,
    rule: &Rule,
    most: u32,
    defaults: &Defaults,
) -> Result<EndpointConfig, Refusal> {
    let service = &rule.service;
    let at = std::net::SocketAddr::new(endpoint.ip, endpoint.target_port);
    let url: EngineUrl = format!("http://{at}").parse().map_err(Refusal::bad)?;
    let mut engine = EndpointConfig::at(url);
    engine.weight =
        u32::try_from(u64::from(endpoint.weight) * 100 / u64::from(most)).unwrap_or(100);
    let splits = rule.splits();
    engine.role = match endpoint.role {
        1 if splits => EndpointRole::Prefill,
        2 if splits => EndpointRole::Decode,
        _ => EndpointRole::Unified,
    };
    // As in the reference, prompts are computed at prefill endpoints, and only those publish.
    if !is_followed(rule, endpoint) {
        return Ok(engine);
    }
    if service.engine() == Engine::Trtllm {
        engine.events = Some("poll".to_owned());
        return Ok(engine);
    }
    let port = if service.kv_zmq_port == 0 { ZMQ_PORT } else { service.kv_zmq_port };
    let publisher = |port: u32| {
        let port = u16::try_from(port).map_err(|_| Refusal::bad("kvZmqPort is out of range"))?;
        Ok(format!("tcp://{}", std::net::SocketAddr::new(endpoint.ip, port)))
    };
    engine.events = Some(publisher(port)?);
    if defaults.replay_port_offset != 0 {
        engine.replay = Some(publisher(port + u32::from(defaults.replay_port_offset))?);
    }
    if service.kv_dp_rank_count > 1 {
        engine.ranks = Some(service.kv_dp_rank_count);
    }
    Ok(engine)
}

/// Whether the events of an endpoint are followed.
pub(crate) fn is_followed(rule: &Rule, endpoint: &Endpoint) -> bool {
    match rule.service.kv_exact_mode {
        1 => endpoint.role == 1,
        3 => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn translated(fields: &Value, endpoints: &Value) -> PoolConfig {
        let mut service = json!({"externalIP": "10.0.0.1", "port": 80, "mode": 4});
        for (key, value) in fields.as_object().unwrap() {
            service[key] = value.clone();
        }
        let rule = json!({"serviceArguments": service, "endpoints": endpoints});
        let rule: Rule = serde_json::from_value(rule).unwrap();
        crate::validate::check(&rule).unwrap();
        let endpoints: Vec<&Endpoint> = rule.endpoints.iter().collect();
        let defaults = Defaults { tokenizer_dir: None, replay_port_offset: 1000 };
        pool(&rule, &endpoints, &defaults).unwrap()
    }

    fn one(ip: &str, role: u32, weight: u32) -> Value {
        json!({"endpointIP": ip, "targetPort": 8000, "weight": weight, "ep_role": role})
    }

    #[test]
    fn roles_imply_a_split_and_only_prefill_endpoints_publish() {
        let endpoints = json!([one("192.0.2.1", 1, 1), one("192.0.2.2", 2, 1)]);
        let pool = translated(&json!({"kvExactMode": 1, "sel": 3}), &endpoints);
        assert_eq!(pool.splits().unwrap().protocol, TransferProtocol::Nixl);
        let roles = pool.endpoints.iter().map(|one| one.role).collect::<Vec<_>>();
        assert_eq!(roles, [EndpointRole::Prefill, EndpointRole::Decode]);
        let (prefill, decode) = (&pool.endpoints[0], &pool.endpoints[1]);
        assert_eq!(prefill.events.as_deref(), Some("tcp://192.0.2.1:5557"));
        assert_eq!(prefill.replay.as_deref(), Some("tcp://192.0.2.1:6557"));
        assert_eq!(decode.events, None);
        assert_eq!(pool.fallback.kind(), PolicyKind::LeastLoad);
        assert_eq!(pool.timeouts.connect_ms, Some(500));
    }

    #[test]
    fn engines_and_their_ranks() {
        let endpoints = json!([one("10.0.0.2", 0, 4), one("10.0.0.3", 0, 1)]);
        let fields = json!({"kvExactMode": 3, "kvEngineType": "sglang", "kvDpRankCount": 2,
            "kvZmqPort": 6000, "model_name": "m"});
        let pool = translated(&fields, &endpoints);
        assert_eq!((pool.model.as_str(), pool.splits()), ("m", None));
        let first = &pool.endpoints[0];
        assert_eq!((first.events.as_deref(), first.ranks), (Some("tcp://10.0.0.2:6000"), Some(2)));
        assert_eq!(pool.endpoints.iter().map(|one| one.weight).collect::<Vec<_>>(), [100, 25]);
        let pool = translated(&json!({"kvExactMode": 3, "kvEngineType": "trtllm"}), &endpoints);
        assert_eq!(pool.endpoints[0].events.as_deref(), Some("poll"));
    }

    #[test]
    fn selectors_are_policies() {
        let endpoints = json!([one("10.0.0.2", 0, 1)]);
        for (sel, kind) in [
            (0, PolicyKind::RoundRobin),
            (1, PolicyKind::ConsistentHash),
            (2, PolicyKind::Weighted),
            (3, PolicyKind::Session),
            (4, PolicyKind::LeastLoad),
            (8, PolicyKind::Chwbl),
            (10, PolicyKind::ConsistentHash),
        ] {
            assert_eq!(translated(&json!({ "sel": sel }), &endpoints).policy.kind(), kind, "{sel}");
        }
        let fields = json!({"kvExactMode": 3, "session_header_name": "cookie:S",
            "pd_session_ttl_sec": 7});
        let pool = translated(&fields, &endpoints);
        assert_eq!(pool.policy.kind(), PolicyKind::PreciseCacheAware);
        assert_eq!(pool.sessions, [SessionSource::Cookie("S".to_owned())]);
        assert_eq!(pool.sticky.unwrap().idle_s, 7);
    }
}
