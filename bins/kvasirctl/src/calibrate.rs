//! `kvasirctl calibrate`: the simulator's cost model, from a live engine's times.

mod check;
mod client;
mod engine;
mod fit;
mod measure;
mod progress;
mod report;

use std::io::{Write as _, stdout};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::client::EngineClient;
use self::fit::{Observation, fit};
use self::report::Report;
use crate::args::CalibrateArgs;
use crate::{Ended, say, stop};

/// Nothing that is asked takes longer, whatever the limit of the whole.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures, fits, compares and reports; ends early on SIGINT or SIGTERM.
pub(crate) async fn run(args: CalibrateArgs) -> Result<Ended> {
    let stopped = stop::requested()?;
    let limit = Duration::from_secs(args.time_limit);
    let calibrated = tokio::time::timeout(limit + PATIENCE, calibrate(&args));
    tokio::select! {
        done = calibrated => {
            done.with_context(|| format!("not done within {} s", (limit + PATIENCE).as_secs()))??;
            Ok(Ended::Done)
        }
        () = stopped => Ok(Ended::Interrupted),
    }
}

async fn calibrate(args: &CalibrateArgs) -> Result<()> {
    let begun = Instant::now();
    let limit = Duration::from_secs(args.time_limit);
    let patience = PATIENCE.min(limit);
    let headers = args.headers.iter().cloned().collect();
    let client = EngineClient::new(args.engine.clone(), args.model.clone(), headers, patience);
    let limits = engine::ask(&client, &args.model, &args.limits).await?;
    // A workload to compare needs time of its own.
    let part = if args.no_check { 1.0 } else { 0.75 };
    let measurement = measure::measure(&client, args, &limits, begun + limit.mul_f64(part)).await?;
    if measurement.rounds < args.repeats {
        say(&format!(
            "time ran short: {} of {} rounds were measured",
            measurement.rounds, args.repeats
        ));
    }
    let observations: Vec<Observation> =
        measurement.all.iter().map(|measured| measured.observation.clone()).collect();
    let fitted = fit(&observations)?;
    let mut report = Report {
        engine: args.engine.to_string(),
        model: args.model.clone(),
        limits,
        measurement,
        fitted,
        compared: None,
    };
    if !args.no_check {
        let compared =
            check::check(&client, args, &report.limits, &report.fitted, begun + limit).await;
        match compared {
            Ok(compared) => report.compared = Some(compared),
            Err(error) => {
                // What was fitted is worth showing all the same.
                print(args, &report)?;
                return Err(error.context("comparing a workload"));
            }
        }
    }
    print(args, &report)
}

fn print(args: &CalibrateArgs, report: &Report) -> Result<()> {
    let text = if args.json { format!("{:#}\n", report.json()) } else { report.text() };
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
