//! `cargo xtask check-external [--only NAMES] [DIR]`: what needs things that may not be in the
//! repository. Clients and load generators of the field run unmodified through the gateway, and
//! prompts of real models are held against recorded ones.
//!
//! What can be installed is installed below `target/external`; what cannot is counted as missing,
//! with the reason. Never part of `cargo test`.

mod fleet;
mod page;
mod prompts;
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use self::fleet::Fleet;
use self::page::Gateways;
use self::tools::Tools;

/// What became of one check.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    /// It could not be run here.
    Missing(String),
}

/// A check by a program that is no part of this repository: how it is had, and how it is run.
struct Client {
    name: &'static str,
    need: Need,
    /// Its script below `xtask/external`.
    script: &'static str,
}

/// What a script needs to run.
enum Need {
    /// A program on the path.
    Program(&'static str),
    /// Packages of `PyPI`, in a virtual environment of their own.
    Python(&'static [&'static str]),
    /// Packages of npm.
    Node(&'static [&'static str]),
    /// Chromium, and node to drive it.
    Browser,
}

const CLIENTS: [Client; 8] = [
    Client { name: "curl", need: Need::Program("curl"), script: "curl.sh" },
    Client { name: "openai-python", need: Need::Python(&["openai"]), script: "openai_client.py" },
    Client { name: "openai-node", need: Need::Node(&["openai"]), script: "openai_client.mjs" },
    Client {
        name: "langchain",
        need: Need::Python(&["langchain-openai"]),
        script: "langchain_client.py",
    },
    Client { name: "promtool", need: Need::Program("promtool"), script: "promtool.sh" },
    Client {
        name: "schemathesis",
        need: Need::Python(&["schemathesis"]),
        script: "schemathesis.py",
    },
    Client { name: "aiperf", need: Need::Python(&["aiperf"]), script: "aiperf.sh" },
    Client { name: "page", need: Need::Browser, script: "page.mjs" },
];
const PROMPTS: &str = "prompts";
const USAGE: &str = "usage: cargo xtask check-external [--only NAME[,NAME…]] [DIR]

Runs what is not in the repository: clients and a load generator through the gateway over simulated
engines (curl, openai-python, openai-node, langchain, aiperf), promtool (Debian: `prometheus`) over the
alert rules, their tests and the page of a live gateway, schemathesis over the admin API and its OpenAPI
document, the status page in a headless Chromium (page; its pictures are left in target/external/page),
and, where DIR or KVASIR_TOKENIZERS names a directory of models, their prompts against recorded ones
(prompts).";

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    only: Option<Vec<String>>,
    models: Option<PathBuf>,
}

pub(crate) fn check_external(root: &Path, args: &[&str]) -> Result<ExitCode, (String, ExitCode)> {
    if matches!(args, ["--help" | "-h"]) {
        return Ok(crate::say(&[USAGE.to_owned()], ExitCode::SUCCESS));
    }
    let asked = Asked::parse(args).map_err(|why| (why, ExitCode::from(2)))?;
    let failed = |why: String| (why, ExitCode::FAILURE);
    let wanted: Vec<&Client> = CLIENTS.iter().filter(|client| asked.wants(client.name)).collect();
    let mut outcomes = Vec::new();
    if !wanted.is_empty() {
        let tools = Tools::new(root).map_err(failed)?;
        let fleet = Fleet::start(root).map_err(failed)?;
        for client in wanted {
            say(format!("== {}", client.name));
            let outcome = run(root, &tools, &fleet, client);
            say(outcome.line(client.name));
            outcomes.push((client.name, outcome));
        }
    }
    if asked.wants(PROMPTS) {
        say(format!("== {PROMPTS}"));
        let outcome = prompts::check(root, asked.models.clone());
        say(outcome.line(PROMPTS));
        outcomes.push((PROMPTS, outcome));
    }
    Ok(summary(&outcomes))
}

fn run(root: &Path, tools: &Tools, fleet: &Fleet, client: &Client) -> Outcome {
    let program = match tools.ready(client.name, &client.need) {
        Ok(program) => program,
        Err(why) => return Outcome::Missing(why),
    };
    let mut command = Command::new(program);
    command
        .arg(root.join("xtask/external").join(client.script))
        .env("BASE_URL", fleet.url())
        .env("MODEL", fleet::MODEL)
        .env("ROOT", root)
        .env("TOKENIZER", root.join("testdata/models/tiny"))
        .env("WORK", tools.dir())
        .env("PATH", tools.path(client.name));
    if let Need::Node(_) = client.need {
        command.current_dir(tools.dir());
    }
    // Ends with the check.
    let mut gateways = None;
    if let Need::Browser = client.need {
        match Gateways::start(root, tools.dir(), fleet) {
            Ok(started) => command.envs(gateways.insert(started).environment().iter().cloned()),
            Err(why) => return Outcome::Failed(why),
        };
    }
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(format!("{} ended with {status}", client.script)),
        Err(error) => Outcome::Missing(format!("{}: {error}", client.script)),
    }
}

fn summary(outcomes: &[(&str, Outcome)]) -> ExitCode {
    let of = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|(_, o)| wanted(o)).count();
    let missing = of(|outcome| matches!(outcome, Outcome::Missing(_)));
    let failed = of(|outcome| matches!(outcome, Outcome::Failed(_)));
    let mut lines = vec![String::new()];
    lines.extend(outcomes.iter().map(|(name, outcome)| outcome.line(name)));
    let run = outcomes.len() - missing;
    lines.push(format!("check-external: {run} run, {missing} missing, {failed} failed"));
    crate::say(&lines, if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(line: String) {
    crate::say(&[line], ExitCode::SUCCESS);
}

// === impl Outcome ===

impl Outcome {
    fn line(&self, name: &str) -> String {
        match self {
            Self::Passed => format!("passed   {name}"),
            Self::Failed(why) => format!("FAILED   {name}: {why}"),
            Self::Missing(why) => format!("missing  {name}: {why}"),
        }
    }
}

// === impl Asked ===

impl Asked {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let mut asked = Self::default();
        let mut args = args.iter().copied();
        while let Some(arg) = args.next() {
            match arg {
                "--only" => {
                    let names = args.next().ok_or("--only needs names")?;
                    asked.only = Some(checked(names)?);
                }
                _ if arg.starts_with('-') => {
                    return Err(format!("unknown option `{arg}`\n{USAGE}"));
                }
                _ if asked.models.is_some() => return Err("expected one directory".to_owned()),
                _ => asked.models = Some(PathBuf::from(arg)),
            }
        }
        Ok(asked)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == name))
    }
}

/// The names in a list, if there are such checks.
fn checked(names: &str) -> Result<Vec<String>, String> {
    let known: Vec<&str> = CLIENTS.iter().map(|client| client.name).chain([PROMPTS]).collect();
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => {
            Err(format!("there is no check `{unknown}`; there are {}", known.join(", ")))
        }
        None => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_checks_may_be_asked_for_by_name() {
        let all = Asked::parse(&["models"]).expect("a directory is allowed");
        assert_eq!(all.models, Some(PathBuf::from("models")));
        assert!(all.wants("curl") && all.wants(PROMPTS));
        let some = Asked::parse(&["--only", "curl,prompts"]).expect("both exist");
        assert!(some.wants("curl") && some.wants(PROMPTS) && !some.wants("aiperf"));
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        for args in [&["--only", "crul"][..], &["--only"], &["--all"], &["a", "b"]] {
            assert!(Asked::parse(args).is_err(), "{args:?}");
        }
    }
}
