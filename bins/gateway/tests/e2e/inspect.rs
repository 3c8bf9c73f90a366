//! `check`, `config print` and `config schema`, and the environment on top of the file.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::ConfigFile;

const POOL: &str = "pools: [{model: m, endpoints: [{url: 'http://127.0.0.1:9'}]}]\n";

fn run(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasir-gateway"));
    command.args(args).env_clear().envs(variables.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn every_example_passes() {
    let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    let mut checked = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        let (status, said, error) = run(&["check", "--config", path.to_str().unwrap()], &[]);
        assert_eq!(status, Some(0), "{path:?}: {error}");
        assert!(said.contains(": ok\nclients: ") && said.contains("\npool `"), "{said}");
        checked += 1;
    }
    assert!(checked >= 5, "{checked}");
}

#[test]
fn a_pool_of_one_side_passes_with_a_warning() {
    let text = "pools:\n- {model: m, endpoints: [{url: 'http://127.0.0.1:9', role: prefill}]}\n";
    let file = ConfigFile::new(text);
    let (status, said, error) = run(&["check", "--config", file.path().to_str().unwrap()], &[]);
    assert_eq!(status, Some(0), "{error}");
    assert!(said.contains("\nwarning: pool `m`: no decode endpoint: "), "{said}");
}

#[test]
fn what_serve_would_refuse_check_refuses() {
    for (text, wanted) in [
        ("polcies: 1\n", "FILE:1:1: unknown key `polcies`"),
        ("{}", "FILE: pools: at least one"),
        ("api_keys_file: /nonexistent/keys\n", "api_keys_file: /nonexistent/keys"),
        (
            "decision_headers_token_env: KVASIR_E2E_UNSET\n",
            "decision_headers_token_env: `KVASIR_E2E",
        ),
        ("admin: {write_token_file: /nonexistent/t}\n", "admin.write_token_file: /nonexistent/t"),
        ("listener: {tls: {cert_file: /nonexistent/c, key_file: k}}\n", "/nonexistent/c"),
        ("log: {level: 'a=b=c'}\n", "log.level"),
    ] {
        let text = if text == "{}" { text.to_owned() } else { format!("{text}{POOL}") };
        let file = ConfigFile::new(&text);
        let path = file.path().to_str().unwrap();
        let (status, said, error) = run(&["check", "--config", path], &[]);
        assert_eq!((status, said.as_str()), (Some(78), ""), "{text}");
        assert!(error.replace(path, "FILE").contains(wanted), "{text}: {error}");
    }
    let (status, _, error) = run(&["check"], &[]);
    assert_eq!(status, Some(2), "{error}");
    assert!(error.contains("--config FILE"), "{error}");
}

#[test]
fn a_directory_for_decisions_is_not_made_by_looking() {
    let directory = std::env::temp_dir().join(format!("kvasir-check-{}", std::process::id()));
    let file = ConfigFile::new(&format!("{POOL}decision_log: {{directory: {directory:?}}}\n"));
    let (status, _, error) = run(&["check", "--config", file.path().to_str().unwrap()], &[]);
    assert_eq!(status, Some(0), "{error}");
    assert!(!directory.exists());
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let file = ConfigFile::new(&format!("{POOL}listen: 127.0.0.1:1\napi_keys: [hush-hush]\n"));
    let path = file.path().to_str().unwrap();
    let listens = |args: &[&str], variables: &[(&str, &str)]| {
        let (status, said, error) = run(&[&["config", "print"], args].concat(), variables);
        assert_eq!(status, Some(0), "{error}");
        assert!(!said.contains("hush-hush"), "{said}");
        let line = said.lines().find_map(|line| line.strip_prefix("listen: ")).unwrap();
        line.trim_matches(['"', '\'']).to_owned()
    };
    let named = [("KVASIR_CONFIG", path)];
    let both = [("KVASIR_CONFIG", path), ("KVASIR_LISTEN", "127.0.0.1:2")];
    assert_eq!(listens(&[], &[]), "127.0.0.1:8080");
    assert_eq!(listens(&["--config", path], &[]), "127.0.0.1:1");
    assert_eq!(listens(&[], &named), "127.0.0.1:1");
    assert_eq!(listens(&[], &both), "127.0.0.1:2");
    assert_eq!(listens(&["--listen", "127.0.0.1:3"], &both), "127.0.0.1:3");
}

#[test]
fn a_bad_variable_is_a_bad_configuration_and_named() {
    let file = ConfigFile::new(POOL);
    let path = file.path().to_str().unwrap();
    for (name, value) in [
        ("KVASIR_LISTEN", "here"),
        ("KVASIR_LOG_LEVEL", "a=b=c"),
        ("KVASIR_SHUTDOWN_GRACE_S", "-1"),
    ] {
        for command in ["check", "serve"] {
            let (status, _, error) = run(&[command, "--config", path], &[(name, value)]);
            assert_eq!(status, Some(78), "{name}: {error}");
            assert!(error.contains(&format!("kvasir-gateway: {name}")), "{error}");
        }
    }
    let (_, said, _) = run(
        &["check", "--config", path],
        &[("KVASIR_POLICY", "ttft"), ("LOXILB_KV_LOAD_PENALTY", "7")],
    );
    assert!(said.contains("environment: KVASIR_POLICY sets pools[].policy\n"), "{said}");
    assert!(said.contains("LOXILB_KV_LOAD_PENALTY has no effect: no pool has"), "{said}");
}

#[test]
fn the_schema_is_the_published_one() {
    let (status, said, _) = run(&["config", "schema"], &[]);
    assert_eq!(status, Some(0));
    assert_eq!(said, include_str!("../../../../docs/config-schema.json"));
    let schema: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(schema["title"], "kvasir-gateway");
}
