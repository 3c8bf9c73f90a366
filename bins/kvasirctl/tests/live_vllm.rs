//! `kvasirctl` against a real vLLM server; run on purpose, see `docs/live-vllm.md`:
//!
//!     KVASIR_LIVE_VLLM='...' cargo test -p kvasirctl --test live_vllm -- \
//!         --ignored --nocapture --test-threads 1

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test may stop at once, and prints numbers for whoever runs it"
)]

#[path = "live/shapes.rs"]
mod shapes;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use kvasir_kv_hash::{Engine, Spec};
use kvasir_testkit::client;
use kvasir_testkit::live::LiveServer;
use serde_json::{Value, json};

/// Requests whose ids and hashes are compared.
const REQUESTS: usize = 300;

fn kvasirctl(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasirctl"));
    command.args(args).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Value {
    let Output { status, stdout, stderr } = kvasirctl(args).output().unwrap();
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).unwrap_or_default()
}

fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

fn as_str(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A server, and what it says of itself.
struct Live {
    server: LiveServer,
    version: String,
    algorithm: String,
    block_size: usize,
    /// The model's directory.
    root: String,
}

impl Live {
    async fn start() -> Self {
        let logs = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let mut server = LiveServer::start(&["--enable-prompt-tokens-details"], logs).unwrap();
        let took = server.until_up().await;
        let get = async |path: &str| client::get(server.addr(), path).await.unwrap();
        let version = get("/version").await.json()["version"].as_str().unwrap().to_owned();
        let page = get("/metrics").await.text();
        let info = page.lines().find(|line| line.starts_with("vllm:cache_config_info{")).unwrap();
        let label = |name: &str| -> String {
            let begins = [format!("{{{name}=\""), format!(",{name}=\"")];
            let rest = begins.iter().find_map(|begin| Some(info.split_once(begin.as_str())?.1));
            rest.unwrap().split('"').next().unwrap().to_owned()
        };
        let (algorithm, block_size) = (label("prefix_caching_hash_algo"), label("block_size"));
        let root = get("/v1/models").await.json()["data"][0]["root"].as_str().unwrap().to_owned();
        println!("vLLM {version}, {algorithm}, blocks of {block_size}, up after {took:?}");
        let block_size = block_size.parse().unwrap();
        Self { server, version, algorithm, block_size, root }
    }

    fn hashes(&self, tokens: &[u32]) -> Vec<u64> {
        let spec = Spec {
            engine: Engine::Vllm,
            version: &self.version,
            algorithm: &self.algorithm,
            seed: Some("0"),
            block_size: self.block_size,
        };
        spec.blocks().unwrap().append(tokens).to_vec()
    }

    async fn post(&self, path: &str, body: &Value) -> client::Response {
        client::post(self.server.addr(), path, body.to_string().as_bytes()).await.unwrap()
    }

    /// Our own ids of a request of one prompt; `Err` with the reason where they are not exact.
    fn own_ids(&self, path: &str, body: &Value) -> Result<Vec<u32>, String> {
        let file = scratch("live-body.json");
        std::fs::write(&file, body.to_string()).unwrap();
        let args = ["tokenize", "--json", "--model-dir", &self.root, "--path", path, "--body"];
        let found = run(&[&args[..], &[as_str(&file)]].concat());
        if found["level"] != "tokens" {
            return Err(found.to_string());
        }
        assert_eq!(found["prompts"].as_array().unwrap().len(), 1);
        Ok(ids(&found["prompts"][0]["token_ids"]))
    }
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Listens until it is told to stop.
struct Recorder(Child, PathBuf);

impl Recorder {
    fn start(live: &Live, name: &str) -> Self {
        let out = scratch(name);
        let args = ["record", "--base-url", &live.server.url(), "--out", as_str(&out)];
        Self(kvasirctl(&args).spawn().unwrap(), out)
    }

    /// The hashes of all blocks stored, as soon as `wanted` are among them or ten seconds are over.
    fn stored(mut self, wanted: &HashSet<u64>) -> HashSet<u64> {
        let begun = std::time::Instant::now();
        let read = || -> HashSet<u64> {
            let text = std::fs::read_to_string(&self.1).unwrap_or_default();
            let all = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            all.filter(|line| line["kind"] == "frames").flat_map(|line| stored(&line)).collect()
        };
        while !wanted.is_subset(&read()) && begun.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let interrupted = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        assert!(interrupted.unwrap().success());
        assert!(self.0.wait().unwrap().success());
        read()
    }
}

/// The hashes of the blocks that one recorded message stores.
fn stored(line: &Value) -> Vec<u64> {
    let events = line["decoded"]["payload"][1].as_array().cloned().unwrap_or_default();
    let hashes = events.iter().flat_map(|event| {
        let is_store = event["type"] == "BlockStored" || event[0] == "BlockStored";
        let list = if event.is_array() { &event[1] } else { &event["block_hashes"] };
        list.as_array().filter(|_| is_store).cloned().unwrap_or_default()
    });
    hashes.map(|hash| hash.as_u64().unwrap()).collect()
}

#[ignore = "needs a real vLLM server"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_and_hashes_of_every_shape_are_the_engines() {
    let live = Live::start().await;
    let recorder = Recorder::start(&live, "live-listening.jsonl");
    let mut refused: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let (mut served, mut asked, mut blocks) = (BTreeMap::<&str, usize>::new(), 0, 0);
    let (mut hashes, mut wrong) = (Vec::new(), Vec::new());
    for (path, body) in shapes::requests(REQUESTS) {
        let answer = live.post(path, &body).await;
        if answer.status != 200 {
            let known = refused.entry(format!("{path} {}", answer.status)).or_default();
            *known = (known.0 + 1, answer.text().chars().take(200).collect());
            continue;
        }
        let own = match live.own_ids(path, &body) {
            Ok(own) => own,
            Err(why) => {
                wrong.push(format!("{path} {body}: not exact: {why}"));
                continue;
            }
        };
        *served.entry(path).or_default() += 1;
        if let Some(question) = shapes::to_tokenize(path, &body) {
            let told = live.post("/tokenize", &question).await;
            assert_eq!(told.status, 200, "{}", told.text());
            asked += 1;
            if ids(&told.json()["tokens"]) != own {
                wrong.push(format!("{path} {body}: other ids than /tokenize"));
            }
        }
        let counted = shapes::counted(&answer.json()["usage"]);
        if counted != Some(own.len() as u64) {
            let usage = &answer.json()["usage"];
            wrong.push(format!("{path} {body}: {} tokens, the engine counts {usage}", own.len()));
        }
        let of = live.hashes(&own);
        blocks += of.len();
        hashes.push((format!("{path} {body}"), of));
    }
    let wanted: HashSet<u64> = hashes.iter().flat_map(|(_, of)| of).copied().collect();
    let stored = recorder.stored(&wanted);
    for (request, of) in &hashes {
        if let Some(at) = of.iter().position(|hash| !stored.contains(hash)) {
            wrong.push(format!("{request}: the hash of block {at} is in no event"));
        }
    }
    println!("served {served:?}, refused {refused:?}");
    println!("{asked} compared with /tokenize; {blocks} blocks ({} different)", wanted.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(hashes.len() * 10 >= REQUESTS * 9 && asked > REQUESTS / 2 && blocks > REQUESTS);
}

#[ignore = "needs a real vLLM server"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_reads_back_with_equal_predictions() {
    let live = Live::start().await;
    let url = live.server.url();
    // Every request three times over, cold and warm.
    let requests = shapes::requests(90).into_iter().filter(|(path, _)| shapes::is_recorded(path));
    let prompts: Vec<Value> =
        requests.map(|(path, body)| json!({"path": path, "body": body})).collect();
    let file = scratch("live-prompts.jsonl");
    let text: String =
        prompts.iter().cycle().take(prompts.len() * 3).map(|p| format!("{p}\n")).collect();
    std::fs::write(&file, text).unwrap();
    let (first, second) = (scratch("live-own.jsonl"), scratch("live-probe.jsonl"));
    run(&["record", "--base-url", &url, "--out", as_str(&first), "--prompts", as_str(&file)]);
    run(&["record", "--base-url", &url, "--out", as_str(&second), "--probe"]);
    for capture in [&first, &second] {
        let found = run(&["residency", "--json", "--capture", as_str(capture)]);
        let requests = found["requests"].as_array().unwrap();
        let number = |request: &Value, key: &str| request[key].as_u64().unwrap();
        let wrong: Vec<&Value> = requests
            .iter()
            .filter(|request| {
                number(request, "predicted_cached_tokens")
                    != number(request, "reported_cached_tokens")
            })
            .collect();
        let hits = requests.iter().filter(|r| number(r, "reported_cached_tokens") > 0).count();
        let left_out = found["left_out"].as_array().map_or(0, Vec::len);
        println!(
            "{}: {} requests, {hits} hit, {} differ, {left_out} left out, {} lines",
            as_str(capture),
            requests.len(),
            wrong.len(),
            lines(capture).len(),
        );
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(found["left_out"], json!([]));
        assert!(hits > 1 && requests.len() > 4);
    }
}
