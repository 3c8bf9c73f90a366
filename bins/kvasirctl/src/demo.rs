//! `kvasirctl demo`: one workload, several policies, one comparison.

mod gateway;
mod hold;
mod progress;
mod stage;

use std::io::{Write as _, stdout};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use kvasir_balance::PolicyKind;
use kvasir_demo::{Played, PolicyReport, Shape, StagedModel, Workload, json, table, verdict};

use self::progress::Watch;
use self::stage::Stage;
use crate::args::DemoArgs;
use crate::{Ended, say, stop};

/// Plays and reports; ends early on SIGINT or SIGTERM.
pub(crate) async fn run(args: DemoArgs) -> Result<Ended> {
    check(&args)?;
    let stopped = stop::requested()?;
    let model = StagedModel::create(StagedModel::NAME)?;
    tokio::pin!(stopped);
    let stage = tokio::select! {
        compared = compare(&args, &model) => compared?,
        () = &mut stopped => return Ok(Ended::Interrupted),
    };
    if let Some(stage) = stage {
        hold::invite(&stage, args.json)?;
        stopped.await;
        stage.stop().await;
    }
    Ok(Ended::Done)
}

fn check(args: &DemoArgs) -> Result<()> {
    let policies = &args.policies;
    if let Some(twice) = policies.iter().enumerate().find(|(at, p)| policies[..*at].contains(p)) {
        bail!("--policies: `{}` is there twice", twice.1.name());
    }
    if args.seconds < policies.len() as u64 {
        bail!("--seconds {}: at least one for each of {} policies", args.seconds, policies.len());
    }
    Ok(())
}

/// Plays under every policy and prints the comparison. What is to be held is returned.
async fn compare(args: &DemoArgs, model: &StagedModel) -> Result<Option<Stage>> {
    let engines = if args.running.is_empty() { args.engines.into() } else { args.running.len() };
    let kind = if args.running.is_empty() { "simulated" } else { "running" };
    let shape = Shape::for_engines(engines);
    let workload = Arc::new(Workload::new(shape, args.seed));
    let each = Duration::from_secs(args.seconds) / u32::try_from(args.policies.len())?;
    let watch = Watch::new();
    watch.note(&format!(
        "{engines} {kind} engines, {} users of {} tenants, seed {}; {} policies for {:.0} s each",
        shape.users(),
        shape.tenants,
        args.seed,
        args.policies.len(),
        each.as_secs_f64(),
    ));
    let mut reports = Vec::new();
    let mut failures = Failures::default();
    let mut held = None;
    for (place, policy) in args.policies.iter().enumerate() {
        let stage = Stage::start(*policy, model, args).await?;
        let played = watch.play(policy.name(), &stage.target(), &workload, each).await;
        reports.push(PolicyReport::new(policy.name(), &stage.engine_urls(), &played.answers));
        failures.add(policy.name(), &played);
        let keep = args.hold && place + 1 == args.policies.len() && *policy == PolicyKind::Latency;
        if keep {
            held = Some(stage);
        } else {
            stage.stop().await;
        }
    }
    print(args, &reports)?;
    failures.check()?;
    if args.hold && held.is_none() {
        held = Some(Stage::start(PolicyKind::Latency, model, args).await?);
    }
    Ok(held)
}

fn print(args: &DemoArgs, reports: &[PolicyReport]) -> Result<()> {
    let text = if args.json {
        format!("{}\n", json(reports))
    } else {
        let verdict = verdict(reports).map_or_else(String::new, |line| format!("\n{line}\n"));
        format!("{}{verdict}", table(reports))
    };
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// What went wrong under any policy.
#[derive(Debug, Default)]
struct Failures {
    requests: u64,
    failed: u64,
    first: Option<String>,
    unanswered: Option<&'static str>,
}

impl Failures {
    fn add(&mut self, policy: &'static str, played: &Played) {
        self.requests += played.answers.len() as u64 + played.failed;
        self.failed += played.failed;
        if let (None, Some(error)) = (&self.first, &played.first_failure) {
            self.first = Some(format!("under {policy}: {error}"));
        }
        if played.answers.is_empty() {
            self.unanswered.get_or_insert(policy);
        }
    }

    fn check(&self) -> Result<()> {
        if self.failed > 0 {
            let first = self.first.as_deref().unwrap_or("unknown");
            bail!("{} of {} requests failed; the first {first}", self.failed, self.requests);
        }
        match self.unanswered {
            Some(policy) => bail!("nobody got an answer under {policy}"),
            None => Ok(()),
        }
    }
}

/// A line for whoever follows along.
fn note(line: &str) {
    say(line);
}
