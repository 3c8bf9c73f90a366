//! The blocks of pages whose fence says `sh test`, run as they stand there, one after the other, against simulated engines.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Home, kvasirctl};

/// What one page may take, with its own waiting.
const PAGE: Duration = Duration::from_secs(100);

/// The blocks of a page with this word behind the fence.
fn blocks(page: &str, fence: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while lines.any(|line| line == fence) {
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push(block.join("\n"));
    }
    blocks
}

/// A simulated engine in a process of its own, which ends with it.
struct Engine {
    process: Child,
    address: String,
}

impl Engine {
    fn start(home: &Home) -> Self {
        let any = "tcp://127.0.0.1:*";
        let args = ["sim-engine", "--port", "0", "--events", any, "--replay", any];
        let mut process = home.command(&args).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let out = process.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let address = line.split(' ').next().unwrap().trim().replace("http://", "");
        Self { process, address }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port that was free a moment ago.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Runs a page; what it prints.
fn run(name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = std::fs::read_to_string(page).unwrap();
    let home = Home::empty();
    let engines = [Engine::start(&home), Engine::start(&home)];
    let (clients, admin) = (free(), free());
    let own = |text: &str| {
        text.replace("127.0.0.1:8000", &engines[0].address)
            .replace("127.0.0.1:8001", &engines[1].address)
            .replace("127.0.0.1:8080", &clients)
            .replace("127.0.0.1:8081", &admin)
            .replace("MODEL", "kvasir-demo")
    };
    for file in blocks(&page, "```yaml") {
        home.put("kvasir.yaml", &own(&file), 0o644);
    }
    let commands = blocks(&page, "```sh test");
    assert!(commands.len() >= 4, "{name}: {} blocks", commands.len());
    // What was begun in the background ends with the page, however that ends.
    let script =
        format!("set -euo pipefail\ntrap 'kill $(jobs -p)' EXIT\n{}\n", commands.join("\n"));
    let beside = kvasirctl().parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("timeout");
    shell.args([&PAGE.as_secs().to_string(), "bash", "-xc", &own(&script)]);
    shell.current_dir(home.path("")).env("HOME", home.path(""));
    shell.env("PATH", format!("{beside}:{path}")).stdin(Stdio::null());
    let ran = shell.output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    let log = std::fs::read_to_string(home.path("kvasir.log")).unwrap_or_default();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{name}: {}\n{out}\n{said}\n{log}", ran.status);
    out
}

/// The second of two equal requests hits what was predicted, and not nothing.
fn hits_exactly(out: &str) {
    let overlaps: Vec<&str> =
        out.split("overlap=").skip(1).filter_map(|rest| rest.split(';').next()).collect();
    let cached: Vec<&str> = out
        .split("\"cached_tokens\":")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    assert!(overlaps.len() == 2 && overlaps == cached, "{overlaps:?}, {cached:?} of {out}");
    assert!(overlaps[0] == "0" && overlaps[1] != "0", "{overlaps:?}");
}

/// Those that [`run`] is called for.
const RUN: [&str; 2] = ["operator-guide.md", "quick-start.md"];

#[test]
fn every_block_of_commands_is_run_here_or_was_by_hand() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut run = Vec::new();
    for entry in std::fs::read_dir(&docs).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "md") {
            continue;
        }
        let page = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for (before, line) in page.lines().zip(page.lines().skip(1)) {
            let is_marked = before.starts_with("<!-- run by hand, 20");
            assert!(line != "```sh" || is_marked, "{name}: {before:?} stands above commands");
        }
        run.extend((!blocks(&page, "```sh test").is_empty()).then_some(name));
    }
    run.sort();
    assert_eq!(run, RUN);
}

#[test]
fn the_quick_start_leads_to_an_exact_hit() {
    let out = run(RUN[1]);
    hits_exactly(&out);
    assert!(out.contains("13 ok, 0 unknown, 0 off") && out.contains("1 pool: 0 problems"), "{out}");
}

#[test]
fn the_operators_guide_says_go() {
    let out = run(RUN[0]);
    hits_exactly(&out);
    assert!(out.contains("ok: 30 ok, 0 unknown, 0 off"), "{out}");
}
