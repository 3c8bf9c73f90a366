//! A configuration that is written out is the same when it is read, but for its secrets.

use kvasir_config::shown;

use crate::{SMALL, parse};

/// Every section, and every form a value may have.
const FULL: &str = "
listen: 0.0.0.0:9000
listener:
  tls: {cert_file: /tls/crt, key_file: /tls/key, client_ca_file: /tls/ca}
  http2: false
  forwarded_headers: replace
api_keys_file: /keys
decision_headers: true
decision_headers_token_env: DEBUG
max_body_bytes: 1000
forward_paths: ['/v1/audio/*', /x]
timeouts: {connect_ms: 100}
retries: {attempts: 2}
health: {probe_path: /health}
scrape_interval_ms: 200
inventory: {max_bytes: 2000000, max_endpoint_bytes: 100000}
decision_log: {directory: /var/log/kvasir}
tracing: {otlp_endpoint: 'https://c:4318/otlp', sample_ratio: 0.25}
admin: {listen: '0.0.0.0:81', read_token_file: /read, write_token_env: WRITE, store: /s}
log: {format: json, level: 'info,kvasir_fleet=debug'}
pools:
  - model: 'org/name: 7'
    aliases: ['yes', '12', '~']
    policy: {name: cache_aware, guard: {imbalance: {absolute: 3, relative: 1.5}}}
    fallback: power_of_two
    slo_ttft_ms: 1500.5
    sticky: {idle_s: 5}
    sessions: [{header: x-a}, {cookie: c}, {body: user}]
    shadow: {name: precise_cache_aware, load_penalty: 7}
    tokenizer_dir: /tokenizers
    api_key_env: KEY
    rank_addressing: url
    identity: {engine: {algorithm: sha256_cbor, version: 0.29.0}}
    token_parity: 'off'
    engine_tls: {ca_file: /ca, server_name: engine}
    timeouts: {first_data_ms: 5000}
    admission: {endpoint: {max_kv_usage: 0.5}, queue: {places: 3}, tenant_header: x-t}
    disaggregation: {protocol: sglang, select: e4}
    endpoints:
      - {url: 'https://a', rank: 0, events: 'tcp://*:1', replay: 'tcp://*:2', topic: kv@, group: g}
      - {url: 'http://[::1]:8000', rank: 1, role: prefill, bootstrap_port: 9, state: drain}
";

#[test]
fn it_is_read_back_as_it_was() {
    for text in [SMALL, FULL] {
        let config = parse(text).unwrap();
        let written = config.to_yaml().unwrap();
        assert!(!written.contains("null"), "{written}");
        assert_eq!(parse(&written).unwrap_or_else(|e| panic!("{e}\n{written}")), config);
    }
}

#[test]
fn secrets_are_not_written() {
    let config = parse(
        "
api_keys: [first-secret, other-secret]
decision_headers_token: debug-secret
admin: {read_token: read-secret, write_token: write-secret}
pools:
  - model: m
    api_key: engine-secret
    identity: {engine: {algorithm: sha256_cbor, seed: '4242'}}
    endpoints: [{url: 'http://a'}]
",
    )
    .unwrap();
    let written = config.to_yaml().unwrap();
    assert!(!written.contains("secret") && !written.contains("4242"), "{written}");
    let tree = shown(&config).unwrap();
    assert_eq!(tree["api_keys"], serde_json::json!(["***", "***"]));
    for path in [
        "/decision_headers_token",
        "/admin/read_token",
        "/admin/write_token",
        "/pools/0/api_key",
        "/pools/0/identity/engine/seed",
    ] {
        assert_eq!(tree.pointer(path).and_then(|value| value.as_str()), Some("***"), "{path}");
    }
}
