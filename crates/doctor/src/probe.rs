//! Prompts sent with leave: new ones, repeated ones, salted ones, adapters' ones.
//!
//! Each begins with random token ids, so that it is new to the engine, and asks for one token of
//! answer. What the gateway would predict is read before each is sent.

mod oracle;
mod plan;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use kvasir_fleet::{EngineClient, EngineKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::oracle::{Counters, Oracle};
use self::plan::{Ids, Plan, Prompt};
use crate::facts::Facts;
use crate::stream::Listener;
use crate::target::Target;

/// How long an engine may take for a prompt of a few hundred tokens: it may be busy.
const ANSWER: Duration = Duration::from_secs(30);

/// How often a prompt is sent anew where others' traffic hides its cache hits.
const MAX_TRIES: usize = 3;

/// How long blocks are waited for once an engine has proved not to announce any.
const IMPATIENT: Duration = Duration::from_millis(300);

/// Blocks went while a prompt was under way: what was predicted may have been true before.
pub(crate) const EVICTED: &str = "blocks were evicted meanwhile";

/// Names the data-parallel rank (vLLM).
const RANK_HEADER: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// What was sent and what came of it.
#[derive(Debug, Default)]
pub(crate) struct Probed {
    /// Whether there was leave to send anything.
    pub(crate) leave: bool,
    pub(crate) steps: Vec<Step>,
}

/// One prompt sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// What it was, such as `the same again`.
    pub(crate) what: String,
    pub(crate) prompt_tokens: usize,
    /// The cached tokens that the gateway would have predicted; `None` without events.
    pub(crate) predicted: Option<u64>,
    pub(crate) outcome: Outcome,
}

/// What an engine made of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It says how many tokens it took from its cache.
    Reported(u64),
    /// Its hit counters say so.
    Counted(u64),
    /// It answered, and does not say.
    Silent(&'static str),
    /// It did not answer, or refused.
    Failed(String),
}

/// Sends the probe's prompts if there is leave to.
pub(crate) async fn send(
    target: &Target,
    facts: &Facts,
    mut listener: Option<&mut Listener>,
) -> Probed {
    if !target.probe {
        return Probed::default();
    }
    let mut probed = Probed { leave: true, steps: Vec::new() };
    let size = block_size(target, facts, listener.as_deref());
    let longest = facts.longest_prompt();
    let Some(mut plan) = Plan::new(size, longest, Ids::Small) else {
        let finding = format!("no prompt of {longest} tokens or less fills a block of {size}");
        probed.steps.push(Step::unsent("a new prompt", finding));
        return probed;
    };
    let mut sender = Sender::new(target, facts, listener.as_deref().and_then(Listener::rank));
    for number in 0..MAX_PROMPTS {
        let Some(prompt) = plan.prompt(number, facts, extras(facts, listener.as_deref())) else {
            break;
        };
        let mut step = sender.step(&prompt, listener.as_deref_mut()).await;
        if number == 0
            && let Outcome::Failed(_) = &step.outcome
            && sender.refused
            && let Some(fewer) = Plan::new(size, longest, Ids::Tiny)
        {
            // It may be a vocabulary of very few tokens.
            plan = fewer;
            if let Some(prompt) = plan.prompt(0, facts, false) {
                step = sender.step(&prompt, listener.as_deref_mut()).await;
            }
        }
        let failed = matches!(step.outcome, Outcome::Failed(_));
        probed.steps.push(step);
        // An engine that does not answer one prompt would let each wait as long.
        if failed && (number == 0 || sender.unanswered) {
            break;
        }
    }
    sender.finish(&mut probed.steps);
    probed
}

/// The plan's prompts are fewer.
const MAX_PROMPTS: usize = 16;

/// Whether salts and adapters are asked for: where events tell them apart.
fn extras(facts: &Facts, listener: Option<&Listener>) -> bool {
    let shapes = listener.map(|listener| &listener.collected().shapes);
    facts.kind == EngineKind::Vllm && shapes.is_some_and(|shapes| !shapes.extras_left_out)
}

/// Tokens per block, to make prompts of a few.
fn block_size(target: &Target, facts: &Facts, listener: Option<&Listener>) -> usize {
    let told = facts.cache.hash_block_size.or(facts.cache.block_size);
    let size = listener
        .and_then(Listener::block_size)
        .or(told)
        .or(facts.card.block_size)
        .or(target.expected.block_size)
        .filter(|size| *size > 0);
    size.and_then(|size| usize::try_from(size).ok()).unwrap_or(16)
}

// === impl Probed ===

impl Probed {
    /// Prompts that were answered.
    pub(crate) fn answered(&self) -> usize {
        let failed = |step: &&Step| matches!(step.outcome, Outcome::Failed(_));
        self.steps.len() - self.steps.iter().filter(failed).count()
    }
}

// === impl Outcome ===

impl Outcome {
    /// The cached tokens, where they are known.
    pub(crate) fn cached(&self) -> Option<u64> {
        match self {
            Self::Reported(cached) | Self::Counted(cached) => Some(*cached),
            Self::Silent(_) | Self::Failed(_) => None,
        }
    }
}

// === impl Step ===

impl Step {
    fn unsent(what: &str, why: String) -> Self {
        let outcome = Outcome::Failed(why);
        Self { what: what.to_owned(), prompt_tokens: 0, predicted: None, outcome }
    }
}

/// Sends prompts one after the other.
struct Sender<'a> {
    facts: &'a Facts,
    client: EngineClient,
    oracle: Oracle,
    patience: Duration,
    /// No blocks were announced in time.
    unheard: bool,
    /// The last answer was a 400.
    refused: bool,
    /// The last prompt got no answer at all.
    unanswered: bool,
}

impl<'a> Sender<'a> {
    /// `rank` is the one listened to, where there are several.
    fn new(target: &Target, facts: &'a Facts, rank: Option<u32>) -> Self {
        let mut client = facts.client.clone();
        if let Some([first, _, ..]) = facts.sources.as_deref() {
            // Each rank has a cache of its own: all prompts go to one.
            let mut headers = target.headers.clone();
            headers.insert(RANK_HEADER, HeaderValue::from(rank.unwrap_or(first.rank)));
            client = client.with_headers(headers);
        }
        let patience = target.patience;
        Self {
            facts,
            client,
            oracle: Oracle::default(),
            patience,
            unheard: false,
            refused: false,
            unanswered: false,
        }
    }

    /// Sends one prompt, again where it cannot be told how much of it was cached.
    async fn step(&mut self, prompt: &Prompt, mut listener: Option<&mut Listener>) -> Step {
        let mut step = Step::unsent(&prompt.what, "not sent".to_owned());
        for _ in 0..MAX_TRIES {
            step = self.try_step(prompt, listener.as_deref_mut()).await;
            if !matches!(step.outcome, Outcome::Silent(oracle::DISTURBED | EVICTED)) {
                break;
            }
        }
        step
    }

    async fn try_step(&mut self, prompt: &Prompt, mut listener: Option<&mut Listener>) -> Step {
        let tokens = &prompt.tokens;
        let (adapter, salt) = (prompt.adapter.as_deref(), prompt.salt.as_deref());
        if let Some(listener) = &mut listener {
            // Others' requests store and evict, too: what is known now counts.
            listener.drain();
        }
        let removals = listener.as_deref().map_or(0, |listener| listener.collected().removals);
        let predicted =
            listener.as_deref().map(|listener| u64::from(listener.predict(tokens, adapter, salt)));
        let before = match self.oracle.needs_counters() {
            true => self.counters().await,
            false => None,
        };
        let outcome = match self.ask(prompt).await {
            Err(why) => Outcome::Failed(why),
            Ok(cached) => match cached {
                Some(cached) => self.oracle.told(cached),
                None => self.counted(before, tokens.len() as u64).await,
            },
        };
        let mut step =
            Step { what: prompt.what.clone(), prompt_tokens: tokens.len(), predicted, outcome };
        if let (Some(listener), false) = (listener, matches!(step.outcome, Outcome::Failed(_))) {
            self.await_blocks(prompt, listener).await;
            let fewer = step.outcome.cached().zip(step.predicted).is_some_and(|(c, p)| c < p);
            // An eviction's event may come after the answer it explains.
            let evicted = |listener: &Listener| listener.collected().removals > removals;
            if fewer && listener.until(Instant::now() + IMPATIENT, evicted).await {
                self.await_blocks(prompt, listener).await;
                step.outcome = Outcome::Silent(EVICTED);
            }
        }
        step
    }

    /// Waits until the prompt's blocks are announced.
    async fn await_blocks(&mut self, prompt: &Prompt, listener: &mut Listener) {
        let patience = if self.unheard { IMPATIENT } else { self.patience };
        let (adapter, salt) = (prompt.adapter.as_deref(), prompt.salt.as_deref());
        let heard = |listener: &Listener| {
            let size = listener.block_size().unwrap_or(0).max(1) as usize;
            let whole = prompt.tokens.len().saturating_sub(1) / size * size;
            u64::from(listener.predict(&prompt.tokens, adapter, salt)) >= whole as u64
        };
        self.unheard = !listener.until(Instant::now() + patience, heard).await;
    }

    /// The cached tokens of an answer, where it says.
    async fn ask(&mut self, prompt: &Prompt) -> Result<Option<u64>, String> {
        let mut body = json!({"model": prompt.adapter.as_ref().unwrap_or(&self.facts.model),
            "prompt": prompt.tokens, "max_tokens": 1, "temperature": 0});
        if let Some(salt) = &prompt.salt {
            body["cache_salt"] = json!(salt);
        }
        let bytes = Bytes::from(body.to_string());
        let path = "/v1/completions";
        let asked = self.client.post_json(&self.facts.origin, path, bytes, ANSWER).await;
        self.unanswered = asked.is_err();
        let (status, answer) = asked.map_err(|error| error.to_string())?;
        self.refused = status == StatusCode::BAD_REQUEST;
        if status != StatusCode::OK {
            return Err(format!("{path} answered {status}{}", oracle::message(&answer)));
        }
        let answer: Value = serde_json::from_slice(&answer)
            .map_err(|error| format!("{path} answered what is not JSON: {error}"))?;
        let used = answer["usage"]["prompt_tokens"].as_u64();
        if let Some(used) = used.filter(|used| *used != prompt.tokens.len() as u64) {
            return Err(format!(
                "the engine counted {used} tokens in a prompt of {} token ids",
                prompt.tokens.len()
            ));
        }
        Ok(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64())
    }

    async fn counters(&self) -> Option<Counters> {
        let page = self.client.get(&self.facts.origin, "/metrics", None).await.ok()?;
        (page.0 == StatusCode::OK).then(|| Counters::read(&String::from_utf8_lossy(&page.1)))?
    }

    /// The hits that the counters show between `before` and now.
    async fn counted(&self, before: Option<Counters>, length: u64) -> Outcome {
        if !self.oracle.needs_counters() {
            // It reported a number before: null is a zero.
            return Outcome::Reported(0);
        }
        let Some(before) = before else { return Outcome::Silent(oracle::NO_COUNTERS) };
        // The engine counts around the time it answers, not before.
        let deadline = Instant::now() + Duration::from_secs(1);
        loop {
            let Some(now) = self.counters().await else {
                return Outcome::Silent(oracle::NO_COUNTERS);
            };
            let (queries, hits) = now.since(before);
            if queries == length && hits <= length {
                return Outcome::Counted(hits);
            }
            if queries > length || Instant::now() >= deadline {
                return Outcome::Silent(oracle::DISTURBED);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Reads what was silent in the light of what came after.
    fn finish(&self, steps: &mut [Step]) {
        if self.oracle.needs_counters() {
            return;
        }
        for step in steps {
            if matches!(step.outcome, Outcome::Silent(why) if why != EVICTED) {
                step.outcome = Outcome::Reported(0);
            }
        }
    }
}
