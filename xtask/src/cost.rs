//! `cargo xtask cost`: the instructions of a request through the real gateway, stage by stage, counted
//! by valgrind's callgrind. Instructions, unlike times, come out alike on a busy machine; what the
//! kernel does is not among them.

mod client;
mod profile;
mod stages;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use self::client::Client;
use self::profile::Profile;
use self::stages::{Costs, Stage, by_stage, stage_of};
use self::workload::Workload;
use crate::child::{Running, started};

const USAGE: &str = "usage: cargo xtask cost [--tokenizer DIR] [--requests N] [--functions N] [--target-dir DIR | --bin DIR]

Instructions of one request through the real gateway, by stage, counted by valgrind's callgrind: a warm
one (its prompt came before) and a cold one (a quarter of its prompt is new, and is stored by the engine,
whose events follow), bodies of 8 KB, over two simulated engines. Needs valgrind.

  --tokenizer DIR   a model's directory [default: a small built-in one]
  --requests N      of each kind [default: 40]
  --target-dir DIR  where gateway and engines are built, as they are released [default: target]
  --bin DIR         programs that are built already, to compare one version with another
  --functions N     also print the N functions that execute most in each kind [default: 0]";

/// Under valgrind everything takes fifty times as long.
const PATIENCE: Duration = Duration::from_secs(300);
/// After this long the events of the last request are applied.
const SETTLE: Duration = Duration::from_secs(2);
/// What the gateway does without requests is measured over this time and left out.
const IDLE: Duration = Duration::from_secs(4);
/// Beginnings that prompts share.
const SHARED: usize = 4;

type Failed = (String, ExitCode);

struct Options {
    tokenizer: Option<PathBuf>,
    requests: usize,
    target: PathBuf,
    built: Option<PathBuf>,
    functions: usize,
}

/// What was executed while something was done, and how long that took.
struct Interval {
    profile: Profile,
    took: Duration,
}

/// Measures and prints the table.
pub(crate) fn cost(root: &Path, args: &[&str]) -> Result<Vec<String>, Failed> {
    if matches!(args, ["--help" | "-h"]) {
        return Ok(vec![USAGE.to_owned()]);
    }
    let options = Options::read(root, args)?;
    for tool in ["valgrind", "callgrind_control"] {
        let there = Command::new(tool).arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            return Err(failed(format!(
                "`{tool}` is missing: install the system's `valgrind` package"
            )));
        }
    }
    if options.built.is_none() {
        build(root, &options).map_err(failed)?;
    }
    let dir = options.target.join("cost");
    // What an earlier run left would be taken for this one's.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).map_err(|e| failed(format!("{}: {e}", dir.display())))?;
    measure(&options, &dir).map_err(failed)
}

fn failed(why: String) -> Failed {
    (why, ExitCode::FAILURE)
}

impl Options {
    fn read(root: &Path, args: &[&str]) -> Result<Self, Failed> {
        let target = root.join("target");
        let mut options = Self { tokenizer: None, requests: 40, target, built: None, functions: 0 };
        let (pairs, rest) = args.as_chunks::<2>();
        let usage = || (USAGE.to_owned(), ExitCode::from(2));
        for [flag, value] in pairs {
            match *flag {
                "--tokenizer" => options.tokenizer = Some(PathBuf::from(value)),
                "--target-dir" => options.target = PathBuf::from(value),
                "--bin" => options.built = Some(PathBuf::from(value)),
                "--requests" => options.requests = value.parse().map_err(|_| usage())?,
                "--functions" => options.functions = value.parse().map_err(|_| usage())?,
                _ => return Err(usage()),
            }
        }
        if !rest.is_empty() || !(1..=10_000).contains(&options.requests) {
            return Err(usage());
        }
        Ok(options)
    }
}

/// With the profile of releases: without optimisation at link time a request takes three times as many
/// instructions, in other places.
fn build(root: &Path, options: &Options) -> Result<(), String> {
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(root).args(["build", "--locked", "--release"]);
    build.args(["-p", "kvasirctl", "-p", "kvasir-gateway", "--target-dir"]).arg(&options.target);
    match build.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo build ended with {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}

/// Plays warm and cold requests against the gateway under callgrind.
fn measure(options: &Options, dir: &Path) -> Result<Vec<String>, String> {
    let bin = options.built.clone().unwrap_or_else(|| options.target.join("release"));
    let engine = || {
        let mut command = Command::new(bin.join("kvasirctl"));
        command.args(["sim-engine", "--port", "0", "--speed", "2000", "--blocks", "40000"]);
        command.args(["--events", "tcp://127.0.0.1:*", "--replay", "tcp://127.0.0.1:*"]);
        if let Some(tokenizer) = &options.tokenizer {
            command.arg("--tokenizer").arg(tokenizer);
        }
        started(command, PATIENCE, |line| line.split(' ').find(|word| word.starts_with("http://")))
    };
    let engines = [engine()?, engine()?];
    let mut gateway = Command::new("valgrind");
    gateway.args(["--tool=callgrind", "--fair-sched=yes"]);
    gateway.arg(format!("--callgrind-out-file={}", dir.join("callgrind").display()));
    gateway.arg(bin.join("kvasir-gateway")).args(["serve", "--listen", "127.0.0.1:0"]);
    gateway.args(["--policy", "latency", &engines[0].1, &engines[1].1]);
    // One line says where it listens; none is written of a request.
    gateway.env("RUST_LOG", "info,kvasir::access=warn");
    let (gateway, address) = started(gateway, PATIENCE, |line| line.split("address=").nth(1))?;
    let profiler = Profiler { gateway: &gateway, dir };
    let mut client = Client::new(address.trim(), PATIENCE);
    client.until_ready()?;
    let mut workload = Workload::new(SHARED);
    let warm: Vec<String> = (0..SHARED).map(|_| workload.body()).collect();
    // Until connections are made, tables have grown and the shared beginnings are known.
    for _ in 0..4 {
        for body in &warm {
            client.post(body)?;
            client.post(&workload.body())?;
        }
    }
    // Where requests went in the end, their prompts are stored.
    for body in warm.iter().cycle().take(4 * SHARED) {
        client.post(body)?;
    }
    thread::sleep(SETTLE);
    profiler.dump("before", 1)?;
    let mut play = |name: &str, number, body: &mut dyn FnMut(usize) -> String| {
        let start = Instant::now();
        for at in 0..options.requests {
            client.post(&body(at))?;
        }
        thread::sleep(SETTLE);
        profiler.dump(name, number).map(|profile| Interval { profile, took: start.elapsed() })
    };
    let warm = play("warm", 2, &mut |at| warm[at % SHARED].clone())?;
    let cold = play("cold", 3, &mut |_| workload.body())?;
    thread::sleep(IDLE);
    let idle = Interval { profile: profiler.dump("idle", 4)?, took: IDLE };
    Ok(report(options, &[("warm", &warm), ("cold", &cold)], &idle))
}

/// Makes a running callgrind write down what it counted so far, and begin anew.
struct Profiler<'a> {
    gateway: &'a Running,
    dir: &'a Path,
}

impl Profiler<'_> {
    fn dump(&self, name: &str, number: usize) -> Result<Profile, String> {
        let mut command = Command::new("callgrind_control");
        command.arg(format!("--dump={name}")).arg(self.gateway.id().to_string());
        command.stdout(Stdio::null());
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("callgrind_control ended with {status}")),
            Err(error) => return Err(format!("callgrind_control: {error}")),
        }
        let path = self.dir.join(format!("callgrind.{number}"));
        let end = Instant::now() + PATIENCE;
        loop {
            // The last line is written last.
            match fs::read_to_string(&path) {
                Ok(text) if text.trim_end().lines().last().is_some_and(is_end) => {
                    return Ok(Profile::parse(&text));
                }
                _ if Instant::now() > end => return Err(format!("no {}", path.display())),
                _ => thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

fn is_end(line: &str) -> bool {
    line.starts_with("totals:")
}

/// The table: thousands of instructions a request.
#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
fn report(options: &Options, kinds: &[(&str, &Interval)], idle: &Interval) -> Vec<String> {
    let at_rest = by_stage(&idle.profile);
    let requests = options.requests as f64;
    let columns: Vec<Costs> = kinds
        .iter()
        .map(|(_, interval)| {
            let share = interval.took.as_secs_f64() / idle.took.as_secs_f64();
            let mut costs = by_stage(&interval.profile);
            for (cost, rest) in costs.iter_mut().zip(at_rest) {
                *cost = (*cost - rest * share).max(0.0) / requests / 1000.0;
            }
            costs
        })
        .collect();
    let mut lines = vec!["thousands of instructions a request".to_owned(), String::new()];
    let row = |title: &str, cells: Vec<String>| format!("| {title} | {} |", cells.join(" | "));
    lines.push(row("stage", kinds.iter().map(|(name, _)| (*name).to_owned()).collect()));
    lines.push(row("---", kinds.iter().map(|_| "---".to_owned()).collect()));
    for (at, stage) in Stage::ALL.iter().enumerate() {
        let cells = columns.iter().map(|costs| format!("{:.1}", costs[at])).collect();
        lines.push(row(stage.title(), cells));
    }
    let all = columns.iter().map(|costs| format!("{:.0}", costs.iter().sum::<f64>())).collect();
    lines.push(row("all", all));
    if options.functions > 0 {
        for (name, interval) in kinds {
            lines.push(format!("\n{name}:"));
            lines.extend(largest(&interval.profile, options.functions, requests));
        }
    }
    lines
}

/// The functions that execute most themselves.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 instructions")]
fn largest(profile: &Profile, count: usize, requests: f64) -> Vec<String> {
    let mut order: Vec<usize> = (0..profile.names.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(profile.own[*at]));
    let line = |at: &usize| {
        let stage = stage_of(&profile.names[*at]).map_or("", Stage::title);
        let cost = profile.own[*at] as f64 / requests / 1000.0;
        format!("{cost:9.1}  {}  [{stage}]", profile.names[*at])
    };
    order.iter().take(count).map(line).collect()
}
