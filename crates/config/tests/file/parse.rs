//! Every key and bound but those of engines and admission.

use kvasir_balance::{BodyName, PolicyKind, SessionSource};
use kvasir_config::{
    BlockIdentity, ClientKeySource, Config, DecisionLogConfig, ForwardedHeaders, ListenerConfig,
    LogFormat, RankAddressing, TimeoutsConfig, TokenParity,
};

use crate::{SMALL, error, parse};

#[test]
fn the_smallest_file_gets_the_defaults() {
    let config = parse(SMALL).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert!(!config.decision_headers);
    assert_eq!(config.max_body_bytes, 64 << 20);
    assert_eq!(config.max_prompt_bytes, 4 << 20);
    assert!(!config.pools[0].trust_token_headers);
    assert_eq!(config.pools[0].token_parity, TokenParity::Sample);
    assert_eq!(config.pools[0].policy.kind(), PolicyKind::Latency);
    assert_eq!(config.pools[0].endpoints[0].url.to_string(), "http://a:8000");
    assert_eq!(config.log.format, LogFormat::Text);
    assert_eq!(config.inventory.max_bytes, 4 << 30);
    assert_eq!(config.inventory.endpoint_bytes(), 4 << 30);
}

#[test]
fn clients_are_served_in_plain_text_and_all_of_them_unless_told_otherwise() {
    let config = parse(SMALL).unwrap();
    let ListenerConfig { tls, http2, max_connections, max_concurrent_streams, .. } =
        &config.listener;
    assert_eq!((tls, http2), (&None, &true));
    assert_eq!((*max_connections, *max_concurrent_streams), (16_384, 256));
    let listener = &config.listener;
    assert_eq!((listener.idle_timeout_s, listener.write_stall_s), (75, 60));
    assert_eq!(
        (listener.reuse_port, listener.forwarded_headers),
        (false, ForwardedHeaders::Append)
    );
    assert_eq!(config.client_keys(), None);
}

#[test]
fn every_key_of_the_client_side_is_taken() {
    let config = parse(&format!(
        "{SMALL}
listener:
  tls: {{cert_file: /tls/crt, key_file: /tls/key, client_ca_file: /tls/ca}}
  http2: false
  max_connections: 1
  max_concurrent_streams: 65536
  idle_timeout_s: 1
  write_stall_s: 86400
  reuse_port: true
  forwarded_headers: replace
api_keys: [first-key, second-key]
"
    ))
    .unwrap();
    let listener = &config.listener;
    let tls = listener.tls.as_ref().unwrap();
    assert_eq!(tls.cert_file.as_os_str(), "/tls/crt");
    assert_eq!(tls.key_file.as_os_str(), "/tls/key");
    assert_eq!(tls.client_ca_file.as_ref().unwrap().as_os_str(), "/tls/ca");
    assert!(!listener.http2 && listener.reuse_port);
    assert_eq!((listener.max_connections, listener.max_concurrent_streams), (1, 65_536));
    assert_eq!((listener.idle_timeout_s, listener.write_stall_s), (1, 86_400));
    assert_eq!(listener.forwarded_headers, ForwardedHeaders::Replace);
    let keys = config.client_keys().unwrap().read_all().unwrap();
    let keys: Vec<&str> = keys.iter().map(kvasir_config::Secret::expose).collect();
    assert_eq!(keys, ["first-key", "second-key"]);
    assert!(!format!("{config:?}").contains("first-key"), "keys do not show themselves");
}

#[test]
fn what_is_out_of_bounds_on_the_client_side_is_located() {
    for (text, expected) in [
        (
            "listener: {max_connections: 0}",
            ":2:29: listener.max_connections: must be from 1 to 1048576",
        ),
        ("listener: {idle_timeout_s: 90000}", "must be from 1 to 86400"),
        ("listener: {tls: {key_file: k}}", "cert_file"),
        ("listener: {forwarded_headers: drop}", "expected one of append, replace, off"),
        ("api_keys: ['has blanks']", "api_keys[0]: a key has 8 to 512"),
        ("api_keys: [sound-key, \"zählt-nicht\"]", "api_keys[1]: a key has 8 to 512"),
        ("api_keys: []", "api_keys: there is no key"),
        ("api_keys_env: A\napi_keys_file: b", "give one of"),
    ] {
        let message = error(&format!("{SMALL}{text}\n"));
        assert!(message.contains(expected), "{text}: {message}");
        assert!(!message.contains("blanks'") && !message.contains("hlt"), "{message}");
    }
    let many: Vec<String> = (0..1025).map(|n| format!("key-number-{n}")).collect();
    assert!(error(&format!("{SMALL}api_keys: {many:?}\n")).contains("more than 1024 keys"));
    let missing = ClientKeySource::Env("KVASIR_TEST_NOT_SET").read_all().unwrap_err();
    assert!(
        missing.0 == "api_keys_env" && missing.1.contains("KVASIR_TEST_NOT_SET"),
        "{missing:?}"
    );
}

#[test]
fn every_key_is_taken() {
    let config = parse(
        "
listen: 0.0.0.0:9000
decision_headers: true
max_body_bytes: 1000
max_prompt_bytes: 2000
forward_paths: [/v1/audio/*]
timeouts: {connect_ms: 100, first_data_ms: 2000, idle_ms: 3000, request_ms: 40000}
scrape_interval_ms: 200
shutdown_grace_s: 3
log: {format: json, level: debug}
inventory: {max_bytes: 2000000, max_endpoint_bytes: 100000}
pools:
  - model: org/name
    policy: precise_cache_aware
    tokenizer_dir: /tokenizers
    api_key: very-secret
    trust_token_headers: true
    token_parity: startup
    timeouts: {first_data_ms: 5000}
    endpoints:
      - {url: 'http://[::1]:8000', events: 'tcp://*:5557', replay: 'tcp://*:5558', topic: kv}
      - {url: 'http://b', events: 'tcp://0.0.0.0:7000', bind: true}
",
    )
    .unwrap();
    assert_eq!(config.inventory.max_bytes, 2_000_000);
    assert_eq!(config.inventory.endpoint_bytes(), 100_000);
    let pool = &config.pools[0];
    let timeouts = config.timeouts.with(&pool.timeouts);
    let own =
        TimeoutsConfig { connect_ms: 100, first_data_ms: 5000, idle_ms: 3000, request_ms: 40000 };
    assert_eq!(timeouts, own);
    assert_eq!(config.timeouts.first_data_ms, 2000);
    assert_eq!(config.max_prompt_bytes, 2000);
    assert_eq!(pool.policy.kind(), PolicyKind::PreciseCacheAware);
    assert!(pool.trust_token_headers);
    assert_eq!(pool.token_parity, TokenParity::Startup);
    assert_eq!(pool.endpoints[0].url.authority().host(), "[::1]");
    assert_eq!(pool.endpoints[0].topic.as_deref(), Some("kv"));
    assert!(pool.endpoints[1].bind);
    assert_eq!(pool.resolve_api_key().unwrap().unwrap().expose(), "very-secret");
    assert!(!format!("{config:?}").contains("very-secret"));
}

#[test]
fn ranks_are_addressed_in_one_of_three_ways() {
    for (word, wanted) in [("none", RankAddressing::None), ("header", RankAddressing::Header)] {
        let text = format!(
            "pools: [{{model: m, rank_addressing: {word}, endpoints: [{{url: 'http://a', ranks: 4}}]}}]"
        );
        let pool = &parse(&text).unwrap().pools[0];
        assert_eq!((pool.rank_addressing, pool.endpoints[0].ranks), (wanted, Some(4)));
    }
    let text = "pools: [{model: m, rank_addressing: url, endpoints: [{url: 'http://a', rank: 3}]}]";
    assert_eq!(parse(text).unwrap().pools[0].endpoints[0].rank, Some(3));
    let message = error("pools: [{model: m, rank_addressing: port, endpoints: []}]");
    assert!(message.contains("port") && message.contains("header"), "{message}");
}

#[test]
fn events_are_fetched_only_where_it_is_asked_for() {
    let polls = |events: &str| {
        let text = format!("pools: [{{model: m, endpoints: [{{url: 'http://a'{events}}}]}}]");
        parse(&text).unwrap().pools[0].endpoints[0].polls()
    };
    assert!(polls(", events: poll"));
    assert!(!polls("") && !polls(", events: 'tcp://*:5557'"));
}

#[test]
fn a_wrong_value_is_located_and_the_allowed_ones_are_named() {
    let bad_policy = "pools:\n  - model: m\n    policy: fastest\n    endpoints: []\n";
    let message = error(bad_policy);
    assert!(message.starts_with("kvasir.yaml:3:"), "{message}");
    assert!(message.contains("unknown policy `fastest`"), "{message}");
    assert!(message.contains("`round_robin`"), "{message}");

    let unknown_key = "pools: []\nlisten_on: 1.2.3.4:5\n";
    let message = error(unknown_key);
    assert!(message.starts_with("kvasir.yaml:2:"), "{message}");
    assert!(message.contains("listen_on") && message.contains("decision_headers"), "{message}");

    // Names with dots are names all the same.
    let message = error(".pools: []\na.b: 1\n");
    assert!(message.starts_with("kvasir.yaml:1:1: unknown key `.pools`"), "{message}");
    let message = error("log: {a.b: 1}\n");
    assert!(message.starts_with("kvasir.yaml:1:7: log: unknown key `a.b`"), "{message}");

    let message = error("log: {format: xml}\n");
    assert!(message.contains("xml") && message.contains("json"), "{message}");
    let message = error("listen: nowhere\n");
    assert!(message.starts_with("kvasir.yaml:1:"), "{message}");
}

#[test]
fn limits_of_the_inventory_are_checked_where_they_stand() {
    for (text, place, why) in [
        ("inventory:\n  max_bytes: 1048575\n", "kvasir.yaml:2:", "at least 1048576"),
        ("inventory:\n\n  max_endpoint_bytes: 7\n", "kvasir.yaml:3:", "at least 65536"),
        ("inventory:\n  max_bytes: -1\n", "kvasir.yaml:2:", ""),
        ("inventory:\n  max_bytes: 4GiB\n", "kvasir.yaml:2:", ""),
        ("inventory:\n  max_bytes: 99999999999999999999999\n", "kvasir.yaml:2:", ""),
        ("inventory:\n  max_blocks: 1\n", "kvasir.yaml:2:", "max_bytes"),
    ] {
        let message = error(text);
        assert!(message.starts_with(place) && message.contains(why), "{text}: {message}");
    }
    let text = format!("{SMALL}inventory: {{max_bytes: 2000000, max_endpoint_bytes: 2000001}}");
    let message = error(&text);
    let wanted = "inventory.max_endpoint_bytes: must not be above `max_bytes` (2000000)";
    assert!(message.contains(wanted), "{message}");
    let text = format!("{SMALL}inventory: {{max_bytes: 2000000}}");
    assert_eq!(parse(&text).unwrap().inventory.endpoint_bytes(), 2_000_000);
}

#[test]
fn urls_are_checked() {
    for (url, why) in [
        ("https://a/v1", "no path"),
        ("a:8000", "no"),
        ("http://a/v1", "no path"),
        ("http://user:secret@a", "without a user"),
        ("http://a?key=secret", "without a user or a query"),
        ("http://a:", "port"),
        ("http://a:99999", "port"),
        ("http://", ""),
        ("ftp://a", "scheme `ftp`"),
    ] {
        let text = format!("pools:\n- model: m\n  endpoints:\n  - url: '{url}'\n");
        let message = error(&text);
        assert!(message.starts_with("kvasir.yaml:4:"), "{url}: {message}");
        assert!(message.contains(why), "{url}: {message}");
        assert!(!message.contains("secret"), "{url}: {message}");
    }
}

#[test]
fn values_that_do_not_fit_together_name_their_key() {
    for (text, wanted) in [
        ("{}", "pools: at least one pool"),
        ("pools: [{model: m, endpoints: []}]", "pools[0].endpoints: at least one"),
        ("pools: [{model: '', endpoints: [{url: 'http://a'}]}]", "pools[0].model: must not"),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a'}, {url: 'http://a'}]}]",
            "pools[0].endpoints[1].url: http://a is listed twice",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a', replay: 'tcp://a:1'}]}]",
            "pools[0].endpoints[0].events: is needed",
        ),
        (
            "pools: [{model: m, api_key: a, api_key_env: B, endpoints: [{url: 'http://a'}]}]",
            "pools[0].api_key: give one of",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a', events: 'tcp://a:1'}]},
                     {model: n, endpoints: [{url: 'http://a', events: 'tcp://a:2'}]}]",
            "pools[1].endpoints[0].events: http://a has another event stream",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a'}]},
                     {model: m, endpoints: [{url: 'http://b'}]}]",
            "pools[1].model: model `m` has two pools",
        ),
        (
            "pools: [{model: m, endpoints: [
                {url: 'http://a', events: 'tcp://*:7000', bind: true, topic: a},
                {url: 'http://b', events: 'tcp://*:7000', bind: true, topic: b},
                {url: 'http://c', events: 'tcp://*:7000', bind: true, topic: a}]}]",
            "pools[0].endpoints[2].topic: http://a connects there too",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a', events: poll, topic: kv}]}]",
            "pools[0].endpoints[0].events: `poll` goes without",
        ),
        (
            "pools: [{model: m, rank_addressing: url, endpoints: [{url: 'http://a'}]}]",
            "pools[0].endpoints[0].rank: is needed where `rank_addressing` is `url`",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a', rank: 1}]}]",
            "pools[0].endpoints[0].rank: has a meaning only",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a', ranks: 0}]}]",
            "pools[0].endpoints[0].ranks: must be from 1",
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a'}]},
                     {model: n, rank_addressing: header, endpoints: [{url: 'http://a'}]}]",
            "pools[1].endpoints[0].url: the ranks of http://a are told otherwise",
        ),
    ] {
        let message = error(text);
        assert!(message.contains(wanted), "{message}");
    }
    assert!(error(&format!("{SMALL}forward_paths: [x]")).contains("forward_paths[0]"));
    assert!(error(&format!("{SMALL}max_body_bytes: 0")).contains("max_body_bytes"));
}

#[test]
fn a_missing_key_or_file_is_named() {
    let text =
        "pools: [{model: m, api_key_env: KVASIR_TEST_UNSET, endpoints: [{url: 'http://a'}]}]";
    let message = parse(text).unwrap().pools[0].resolve_api_key().unwrap_err();
    assert!(message.0 == "api_key_env" && message.1.contains("KVASIR_TEST_UNSET"), "{message:?}");
    let missing = Config::load(std::path::Path::new("/nonexistent/kvasir.yaml")).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/kvasir.yaml"));
}

#[test]
fn broken_texts_are_errors_and_never_panics() {
    let whole = "pools:\n- model: \"m\"\n  endpoints: [{url: 'http://a', events: &x tcp://a}]\n";
    for end in 0..whole.len() {
        let _ = parse(&whole[..end]);
    }
    let _ = parse(&"[".repeat(100_000));
    let _ = parse("a: &a [*a, *a]");
}

fn with_identity(identity: &str) -> String {
    format!(
        "pools:\n  - model: m\n    endpoints: [{{url: 'http://a'}}]\n    identity: {identity}\n"
    )
}

#[test]
fn blocks_are_known_by_tokens_or_by_the_engines_hashes() {
    let identity = |text: &str| parse(&with_identity(text)).unwrap().pools[0].identity.clone();
    assert_eq!(parse(SMALL).unwrap().pools[0].identity, BlockIdentity::Tokens);
    assert_eq!(identity("tokens"), BlockIdentity::Tokens);
    let engine = |text: &str| match identity(&format!("{{engine: {{{text}}}}}")) {
        BlockIdentity::Engine(hashing) => {
            (hashing.algorithm.to_string(), hashing.seed, hashing.version.map(|v| v.to_string()))
        }
        BlockIdentity::Tokens => panic!("{text}"),
    };
    let told = |algorithm: &str, seed: Option<&str>, version: Option<&str>| {
        (algorithm.to_owned(), seed.map(str::to_owned), version.map(str::to_owned))
    };
    // The seed is a text: a number is taken as it is written.
    let found = engine("algorithm: xxhash, seed: 042, version: 0.20.2");
    assert_eq!(found, told("xxhash", Some("042"), Some("0.20.2")));
    assert_eq!(engine("algorithm: sha256_cbor"), told("sha256_cbor", None, None));
    assert_eq!(engine("algorithm: sha256_sglang"), told("sha256_sglang", None, None));
    assert_eq!(engine("algorithm: sha256, seed: ''"), told("sha256", Some(""), None));
}

#[test]
fn hashes_that_nobody_can_compute_are_refused_with_the_reason() {
    for (text, place, wanted) in [
        ("engine", "kvasir.yaml:4:", "engine"),
        ("hashes", "kvasir.yaml:4:", "tokens"),
        ("{engine: {algorithm: md5}}", "kvasir.yaml:4:", "sha256_cbor"),
        ("{engine: {algorithm: builtin}}", "kvasir.yaml:4:", "identity: tokens"),
        ("{engine: {algorithm: sha256, sed: '0'}}", "kvasir.yaml:4:", "seed"),
        ("{engine: {seed: '0'}}", "kvasir.yaml:4:", "algorithm"),
        ("{engine: {algorithm: sha256, version: new}}", "kvasir.yaml:4:", "version"),
        ("{engine: {algorithm: xxhash}}", "pools[0].identity.engine.seed", "PYTHONHASHSEED"),
        (
            "{engine: {algorithm: sha256, version: 0.20.2}}",
            "pools[0].identity.engine.seed",
            "in this version",
        ),
        ("{engine: {algorithm: sha256, seed: abc}}", "pools[0].identity.engine.seed", "integer"),
        (
            "{engine: {algorithm: xxhash, seed: '0', version: 0.12.0}}",
            "pools[0].identity.engine.algorithm",
            "0.12.0",
        ),
        (
            "{engine: {algorithm: sha256, seed: '0', version: 9.9.9}}",
            "pools[0].identity.engine.version",
            "9.9.9",
        ),
        (
            "{engine: {algorithm: sha256_sglang, seed: '0'}}",
            "pools[0].identity.engine.seed",
            "no seed",
        ),
        (
            "{engine: {algorithm: sha256_sglang, version: 0.4.0}}",
            "pools[0].identity.engine.version",
            "0.4",
        ),
    ] {
        let message = error(&with_identity(text));
        assert!(message.contains(place) && message.contains(wanted), "{text}: {message}");
    }
}

#[test]
fn pools_that_share_an_engine_know_its_blocks_in_one_way() {
    let two = |identity: &str| {
        format!(
            "pools:\n  - {{model: m, endpoints: [{{url: 'http://a'}}]}}\n  \
             - {{model: n, identity: {identity}, endpoints: [{{url: 'http://a'}}]}}\n"
        )
    };
    assert!(parse(&two("tokens")).is_ok());
    let message = error(&two("{engine: {algorithm: sha256}}"));
    for part in ["pools[1].identity", "`m`", "`n`", "http://a"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn decisions_are_logged_where_the_file_says_so() {
    assert_eq!(parse(SMALL).unwrap().decision_log, None);
    let with = |log: &str| format!("{SMALL}decision_log: {log}\n");
    let log = parse(&with("{directory: /var/log/kvasir}")).unwrap().decision_log.unwrap();
    assert_eq!((log.max_bytes, log.files), (256 << 20, 8));
    assert_eq!(log, DecisionLogConfig::at("/var/log/kvasir".into()));
    let log = parse(&with("{directory: d, max_bytes: 65536, files: 2}")).unwrap().decision_log;
    assert_eq!(log.map(|log| (log.max_bytes, log.files)), Some((65_536, 2)));
    for (log, wanted) in [
        ("{}", "kvasir.yaml:2:15: decision_log: `directory` is missing"),
        ("{directory: ''}", "the directory must not be empty"),
        ("{directory: d, max_bytes: 65535}", "65535 bytes are too few: at least 65536"),
        ("{directory: d, files: 1}", "1 files: from 2 to 10000 can be kept"),
        ("{directory: d, file: 2}", "unknown key `file`"),
    ] {
        let error = error(&with(log));
        assert!(error.contains(wanted), "no {wanted:?} in {error}");
    }
}

#[test]
fn conversations_are_named_in_places_in_order() {
    let pool =
        |keys: &str| format!("pools:\n- model: m\n  endpoints: [{{url: 'http://a'}}]\n{keys}");
    let config = parse(&pool("")).unwrap();
    assert_eq!(config.pools[0].sessions, SessionSource::defaults());
    let text = pool("  sessions: [{cookie: sid}, {body: user}, {header: X-Chat}]\n");
    let wanted = [
        SessionSource::Cookie("sid".to_owned()),
        SessionSource::Body(BodyName::User),
        SessionSource::Header("X-Chat".to_owned()),
    ];
    let config = parse(&text).unwrap();
    assert_eq!(config.pools[0].sessions, wanted);
    assert_eq!(config.pools[0].selection().sessions, wanted);
    for (list, wanted) in [
        ("[{header: X-Request-ID}]", "pools[0].sessions[0]: `X-Request-ID` is another one in each"),
        ("[{body: user}, {header: 'a b'}]", "pools[0].sessions[1]: \"a b\" is no name of a header"),
        ("[{body: user}, {body: user}]", "pools[0].sessions[1]: body field `user` is there twice"),
        ("[{header: authorization}]", "pools[0].sessions[0]: `authorization` is a secret"),
        ("[]", "pools[0].sessions: must have 1 to 16 entries"),
        ("[{body: messages}]", "kvasir.yaml:4:"),
        ("[{query: sid}]", "kvasir.yaml:4:"),
    ] {
        let message = error(&pool(&format!("  sessions: {list}\n")));
        assert!(message.contains(wanted), "{list}: {message}");
    }
}
