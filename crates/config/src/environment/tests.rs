use std::collections::HashMap;

use kvasir_balance::{PolicyKind, PolicySpec};

use super::*;

const TEXT: &str = "
log: {format: json}
controller: {address: 'c:18856'}
decision_log: {directory: /from-file, files: 3}
pools:
  - {model: a, policy: precise_cache_aware, endpoints: [{url: 'http://a'}]}
  - model: b
    identity: {engine: {algorithm: sha256_cbor, seed: '1'}}
    endpoints: [{url: 'http://p', role: prefill}, {url: 'http://d', role: decode}]
";

fn taken(variables: &[(&str, &str)]) -> Result<(Config, Vec<Taken>), String> {
    taken_by(Config::parse("f", TEXT).unwrap(), variables)
}

fn taken_by(
    mut config: Config,
    variables: &[(&str, &str)],
) -> Result<(Config, Vec<Taken>), String> {
    let known: HashMap<&str, &str> = variables.iter().copied().collect();
    let read = |name: &'static str| Ok(known.get(name).map(|text| (*text).to_owned()));
    let taken = config.take_variables(read).map_err(|error| error.to_string())?;
    Ok((config, taken))
}

/// A value for each variable that is not what the file says.
const VALUES: [(&str, &str); 34] = [
    ("KVASIR_LISTEN", "0.0.0.0:99"),
    ("KVASIR_ADMIN_LISTEN", "127.0.0.1:98"),
    ("KVASIR_POLICY", "round_robin"),
    ("KVASIR_TOKENIZER_DIR", "/tokenizers"),
    ("KVASIR_DECISION_HEADERS", "1"),
    ("KVASIR_DECISION_LOG", "/elsewhere"),
    ("KVASIR_MAX_BODY_BYTES", "1000"),
    ("KVASIR_MAX_PROMPT_BYTES", "2000"),
    ("KVASIR_INVENTORY_MAX_BYTES", "3000000"),
    ("KVASIR_SCRAPE_INTERVAL_MS", "50"),
    ("KVASIR_SHUTDOWN_GRACE_S", "7"),
    ("KVASIR_SHUTDOWN_DELAY_S", "8"),
    ("KVASIR_OTLP_ENDPOINT", "http://c:4318"),
    ("KVASIR_LOG_FORMAT", "text"),
    ("KVASIR_LOG_LEVEL", "debug"),
    ("LOXILB_KV_LB_MODE", "adaptive-soft"),
    ("LOXILB_KV_MEAN_LOAD_FACTOR", "200"),
    ("LOXILB_KV_LOAD_PENALTY", "33"),
    ("LOXILB_KV_CAP_SUM_MILLI", "12"),
    ("LOXILB_KV_SPILL_RELIEF", "off"),
    ("LOXILB_KV_COLDSTART_SEED_N", "0"),
    ("LOXILB_KV_COLDSTART_MIN_BLOCKS", "0"),
    ("LOXILB_KV_ZERO_HIT_N", "5"),
    ("LLB_KV_MIN_MATCH_TOKENS", "0"),
    ("LLB_KV_NONE_HASH_SEED", "42"),
    ("LLB_PD_PREFILL_TIMEOUT_SEC", "180"),
    ("LLB_PD_MAX_INFLIGHT_PER_EP", "5"),
    ("LLB_PD_MAX_TOTAL_INFLIGHT", "6"),
    ("LLB_PD_ORIGIN_ERR_THRESHOLD", "9"),
    ("LOXILB_AI_CTRL_ADDR", "elsewhere:18856"),
    ("LOXILB_AI_CTRL_DECAY_WINDOW_SEC", "60"),
    ("LOXILB_AI_CTRL_HYSTERESIS_SEC", "0"),
    ("LOXILB_AI_CTRL_ACK_TIMEOUT_SEC", "3"),
    ("LOXILB_AI_CTRL_APPLY_JITTER_PCT", "20"),
];

#[test]
fn every_variable_changes_its_key_and_nothing_else() {
    let plain = Config::parse("f", TEXT).unwrap();
    let before = leaves(&plain);
    assert_eq!(VALUES.len(), VARIABLES.len());
    for variable in VARIABLES {
        let value = VALUES.iter().find(|(name, _)| *name == variable.name).unwrap();
        let (config, taken) = taken(&[*value]).unwrap();
        let wanted = Taken { name: variable.name, key: variable.key, without_effect: None };
        assert_eq!(taken, [wanted]);
        if variable.key.ends_with(".seed") {
            // It is written as `***` before and after.
            assert_ne!(config, plain);
            continue;
        }
        let after = leaves(&config);
        let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
        let changed: Vec<&String> = changed.map(|(key, _)| key).collect();
        assert!(!changed.is_empty(), "{variable:?}");
        let section = variable.key.split('.').next().unwrap();
        for key in changed {
            let is_it = key == variable.key
                || (key.starts_with(variable.key) && section.starts_with("pools"))
                || (key.starts_with(section) && !before.contains_key(variable.key));
            assert!(is_it, "{variable:?} changes {key}");
        }
    }
}

/// Keys as paths, pools and endpoints without their numbers, and the values that are there.
fn leaves(config: &Config) -> HashMap<String, Vec<serde_json::Value>> {
    fn walk(
        path: &str,
        value: &serde_json::Value,
        found: &mut HashMap<String, Vec<serde_json::Value>>,
    ) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    walk(&below, value, found);
                }
            }
            serde_json::Value::Array(list) => {
                list.iter().for_each(|value| walk(&format!("{path}[]"), value, found));
            }
            _ => found.entry(path.to_owned()).or_default().push(value.clone()),
        }
    }
    let mut found = HashMap::new();
    walk("", &crate::shown(config).unwrap(), &mut found);
    found
}

#[test]
fn ours_win_over_loxilbs_and_all_win_over_the_file() {
    let (config, _) = taken(&VALUES).unwrap();
    assert_eq!(config.pools[0].policy, PolicySpec::RoundRobin);
    let log = config.decision_log.unwrap();
    assert_eq!((log.directory.to_str(), log.files), (Some("/elsewhere"), 3));
    let split = config.pools[1].disaggregation.as_ref().unwrap();
    assert_eq!(split.prefill_timeout_ms, 180_000);
    assert_eq!(config.pools[0].disaggregation, None);
    assert_eq!(config.pools[0].admission.max_requests, None);
}

#[test]
fn a_bad_value_names_the_variable() {
    for (name, value, wanted) in [
        ("KVASIR_LISTEN", "here", "`here` is no address to listen on"),
        ("KVASIR_POLICY", "lateny", "unknown policy `lateny`"),
        ("KVASIR_DECISION_HEADERS", "maybe", "`maybe` is none of true, false, 1, 0"),
        ("KVASIR_MAX_BODY_BYTES", "0", "max_body_bytes: must be from 1 to"),
        (
            "KVASIR_MAX_BODY_BYTES",
            "1k",
            "`1k` is not a whole number from 0 to 18446744073709551615",
        ),
        ("KVASIR_ADMIN_LISTEN", "0.0.0.0:1", "admin.read_token: is needed"),
        ("KVASIR_ADMIN_LISTEN", "127.0.0.1:8080", "admin.listen: 127.0.0.1:8080 is where"),
        ("KVASIR_LOG_FORMAT", "xml", "`xml` is none of text, json"),
        ("KVASIR_OTLP_ENDPOINT", "http://u:hush@c", "has no user"),
        ("LOXILB_KV_LB_MODE", "harder", "`harder` is none of off, hard"),
        ("LOXILB_KV_MEAN_LOAD_FACTOR", "99", "pools[0].policy.load_factor_percent: must be"),
        ("LLB_PD_PREFILL_TIMEOUT_SEC", "0", "must be from 1 to 3600"),
        ("LLB_PD_ORIGIN_ERR_THRESHOLD", "0", "no equivalent"),
        ("LLB_KV_NONE_HASH_SEED", "hush", "pools[1].identity.engine.seed"),
    ] {
        let error = taken(&[(name, value)]).unwrap_err();
        assert!(error.starts_with(&format!("{name}: ")) && error.contains(wanted), "{error}");
        assert!(!error.contains("u:hush"), "{error}");
    }
    let mut config = Config::parse("f", TEXT).unwrap();
    let error = config.take_variables(|_| Err("is not UTF-8".to_owned())).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: is not UTF-8", VARIABLES[0].name));
}

#[test]
fn what_is_empty_is_not_set_and_what_changes_nothing_says_so() {
    let (config, none) = taken(&[("KVASIR_LISTEN", ""), ("KVASIR_LOG_LEVEL", "  ")]).unwrap();
    assert_eq!((config, none), (Config::parse("f", TEXT).unwrap(), Vec::new()));
    let small = "pools: [{model: m, endpoints: [{url: 'http://a'}]}]";
    let small = Config::parse("f", small).unwrap();
    for (name, why) in [
        ("LOXILB_KV_LOAD_PENALTY", "no pool has the policy `precise_cache_aware`"),
        ("LLB_PD_MAX_TOTAL_INFLIGHT", "no pool splits requests"),
        ("LLB_KV_NONE_HASH_SEED", "no pool has `identity: engine` with vLLM's hashes"),
    ] {
        let (config, taken) = taken_by(small.clone(), &[(name, "7")]).unwrap();
        assert_eq!((taken[0].without_effect, &config), (Some(why), &small));
    }
}

#[test]
fn without_a_file_the_template_of_pools_is_set() {
    let pools = vec![crate::PoolConfig::named(String::new())];
    let template = Config { pools, ..Config::default() };
    let (config, _) =
        taken_by(template.clone(), &[("KVASIR_POLICY", "ttft"), ("KVASIR_LISTEN", "[::]:1")])
            .unwrap();
    assert_eq!(config.pools[0].policy.kind(), PolicyKind::Ttft);
    assert!(config.pools[0].model.is_empty() && config.pools[0].endpoints.is_empty());
    let error = taken_by(template, &[("KVASIR_MAX_PROMPT_BYTES", "1")]).unwrap_err();
    assert!(error.starts_with("KVASIR_MAX_PROMPT_BYTES: max_prompt_bytes: "), "{error}");
}
