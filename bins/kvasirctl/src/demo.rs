//! `kvasirctl demo`: one workload, several policies, one comparison.

mod gateway;
mod hold;
mod progress;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use kvasir_balance::PolicyKind;
use kvasir_demo::{
    Answer, Played, PolicyReport, Rounds, Shape, StagedModel, Workload, json, rounds_json,
    rounds_table, table, verdict,
};

use self::progress::Watch;
use self::stage::Stage;
use crate::args::DemoArgs;
use crate::usage::usage;
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
        return Err(usage(format!("--policies: `{}` is there twice", twice.1.name())));
    }
    let plays = parts(args).len() as u64 * u64::from(args.rounds);
    if args.seconds < plays {
        let rounds = if args.rounds > 1 { " in each round" } else { "" };
        let parts = parts(args).len();
        let seconds = args.seconds;
        let why = format!("at least one for each of {parts} policies{rounds}");
        return Err(usage(format!("--seconds {seconds}: {why}")));
    }
    Ok(())
}

/// How a workload is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Under a policy.
    Policy(PolicyKind),
    /// With each tenant at an engine of its own.
    Affine,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.name(),
            Self::Affine => "affine",
        }
    }

    /// The policy of its gateways.
    fn policy(self) -> PolicyKind {
        match self {
            Self::Policy(policy) => policy,
            // There is one engine to choose from.
            Self::Affine => PolicyKind::RoundRobin,
        }
    }

    /// Whether each engine has a gateway of its own.
    fn is_apart(self) -> bool {
        self == Self::Affine
    }
}

fn parts(args: &DemoArgs) -> Vec<Part> {
    let policies = args.policies.iter().map(|policy| Part::Policy(*policy));
    policies.chain(args.affine.then_some(Part::Affine)).collect()
}

/// What came of one part, in all rounds.
#[derive(Debug)]
struct Outcome {
    part: Part,
    urls: Vec<String>,
    answers: Vec<Answer>,
    rounds: Rounds,
}

impl Outcome {
    fn new(part: Part) -> Self {
        let (urls, answers) = (Vec::new(), Vec::new());
        Self { part, urls, answers, rounds: Rounds::new(part.name()) }
    }

    fn add(&mut self, stage: &Stage, answers: Vec<Answer>) {
        self.rounds.add(&answers);
        let urls = stage.engine_urls();
        if self.urls.is_empty() {
            self.urls.clone_from(&urls);
        }
        // Simulated engines are new ones in each round: they go by the first one's address.
        self.answers.extend(answers.into_iter().map(|mut answer| {
            let place = urls.iter().position(|url| answer.endpoint.as_ref() == Some(url));
            let first = place.and_then(|place| self.urls.get(place));
            answer.endpoint = first.cloned().or(answer.endpoint);
            answer
        }));
    }

    fn report(&self) -> PolicyReport {
        PolicyReport::new(self.part.name(), &self.urls, &self.answers)
    }
}

/// Plays every part and prints the comparison. What is to be held is returned.
async fn compare(args: &DemoArgs, model: &StagedModel) -> Result<Option<Stage>> {
    let engines = if args.running.is_empty() { args.engines.into() } else { args.running.len() };
    let kind = if args.running.is_empty() { "simulated" } else { "running" };
    let shape = Shape::for_engines(engines);
    let mut outcomes: Vec<Outcome> = parts(args).into_iter().map(Outcome::new).collect();
    let plays = u32::try_from(outcomes.len())? * u32::from(args.rounds);
    let each = Duration::from_secs(args.seconds) / plays;
    let watch = Watch;
    watch.note(&format!(
        "{engines} {kind} engines, {} users of {} tenants, seed {}; {plays} policies for {:.0} s \
         each",
        shape.users(),
        shape.tenants,
        args.seed,
        each.as_secs_f64(),
    ));
    let mut failures = Failures::default();
    let mut held = None;
    for round in 0..args.rounds {
        let workload = Arc::new(Workload::new(shape, args.seed.wrapping_add(round.into())));
        let count = outcomes.len();
        for (place, outcome) in outcomes.iter_mut().enumerate() {
            let stage = Stage::start(outcome.part, model, args).await?;
            let name = outcome.part.name();
            let played = watch.play(name, &stage.targets(), &workload, each).await;
            failures.add(name, &played);
            outcome.add(&stage, played.answers);
            let last = round + 1 == args.rounds && place + 1 == count;
            if args.hold && last && outcome.part == Part::Policy(PolicyKind::Latency) {
                held = Some(stage);
            } else {
                stage.stop().await;
            }
        }
        // What went first goes last the next time.
        outcomes.reverse();
    }
    if args.rounds % 2 == 1 {
        outcomes.reverse();
    }
    print(args, &outcomes)?;
    failures.check()?;
    if args.hold && held.is_none() {
        held = Some(Stage::start(Part::Policy(PolicyKind::Latency), model, args).await?);
    }
    Ok(held)
}

fn print(args: &DemoArgs, outcomes: &[Outcome]) -> Result<()> {
    let reports: Vec<PolicyReport> = outcomes.iter().map(Outcome::report).collect();
    let rounds: Vec<Rounds> = outcomes.iter().map(|outcome| outcome.rounds.clone()).collect();
    let repeated = args.rounds > 1 || args.affine;
    let text = if args.json {
        let mut all = json(&reports);
        if repeated {
            all["rounds"] = rounds_json(&rounds);
        }
        format!("{all}\n")
    } else {
        let verdict = verdict(&reports).map_or_else(String::new, |line| format!("\n{line}\n"));
        let rounds = if repeated { format!("\n{}", rounds_table(&rounds)) } else { String::new() };
        format!("{}{verdict}{rounds}", table(&reports))
    };
    crate::output::write(&text)
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
