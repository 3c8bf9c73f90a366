//! What a configuration file may say of engines: how they are connected to, when they are left
//! alone; and what a running gateway cannot change.

use kvasir_config::{Config, EndpointState, ForwardedHeaders, TimeoutsConfig};

use crate::{SMALL, error, parse};

#[test]
fn retries_and_health_have_defaults_and_bounds() {
    let with =
        |more: &str| format!("pools: [{{model: m, endpoints: [{{url: 'http://a'}}]}}]\n{more}");
    let config = parse(&with("")).unwrap();
    let retries = &config.retries;
    assert_eq!((retries.attempts, retries.budget_percent, retries.budget_min_per_s), (3, 20, 10));
    assert_eq!(retries.max_retry_after().as_secs(), 2);
    let health = &config.health;
    assert_eq!((health.failures, health.open().as_secs(), health.half_open_trials), (3, 5, 1));
    assert_eq!((&health.probe_path, health.probe_timeout().as_millis()), (&None, 2_000));
    let given =
        "retries: {attempts: 1, budget_percent: 0}\nhealth: {probe_path: /ping, open_s: 60}";
    let config = parse(&with(given)).unwrap();
    assert_eq!((config.retries.attempts, config.health.open().as_secs()), (1, 60));
    assert_eq!(config.health.probe_path.as_deref(), Some("/ping"));
    for (text, key) in [
        ("retries: {attempts: 0}", "retries.attempts"),
        ("retries: {budget_percent: 1001}", "retries.budget_percent"),
        ("retries: {max_retry_after_s: 61}", "retries.max_retry_after_s"),
        ("health: {failures: 0}", "health.failures"),
        ("health: {open_s: 0}", "health.open_s"),
        ("health: {half_open_trials: 0}", "health.half_open_trials"),
        ("health: {probe_timeout_ms: 0}", "health.probe_timeout_ms"),
        ("health: {probe_path: health}", "health.probe_path"),
        ("health: {probe_path: '/a b'}", "health.probe_path"),
    ] {
        let error = error(&with(text));
        assert!(error.contains(key), "{text}: {error}");
    }
}

#[test]
fn engines_are_connected_to_as_their_pool_says() {
    let config = parse(
        "pools: [{model: m, http2: true, max_connections: 5, max_idle_connections: 0,
                  engine_tls: {ca_file: /ca, cert_file: /c, key_file: /k, server_name: n},
                  endpoints: [{url: 'https://a:8443'}]}]",
    )
    .unwrap();
    let pool = &config.pools[0];
    assert!(pool.http2 && pool.endpoints[0].url.is_https());
    assert_eq!((pool.max_connections, pool.max_idle_connections), (5, 0));
    assert_eq!(pool.endpoints[0].url.to_string(), "https://a:8443");
    assert_eq!(pool.engine_tls.as_ref().unwrap().server_name.as_deref(), Some("n"));
    let defaults = parse(SMALL).unwrap();
    let pool = &defaults.pools[0];
    assert_eq!((pool.max_connections, pool.max_idle_connections), (4096, 256));
    assert_eq!(defaults.timeouts, TimeoutsConfig::default());
    let one =
        |more: &str| format!("pools: [{{model: m, {more}, endpoints: [{{url: 'https://a'}}]}}]");
    for (text, wanted) in [
        (one("engine_tls: {cert_file: /c}"), "pools[0].engine_tls: `key_file` is needed"),
        (one("engine_tls: {key_file: /k}"), "pools[0].engine_tls: `cert_file` is needed"),
        (one("engine_tls: {insecure_skip_verify: true, ca_file: /c}"), "believes any certificate"),
        (one("engine_tls: {ca: /c}"), "unknown key"),
        (one("max_connections: 0"), "pools[0].max_connections: must be from 1"),
        (one("timeouts: {idle_ms: 0}"), "pools[0].timeouts.idle_ms: must be from 1"),
        (format!("timeouts: {{connect_ms: 0}}\n{SMALL}"), "timeouts.connect_ms: must be from 1"),
        (
            SMALL.replace("model: m", "model: m, engine_tls: {ca_file: /c}"),
            "no endpoint of the pool",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a'}]},
                     {model: n, endpoints: [{url: 'https://a'}]}]"
                .to_owned(),
            "pools[1].endpoints[0].url: https://a is connected to otherwise in the pool `m`",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a'}]},
                     {model: n, http2: true, endpoints: [{url: 'http://a'}]}]"
                .to_owned(),
            "pools[1].endpoints[0].url: http://a is connected to otherwise",
        ),
    ] {
        let message = error(&text);
        assert!(message.contains(wanted), "{text}: {message}");
    }
}

#[test]
fn an_endpoint_may_be_taken_out_of_service_in_all_its_pools_alike() {
    let text =
        "pools: [{model: m, endpoints: [{url: 'http://a', state: drain}, {url: 'http://b'}]}]";
    let config = Config::parse("f", text).unwrap();
    let states: Vec<EndpointState> = config.pools[0].endpoints.iter().map(|e| e.state).collect();
    assert_eq!(states, [EndpointState::Drain, EndpointState::Active]);
    let error = Config::parse("f", &text.replace("drain", "draining")).unwrap_err().to_string();
    assert!(error.contains("f:1:") && error.contains("drain, disabled"), "{error}");
    let two = "pools:
  - {model: m, endpoints: [{url: 'http://a', state: drain}]}
  - {model: n, endpoints: [{url: 'http://a'}]}";
    let error = Config::parse("f", two).unwrap_err().to_string();
    assert_eq!(error, "f:3:28: pools[1].endpoints[0].state: http://a has another state elsewhere");
}

#[test]
fn what_cannot_change_in_a_running_gateway_is_put_back_and_named() {
    let pools = "pools: [{model: m, endpoints: [{url: 'http://a'}]}]";
    let started = Config::parse("f", &format!("{pools}\nlisten: 127.0.0.1:1")).unwrap();
    let wanted = format!(
        "{pools}\nlisten: 127.0.0.1:2\ninventory: {{max_bytes: 2000000}}\ndecision_headers: true\n\
         decision_log: {{directory: /d}}\ntracing: {{otlp_endpoint: 'http://c'}}\n\
         log: {{level: debug}}\nshutdown_delay_s: 3\n\
         listener: {{reuse_port: true, forwarded_headers: replace}}\nretries: {{attempts: 2}}"
    );
    let mut wanted = Config::parse("f", &wanted).unwrap();
    assert_eq!(
        wanted.hold_fixed(&started),
        ["listen", "listener", "inventory", "decision_log", "tracing", "log"]
    );
    let mut expected = Config { decision_headers: true, shutdown_delay_s: 3, ..started.clone() };
    expected.listener.forwarded_headers = ForwardedHeaders::Replace;
    expected.retries.attempts = 2;
    assert_eq!(wanted, expected);
    assert!(wanted.hold_fixed(&started).is_empty());
}
