//! The weight controller's binary: reads arguments and environment, starts it, runs until asked to stop.
//! Exit status 0 after a stop, 1 where something went wrong, 2 for a bad command line, 78 for a registry,
//! variable or file that cannot be used.

mod args;
mod environment;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use kvasir_advice::controller::{Controller, ControllerError};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::args::Args;
use crate::environment::variable;

/// `EX_CONFIG` of sysexits.h.
const BAD_CONFIG: u8 = 78;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let listening = matches!(error.downcast_ref(), Some(ControllerError::Listen { .. }));
            fail(&error, if listening { 1 } else { BAD_CONFIG })
        }
    }
}

fn run(args: &Args) -> Result<()> {
    start_logging()?;
    let settings = args.settings()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anybody can connect.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let controller = Controller::bind(settings).await?;
        let (grpc, metrics) = controller.addresses().context("the ports are gone")?;
        tracing::info!(%grpc, %metrics, "advising");
        tokio::select! {
            () = controller.run() => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopped");
        Ok(())
    })
}

/// To standard error; `RUST_LOG` wins over `AICTRL_LOG_LEVEL`.
fn start_logging() -> Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) => EnvFilter::try_new(text).context("RUST_LOG")?,
        Err(_) => {
            let level = variable("AICTRL_LOG_LEVEL")?.unwrap_or_else(|| "info".to_owned());
            EnvFilter::try_new(level).context("AICTRL_LOG_LEVEL")?
        }
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr);
    subscriber.try_init().map_err(|error| anyhow!("logging: {error}"))
}

#[expect(clippy::print_stderr, reason = "the last word of a program that cannot go on")]
fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    eprintln!("kvasir-controller: {error:#}");
    ExitCode::from(status)
}
