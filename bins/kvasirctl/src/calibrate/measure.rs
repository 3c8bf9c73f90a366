//! Times prompts of several lengths and several answers at once, in rounds.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kvasir_balance::Rng;
use tokio::task::JoinSet;

use super::client::{EngineClient, Timed};
use super::engine::Limits;
use super::fit::{Observation, Step};
use crate::args::{CalibrateArgs, Reading};
use crate::live_line::LiveLine;

/// Least and most tokens of prompts whose lengths nobody chose.
const SHORTEST: u32 = 8;
const LONGEST: u32 = 8_192;
/// Lengths in between, as parts of the longest.
const PARTS: [f64; 5] = [0.06, 0.12, 0.25, 0.5, 0.75];
/// Prompt of each of several answers at once: little to compute before all of them answer.
const BATCH_PROMPT: u32 = 32;
/// Room for prompts without which nothing is measured.
const LEAST_PROMPT: u32 = 64;
/// Requests before the first that counts.
const WARM_UP: usize = 2;
/// Marks of one answer that its pace is taken from: their pairs are some 33 thousand.
const PACE_MARKS: usize = 256;
/// Ids below this are often special tokens.
pub(super) const FIRST_ID: u32 = 256;

/// What is sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    answers: u32,
    prompt: u32,
}

/// What a quantity is the time of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// From sending a prompt to its first token.
    FirstToken { prompt: u32 },
    /// A step that gives each of so many answers a token.
    Step { answers: u32, prompt: u32 },
}

/// All readings of one quantity.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) what: What,
    /// The time that counts, and what is done in it.
    pub(super) observation: Observation,
    /// Seconds, ascending; never empty.
    pub(super) readings: Vec<f64>,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) all: Vec<Measured>,
    /// Rounds that were completed.
    pub(super) rounds: u32,
    pub(super) requests: usize,
    /// Whether the engine says what it found in its cache.
    pub(super) cached_told: bool,
}

/// Measures until every point was read so often, or until `deadline`.
pub(super) async fn measure(
    client: &EngineClient,
    args: &CalibrateArgs,
    limits: &Limits,
    deadline: Instant,
) -> Result<Measurement> {
    let points = points(args, limits)?;
    let mut rng = Rng::new(args.seed);
    let mut tokens = Rng::new(getrandom::u64().context("no randomness for new prompts")?);
    let mut readings: Vec<Vec<Vec<Timed>>> = vec![Vec::new(); points.len()];
    let mut line = LiveLine::new(Duration::ZERO);
    let (mut requests, mut told) = (0, false);
    let warm_up = Point { answers: 1, prompt: SHORTEST };
    for _ in 0..WARM_UP {
        run(client, args, warm_up, &mut tokens).await?;
    }
    let mut rounds = 0;
    'rounds: while rounds < args.repeats {
        for (place, at) in shuffled(points.len(), &mut rng).into_iter().enumerate() {
            if Instant::now() > deadline {
                break 'rounds;
            }
            let done = rounds as usize * points.len() + place;
            line.draw(|| super::progress("measuring", done, args.repeats as usize * points.len()));
            let Some(point) = points.get(at) else { continue };
            let answers = run(client, args, *point, &mut tokens).await?;
            requests += answers.len();
            told |= answers.iter().any(|answer| answer.cached.is_some());
            if let Some(found) = answers.iter().filter_map(|a| a.cached).find(|n| *n > 0) {
                bail!(
                    "the engine found {found} tokens of a random prompt in its cache: it answers \
                     from something else than these prompts, or does not take token ids as they are"
                );
            }
            if let Some(list) = readings.get_mut(at) {
                list.push(answers);
            }
        }
        rounds += 1;
    }
    line.clear();
    if rounds == 0 {
        bail!(
            "not one round of {} points in time: a longer --time-limit, or fewer or shorter \
               --prompts",
            points.len()
        );
    }
    let mut all = Vec::new();
    for (point, rounds_of) in points.iter().zip(&readings) {
        all.extend(evaluate(
            args.fit,
            *point,
            rounds_of.get(..rounds as usize).unwrap_or_default(),
            limits,
        )?);
    }
    Ok(Measurement { all, rounds, requests, cached_told: told })
}

/// What to measure: single prompts of several lengths, and several short ones at once.
fn points(args: &CalibrateArgs, limits: &Limits) -> Result<Vec<Point>> {
    let fits = limits.max_model_len.min(limits.cache_tokens);
    if fits < 2 * args.answer_tokens + LEAST_PROMPT {
        bail!(
            "an engine for {fits} tokens is too small for answers of {0} and twice {0} tokens: \
             fewer --answer-tokens",
            args.answer_tokens
        );
    }
    let most = fits.saturating_sub(args.answer_tokens);
    let longest = if limits.assumed.contains(&"max_num_batched_tokens") {
        // Chunks of a budget nobody knows are not measured.
        most.min(LONGEST).min(limits.max_num_batched_tokens)
    } else {
        most.min(LONGEST)
    };
    let mut lengths = args.prompts.clone();
    if lengths.is_empty() {
        // Parts of a number of 32 bits.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "parts")]
        let parts = PARTS.iter().map(|part| (f64::from(longest) * part) as u32);
        lengths = parts.chain([SHORTEST, longest]).collect();
    }
    lengths.sort_unstable();
    lengths.dedup();
    if let Some(long) = lengths.iter().find(|length| **length > most) {
        bail!(
            "--prompts: {long} tokens and an answer of {} exceed what the engine holds, {fits}",
            args.answer_tokens
        );
    }
    let singles = lengths.iter().map(|&prompt| Point { answers: 1, prompt });
    let batches = batches(&args.batches, limits.max_num_seqs).into_iter();
    let batches = batches.map(|answers| Point { answers, prompt: BATCH_PROMPT.min(most) });
    Ok(singles.chain(batches).collect())
}

/// Numbers of answers at a time, none more than the engine runs at once; ascending. Empty where it
/// runs one.
fn batches(asked: &[u32], max_num_seqs: u32) -> Vec<u32> {
    let mut batches: Vec<u32> =
        asked.iter().map(|answers| *answers.min(&max_num_seqs)).filter(|n| *n > 1).collect();
    batches.sort_unstable();
    batches.dedup();
    batches
}

fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    (1..count).rev().for_each(|at| order.swap(at, rng.below(at + 1)));
    order
}

/// Sends a point's prompts, all at once.
async fn run(
    client: &EngineClient,
    args: &CalibrateArgs,
    point: Point,
    tokens: &mut Rng,
) -> Result<Vec<Timed>> {
    // Answers begin one after another, and count only while all of them go on.
    let answer = args.answer_tokens * if point.answers > 1 { 2 } else { 1 };
    let span = args.vocabulary.saturating_sub(FIRST_ID).max(1) as usize;
    let mut tasks = JoinSet::new();
    for _ in 0..point.answers {
        let prompt: Vec<u32> =
            (0..point.prompt).map(|_| FIRST_ID + tokens.below(span) as u32).collect();
        let client = client.clone();
        tasks.spawn(async move { client.complete(&prompt, answer).await });
    }
    let mut answers = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        answers.push(ended.context("a request's task")??);
    }
    Ok(answers)
}

/// Boils the rounds of a point down.
fn evaluate(
    which: Reading,
    point: Point,
    rounds: &[Vec<Timed>],
    limits: &Limits,
) -> Result<Vec<Measured>> {
    let Point { answers, prompt } = point;
    let mut measured = Vec::new();
    if answers == 1 {
        let readings = rounds.iter().flatten().map(Timed::ttft).collect();
        let steps = chunks(prompt, limits.max_num_batched_tokens);
        measured.extend(boil(which, What::FirstToken { prompt }, true, steps, readings));
    }
    let common: Vec<Common> = rounds.iter().filter_map(|answers| common(answers, prompt)).collect();
    if common.is_empty() {
        bail!(
            "{answers} answers at a time never overlapped for two tokens: more --answer-tokens, or \
             fewer --batches"
        );
    }
    let context = common.iter().map(|step| step.context).sum::<f64>() / common.len() as f64;
    let steps = vec![Step {
        requests: f64::from(answers),
        tokens: f64::from(answers),
        pairs: 0.0,
        context,
    }];
    let readings = common.iter().map(|step| step.seconds).collect();
    measured.extend(boil(which, What::Step { answers, prompt }, false, steps, readings));
    Ok(measured)
}

fn boil(
    which: Reading,
    what: What,
    request: bool,
    steps: Vec<Step>,
    mut readings: Vec<f64>,
) -> Option<Measured> {
    readings.sort_by(f64::total_cmp);
    let seconds = match which {
        Reading::Median => median(&readings)?,
        Reading::Least => *readings.first()?,
    };
    Some(Measured { what, observation: Observation { request, steps, seconds }, readings })
}

/// The steps of a prompt that is alone at the engine.
pub(super) fn chunks(prompt: u32, budget: u32) -> Vec<Step> {
    let (mut done, mut steps) = (0_u64, Vec::new());
    let (prompt, budget) = (u64::from(prompt), u64::from(budget.max(1)));
    while done < prompt {
        let n = budget.min(prompt - done);
        let pairs = n * done + n * (n + 1) / 2;
        steps.push(Step { requests: 1.0, tokens: n as f64, pairs: pairs as f64, context: 0.0 });
        done += n;
    }
    steps
}

/// The average step of some answers while all of them go on.
struct Common {
    seconds: f64,
    /// Of all answers together.
    context: f64,
}

fn common(answers: &[Timed], prompt: u32) -> Option<Common> {
    // The first token brings the head of the answer along, and may be late for that.
    let from = answers.iter().filter_map(|answer| answer.marks.get(1)).map(|mark| mark.0).max()?;
    let to = answers.iter().filter_map(|answer| answer.marks.last()).map(|mark| mark.0).min()?;
    let (mut seconds, mut context) = (0.0, 0.0);
    for answer in answers {
        let within = |mark: &&(Instant, u32)| mark.0 >= from && mark.0 <= to;
        let marks: Vec<(Instant, u32)> = answer.marks.iter().filter(within).copied().collect();
        let (first, last) = (marks.first()?.1, marks.last()?.1);
        if last - first < 2 {
            return None;
        }
        seconds += pace(&marks)?;
        // The n-th token is computed from the prompt and all but the last of those before it.
        context += f64::from(prompt) + f64::from(first + last - 1) / 2.0;
    }
    Some(Common { seconds: seconds / answers.len() as f64, context })
}

/// Seconds a token, of at least two marks: the median of what all pairs of them say, so that a few
/// that were seen late change nothing. Of many marks, pairs of some.
fn pace(marks: &[(Instant, u32)]) -> Option<f64> {
    let marks: Vec<&(Instant, u32)> = thinned(marks).collect();
    let mut slopes = Vec::new();
    for (at, (begun, first)) in marks.iter().enumerate() {
        for (ended, last) in marks.iter().skip(at + 1) {
            let tokens = f64::from(last.saturating_sub(*first).max(1));
            slopes.push(ended.saturating_duration_since(*begun).as_secs_f64() / tokens);
        }
    }
    slopes.sort_by(f64::total_cmp);
    median(&slopes)
}

/// At most `PACE_MARKS` marks, evenly spaced, the first and the last among them.
fn thinned(marks: &[(Instant, u32)]) -> impl Iterator<Item = &(Instant, u32)> {
    let kept = marks.len().min(PACE_MARKS);
    let (last, gaps) = (marks.len().saturating_sub(1), kept.saturating_sub(1).max(1));
    (0..kept).filter_map(move |at| marks.get(at * last / gaps))
}

/// Of numbers in ascending order.
fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((sorted.get(low)? + sorted.get(high)?) / 2.0)
}

#[cfg(test)]
mod tests;
