//! One small workload on the live engine and on a simulated one with the fitted costs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kvasir_balance::{PolicySpec, Rng};
use kvasir_sim::{
    Asked, Engines, News, Options, Release, Saturation, SaturationState, Segment, SimPolicy,
    Spread, Workload, find_saturation, simulate,
};
use tokio::task::JoinSet;

use super::client::{EngineClient, Timed};
use super::engine::Limits;
use super::fit::Fitted;
use super::measure::FIRST_ID;
use crate::args::CalibrateArgs;
use crate::live_line::LiveLine;

/// One replica gets everything.
const POLICY: SimPolicy = SimPolicy::Own(PolicySpec::RoundRobin);
/// Beginnings that prompts share.
const GROUPS: usize = 6;
/// Requests by which the load is found that the fitted engine keeps up with.
const LONG_RUN: usize = 300;
/// Fewer requests compare nothing.
const LEAST: usize = 10;
/// No prompt is longer, whatever the engine takes.
const LONGEST: u32 = 8_192;

/// Times of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) ttft_ms: Spread,
    pub(super) e2e_ms: Spread,
    /// The part of all prompt tokens found in the cache; not where the engine does not tell.
    pub(super) hit_rate: Option<f64>,
}

/// Both sides.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) requests: usize,
    /// Arrivals a second.
    pub(super) rate: f64,
    /// Arrivals a second that the fitted engine keeps up with.
    pub(super) full_rate: f64,
    pub(super) live: Side,
    pub(super) simulated: Side,
}

/// Plays the workload on both; arrivals end before `deadline`.
pub(super) async fn check(
    client: &EngineClient,
    args: &CalibrateArgs,
    limits: &Limits,
    fitted: &Fitted,
    deadline: Instant,
) -> Result<Compared> {
    let mut options = options(args, limits, fitted)?;
    let long_run = workload(LONG_RUN, args, limits);
    let full = find_saturation(&long_run, &options, &POLICY, &mut |_, _| {})?;
    let full_rate = full_rate(&full)?;
    let rate = full_rate * args.check_load;
    let mut workload = workload(args.check_requests as usize, args, limits);
    let left = deadline.saturating_duration_since(Instant::now()).as_secs_f64();
    for asked in &mut workload.requests {
        if let Release::At(seconds) = &mut asked.release {
            *seconds /= rate;
        }
    }
    workload.requests.retain(|asked| matches!(asked.release, Release::At(at) if at < left));
    if workload.requests.len() < LEAST {
        bail!(
            "in the {left:.0} s left of --time-limit fewer than {LEAST} requests come at {rate:.2} \
             a second: give more time, or --no-check"
        );
    }
    let live = live(client, args, &workload).await?;
    options.time_scale = 1.0;
    let compared = simulate(&workload, &options, &[POLICY], &mut |_| {})?;
    let report = compared.policies.first().context("nothing was simulated")?;
    let simulated = Side {
        ttft_ms: report.ttft_ms,
        e2e_ms: report.e2e_ms,
        hit_rate: Some(report.token_hit_rate),
    };
    Ok(Compared { requests: workload.requests.len(), rate, full_rate, live, simulated })
}

fn options(args: &CalibrateArgs, limits: &Limits, fitted: &Fitted) -> Result<Options> {
    Ok(Options {
        replicas: 1,
        seed: args.seed,
        engine: Engines {
            block_size: limits.block_size as usize,
            cache_tokens: vec![limits.cache_tokens as usize],
            cost: fitted.cost,
            max_num_batched_tokens: limits.max_num_batched_tokens as usize,
            max_num_seqs: limits.max_num_seqs as usize,
            ..Engines::default()
        },
        news: News {
            dispatch_delay: Duration::try_from_secs_f64(fitted.request).context("a delay")?,
            ..News::default()
        },
        ..Options::default()
    })
}

fn full_rate(full: &Saturation) -> Result<f64> {
    match full.state {
        SaturationState::Measured => Ok(full.requests_per_second),
        SaturationState::AboveRange => bail!("the fitted engine never saturates"),
        SaturationState::BelowRange => bail!(
            "the fitted engine takes longer than a minute for a request: give more time, or \
             --no-check"
        ),
    }
}

/// Prompts that begin alike in groups and go on in their own way; one arrival a second on average,
/// at random.
fn workload(count: usize, args: &CalibrateArgs, limits: &Limits) -> Workload {
    let mut rng = Rng::new(args.seed);
    let mut between =
        |least: u32, most: u32| least + rng.below(most.saturating_sub(least) as usize + 1) as u32;
    let longest_answer = args.answer_tokens * 2;
    let longest = limits.max_model_len.saturating_sub(longest_answer).min(LONGEST);
    let groups: Vec<Segment> = (0..GROUPS as u64)
        .map(|id| Segment { id: id + 1, tokens: between(longest / 8, longest / 2).max(1) })
        .collect();
    let mut at = 0.0;
    let requests = (0..count)
        .map(|number| {
            let uniform = f64::from(between(0, 1 << 24)) / f64::from(1 << 24);
            at -= (1.0 - uniform).max(1e-9).ln();
            let group = between(0, GROUPS as u32 - 1) as usize;
            let own =
                Segment { id: (1 << 32) + number as u64, tokens: between(1, (longest / 4).max(1)) };
            Asked {
                release: Release::At(at),
                prompt: groups.get(group).copied().into_iter().chain([own]).collect(),
                output_tokens: between(args.answer_tokens / 2, longest_answer),
            }
        })
        .collect();
    Workload { name: "check".to_owned(), block_size: limits.block_size as usize, requests }
}

/// Sends every request at its time, whatever became of those before it.
async fn live(client: &EngineClient, args: &CalibrateArgs, workload: &Workload) -> Result<Side> {
    // Other tokens each time, so that nothing is cached of an earlier run.
    let salt = getrandom::u64().context("no randomness for new prompts")?;
    let span = u64::from(args.vocabulary.saturating_sub(FIRST_ID).max(1));
    let token = |token: u32| {
        let mixed = Rng::new(salt ^ u64::from(token)).next_u64();
        FIRST_ID + (mixed % span) as u32
    };
    let begun = tokio::time::Instant::now() + Duration::from_millis(50);
    let mut tasks = JoinSet::new();
    for asked in &workload.requests {
        let Release::At(at) = asked.release else { continue };
        let prompt: Vec<u32> = asked.tokens().into_iter().map(token).collect();
        let (client, answer) = (client.clone(), asked.output_tokens);
        let at = begun + Duration::try_from_secs_f64(at).context("an arrival")?;
        tasks.spawn(async move {
            tokio::time::sleep_until(at).await;
            let timed = client.complete(&prompt, answer).await?;
            Ok::<_, anyhow::Error>((timed, prompt.len() as u64))
        });
    }
    let mut line = LiveLine::new(Duration::ZERO);
    let mut answers = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        answers.push(ended.context("a request's task")??);
        line.draw(|| super::progress("comparing", answers.len(), workload.requests.len()));
    }
    line.clear();
    Ok(side(&answers))
}

fn side(answers: &[(Timed, u64)]) -> Side {
    let spread = |of: fn(&Timed) -> f64| {
        let mut all: Vec<f64> = answers.iter().map(|(timed, _)| of(timed) * 1e3).collect();
        all.sort_by(f64::total_cmp);
        Spread::of(&all)
    };
    let prompts: u64 = answers.iter().map(|(_, tokens)| tokens).sum();
    // Some releases say null where they mean 0.
    let told = answers.iter().any(|(timed, _)| timed.cached.is_some());
    let cached: u64 = answers.iter().filter_map(|(timed, _)| timed.cached).sum();
    Side {
        ttft_ms: spread(Timed::ttft),
        e2e_ms: spread(Timed::e2e),
        hit_rate: (told && prompts > 0).then(|| cached as f64 / prompts as f64),
    }
}
