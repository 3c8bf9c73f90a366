//! Repository tasks: `cargo xtask <task>`.

mod check_external;
mod child;
mod cli;
mod cost;
mod golden;
mod metrics;
mod parity_check;
mod proto;
mod run;
mod tidy;

use std::env;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <task>

tasks:
  tidy                  check layers, manifests and text of the repository
  cost [ARGS]           instructions of a request through the gateway, by stage; needs valgrind (--help)
  metrics               write docs/metrics.md from the catalogue of metric families
  cli                   write docs/cli.md from what all binaries' --help says
  golden [FLAGS]        make the golden vectors again from the engines' published packages (--help)
  proto                 make the code of the controller's contract again from its .proto files
  parity-check ARGS     check a live engine, leg by leg: `kvasirctl parity-check` (--help)
  check-external ARGS   run what is not in the repository: clients, a load generator, real models (--help)";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["tidy"] => run_tidy(),
        ["check-external", rest @ ..] => ended(check_external::check_external(&root(), rest)),
        ["cost", rest @ ..] => match cost::cost(&root(), rest) {
            Ok(lines) => say(&lines, ExitCode::SUCCESS),
            Err((why, code)) => say(&[format!("error: {why}")], code),
        },
        ["metrics"] => ended(metrics::metrics(&root())),
        ["cli"] => ended(cli::cli(&root())),
        ["golden", rest @ ..] => ended(golden::golden(&root(), rest)),
        ["proto"] => ended(proto::proto(&root())),
        ["parity-check", rest @ ..] => ended(parity_check::parity_check(rest)),
        ["help" | "--help" | "-h"] => say(&[USAGE.to_owned()], ExitCode::SUCCESS),
        _ => say(&[USAGE.to_owned()], ExitCode::from(2)),
    }
}

fn run_tidy() -> ExitCode {
    let tree = match tidy::Tree::load(&root()) {
        Ok(tree) => tree,
        Err(e) => return say(&[format!("error: {e}")], ExitCode::FAILURE),
    };
    let mut lines: Vec<String> = tidy::notes(&tree).iter().map(|n| format!("note: {n}")).collect();
    let errors: Vec<String> = tidy::CHECKS.iter().flat_map(|(_, check)| check(&tree)).collect();
    lines.extend(errors.iter().map(|e| format!("error: {e}")));
    if errors.is_empty() {
        lines.push(format!("tidy: {} checks passed", tidy::CHECKS.len()));
        return say(&lines, ExitCode::SUCCESS);
    }
    lines.push(format!("tidy: {} errors", errors.len()));
    say(&lines, ExitCode::FAILURE)
}

/// The status of a task that another program did, or says why it could not.
fn ended(outcome: Result<ExitCode, (String, ExitCode)>) -> ExitCode {
    outcome.unwrap_or_else(|(why, code)| say(&[format!("error: {why}")], code))
}

/// The workspace root: this crate lies directly below it.
fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Writes the lines to standard output; output that nobody reads changes nothing.
fn say(lines: &[String], code: ExitCode) -> ExitCode {
    let mut out = io::stdout().lock();
    for line in lines {
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    code
}
