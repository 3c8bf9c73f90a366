//! `kvasirctl calibrate`: the simulator's cost model, from a live engine's times.

mod check;
mod client;
mod engine;
mod fit;
mod measure;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::client::EngineClient;
use self::fit::{Observation, fit};
use self::report::Report;
use crate::args::CalibrateArgs;
use crate::live_line::bar;
use crate::{Ended, say, stop};

/// Nothing that is asked takes longer, whatever the limit of the whole.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures, fits, compares and reports; ends early on SIGINT or SIGTERM.
pub(crate) async fn run(args: CalibrateArgs) -> Result<Ended> {
    let stopped = stop::requested()?;
    tokio::select! {
        done = calibrate(&args) => done.map(|()| Ended::Done),
        () = stopped => Ok(Ended::Interrupted),
    }
}

async fn calibrate(args: &CalibrateArgs) -> Result<()> {
    let begun = Instant::now();
    let limit = Duration::from_secs(args.time_limit);
    let whole = limit + PATIENCE;
    let headers = args.headers.iter().cloned().collect();
    let patience = PATIENCE.min(limit);
    let client = EngineClient::new(args.engine.clone(), args.model.clone(), headers, patience);
    let mut report = within(begun, whole, fitted(&client, args, begun)).await?;
    if !args.no_check {
        let (limits, fitted) = (&report.limits, &report.fitted);
        let checked = check::check(&client, args, limits, fitted, begun + limit);
        // What was fitted is worth showing all the same.
        match within(begun, whole, checked).await {
            Ok(compared) => report.compared = Some(compared),
            Err(error) => report.check_error = Some(format!("{error:#}")),
        }
    }
    print(args, &report)
}

/// Everything but the comparison.
async fn fitted(client: &EngineClient, args: &CalibrateArgs, begun: Instant) -> Result<Report> {
    let limits = engine::ask(client, &args.model, &args.limits).await?;
    // A workload to compare needs time of its own.
    let part = if args.no_check { 1.0 } else { 0.75 };
    let until = begun + Duration::from_secs(args.time_limit).mul_f64(part);
    let measurement = measure::measure(client, args, &limits, until).await?;
    if measurement.rounds < args.repeats {
        say(&format!(
            "time ran short: {} of {} rounds were measured",
            measurement.rounds, args.repeats
        ));
    }
    let observations: Vec<Observation> =
        measurement.all.iter().map(|measured| measured.observation.clone()).collect();
    let fitted = fit(&observations)?;
    Ok(Report {
        engine: args.engine.to_string(),
        model: args.model.clone(),
        batches_cut: args.batches.iter().any(|answers| *answers > limits.max_num_seqs),
        limits,
        measurement,
        fitted,
        compared: None,
        check_error: None,
    })
}

/// Does it, but not for longer than `most` after `begun`.
async fn within<T>(
    begun: Instant,
    most: Duration,
    doing: impl Future<Output = Result<T>>,
) -> Result<T> {
    let done = tokio::time::timeout_at((begun + most).into(), doing).await;
    done.with_context(|| format!("not done within {} s", most.as_secs()))?
}

fn print(args: &CalibrateArgs, report: &Report) -> Result<()> {
    let text = if args.json { format!("{:#}\n", report.json()) } else { report.text() };
    crate::output::write(&text)
}

/// How far one of its parts is, for a terminal.
fn progress(what: &str, done: usize, all: usize) -> String {
    format!("{what:<12}{} {done}/{all}", bar(done, all))
}
