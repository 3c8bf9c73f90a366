//! The gateway binary: reads arguments and configuration, wires the libraries, runs until asked to
//! stop. Exit status 0 after a clean stop, 1 where requests were cut off or something else went wrong,
//! 2 for a bad command line, 78 for a bad configuration.

mod admin;
mod args;
mod client_keys;
mod lifecycle;
mod reload;
mod serve;
mod signals;
mod spec;
mod start;
mod telemetry;
mod url_mode;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::lifecycle::End;
use crate::signals::Hangups;
use crate::start::Start;

/// Requests were cut off.
const CUT: u8 = 1;
/// `EX_CONFIG` of sysexits.h.
const BAD_CONFIG: u8 = 78;

fn main() -> ExitCode {
    let Args { command: Command::Serve(args) } = Args::parse();
    let runtime = match serve::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, 1),
    };
    // While the configuration is read a stop needs no order, and ends the process as ever; that it is
    // to be read anew is no reason to end.
    let hangups = runtime.block_on(async { Hangups::wait() });
    let (config, text) = match args.config() {
        Ok(read) => read,
        Err(error) => return fail(&error, BAD_CONFIG),
    };
    if let Err(error) = telemetry::start_logging(&config.log) {
        return fail(&error, BAD_CONFIG);
    }
    // What the file refers to belongs to the configuration.
    let start = match Start::of(args, config, text) {
        Ok(start) => start,
        Err(error) => return fail(&error, BAD_CONFIG),
    };
    match serve::run(runtime, hangups, start) {
        Ok(End::Clean) => ExitCode::SUCCESS,
        Ok(End::Cut) => ExitCode::from(CUT),
        Err(error) if serve::is_bad_config(&error) => fail(&error, BAD_CONFIG),
        Err(error) => fail(&error, 1),
    }
}

#[expect(clippy::print_stderr, reason = "the last word of a program that cannot go on")]
fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    eprintln!("kvasir-gateway: {error:#}");
    ExitCode::from(status)
}
