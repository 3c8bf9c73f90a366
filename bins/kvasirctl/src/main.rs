//! Kvasir's tool for operators: reads arguments, asks gateways and engines, wires the libraries, runs. Exit status 0 after a
//! clean end, 2 for arguments that cannot be, 130 where it was interrupted, 1 for anything else;
//! checks end with 1 where something is off, and with 3 where something could not be told.

mod args;
mod bundle;
mod calibrate;
mod change;
mod demo;
mod doctor;
mod engine_origin;
mod examine;
mod explain;
mod gateway;
mod get;
mod hash;
mod identity;
mod live_line;
mod output;
mod parity_check;
mod record;
mod replay;
mod residency;
mod routing;
mod sim_engine;
mod simulate;
mod stop;
mod table;
mod tokenize;
mod usage;
mod watch;

use std::future::Future;
use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{CommandFactory as _, Parser as _};
use tracing_subscriber::EnvFilter;

use crate::args::{Args, Command, CompletionsArgs};
use crate::change::State;

/// What clap itself ends with.
const BAD_USAGE: u8 = 2;
/// What a shell takes for "ended by SIGINT".
const INTERRUPTED: u8 = 130;
/// How long the runtime may take to end what still runs when everything is done.
const RUNTIME_END: Duration = Duration::from_secs(2);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Done,
    Interrupted,
    /// With an exit status of the command's own.
    Status(u8),
}

fn main() -> ExitCode {
    let ended = match Args::parse().command {
        Command::Get(args) => asked(get::run(*args)),
        Command::Explain(args) => asked(explain::run(*args)),
        Command::Drain(args) => asked(change::state(*args, State::Drain)),
        Command::Activate(args) => asked(change::state(*args, State::Active)),
        Command::Disable(args) => asked(change::state(*args, State::Disabled)),
        Command::Weight(args) => asked(change::weight(*args)),
        Command::Watch(args) => asked(watch::run(*args)),
        Command::Bundle(args) => asked(bundle::run(*args)),
        Command::Routing(args) => asked(routing::run(*args)),
        Command::Completions(args) => completions(args),
        Command::Calibrate(args) => {
            start_logging("error").and_then(|()| block_on(calibrate::run(*args)))
        }
        Command::Demo(args) => start_logging("error").and_then(|()| block_on(demo::run(args))),
        Command::ParityCheck(args) => {
            start_logging("error").and_then(|()| block_on(parity_check::run(*args)))
        }
        Command::Doctor(args) => start_logging("error").and_then(|()| block_on(doctor::run(args))),
        Command::Hash(args) => hash::run(*args),
        Command::Record(args) => start_logging("error").and_then(|()| block_on(record::run(*args))),
        Command::Replay(args) => replay::run(&args),
        Command::Residency(args) => start_logging("error").and_then(|()| residency::run(&args)),
        Command::SimEngine(args) => {
            start_logging("warn").and_then(|()| block_on(sim_engine::run(*args)))
        }
        Command::Simulate(args) => simulate::run(&args),
        Command::Tokenize(args) => tokenize::run(&args).map(|()| Ended::Done),
    };
    match ended {
        Ok(Ended::Done) => ExitCode::SUCCESS,
        Ok(Ended::Interrupted) => {
            say("interrupted");
            ExitCode::from(INTERRUPTED)
        }
        Ok(Ended::Status(status)) => ExitCode::from(status),
        Err(error) => {
            say(&format!("{error:#}"));
            if usage::is_usage(&error) { ExitCode::from(BAD_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// A command that asks a gateway.
fn asked(command: impl Future<Output = Result<Ended>>) -> Result<Ended> {
    start_logging("error").and_then(|()| block_on(command))
}

/// Prints the script for a shell.
fn completions(args: CompletionsArgs) -> Result<Ended> {
    let mut script = Vec::new();
    let mut command = Args::command();
    clap_complete::generate(args.shell, &mut command, "kvasirctl", &mut script);
    output::write(&String::from_utf8(script)?)?;
    Ok(Ended::Done)
}

fn block_on(command: impl Future<Output = Result<Ended>>) -> Result<Ended> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("no asynchronous runtime")?;
    let ended = runtime.block_on(command);
    runtime.shutdown_timeout(RUNTIME_END);
    ended
}

/// Logs go to standard error, from `level` on; `RUST_LOG` wins.
fn start_logging(level: &str) -> Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) => EnvFilter::try_new(text).context("RUST_LOG")?,
        Err(_) => EnvFilter::new(level),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr)
        .try_init()
        .map_err(|error| anyhow!("logging: {error}"))
}

/// One line for the user, on standard error.
#[expect(clippy::print_stderr, reason = "a program's messages to its user")]
fn say(line: &str) {
    eprintln!("kvasirctl: {line}");
}
