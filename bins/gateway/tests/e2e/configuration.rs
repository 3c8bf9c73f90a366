//! What is wrong with a configuration is said at once, with its place.

use std::net::TcpListener;

use serde_json::json;

use crate::harness::{ConfigFile, Gateway, run_to_end};

const BAD_CONFIG: Option<i32> = Some(78);
const BAD_USAGE: Option<i32> = Some(2);

/// Runs with this file; its exit status, and standard error with the file's name taken out.
async fn run(text: &str) -> (Option<i32>, String) {
    let file = ConfigFile::new(text);
    let path = file.path().to_str().unwrap();
    let (status, stderr) = run_to_end(["--config", path]).await;
    (status, stderr.replace(path, "FILE"))
}

#[tokio::test]
async fn a_mistake_in_the_file_is_located_and_what_is_allowed_is_said() {
    for (text, wanted) in [
        ("pools:\n  - model: m\n", &["FILE:2:5", "endpoints"][..]),
        ("pools: [\n", &["FILE:"]),
        (
            "pools:\n  - model: m\n    policy: fastest\n    endpoints: []\n",
            &["FILE:3:", "fastest", "`latency`", "`precise_cache_aware`", "`round_robin`"],
        ),
        ("pools: []\nlisten_on: 1.2.3.4:5\n", &["FILE:2:1", "listen_on", "decision_headers"]),
        ("pools:\n  - model: m\n    endpoint: []\n", &["FILE:3:5", "`endpoint`", "endpoints"]),
        ("listen: nowhere\n", &["FILE:1:9"]),
        ("log: {format: xml}\n", &["FILE:1:", "xml", "text", "json"]),
        (
            "pools:\n  - model: m\n    endpoints:\n      - url: ftp://a:1\n",
            &["FILE:4:14", "ftp", "http://host:port"],
        ),
        (
            "pools: [{model: m, endpoints: [{url: 'http://a', events: 'http://a:1'}]}]",
            &["FILE:1:58: pools[0].endpoints[0].events:", "neither tcp:// nor ipc://"],
        ),
        (
            "decision_log: {directory: /tmp, max_bytes: 1000}\n",
            &["FILE:1:", "1000 bytes are too few: at least 65536"],
        ),
        ("decision_log: {files: 3}\n", &["FILE:1:", "directory"]),
        ("{}", &["FILE: pools: at least one"]),
        ("pools: [{model: m, endpoints: []}]", &["FILE:1:31: pools[0].endpoints: at least one"]),
    ] {
        let (status, stderr) = run(text).await;
        assert_eq!(status, BAD_CONFIG, "{text}: {stderr}");
        for part in wanted {
            assert!(stderr.contains(part), "no {part:?} for {text:?} in: {stderr}");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_not_there_is_a_bad_configuration() {
    let pool = "endpoints: [{url: 'http://127.0.0.1:9'}]";
    for (key, wanted) in [
        ("api_key_env: KVASIR_E2E_UNSET", "KVASIR_E2E_UNSET"),
        ("api_key_file: /nonexistent/key", "/nonexistent/key"),
        ("api_key: \"two\\nlines\"", "API key"),
    ] {
        let (status, stderr) =
            run(&format!("listen: 127.0.0.1:0\npools: [{{model: m, {key}, {pool}}}]")).await;
        assert_eq!(status, BAD_CONFIG, "{key}: {stderr}");
        assert!(
            stderr.contains(wanted) && stderr.contains("FILE:2:") && stderr.contains("pools[0]"),
            "{key}: {stderr}"
        );
        assert!(!stderr.contains("lines"), "a key is never shown: {stderr}");
    }
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let (status, stderr) = run_to_end(["--config", "/nonexistent/kvasir.yaml"]).await;
    assert_eq!(status, BAD_CONFIG);
    assert!(stderr.contains("/nonexistent/kvasir.yaml"), "{stderr}");
}

#[tokio::test]
async fn wrong_arguments_are_refused_with_the_reason() {
    for (args, wanted) in [
        (&["ftp://127.0.0.1:1"][..], "scheme `ftp`"),
        (&["127.0.0.1:8000"], "127.0.0.1:8000"),
        (&["http://127.0.0.1:1/v1"], "no path"),
        (&[], "URL"),
        (&["http://127.0.0.1:1", "--config", "x.yaml"], "cannot be used with"),
        (&["http://127.0.0.1:1", "--policy", "fastest"], "`latency`"),
        (&["http://127.0.0.1:1", "--listen", "here"], "here"),
        (&["http://127.0.0.1:1", "--no-such-flag"], "--no-such-flag"),
    ] {
        let (status, stderr) = run_to_end(args).await;
        assert_eq!(status, BAD_USAGE, "{args:?}: {stderr}");
        assert!(stderr.contains(wanted), "{args:?}: {stderr}");
    }
    let (status, stderr) =
        run_to_end(["http://127.0.0.1:1", "--tokenizer-dir", "/nonexistent"]).await;
    assert_eq!(status, BAD_CONFIG);
    assert!(stderr.contains("/nonexistent"), "{stderr}");
    // In a file it is the same, with its place.
    let pool = "model: m, tokenizer_dir: /nonexistent, endpoints: [{url: 'http://127.0.0.1:9'}]";
    let (status, stderr) = run(&format!("listen: 127.0.0.1:0\npools: [{{{pool}}}]")).await;
    assert_eq!(status, BAD_CONFIG, "{stderr}");
    for part in ["FILE:2:35", "pools[0].tokenizer_dir", "/nonexistent"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[tokio::test]
async fn paths_that_open_the_engines_administration_are_warned_of() {
    let config = json!({"listen": "127.0.0.1:0", "forward_paths": ["/v1/audio/*", "/*"],
        "pools": [{"model": "m", "endpoints": [{"url": "http://127.0.0.1:9"}]}]});
    let gateway = Gateway::start(config).await;
    let is_it = |line: &str| line.contains("administrative") && line.contains("WARN");
    let line = gateway.line("a warning", is_it).await;
    assert!(line.contains("/*") && line.contains("/sleep"), "{line}");
    assert!(!gateway.log_text().contains("/v1/audio/"), "{}", gateway.log_text());
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (status, stderr) = run_to_end(["http://127.0.0.1:9", "--listen", &address]).await;
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains(&address), "{stderr}");
}

#[tokio::test]
async fn a_decision_log_that_cannot_be_written_is_a_bad_configuration() {
    let pool = "pools: [{model: m, endpoints: [{url: 'http://127.0.0.1:9'}]}]";
    // A file cannot hold others, whoever asks.
    let file = ConfigFile::new("");
    let directory = file.path().join("log");
    let (status, stderr) =
        run(&format!("{pool}\ndecision_log: {{directory: '{}'}}", directory.display())).await;
    assert_eq!(status, BAD_CONFIG, "{stderr}");
    let wanted = format!("decision_log.directory: {}: Not a directory", directory.display());
    assert!(stderr.contains(&wanted), "{stderr}");
}
