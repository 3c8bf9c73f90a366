//! Every kind of fault in a configuration has file, line, column and key, and says what is wrong in one
//! sentence.

use std::process::Command;

use crate::harness::ConfigFile;

/// The rest of a file with one sound pool.
const POOL: &str = "pools: [{model: m, endpoints: [{url: 'http://127.0.0.1:9'}]}]\n";

/// A file with this in it, and all that `check` says of it; the file's name is `FILE`.
fn said(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> String {
    let file = ConfigFile::new(text);
    let path = file.path().to_str().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-gateway"));
    command.args(["check", "--config", path]).args(flags).env_clear();
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{text}: {error}");
    let error = error.replace(path, "FILE");
    let line = error.strip_prefix("kvasir-gateway: ").and_then(|line| line.strip_suffix('\n'));
    line.unwrap_or_else(|| panic!("{text}: {error}")).to_owned()
}

/// In the sections of a whole file, from its second line on.
const OF_FILES: &[(&str, &str)] = &[
    (
        "listen: here",
        "FILE:2:9: listen: `here` is no address to listen on (host:port, such as 127.0.0.1:8080, [::1]:8080 or localhost:8080): it has no port",
    ),
    ("listen: ['a:1']", "FILE:2:9: listen: must be a text"),
    ("max_body_bytes: 0", "FILE:2:17: max_body_bytes: must be from 1 to 17179869184"),
    ("max_body_bytes: many", "FILE:2:17: max_body_bytes: must be a whole number from 0 on"),
    ("shutdown_grace_s: 1.5", "FILE:2:19: shutdown_grace_s: must be a whole number from 0 on"),
    ("shutdown_grace_s: 90000", "FILE:2:19: shutdown_grace_s: must be from 0 to 86400"),
    ("decision_headers: maybe", "FILE:2:19: decision_headers: must be `true` or `false`"),
    ("max_body_bytes: 1\nmax_body_bytes: 2", "FILE:3:1: `max_body_bytes` is there twice"),
    (
        "timeouts:\n  connect_ms: 0",
        "FILE:3:15: timeouts.connect_ms: must be from 1 to 86400000 (a day)",
    ),
    (
        "forward_paths: [/v1/audio/*, '/v1/*/x']",
        "FILE:2:30: forward_paths[1]: `*` may stand at the end only: what precedes it is a prefix",
    ),
    ("forward_paths: [v1]", "FILE:2:17: forward_paths[0]: must begin with `/`"),
    ("forward_paths: ['/a?b=*']", "FILE:2:17: forward_paths[0]: is a path, without `?` and `#`"),
    ("forward_paths: /v1/*", "FILE:2:16: forward_paths: must be a list"),
    (
        "log: {level: 'a=b=c'}",
        "FILE:2:14: log.level: `a=b=c` is no filter such as `info` or `info,kvasir_fleet=debug`: expected one of \"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a number 0-5",
    ),
    (
        "log: {format: xml}",
        "FILE:2:15: log.format: unknown value `xml`, expected one of text, json",
    ),
    (
        "log: {fromat: json}",
        "FILE:2:7: log: unknown key `fromat`, did you mean `format`? expected one of format, level",
    ),
    (
        "api_keys_file: /nonexistent/keys",
        "FILE:2:16: api_keys_file: /nonexistent/keys: No such file or directory (os error 2)",
    ),
    (
        "api_keys_env: KVASIR_UNSET",
        "FILE:2:15: api_keys_env: `KVASIR_UNSET`: there is no such environment variable",
    ),
    (
        "decision_headers_token_env: KVASIR_UNSET",
        "FILE:2:29: decision_headers_token_env: `KVASIR_UNSET`: there is no such environment variable",
    ),
    (
        "admin: {read_token_env: KVASIR_UNSET}",
        "FILE:2:25: admin.read_token_env: `KVASIR_UNSET`: there is no such environment variable",
    ),
    (
        "admin: {listen: '0.0.0.0:1'}",
        "FILE:2:8: admin.read_token: is needed where `listen` is no loopback address: `read_token_env` or `read_token_file`",
    ),
    (
        "admin: {listen: 'no-such-host.invalid:1', read_token: long-enough}",
        "FILE:2:17: admin.listen: cannot listen on `no-such-host.invalid:1`",
    ),
    (
        "listener: {idle_timeout_s: 0}",
        "FILE:2:28: listener.idle_timeout_s: must be from 1 to 86400",
    ),
    (
        "listener: {tls: {cert_file: /nonexistent/c, key_file: k}}",
        "FILE:2:17: listener.tls: cannot read /nonexistent/c: No such file or directory (os error 2)",
    ),
    (
        "tracing: {otlp_endpoint: c}",
        "FILE:2:26: tracing.otlp_endpoint: `c` is not a collector's URL (such as http://collector:4318): it has no scheme",
    ),
    (
        "decision_log: {directory: d, files: 1}",
        "FILE:2:37: decision_log.files: 1 files: from 2 to 10000 can be kept",
    ),
    (
        "controller: {address: 'c:1', token_env: KVASIR_UNSET}",
        "FILE:2:41: controller.token_env: `KVASIR_UNSET`: there is no such environment variable",
    ),
    (
        "controller: {address: 'c:1', tls: {ca_file: /nonexistent/ca}}",
        "FILE:2:35: controller.tls: ca_file: cannot read /nonexistent/ca: No such file or directory (os error 2)",
    ),
    ("inventory: 5", "FILE:2:12: inventory: must be a map"),
    ("polcies: 1", "FILE:2:1: unknown key `polcies`"),
];

/// In a pool on the first line.
const OF_POOLS: &[(&str, &str)] = &[
    (
        "api_key_env: KVASIR_UNSET",
        "FILE:1:33: pools[0].api_key_env: `KVASIR_UNSET`: there is no such environment variable",
    ),
    (
        "api_key_file: /nonexistent/k",
        "FILE:1:34: pools[0].api_key_file: /nonexistent/k: No such file or directory (os error 2)",
    ),
    ("api_key: \"two\\nlines\"", "FILE:1:29: pools[0].api_key: the API key is no header value"),
    (
        "tokenizer_dir: /nonexistent/t",
        "FILE:1:35: pools[0].tokenizer_dir: /nonexistent/t: No such file or directory (os error 2)",
    ),
    ("sticky: {idle_s: 0}", "FILE:1:37: pools[0].sticky.idle_s: must be from 1 to 2592000"),
    ("sticky: 5", "FILE:1:28: pools[0].sticky: must be a map"),
    (
        "policy: {name: latency, alpha: 1}",
        "FILE:1:44: pools[0].policy: unknown key `alpha`: none is expected here",
    ),
    ("policy: fastest", "FILE:1:28: pools[0].policy: unknown policy `fastest`"),
    (
        "policy: {name: chwbl, load_factor_percent: 9999}",
        "FILE:1:63: pools[0].policy.load_factor_percent: must be from 0 to 1000",
    ),
    (
        "engine_tls: {ca_file: /nonexistent/ca}",
        "FILE:1:32: pools[0].engine_tls: no endpoint of the pool has an `https` URL",
    ),
    (
        "admission: {max_requests: 0}",
        "FILE:1:46: pools[0].admission.max_requests: must be from 1 to 1000000",
    ),
    (
        "disaggregation: {select: {}}",
        "FILE:1:46: pools[0].disaggregation.select: must be one word, or a map of one word and its options",
    ),
    ("api_key_env: ''", "FILE:1:33: pools[0].api_key_env: must not be empty"),
    ("tokenizer_dir: ''", "FILE:1:35: pools[0].tokenizer_dir: must not be empty"),
    ("aliases: m", "FILE:1:29: pools[0].aliases: must be a list"),
];

/// In an endpoint of its own line.
const OF_ENDPOINTS: &[(&str, &str)] = &[
    (
        "events: 'http://a:1'",
        "FILE:4:14: pools[0].endpoints[0].events: endpoint \"http://a:1\" is neither tcp:// nor ipc://",
    ),
    ("weight: 10001", "FILE:4:14: pools[0].endpoints[0].weight: must be from 0 to 10000"),
    (
        "weight: heavy",
        "FILE:4:14: pools[0].endpoints[0].weight: must be a whole number from 0 to 4294967295",
    ),
    ("ranks: 0", "FILE:4:13: pools[0].endpoints[0].ranks: must be from 1 to 1024"),
    (
        "state: off",
        "FILE:4:13: pools[0].endpoints[0].state: unknown value `off`, expected one of active, drain, disabled",
    ),
    (
        "bind: true",
        "FILE:3:15: pools[0].endpoints[0].events: is needed where `replay` or `bind` is given",
    ),
];

/// Whether it is the message, or as much of it as is told; always with the place.
#[track_caller]
fn is_as_wanted(text: &str, seen: &str, wanted: &str) {
    assert!(seen.starts_with("FILE:"), "{text}: {seen}");
    if wanted.is_empty() {
        return;
    }
    // Long lists of what is expected are not repeated here.
    let is_list = wanted.ends_with('`');
    assert!(
        if is_list { seen.starts_with(wanted) } else { seen == wanted },
        "{text}:\n{seen}\n{wanted}"
    );
    for internal in ["DuplicateKeyPolicy", "invalid u", "invalid socket", "variant", "scalar"] {
        assert!(!seen.contains(internal), "{seen}");
    }
}

#[test]
fn what_is_wrong_in_a_section_has_its_place() {
    for (text, wanted) in OF_FILES {
        is_as_wanted(text, &said(&format!("{POOL}{text}\n"), &[], &[]), wanted);
    }
}

#[test]
fn what_is_wrong_in_a_pool_has_its_place() {
    let rest = "endpoints: [{url: 'http://127.0.0.1:9'}]";
    for (text, wanted) in OF_POOLS {
        is_as_wanted(
            text,
            &said(&format!("pools: [{{model: m, {text}, {rest}}}]\n"), &[], &[]),
            wanted,
        );
    }
}

#[test]
fn what_is_wrong_in_an_endpoint_has_its_place() {
    for (text, wanted) in OF_ENDPOINTS {
        let text = format!(
            "pools:\n- model: m\n  endpoints: [{{url: 'http://127.0.0.1:9',\n     {text}}}]\n"
        );
        is_as_wanted(&text, &said(&text, &[], &[]), wanted);
    }
}

#[test]
fn a_text_that_is_no_yaml_has_its_place() {
    for (text, place) in
        [("pools: [\n", "FILE:1:8: "), ("log: {}\n  b: 2\n", "FILE:2:"), ("{", "FILE:1:")]
    {
        let seen = said(text, &[], &[]);
        assert!(seen.starts_with(place), "{text:?}: {seen}");
    }
}

#[test]
fn who_said_it_last_is_named() {
    for (variable, value, wanted) in [
        ("KVASIR_LISTEN", "here", "KVASIR_LISTEN: `here` is no address to listen on"),
        ("KVASIR_LOG_LEVEL", "a=b=c", "KVASIR_LOG_LEVEL: `a=b=c` is no filter"),
        (
            "KVASIR_MAX_BODY_BYTES",
            "1k",
            "KVASIR_MAX_BODY_BYTES: `1k` is not a whole number from 0 to",
        ),
        (
            "KVASIR_TOKENIZER_DIR",
            "/nonexistent/t",
            "KVASIR_TOKENIZER_DIR: /nonexistent/t: No such file",
        ),
    ] {
        let seen = said(POOL, &[(variable, value)], &[]);
        assert!(seen.starts_with(wanted), "{seen}");
    }
    let seen = said(POOL, &[], &["--listen", "no-such-host.invalid:1"]);
    assert!(seen.starts_with("--listen: cannot listen on `no-such-host.invalid:1`: "), "{seen}");
}
