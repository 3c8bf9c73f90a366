//! `kvasirctl simulate`: one workload, several policies, virtual time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kvasir_engine_sim::{ConfigError, CostModel};
use kvasir_sim::{
    Comparison, Engines, Fleet, LogError, News, Options, OptionsError, Progress, Saturation,
    SaturationState, SimPolicy, Tenants, Workload, conformance, csv, find_saturation, json, plot,
    simulate_fleets, simulate_logged, table,
};

use crate::Ended;
use crate::args::{SimulateArgs, seconds};
use crate::live_line::{LiveLine, bar};
use crate::output::write;
use crate::usage::usage;

/// Requests of a made-up workload, unless told.
const DEFAULT_REQUESTS: usize = 2_000;
const REDRAW: Duration = Duration::from_millis(100);

/// Simulates and reports.
pub(crate) fn run(args: &SimulateArgs) -> Result<Ended> {
    match &args.conformance {
        Some(policy) => conforms(args, policy),
        None => compare(args).map(|()| Ended::Done),
    }
}

/// Exit status 1 where the policy does not pass.
fn conforms(args: &SimulateArgs, policy: &SimPolicy) -> Result<Ended> {
    let trace = Tenants::default();
    let found = conformance(trace, &options(args, Tenants::BLOCK_SIZE), policy)
        .map_err(|error| refused(&error))?;
    write(&if args.json { found.json() + "\n" } else { found.text() })?;
    Ok(if found.passed { Ended::Done } else { Ended::Status(1) })
}

fn compare(args: &SimulateArgs) -> Result<()> {
    let policies = &args.policies();
    if let Some(twice) = policies.iter().enumerate().find(|(at, p)| policies[..*at].contains(p)) {
        return Err(usage(format!("--policies: `{}` is there twice", twice.1.name())));
    }
    let fleets = &args.fleets();
    if let Some(twice) = fleets.iter().enumerate().find(|(at, f)| fleets[..*at].contains(f)) {
        return Err(usage(format!("--split: `{}` is there twice", twice.1)));
    }
    let workload = workload(args)?;
    let mut options = options(args, workload.block_size);
    let mut line = LiveLine::new(REDRAW);
    if args.find_saturation {
        return write(&saturations(&all_saturations(&workload, &options, args, &mut line)?, args));
    }
    if let Some(load) = args.load {
        let round_robin = SimPolicy::from(kvasir_balance::PolicyKind::RoundRobin);
        let unified = options.fleet().replicas();
        let whole = options.with_fleet(Fleet { unified, ..Fleet::default() });
        let full = saturation(&workload, &whole, &round_robin, &mut line)?;
        options.time_scale = full_load(&full)? * load;
    }
    let mut show = |progress: Progress<'_>| draw(&mut line, progress, "");
    let comparison = match &args.decisions {
        Some(path) => {
            let [policy] = &policies[..] else {
                return Err(usage("--decisions: give one policy in --policies"));
            };
            if fleets.len() > 1 {
                return Err(usage("--decisions: give one fleet in --split"));
            }
            logged(path, &workload, &options, policy, &mut show)?
        }
        None => simulate_fleets(&workload, &options, fleets, policies, &mut show)
            .map_err(|error| refused(&error))?,
    };
    line.clear();
    if let Some(path) = &args.plot {
        std::fs::write(path, plot(&comparison)).with_context(|| path.display().to_string())?;
    }
    write(&match (args.json, args.csv) {
        (true, _) => json(&comparison) + "\n",
        (_, true) => csv(&comparison),
        _ => table(&comparison),
    })
}

/// Simulates one policy and logs its decisions.
fn logged(
    path: &Path,
    workload: &Workload,
    options: &Options,
    policy: &SimPolicy,
    draw: &mut dyn FnMut(Progress<'_>),
) -> Result<Comparison> {
    let open = || Ok(Box::new(BufWriter::new(File::create(path)?)) as Box<dyn Write + Send>);
    match simulate_logged(workload, options, policy, open, draw) {
        Ok(comparison) => Ok(comparison),
        Err(LogError::Options(error)) => Err(refused(&error)),
        Err(LogError::Write(error)) => Err(error).with_context(|| path.display().to_string()),
        Err(error @ (LogError::Peer(_) | LogError::Gateways(_))) => {
            Err(usage(format!("--decisions: {error}")))
        }
    }
}

fn workload(args: &SimulateArgs) -> Result<Workload> {
    let requests = args.requests.map(|requests| requests as usize);
    match (&args.trace, args.workload) {
        (Some(path), _) => {
            let mut workload = Workload::read_trace(path)?;
            if let Some(requests) = requests {
                workload.truncate(requests);
            }
            Ok(workload)
        }
        (None, Some(synthetic)) => {
            Ok(synthetic.generate(requests.unwrap_or(DEFAULT_REQUESTS), args.seed))
        }
        (None, None) => Err(usage("--trace, --workload or --conformance is needed")),
    }
}

fn options(args: &SimulateArgs, block_size: usize) -> Options {
    let mut cost = CostModel::MID_GPU;
    args.engines.cost.iter().for_each(|(part, seconds)| part.set(&mut cost, *seconds));
    let first = args.fleets().first().copied().unwrap_or_default();
    let options = Options {
        split: args.hand_over(),
        gateways: args.gateways,
        time_scale: args.time_scale,
        seed: args.seed,
        engine: Engines {
            block_size: args.engines.block_size.unwrap_or(block_size),
            cache_tokens: args.engines.cache_tokens.clone(),
            speeds: args.engines.speeds.clone(),
            cost,
            max_num_batched_tokens: args.engines.max_num_batched_tokens,
            max_num_seqs: args.engines.max_num_seqs,
            ..Engines::default()
        },
        news: News {
            dispatch_delay: seconds(args.news.dispatch_delay / 1_000.0),
            event_delay: seconds(args.news.event_delay / 1_000.0),
            event_loss: args.news.event_loss,
            replay: !args.news.no_replay,
            events: !args.news.no_events,
            scrape_interval: seconds(args.news.scrape_interval),
            told_speeds: args.news.told_speeds,
            ..News::default()
        },
        restarts: args.restarts.clone(),
        ..Options::default()
    };
    options.with_fleet(first)
}

/// Options by what the simulation calls them, and their flags.
const FLAGS: [(&str, &str); 11] = [
    ("number of cache sizes", "cache-tokens"),
    ("number of speeds", "speeds"),
    ("speed", "speeds"),
    ("scrape interval, s", "scrape-interval"),
    ("transfer time, s", "transfer-ms"),
    ("restart: replica", "restart"),
    ("restart: second", "restart"),
    ("restart: down", "restart"),
    ("max_num_batched_tokens", "max-num-batched-tokens"),
    ("max_num_seqs", "max-num-seqs"),
    ("block_size", "block-size"),
];

/// What is wrong with an option, by its flag.
fn refused(error: &OptionsError) -> anyhow::Error {
    let flag = match error {
        OptionsError::Range { name, .. }
        | OptionsError::Engine(ConfigError::OutOfRange { name, .. }) => {
            FLAGS.iter().find(|(known, _)| known == name).map_or(*name, |(_, flag)| flag)
        }
        OptionsError::NobodyAnswers(_) => "split",
        OptionsError::NoPairs { .. } => "policies",
        OptionsError::CacheTooSmall { .. } => "cache-tokens",
        OptionsError::Engine(ConfigError::Cost { .. }) => "cost",
        OptionsError::Engine(_) => return usage(error.to_string()),
    };
    usage(format!("--{flag}: {error}"))
}

/// Of every policy in every fleet.
fn all_saturations(
    workload: &Workload,
    options: &Options,
    args: &SimulateArgs,
    line: &mut LiveLine,
) -> Result<Vec<Saturation>> {
    let mut found = Vec::new();
    for fleet in args.fleets() {
        let options = options.with_fleet(fleet);
        for policy in args.policies() {
            found.push(saturation(workload, &options, &policy, line)?);
        }
    }
    Ok(found)
}

fn saturation(
    workload: &Workload,
    options: &Options,
    policy: &SimPolicy,
    line: &mut LiveLine,
) -> Result<Saturation> {
    let mut show =
        |scale: f64, progress: Progress<'_>| draw(line, progress, &format!(" x {scale:.3}"));
    let found =
        find_saturation(workload, options, policy, &mut show).map_err(|error| refused(&error))?;
    line.clear();
    Ok(found)
}

/// The time scale of full load, where it was measured.
fn full_load(found: &Saturation) -> Result<f64> {
    let (name, scale) = (found.policy.name(), found.time_scale);
    match found.state {
        SaturationState::Measured => Ok(scale),
        SaturationState::AboveRange => bail!(
            "--load: {name} still keeps up with arrivals {scale} times as fast, so full load is \
             not known; give more requests or --time-scale"
        ),
        SaturationState::BelowRange => bail!(
            "--load: {name} does not keep up even with arrivals {scale} times as fast, so full \
             load is not known: requests that all come at once, or only a few of them, cannot \
             show it; give more requests or --time-scale"
        ),
    }
}

fn saturations(found: &[Saturation], args: &SimulateArgs) -> String {
    let fleets = args.fleets();
    let by_fleet = fleets.len() > 1 || fleets.iter().any(|fleet| fleet.splits());
    let name = |found: &Saturation| match by_fleet {
        true => format!("{} {}", found.policy.name(), found.fleet),
        false => found.policy.name(),
    };
    if args.json {
        let policies = found.iter().map(|found| {
            let numbers = serde_json::json!({
                "state": found.state.as_str(),
                "time_scale": found.time_scale,
                "requests_per_second": found.requests_per_second,
            });
            (name(found), numbers)
        });
        let policies: serde_json::Map<_, _> = policies.collect();
        return format!("{:#}\n", serde_json::json!({ "saturation": policies }));
    }
    let lines = found.iter().map(|found| {
        let Saturation { state, time_scale, requests_per_second, .. } = found;
        let name = name(found);
        let bound = match state {
            SaturationState::Measured => "",
            SaturationState::AboveRange => "not found, above ",
            SaturationState::BelowRange => "not found, below ",
        };
        format!("{name}: {bound}arrivals x {time_scale:.3}, {requests_per_second:.2} requests/s\n")
    });
    lines.collect()
}

/// How far a policy is.
fn draw(line: &mut LiveLine, progress: Progress<'_>, note: &str) {
    let Progress { policy, fleet, ended, requests, .. } = progress;
    let fleet = if fleet.splits() { format!(" {fleet}") } else { String::new() };
    let name = policy.name() + &fleet;
    line.draw(|| format!("{name:<20}{} {ended}/{requests}{note}", bar(ended, requests)));
}
