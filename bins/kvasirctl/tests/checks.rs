//! `kvasirctl parity-check` and `kvasirctl doctor`: the real binary against simulated engines.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kvasir_engine_sim::server::{SimServer, SimServerConfig};
use kvasir_engine_sim::{Algorithm, EngineConfig, Hashing};
use kvasir_kv_hash::vllm::Contract;
use kvasir_testkit::client::get;
use kvasir_testkit::engine::FakeEngine;
use serde_json::Value;

/// For everything that is waited for; a busy machine is slow.
const DEADLINE: Duration = Duration::from_secs(60);

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checks").join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// An engine with a tokenizer, events and replay.
async fn engine(max_model_len: u64) -> SimServer {
    let contract = Contract::new(EngineConfig::DEFAULT_VERSION, Algorithm::Sha256, Some("0"));
    let hashing = Hashing::Contract(contract.unwrap());
    let config = SimServerConfig {
        engine: EngineConfig { hashing, ..EngineConfig::default() },
        model: "tiny".to_owned(),
        root: Some(testdata("models/tiny")),
        max_model_len,
        faults: true,
        ..SimServerConfig::default()
    };
    SimServer::start(config).await.unwrap()
}

fn command(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasirctl"));
    command.args(args.split_whitespace()).env_remove("RUST_LOG");
    // No gateway of whoever runs the tests.
    command.env("HOME", "/nonexistent");
    for name in ["KVASIR_ADMIN", "KVASIR_CTL_CONFIG", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end, beside the engines of this process.
async fn run(args: &str) -> Output {
    let mut command = command(args);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The JSON printed by a run that ended so.
#[track_caller]
fn json(output: &Output, status: i32) -> Value {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{} {said}", text(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[track_caller]
fn leg<'a>(legs: &'a Value, name: &str) -> &'a Value {
    let legs = legs.as_array().unwrap();
    legs.iter().find(|leg| leg["leg"] == name).unwrap_or_else(|| panic!("no {name} in {legs:?}"))
}

/// Prompt tokens the engine ever computed or looked up.
async fn prompt_tokens(server: &SimServer) -> f64 {
    let address: SocketAddr = server.url().strip_prefix("http://").unwrap().parse().unwrap();
    let page = get(address, "/metrics").await.unwrap().text();
    let count = |line: &str| {
        let line = line.strip_prefix("vllm:prompt_tokens_total")?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    page.lines().filter_map(count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_sends_no_prompts_and_probing_does() {
    let server = engine(2048).await;
    let url = server.url();
    let read = json(&run(&format!("parity-check --base-url {url}/v1/ --json")).await, 3);
    assert_eq!(keys(&read), ["verdict", "endpoints", "across"]);
    assert_eq!(read["verdict"], "unknown");
    let endpoint = &read["endpoints"][0];
    assert_eq!(keys(endpoint), ["base_url", "engine", "verdict", "legs"]);
    assert_eq!(
        (&endpoint["base_url"], &endpoint["engine"]),
        (&url.as_str().into(), &"vllm 0.32.0".into())
    );
    assert_eq!(keys(&endpoint["legs"][0]), ["leg", "verdict", "finding", "remedy"]);
    for name in
        ["http", "engine", "models", "prefix_caching", "tokenizer", "chat_template", "metrics"]
    {
        assert_eq!(leg(&endpoint["legs"], name)["verdict"], "ok", "{read:#}");
    }
    assert_eq!(read["across"], Value::Array(Vec::new()));
    assert_eq!(prompt_tokens(&server).await, 0.0, "a prompt was sent without leave");

    let probed = json(&run(&format!("parity-check --base-url {url} --probe --json")).await, 0);
    assert_eq!(probed["verdict"], "ok", "{probed:#}");
    assert!(prompt_tokens(&server).await > 0.0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_tokenizer_is_the_leg_that_is_off() {
    let server = engine(2048).await;
    let other = scratch("other-tokenizer");
    for (from, file) in [
        ("chat-models/tokenizer.json", "tokenizer.json"),
        ("chat-models/granite/tokenizer_config.json", "tokenizer_config.json"),
        ("chat-models/granite/chat_template.jinja", "chat_template.jinja"),
    ] {
        fs::copy(testdata(from), other.join(file)).unwrap();
    }
    let args = format!("parity-check --base-url {} --tokenizer {}", server.url(), other.display());
    let output = run(&args).await;
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("off ")).collect();
    let names: Vec<&str> = lines.iter().filter_map(|l| l.split_whitespace().nth(1)).collect();
    assert_eq!(names, ["tokenizer", "chat_template"], "{printed}");
    assert!(lines[0].contains("parts at token") && lines[0].contains(" -> "), "{printed}");
    assert!(printed.starts_with(&format!("{}  vllm 0.32.0\n", server.url())), "{printed}");
    assert!(printed.lines().last().unwrap().starts_with("off: "), "{printed}");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_with_different_limits_are_found_out() {
    let (one, two) = (engine(2048).await, engine(4096).await);
    let args = format!("parity-check --base-url {} --base-url {} --json", one.url(), two.url());
    let found = json(&run(&args).await, 1);
    let urls: Vec<&Value> =
        found["endpoints"].as_array().unwrap().iter().map(|e| &e["base_url"]).collect();
    assert_eq!(urls, [&Value::from(one.url()), &Value::from(two.url())]);
    let limits = leg(&found["across"], "max_model_len");
    assert_eq!(limits["verdict"], "off");
    let finding = limits["finding"].as_str().unwrap();
    assert!(finding.contains("2048") && finding.contains(&two.url()), "{finding}");
    for name in ["versions", "base_models", "block_sizes"] {
        assert_eq!(leg(&found["across"], name)["verdict"], "ok", "{found:#}");
    }
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_end_with_2_and_dead_engines_with_1() {
    let config = scratch("bad-config").join("kvasir.yaml");
    fs::write(&config, "pools: [{model: a, endpoints: [{url: 'ftp://h'}]}]\n").unwrap();
    let pools = scratch("pools").join("kvasir.yaml");
    fs::write(&pools, "pools: [{model: a, endpoints: [{url: 'http://127.0.0.1:1'}]}]\n").unwrap();
    for (args, part) in [
        ("parity-check", "--base-url"),
        ("parity-check --base-url ftp://h:1", "ftp"),
        ("parity-check --base-url h:1", "http://host:port"),
        ("parity-check --base-url http://h:1 --base-url http://h:1/v1", "there twice"),
        (
            "parity-check --base-url http://a:1 --base-url http://b:1 --events tcp://a:2",
            "belong to one",
        ),
        ("parity-check --base-url http://a:1 --events udp://a:2", "--events"),
        ("parity-check --base-url http://a:1 --replay nonsense", "--replay"),
        ("parity-check --base-url http://a:1 --expect-algo zz", "sha256_cbor"),
        ("parity-check --base-url http://a:1 --ca-file /no/such", "no --base-url says https"),
        ("parity-check --base-url https://a:1 --ca-file /no/such", "/no/such"),
        ("parity-check --base-url http://a:1 --header nonsense", "NAME: VALUE"),
        ("parity-check --base-url http://a:1 --expect-seed abc", "PYTHONHASHSEED"),
        ("parity-check --base-url http://a:1 --tokenizer /no/such/place", "--tokenizer"),
        ("parity-check --base-url http://a:1 --expect-block-size 0", "--expect-block-size"),
        ("parity-check --base-url http://a:1 --watch 0", "--watch"),
        ("doctor", "--config"),
        ("doctor --config /no/such/file", "cannot read"),
        (&format!("doctor --config {}", config.display()), "scheme `ftp`"),
        (&format!("doctor --config {} --pool b", pools.display()), "the pools are a"),
    ] {
        let output = run(args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {said}");
        assert!(said.contains(part), "{args}: {said}");
        assert!(output.stdout.is_empty(), "{args}");
    }
    for args in ["--base-url http://u:secret@h:1", "--base-url http://h --header x-secret"] {
        let output = run(&format!("parity-check {args}")).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {said}");
        assert!(said.contains("invalid value for") && !said.contains("secret"), "{said}");
    }
    let dead = FakeEngine::start(Default::default()).await.unwrap();
    dead.stop().await.unwrap();
    let found = json(&run(&format!("parity-check --base-url {} --json", dead.url())).await, 1);
    assert_eq!(found["endpoints"][0]["engine"], Value::Null);
    assert!(found["endpoints"][0]["legs"][0]["remedy"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_goes_through_a_configuration() {
    let (one, two) = (engine(2048).await, engine(2048).await);
    let guarded = FakeEngine::start(Default::default()).await.unwrap();
    let staged = scratch("staged");
    fs::create_dir_all(staged.join("tiny")).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(testdata("models/tiny").join(file), staged.join("tiny").join(file)).unwrap();
    }
    let config = scratch("doctor").join("kvasir.yaml");
    let events = (one.events_endpoint().unwrap(), one.replay_endpoint().unwrap());
    let yaml = format!(
        "pools:\n\
         - model: tiny\n  tokenizer_dir: {}\n  endpoints:\n  \
           - {{url: '{}', events: '{}', replay: '{}'}}\n  - {{url: '{}'}}\n\
         - model: other\n  api_key: secret-key\n  endpoints: [{{url: '{}'}}]\n",
        staged.display(),
        one.url(),
        events.0,
        events.1,
        two.url(),
        guarded.url(),
    );
    fs::write(&config, yaml).unwrap();
    let args = format!("doctor --config {} --json", config.display());

    let output = run(&args).await;
    assert!(!text(&output.stdout).contains("secret-key"), "the key was printed");
    let found = json(&output, 1);
    assert_eq!(keys(&found), ["verdict", "pools"]);
    let pools = found["pools"].as_array().unwrap();
    assert_eq!(keys(&pools[0]), ["model", "verdict", "endpoints", "across"]);
    assert_eq!((&pools[0]["model"], &pools[1]["model"]), (&"tiny".into(), &"other".into()));
    assert_eq!(pools[0]["endpoints"].as_array().unwrap().len(), 2);
    assert_eq!(pools[0]["across"].as_array().unwrap().len(), 4);
    let tokenizer = leg(&pools[0]["endpoints"][0]["legs"], "tokenizer");
    assert!(tokenizer["finding"].as_str().unwrap().contains("(staged)"), "{tokenizer}");
    assert_eq!(leg(&pools[0]["endpoints"][0]["legs"], "events")["verdict"], "ok", "{found:#}");
    // The pool's model is not what that engine serves.
    assert_eq!(leg(&pools[1]["endpoints"][0]["legs"], "models")["verdict"], "off");
    let asked = guarded.info_requests();
    let key = |name: &str, value: &str| {
        asked.iter().all(|r| r.headers.get(name).is_some_and(|v| v.as_bytes() == value.as_bytes()))
    };
    assert!(!asked.is_empty() && key("authorization", "Bearer secret-key"), "{asked:?}");

    let tiny = json(&run(&format!("{args} --pool tiny --probe")).await, 0);
    assert_eq!(tiny["pools"].as_array().unwrap().len(), 1);
    let printed = text(&run(&args.replace(" --json", "")).await.stdout);
    for part in ["pool tiny\n", "pool other\n", "across the engines\n"] {
        assert!(printed.contains(part), "{printed}");
    }
    one.stop().await;
    two.stop().await;
}

/// A pool of one engine, and what is known of its blocks.
fn pool_of(name: &str, server: &SimServer, identity: &str) -> PathBuf {
    let config = scratch(name).join("kvasir.yaml");
    let yaml = format!(
        "pools:\n- model: tiny\n  identity: {identity}\n  endpoints:\n  \
           - {{url: '{}', events: '{}', replay: '{}'}}\n",
        server.url(),
        server.events_endpoint().unwrap(),
        server.replay_endpoint().unwrap(),
    );
    fs::write(&config, yaml).unwrap();
    config
}

/// The legs that are not `ok`, with what they say.
fn faults(found: &Value) -> Vec<(String, String, String)> {
    let legs = found["pools"][0]["endpoints"][0]["legs"].as_array().unwrap();
    let text = |leg: &Value, key: &str| leg[key].as_str().unwrap_or_default().to_owned();
    let bad = legs.iter().filter(|leg| leg["verdict"] != "ok");
    bad.map(|leg| {
        let said = format!("{} -> {}", text(leg, "finding"), text(leg, "remedy"));
        (text(leg, "leg"), text(leg, "verdict"), said)
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_believes_what_a_pool_says_of_its_engines_hashes() {
    let server = engine(2048).await;
    let right = pool_of("identity-right", &server, "{engine: {algorithm: sha256, seed: '0'}}");
    let found = run(&format!("doctor --config {} --probe --json", right.display())).await;
    assert_eq!(faults(&json(&found, 0)), []);
    for (name, identity, part) in [
        ("seed", "{engine: {algorithm: sha256, seed: '7'}}", "identity.engine.seed: '0'"),
        (
            "algorithm",
            "{engine: {algorithm: sha256_cbor, seed: '0'}}",
            "identity.engine.algorithm: sha256",
        ),
        ("engine", "{engine: {algorithm: sha256_sglang}}", "mismatch("),
    ] {
        let config = pool_of(&format!("identity-{name}"), &server, identity);
        let found = run(&format!("doctor --config {} --probe --json", config.display())).await;
        let faults = faults(&json(&found, 1));
        let (_, verdict, said) =
            faults.iter().find(|(leg, ..)| leg == "hash_contract").unwrap_or_else(|| {
                panic!("{name}: the pool's identity is not the engine's, and the doctor found {faults:?}")
            });
        assert_eq!(verdict, "off", "{name}: {said}");
        assert!(said.contains(part) && !said.contains("--expect"), "{name}: {said}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_judges_events_without_tokens_by_the_pools_identity() {
    let contract = Contract::new(EngineConfig::DEFAULT_VERSION, Algorithm::Sha256Cbor, Some("0"));
    let hashing = Hashing::Contract(contract.unwrap());
    let config = SimServerConfig {
        engine: EngineConfig { hashing, ..EngineConfig::default() },
        model: "tiny".to_owned(),
        root: Some(testdata("models/tiny")),
        event_tokens: false,
        hash_algorithm: "sha256_cbor".to_owned(),
        ..SimServerConfig::default()
    };
    let server = SimServer::start(config).await.unwrap();
    let right = "{engine: {algorithm: sha256_cbor, seed: '0'}}";
    let right = pool_of("no-tokens-right", &server, right);
    let found = json(&run(&format!("doctor --config {} --probe --json", right.display())).await, 0);
    let contract = leg(&found["pools"][0]["endpoints"][0]["legs"], "hash_contract");
    assert!(contract["finding"].as_str().unwrap().contains("events have no tokens"), "{contract}");

    for (name, identity, leg, part) in [
        ("seed", "{engine: {algorithm: sha256_cbor, seed: '7'}}", "hash_contract", "another"),
        ("tokens", "tokens", "wire", "without tokens, by which"),
    ] {
        let config = pool_of(&format!("no-tokens-{name}"), &server, identity);
        let found = run(&format!("doctor --config {} --probe --json", config.display())).await;
        let faults = faults(&json(&found, 1));
        let said = faults.iter().find(|(found, ..)| found == leg);
        assert!(said.is_some_and(|said| said.1 == "off" && said.2.contains(part)), "{faults:?}");
    }
    server.stop().await;
}

/// A command that goes on, and the lines it prints.
struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    fn start(args: &str) -> Self {
        let mut child = command(args).spawn().unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// Lines up to the first one that contains `part`.
    fn until(&self, part: &str) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            let line = self.lines.recv_timeout(DEADLINE);
            seen.push(line.unwrap_or_else(|_| panic!("no {part:?} after {seen:#?}")));
            if seen.last().is_some_and(|line| line.contains(part)) {
                return seen;
            }
        }
    }

    fn interrupt(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_prints_what_changes() {
    let engine = FakeEngine::start(Default::default()).await.unwrap();
    let url = engine.url();
    let args = format!("parity-check --base-url {url} --patience 1 --watch 1");
    let watching = Watching::start(&args);
    let json = Watching::start(&format!("{args} --json"));
    let first = watching.until("off: ");
    assert!(first.iter().any(|line| line.starts_with("ok       http ")), "{first:#?}");
    assert_eq!(watching.until("nothing changed").len(), 1, "an unchanged round is one line");
    let whole: Value = serde_json::from_str(&json.until("endpoints")[0]).unwrap();
    assert_eq!(keys(&whole), ["at", "verdict", "endpoints", "across"]);

    engine.stop().await.unwrap();
    let refused = watching.until("cannot connect");
    let line = refused.last().unwrap();
    assert!(line.contains(&format!("Z  {url}  off      http ")), "{line}");
    assert!(watching.until("off: ").last().unwrap().contains("1 leg changed"));
    json.until("cannot connect");

    assert_eq!(watching.interrupt(), Some(1));
    assert_eq!(json.interrupt(), Some(1));
}
