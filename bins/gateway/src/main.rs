//! The gateway binary: reads arguments and configuration, wires the libraries, runs until asked to
//! stop. Exit status 0 after a clean stop, 1 where requests were cut off or something else went wrong,
//! 2 for a bad command line, 78 for a bad configuration.

mod address;
mod admin;
mod args;
mod bad_key;
mod client_keys;
mod controller;
mod doubtful;
mod forwarded;
mod inspect;
mod lifecycle;
mod loxilb;
mod next;
mod reload;
mod serve;
mod signals;
mod spec;
mod start;
mod telemetry;
mod url_mode;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use kvasir_config::Taken;

use crate::args::{Args, Command, ConfigCommand, ServeArgs, Told};
use crate::bad_key::is_bad_key;
use crate::lifecycle::End;
use crate::signals::Hangups;
use crate::start::Start;

/// Requests were cut off.
const CUT: u8 = 1;
/// What clap itself ends with.
const BAD_USAGE: u8 = 2;
/// `EX_CONFIG` of sysexits.h.
const BAD_CONFIG: u8 = 78;

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Serve(args) => serve(args),
        Command::Check(mut args) => {
            if !args.find_file() {
                return no_file("--config FILE");
            }
            inspected(inspect::check(&args))
        }
        Command::Config(ConfigCommand::Print(mut args)) => {
            args.find_file();
            inspected(inspect::print(&args))
        }
        Command::Config(ConfigCommand::Schema) => {
            inspect::schema();
            ExitCode::SUCCESS
        }
    }
}

fn inspected(result: anyhow::Result<()>) -> ExitCode {
    result.map_or_else(|error| fail(&error, BAD_CONFIG), |()| ExitCode::SUCCESS)
}

/// The command line does not say what to go by.
fn no_file(wanted: &str) -> ExitCode {
    let message = format!("the following required arguments were not provided: {wanted}\n");
    let error = Args::command().error(ErrorKind::MissingRequiredArgument, message);
    let _ = error.print();
    ExitCode::from(BAD_USAGE)
}

fn serve(mut args: ServeArgs) -> ExitCode {
    if !args.find_file() {
        return no_file("URL... or --config FILE");
    }
    let runtime = match serve::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, 1),
    };
    // While the configuration is read a stop needs no order, and ends the process as ever; that it is
    // to be read anew is no reason to end.
    let hangups = runtime.block_on(async { Hangups::wait() });
    let Told { config, said, taken } = match args.config() {
        Ok(read) => read,
        Err(error) => return fail(&error, BAD_CONFIG),
    };
    if let Err(error) = telemetry::start_logging(&config.log) {
        return fail(&said.locate(error), BAD_CONFIG);
    }
    tell(&taken);
    doubtful::of(&config).iter().for_each(|what| tracing::warn!("{what}"));
    // What the file refers to belongs to the configuration.
    let start = match Start::of(args, config, &said) {
        Ok(start) => start,
        Err(error) => return fail(&error, BAD_CONFIG),
    };
    match serve::run(runtime, hangups, start) {
        Ok(End::Clean) => ExitCode::SUCCESS,
        Ok(End::Cut) => ExitCode::from(CUT),
        Err(error) if is_bad_key(&error) => fail(&said.locate(error), BAD_CONFIG),
        Err(error) => fail(&error, 1),
    }
}

/// Says what the environment set, and what of it is in vain.
fn tell(taken: &[Taken]) {
    for Taken { name, key, without_effect } in taken {
        match without_effect {
            None => tracing::info!(variable = name, key, "set by the environment"),
            Some(why) => tracing::warn!(variable = name, key, why, "variable without effect"),
        }
    }
}

#[expect(clippy::print_stderr, reason = "the last word of a program that cannot go on")]
fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    eprintln!("kvasir-gateway: {error:#}");
    ExitCode::from(status)
}
