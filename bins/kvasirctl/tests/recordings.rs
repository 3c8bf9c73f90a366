//! `kvasirctl residency` on every recording there is, and `kvasirctl record` from an engine to a
//! recording that reads back.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

/// Requests for several prompts, which are not compared.
const SEVERAL_PROMPTS: [&str; 2] = ["batch_two_prompts", "concurrent_same"];

fn kvasirctl(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvasirctl"));
    command.args(args).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> Output {
    kvasirctl(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn captures(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(dir);
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"))
        .collect();
    files.sort();
    files
}

fn residency(path: &Path) -> Value {
    let output = run(&["residency", "--capture", path.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}: {}", path.display(), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A scratch file that is not there yet.
fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn every_recorded_request_is_predicted() {
    let (mut recordings, mut compared, mut hits) = (0, 0, 0);
    for path in captures("captures") {
        let name = path.display();
        let recorded = lines(&path);
        if recorded[0]["kind"] != "meta" {
            continue;
        }
        recordings += 1;
        let found = residency(&path);
        let version = recorded[0]["server_version"]["version"].as_str().unwrap();
        assert_eq!(found["engine"], format!("vllm {version}"), "{name}");
        assert_eq!(found["capture"], path.to_str().unwrap());
        // Every single-prompt request is there, in order, with the engine's own number.
        let answered = recorded.iter().filter(|line| line["response"]["usage"].is_object());
        let single =
            answered.filter(|line| !SEVERAL_PROMPTS.contains(&line["step"].as_str().unwrap()));
        let expected: Vec<Value> = single
            .map(|line| {
                let usage = &line["response"]["usage"];
                let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
                json!([line["step"], usage["prompt_tokens"], cached, cached])
            })
            .collect();
        let requests = found["requests"].as_array().unwrap();
        let shown: Vec<Value> = requests
            .iter()
            .map(|request| {
                json!([
                    request["step"],
                    request["prompt_tokens"],
                    request["predicted_cached_tokens"],
                    request["reported_cached_tokens"]
                ])
            })
            .collect();
        assert_eq!(shown, expected, "{name}");
        compared += shown.len();
        hits += shown.iter().filter(|request| request[3] != 0).count();
        steps(&found, &recorded, &name.to_string());
    }
    assert!(recordings >= 16 && compared > 250 && hits > 60, "{recordings} {compared} {hits}");
}

/// Nothing recorded of these engines leaves a doubt, and replays change nothing.
fn steps(found: &Value, recorded: &[Value], name: &str) {
    let steps = found["steps"].as_array().unwrap();
    let mut named: Vec<&str> = Vec::new();
    for line in recorded {
        let step = line["step"].as_str().or(line["label"].as_str());
        named.extend(step.filter(|step| named.last() != Some(step)));
    }
    let shown: Vec<&str> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(shown, named, "{name}");
    for step in steps {
        assert_eq!(step["trust"], "exact", "{name} {step}");
        let tiers = step["resident_blocks"].as_object().unwrap();
        assert_eq!(tiers.keys().collect::<Vec<_>>(), ["device", "host", "disk", "remote"]);
    }
    let at = |step: &str| steps.iter().find(|known| known["step"] == step).unwrap();
    let after = &at("after_reset_cold")["resident_blocks"];
    // The cache was emptied; what one prompt of 218 tokens fills is there.
    let block_size: u64 = recorded[0]["block_size"].as_str().unwrap().parse().unwrap();
    assert_eq!(after["device"], 218 / block_size, "{name}");
    for (replay, batches) in [("last_two", 2), ("beyond_end", 0)] {
        assert_eq!(&at(replay)["resident_blocks"], after, "{name} {replay}");
        assert_eq!(at(replay)["replays"][0]["batches"], batches, "{name} {replay}");
    }
    let replay = &at("from_zero")["replays"][0];
    assert_eq!(replay["batches"], replay["as_live"], "{name}");
    assert_eq!(&replay["rebuilt"]["resident_blocks"], after, "{name}");
}

#[test]
fn recordings_of_several_publishers_are_played_apart() {
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    for path in captures("captures") {
        let sources = match name(&path).as_str() {
            "0.32.0-dp2.jsonl" => ["tcp://127.0.0.1:5621", "tcp://127.0.0.1:5622"],
            "nixl-pd-0.32.0-events.jsonl" => ["prefill", "decode"],
            _ => continue,
        };
        let found = residency(&path);
        let last = found["steps"].as_array().unwrap().last().unwrap();
        for (state, source) in last["sources"].as_array().unwrap().iter().zip(sources) {
            assert_eq!((&state["source"], &state["trust"]), (&json!(source), &json!("exact")));
            assert!(state["resident_blocks"]["device"].as_u64() > Some(0));
        }
        for request in found["requests"].as_array().unwrap() {
            let [predicted, reported] = ["predicted", "reported"]
                .map(|word| &request[format!("{word}_cached_tokens").as_str()]);
            assert_eq!(predicted, reported, "{request}");
        }
    }
}

#[test]
fn synthetic_recordings_are_read() {
    let files = captures("captures-synthetic");
    assert!(files.len() >= 8);
    for path in files {
        let found = residency(&path);
        assert!(found["requests"].as_array().unwrap().len() > 2, "{}", path.display());
    }
}

#[test]
fn tables_for_people() {
    let path =
        captures("captures").into_iter().find(|path| path.ends_with("0.20.2-sha256-int.jsonl"));
    let output = run(&["residency", "--capture", path.unwrap().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    let line = |begins: &str| said.lines().find(|line| line.starts_with(begins)).unwrap();
    assert!(line("cold ").contains("exact"), "{said}");
    assert!(
        said.contains("vllm 0.20.2") && said.ends_with(" requests compared, 0 differ\n"),
        "{said}"
    );
    assert!(said.contains("not compared: several_prompts"), "{said}");
}

#[test]
fn what_cannot_be_read_is_told_with_its_place() {
    let path = scratch("malformed.jsonl");
    std::fs::write(&path, "{\"kind\":\"meta\"}\n{\"kind\":\"frames\",\"frames_hex\":[\"0\"]}\n")
        .unwrap();
    let output = run(&["residency", "--capture", path.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let place = format!("{}:2:1: `frames_hex`[0] is not hexadecimal", path.display());
    assert!(text(&output.stderr).contains(&place), "{}", text(&output.stderr));
    let missing = run(&["residency", "--capture", "/nowhere/at.all", "--json"]);
    assert_eq!(missing.status.code(), Some(1));
    std::fs::write(&path, "").unwrap();
    let empty = run(&["residency", "--capture", path.to_str().unwrap()]);
    assert_eq!(empty.status.code(), Some(1), "{}", text(&empty.stdout));
    assert!(text(&empty.stderr).contains("the recording is empty"), "{}", text(&empty.stderr));
    assert!(text(&missing.stderr).contains("/nowhere/at.all"));
    assert_eq!(run(&["residency", "--json"]).status.code(), Some(2));
}

/// A simulated engine, by its own command.
struct Sim {
    child: Child,
    url: String,
    events: String,
    replay: String,
}

impl Sim {
    fn start(more: &[&str]) -> Self {
        let args = [
            "sim-engine",
            "--port",
            "0",
            "--events",
            "tcp://127.0.0.1:*",
            "--replay",
            "tcp://127.0.0.1:*",
            "--blocks",
            "257",
            "--speed",
            "100",
        ];
        let mut child = kvasirctl(&[&args[..], more].concat()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |at: usize, name: &str| words[at].strip_prefix(name).unwrap().to_owned();
        let (url, events) = (word(0, ""), word(1, "events="));
        Self { child, url, events, replay: word(2, "replay=") }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_is_recorded_reads_back() {
    let sim = Sim::start(&[]);
    // Twice, so that the second one joins an engine that has a history.
    for (round, name) in ["record-first.jsonl", "record-second.jsonl"].iter().enumerate() {
        let out = scratch(name);
        let key = "authorization: Bearer sk-never-to-be-written";
        let output = run(&[
            "record",
            "--base-url",
            &sim.url,
            "--out",
            out.to_str().unwrap(),
            "--probe",
            "--header",
            key,
        ]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("look at it before you share it"), "{said}");
        assert!(!std::fs::read_to_string(&out).unwrap().contains("sk-never"), "a key was written");
        let found = residency(&out);
        assert_eq!(found["engine"], "vllm 0.32.0");
        let requests = found["requests"].as_array().unwrap();
        assert_eq!(requests.len(), 7, "{found}");
        for request in requests {
            let [predicted, reported] =
                [&request["predicted_cached_tokens"], &request["reported_cached_tokens"]];
            assert_eq!(predicted, reported, "{request}");
        }
        let hits = requests.iter().filter(|request| request["reported_cached_tokens"] != 0);
        assert_eq!(hits.count(), 3, "warm, a common beginning, a second turn: {found}");
        let steps = found["steps"].as_array().unwrap();
        assert!(steps.iter().all(|step| step["trust"] == "exact"), "{found}");
        let replayed = &steps[0]["replays"][0]["batches"];
        assert_eq!(replayed.as_u64() > Some(0), round > 0, "{found}");
        assert_eq!(steps.last().unwrap()["replays"][0]["differing"], 0);
    }
}

#[test]
fn prompts_of_ones_own_and_addresses_given() {
    let sim = Sim::start(&["--engine-version", "0.20.2", "--model", "own"]);
    let prompts = scratch("own-prompts.jsonl");
    let ids: Vec<u32> = (10..110).collect();
    let body = json!({"prompt": ids, "max_tokens": 1});
    let named = json!({"step": "again", "body": body});
    // A text in a list of its own is one prompt as well.
    let listed = json!({"prompt": ["a text of some length ".repeat(20)], "max_tokens": 1});
    std::fs::write(&prompts, format!("{body}\n{named}\n{listed}\n")).unwrap();
    let out = scratch("record-own.jsonl");
    let args = [
        "record",
        "--base-url",
        &sim.url,
        "--out",
        out.to_str().unwrap(),
        "--events",
        &sim.events,
        "--replay",
        &sim.replay,
        "--prompts",
        prompts.to_str().unwrap(),
    ];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found = residency(&out);
    let shown = found["requests"].as_array().unwrap();
    assert_eq!((shown.len(), &found["left_out"]), (3, &json!([])), "{found}");
    assert_eq!(
        (&shown[1]["step"], &shown[1]["predicted_cached_tokens"]),
        (&json!("again"), &json!(96))
    );
    assert_eq!(shown[1]["reported_cached_tokens"], 96);
    // What is there is not written over.
    let again = run(&args);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("--out"), "{}", text(&again.stderr));
}

#[test]
fn help_says_what_a_recording_holds() {
    let help = text(&run(&["record", "--help"]).stdout);
    assert!(help.contains("look at it before you share it"), "{help}");
}

#[test]
fn listening_ends_by_signal_and_by_time() {
    let sim = Sim::start(&[]);
    let out = scratch("record-listening.jsonl");
    let args = ["record", "--base-url", &sim.url, "--out", out.to_str().unwrap()];
    let mut child = kvasirctl(&args).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("until Ctrl-C") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    // Joined: the first replay has been written.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !std::fs::read_to_string(&out).is_ok_and(|text| text.contains("from_zero")) {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert!(
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success()
    );
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    assert!(rest.contains("kvasirctl residency --capture"), "{rest}");
    assert_eq!(lines(&out).last().unwrap()["kind"], "end");
    residency(&out);
    let timed = scratch("record-timed.jsonl");
    let output = run(&[
        "record",
        "--base-url",
        &sim.url,
        "--out",
        timed.to_str().unwrap(),
        "--seconds",
        "1",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn engines_that_cannot_be_recorded_say_why() {
    for (args, status, part) in [
        (vec!["--base-url", "http://127.0.0.1:1"], 1, "cannot connect"),
        (vec!["--base-url", "https://127.0.0.1:1"], 1, "cannot connect"),
        (vec!["--base-url", "ftp://h"], 2, "ftp"),
        (vec!["--base-url", "http://h", "--replay", "tcp://h:1"], 2, "--events"),
        (vec!["--base-url", "http://h", "--prompts", "/nowhere/at.all"], 1, "/nowhere/at.all"),
        (vec!["--base-url", "http://h", "--probe", "--prompts", "x"], 2, "cannot be used with"),
    ] {
        let out = scratch("record-nothing.jsonl");
        let output = run(&[&["record", "--out", out.to_str().unwrap()], &args[..]].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
        assert!(!out.exists(), "{args:?}: an empty file was left behind");
    }
}
