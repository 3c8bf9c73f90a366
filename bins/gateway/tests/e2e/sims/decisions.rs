//! The decision log of a gateway under load, while engines fail, and every decision of it made
//! again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use kvasir_balance::record::{DecisionRecord, Line, Memory, Replay};
use kvasir_testkit::client::Response;
use tokio::task::JoinHandle;

use super::*;
use crate::harness::ids;

/// A directory of its own; removed when dropped.
struct LogDir(PathBuf);

impl LogDir {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("log-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    /// Its files in order, line by line.
    fn files(&self) -> Vec<Vec<Line>> {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        paths.sort();
        let line =
            |text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let lines = |path| std::fs::read_to_string(path).unwrap().lines().map(line).collect();
        paths.into_iter().map(lines).collect()
    }
}

impl Drop for LogDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn replayed(lines: &[Line]) -> (Replay, Vec<String>) {
    let mut replay = Replay::default();
    let differences = lines.iter().filter_map(|line| replay.line(line).unwrap());
    let differences = differences.map(|differs| differs.to_string()).collect();
    (replay, differences)
}

fn decisions(lines: &[Line]) -> Vec<&DecisionRecord> {
    lines
        .iter()
        .filter_map(|line| if let Line::Decision(record) = line { Some(record) } else { None })
        .collect()
}

/// 300 requests or more of 20 conversations with common beginnings, all at once but for the engines' ups
/// and downs; what a gateway with these settings of its pool wrote.
async fn written(settings: &Value) -> Vec<Vec<Line>> {
    let dir = LogDir::new();
    let sims = Sim::several(3, 2_000, FAST).await;
    let urls: Vec<String> = sims.iter().map(Sim::url).collect();
    let mut pool = pool_at("tiny", &urls);
    pool.as_object_mut().unwrap().remove("tokenizer_dir");
    pool.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let log = json!({"directory": dir.0, "max_bytes": 65_536, "files": 100});
    let settings = json!({"pools": [pool], "decision_log": log, "scrape_interval_ms": 1_000});
    let mut gateway = Gateway::start(settings).await;
    until_trusted(&gateway, &sims).await;
    answered(wave(&gateway, 0)).await;
    let down = meet_nobody(&gateway, &sims).await;
    let asked = wave(&gateway, 2);
    sims[down].server.restart().await;
    sims[(down + 1) % sims.len()].server.restart().await;
    answered(asked).await;
    until_trusted(&gateway, &sims).await;
    // Memory of engines that began anew is gone with the next decision.
    assert_eq!(ask_as(gateway.addr(), 300).await, Some(200));
    gateway.until_idle().await;
    let page = gateway.metrics().await;
    assert_eq!(page.sum("kvasir_decision_log_dropped_total", &[]), Some(0.0));
    assert_eq!(page.label("kvasir_decision_log_state", &[], "state"), "writing");
    gateway.terminate();
    assert_eq!(gateway.exit_status().await, Some(0));
    dir.files()
}

/// Asks a hundred at once.
fn wave(gateway: &Gateway, number: u32) -> Vec<JoinHandle<Option<u16>>> {
    let first = 100 * number;
    (first..first + 100).map(|n| tokio::spawn(ask_as(gateway.addr(), n))).collect()
}

async fn answered(asked: Vec<JoinHandle<Option<u16>>>) {
    for answer in asked {
        assert!(matches!(answer.await.unwrap(), None | Some(200 | 502 | 503)));
    }
}

/// Takes an engine down that was just chosen for a conversation which goes on. Unless its metrics
/// are asked for in between, a request of it meets nobody.
async fn meet_nobody(gateway: &Gateway, sims: &[Sim]) -> usize {
    for _ in 0..10 {
        let chosen = Decision::of(&request(gateway.addr(), 0).await.unwrap()).endpoint;
        let down = sims.iter().position(|sim| sim.url() == chosen).unwrap();
        sims[down].go_down().await;
        answered(wave(gateway, 1)).await;
        if gateway.metrics().await.sum("kvasir_failed_attempts_total", &[]) > Some(0.0) {
            return down;
        }
        sims[down].server.restart().await;
        until_trusted(gateway, sims).await;
    }
    panic!("nothing was tried again");
}

/// The status of the answer to one of the requests; `None` where its engine broke off.
async fn ask_as(gateway: SocketAddr, number: u32) -> Option<u16> {
    request(gateway, number).await.map(|answer| answer.status)
}

/// The same with all of the answer. Some conversations are two tenants' who give them one name.
async fn request(gateway: SocketAddr, number: u32) -> Option<Response> {
    let conversation = number % 20;
    let prompt = ids(1 + conversation * 150, 64 + number % 100);
    let (session, id) = (format!("conversation-{conversation}"), format!("request-{number}"));
    let mut client = RawClient::connect(gateway).await.unwrap().with_deadline(SOON);
    let headers = [("x-session-id", &*session), ("x-request-id", &*id)];
    let mut body: Value =
        serde_json::from_str(&body(&prompt, 2, number.is_multiple_of(2))).unwrap();
    if conversation.is_multiple_of(3) {
        body["cache_salt"] = format!("tenant-{}", number / 20 % 2).into();
    }
    let body = body.to_string();
    client.send("POST", COMPLETIONS, &headers, body.as_bytes()).await.unwrap();
    client.response().await.ok()
}

/// What must be true of any such log, and that every decision of it comes out again.
fn checked(files: &[Vec<Line>]) -> Vec<Line> {
    assert!(files.len() > 2, "{} files", files.len());
    let mut lines = 0;
    for file in files {
        let Line::Start(start) = &file[0] else { panic!("{:?}", file[0]) };
        assert_eq!((&*start.model, start.continues), ("tiny", lines));
        lines += file.iter().map(Line::entries).sum::<u64>();
    }
    let all = files.concat();
    assert!(!all.iter().any(|line| matches!(line, Line::Missing { .. })));
    let made = decisions(&all);
    assert!(made.len() >= 301, "{}", made.len());
    assert!(made.iter().map(|record| record.id).eq(1..=made.len() as u64));
    let is_tried = |record: &&DecisionRecord| {
        record.endpoints.iter().any(|endpoint| endpoint.exclusion.as_deref() == Some("tried"))
    };
    assert!(made.iter().any(is_tried), "nothing was tried again");
    let excluded = |record: &&&DecisionRecord| {
        record.endpoints.iter().any(|endpoint| endpoint.exclusion.is_some())
    };
    assert!(made.iter().filter(excluded).count() > 0);
    let outcome = |line: &&Line| matches!(line, Line::Outcome(_));
    let chosen = made.iter().filter(|record| record.choice.is_some()).count();
    assert_eq!(all.iter().filter(outcome).count(), chosen, "each choice has one outcome");
    let (replay, differences) = replayed(&all);
    assert_eq!((replay.decisions(), differences), (made.len() as u64, Vec::new()));
    assert_eq!(replay.memory(), Memory::Known);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latency_decides_the_same_again() {
    let files = written(&json!({"policy": "latency", "sticky": {}, "slo_ttft_ms": 60})).await;
    let mut all = checked(&files);
    let salted = |record: &&DecisionRecord| {
        let stuck = record.choice.iter().flat_map(|choice| &choice.stages);
        record.query.salt.is_some() && stuck.into_iter().any(|stage| stage.outcome == "pinned")
    };
    assert!(decisions(&all).into_iter().any(|record| salted(&record)));
    // A choice that was not made is found.
    let changed = all.iter_mut().rev().find_map(|line| {
        let Line::Decision(record) = line else { return None };
        let other = record.endpoints.iter().map(|endpoint| endpoint.name.clone());
        let choice = record.choice.as_mut()?;
        choice.endpoint = other.into_iter().find(|name| *name != choice.endpoint)?;
        Some(record.id)
    });
    let (_, differences) = replayed(&all);
    assert_eq!(differences.len(), 1);
    assert!(differences[0].starts_with(&format!("decision {}: ", changed.unwrap())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_remember_decide_the_same_again() {
    // Its choices depend on the size of blocks, which it reads and the keys it does not.
    let soft = json!({"name": "precise_cache_aware", "blend": "soft"});
    for policy in [json!("cache_aware"), json!("session"), json!("round_robin"), soft] {
        let files = written(&json!({"policy": policy, "shadow": "random"})).await;
        let all = checked(&files);
        let forgets = all.iter().any(|line| matches!(line, Line::Forget { .. }));
        assert_eq!(forgets, policy == "cache_aware", "{policy}");
        // A later file can be read alone, and what it cannot know is known.
        let (replay, _) = replayed(&files[1]);
        assert_eq!(replay.memory(), Memory::BeganLater);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_leads_to_its_record_within_about_a_second() {
    let dir = LogDir::new();
    let sims = Sim::several(2, 600, FAST).await;
    let settings = json!({"decision_log": {"directory": dir.0}});
    let gateway = over_with(&sims, "latency", settings).await;
    let mut client = gateway.connect().await;
    let headers = [("x-request-id", "of-the-test"), ("x-session-id", "s")];
    client
        .send("POST", COMPLETIONS, &headers, body(&ids(1, 100), 1, false).as_bytes())
        .await
        .unwrap();
    let decision = Decision::of(&client.response().await.unwrap());
    let line = gateway.access_line(|line| line["request_id"] == "of-the-test").await;
    assert_eq!(line["decision_id"].as_u64(), decision.id);
    // It is written while the gateway runs.
    let record = until(SOON, || async {
        let files = dir.files().concat();
        let found = decisions(&files).into_iter().find(|record| Some(record.id) == decision.id);
        found.cloned().ok_or_else(|| format!("{files:?}"))
    })
    .await;
    assert_eq!(record.request_id.as_deref(), Some("of-the-test"));
    assert_eq!(record.query.prompt_tokens, 100);
    assert!(record.query.session.is_some() && record.query.keys.is_empty());
    assert_eq!((record.query.tokens_per_key, record.query.blind), (16, None));
    let choice = record.choice.unwrap();
    assert_eq!((choice.endpoint, choice.policy), (decision.endpoint, decision.policy));
    assert!(choice.runner_up.is_some() && choice.stages.len() == 2);
    for endpoint in &record.endpoints {
        assert_eq!((&*endpoint.trust, endpoint.weight), ("exact", 100));
        assert!(endpoint.expected_ttft_s > Some(0.0) && endpoint.score.is_some());
        assert!(endpoint.capacity_blocks.is_some() && endpoint.resident_blocks.is_some());
    }
    // Another gateway cannot write there.
    let (status, stderr) = crate::harness::run_to_end([
        "http://127.0.0.1:9",
        "--decision-log",
        dir.0.to_str().unwrap(),
    ])
    .await;
    assert_eq!(status, Some(78), "{stderr}");
    assert!(stderr.contains("--decision-log: ") && stderr.contains("another gateway"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_on_while_the_log_cannot_be_written_and_what_is_missing_is_said() {
    let dir = LogDir::new();
    let sims = Sim::several(1, 600, FAST).await;
    let settings = json!({"decision_log": {"directory": dir.0}});
    let gateway = over_with(&sims, "latency", settings).await;
    // A file takes the directory's place before anything was written.
    std::fs::remove_dir_all(&dir.0).unwrap();
    std::fs::write(&dir.0, "").unwrap();
    for id in 1..=3 {
        assert_eq!(ask(&gateway, &ids(1, 100), 1).await.decision.id, Some(id));
    }
    let failing = [("model", "tiny"), ("state", "failing"), ("reason", "no_directory")];
    gateway.until_metric("kvasir_decision_log_state", &failing, 1.0).await;
    let dropped = [("model", "tiny"), ("reason", "disk")];
    gateway.until_metric("kvasir_decision_log_dropped_total", &dropped, 6.0).await;
    let line = gateway.line("the reason", |line| line.contains("cannot be written")).await;
    assert!(line.contains(r#""reason":"no_directory""#) && line.contains("File exists"), "{line}");
    // It is tried again without being asked.
    std::fs::remove_file(&dir.0).unwrap();
    let writing = [("model", "tiny"), ("state", "writing")];
    gateway.until_metric("kvasir_decision_log_state", &writing, 1.0).await;
    assert_eq!(ask(&gateway, &ids(1, 100), 1).await.decision.id, Some(4));
    gateway.until_metric("kvasir_decision_log_lines_total", &[], 2.0).await;
    let lines = dir.files().concat();
    assert_eq!(lines[1], Line::Missing { lines: 6 });
    assert_eq!(decisions(&lines)[0].id, 4);
    assert_eq!(replayed(&lines).1, Vec::<String>::new());
    assert_eq!(
        gateway.metrics().await.sum("kvasir_decision_log_dropped_total", &dropped),
        Some(6.0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_log_no_number() {
    let sims = Sim::several(1, 600, FAST).await;
    let gateway = over(&sims, "latency").await;
    assert_eq!(ask(&gateway, &ids(1, 100), 1).await.decision.id, None);
    assert_eq!(gateway.metrics().await.sum("kvasir_decision_log_lines_total", &[]), None);
}
