//! The background of one pool's comparisons.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kvasir_prompt::{Api, Level, Renderer, tokenize_question};

use super::cases::{ProbeCase, probe_chats, probe_texts};
use super::question::{Answer, ask, client};
use super::{Compared, ParityPart, Sample, Shown};
use crate::endpoint::Endpoint;
use crate::engine_client::EngineClient;
use crate::kind::EngineKind;
use crate::pool::Pool;
use crate::seat::Seat;
use crate::spec::ParityMode;
use crate::tokenizer::PromptState;

/// How often it is looked whether there is something to compare.
const LOOK: Duration = Duration::from_millis(200);
/// When the built-in cases are tried again: an engine that did not answer may, and one with other
/// tokens may have been put right.
const AGAIN: Duration = Duration::from_secs(60);
/// The same while no engine could be asked.
const SOON: Duration = Duration::from_secs(5);

/// Compares own tokens with the engines', for one pool.
#[derive(Debug)]
pub(crate) struct Checker {
    /// A pool that is gone needs none.
    seat: Weak<Seat>,
    client: EngineClient,
    mode: ParityMode,
    /// The tokenizer the comparisons are of.
    renderer: Weak<Renderer>,
    /// When the built-in cases are to be compared next.
    next_probes: Option<Instant>,
    /// Whether engines answer such questions.
    told: bool,
    /// After how long the built-in cases are tried again.
    again: Duration,
}

/// How a round of the built-in cases ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Finished,
    /// The engine refuses every case: nothing is known of this part.
    Refused,
    /// The engine does not tell.
    NotTold,
    Unheard,
}

impl Checker {
    /// The checker of a pool, if it is to have one.
    pub(crate) fn of(seat: &Arc<Seat>, asked_by: &EngineClient) -> Option<Self> {
        let pool = seat.pool();
        let mode = pool.token_oracle().mode;
        (mode != ParityMode::Off).then(|| Self {
            seat: Arc::downgrade(seat),
            client: client(asked_by, pool.authorization()),
            mode,
            renderer: Weak::new(),
            next_probes: None,
            told: true,
            again: AGAIN,
        })
    }

    /// Runs until its task is aborted, or the pool is gone.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(pool) = self.seat.upgrade().map(|seat| seat.pool()) else { return };
            let state = pool.prompts().state();
            let PromptState::Ready(renderer) = &*state else { continue };
            if self.renderer.as_ptr() != Arc::as_ptr(renderer) {
                pool.token_oracle().reset();
                self.renderer = Arc::downgrade(renderer);
                self.next_probes = Some(Instant::now());
                self.told = true;
            }
            if self.next_probes.is_some_and(|at| at <= Instant::now()) {
                self.probe(&pool, renderer).await;
            } else if self.mode == ParityMode::Sample
                && self.told
                && let Some(sample) = pool.token_oracle().take_sample()
            {
                self.compare(&pool, renderer, sample).await;
            }
        }
    }

    /// Compares the built-in cases at one engine.
    async fn probe(&mut self, pool: &Arc<Pool>, renderer: &Arc<Renderer>) {
        let Some(engine) = engine(pool, |_| true) else { return };
        let texts = own(renderer, pool.model(), Api::Completions, probe_texts(&[])).await;
        let mut round = self.round(pool, &engine, ParityPart::Tokenizer, texts).await;
        if matches!(round, Round::Finished | Round::Refused) && tells_chats(&engine, renderer) {
            let chats = own(renderer, pool.model(), Api::Chat, probe_chats()).await;
            let of_chats = self.round(pool, &engine, ParityPart::Template, chats).await;
            round = if of_chats == Round::Finished { round } else { of_chats };
        }
        let differs = pool.token_oracle().differs(Api::Chat);
        self.told = round != Round::NotTold;
        self.next_probes = match round {
            Round::Finished if !differs => None,
            Round::Unheard => Some(Instant::now() + SOON),
            Round::Finished | Round::Refused | Round::NotTold => Some(Instant::now() + self.again),
        };
    }

    async fn round(
        &self,
        pool: &Pool,
        engine: &Endpoint,
        part: ParityPart,
        cases: Vec<(&'static str, Vec<u8>, Vec<u32>)>,
    ) -> Round {
        let parity = pool.token_oracle();
        let longest = engine.longest_prompt(pool.model());
        let (mut compared, mut refused, mut all_equal) = (0, 0, true);
        for (case, body, own) in cases {
            if own.len() as u64 > longest {
                continue;
            }
            let told = match ask(&self.client, &engine.origin(), body).await {
                Answer::Ids(ids) => ids,
                Answer::Refused => {
                    parity.note_skipped(part);
                    refused += 1;
                    continue;
                }
                Answer::NotTold(why) => {
                    tracing::debug!(endpoint = engine.url(), why, "tokens cannot be compared");
                    return Round::NotTold;
                }
                Answer::Unheard(why) => {
                    tracing::debug!(endpoint = engine.url(), why, "tokens not compared");
                    return Round::Unheard;
                }
            };
            let (model, endpoint) = (pool.model(), engine.url());
            let compared_ids = Compared { model, endpoint, case, own: &own, engine: &told };
            all_equal &= parity.count(part, compared_ids);
            compared += 1;
        }
        if compared > 0 {
            parity.conclude(part, pool.model(), Shown::Probes { equal: all_equal });
        }
        if compared == 0 && refused > 0 { Round::Refused } else { Round::Finished }
    }

    /// Compares a request that came by.
    async fn compare(&mut self, pool: &Pool, renderer: &Arc<Renderer>, sample: Sample) {
        let parity = pool.token_oracle();
        let api = sample.api;
        let part = if api == Api::Chat { ParityPart::Template } else { ParityPart::Tokenizer };
        if sample.made_by.as_ptr() != Arc::as_ptr(renderer) {
            return parity.note_skipped(part);
        }
        let takes = |engine: &Endpoint| api != Api::Chat || tells_chats(engine, renderer);
        let Some(question) = tokenize_question(api, &sample.body, pool.model()) else {
            return parity.note_skipped(part);
        };
        let Some(engine) = engine(pool, |engine| is_idle(engine) && takes(engine)) else {
            return parity.put_back(part, sample);
        };
        match ask(&self.client, &engine.origin(), question).await {
            Answer::Ids(told) => {
                let (model, endpoint, case) = (pool.model(), engine.url(), "request");
                let compared = Compared { model, endpoint, case, own: &sample.ids, engine: &told };
                let equal = parity.count(part, compared);
                parity.conclude(part, model, Shown::Sample { equal });
            }
            Answer::NotTold(_) => {
                self.told = false;
                self.next_probes = Some(Instant::now() + self.again);
                parity.note_skipped(part);
            }
            Answer::Refused | Answer::Unheard(_) => parity.note_skipped(part),
        }
    }
}

/// Each case's name, the body it is asked with, and its own tokens, where they are exactly known.
async fn own(
    renderer: &Arc<Renderer>,
    model: &str,
    api: Api,
    cases: Vec<ProbeCase>,
) -> Vec<(&'static str, Vec<u8>, Vec<u32>)> {
    let (renderer, model) = (Arc::clone(renderer), model.to_owned());
    let tokenise = move |case: ProbeCase| {
        let body = case.body(&model);
        let mut read = renderer.prompts(api, &body).ok()?;
        let ids = read.prompts.pop().filter(|_| read.level == Level::Tokens)?;
        Some((case.name, body, ids))
    };
    let work = move || cases.into_iter().filter_map(tokenise).collect();
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}

/// The least loaded engine that answers, may have `/tokenize`, and suits.
fn engine(pool: &Pool, suits: impl Fn(&Endpoint) -> bool) -> Option<Arc<Endpoint>> {
    let members = pool.members();
    let can = |member: &&Arc<Endpoint>| {
        member.has_answered()
            && member.exclusion(pool.model()).is_none()
            && member.card().is_some()
            && !matches!(kind(member), EngineKind::LlamaCpp | EngineKind::TrtLlm)
            && suits(member)
    };
    members.iter().filter(can).min_by_key(|member| member.in_flight()).cloned()
}

/// Whether the engine's `/tokenize` says what chats become there: SGLang's takes texts alone, and
/// vLLM's renders the template also where chats are encoded as harmony.
fn tells_chats(engine: &Endpoint, renderer: &Renderer) -> bool {
    kind(engine) != EngineKind::Sglang && !renderer.is_harmony()
}

fn kind(engine: &Endpoint) -> EngineKind {
    engine.card().map_or(EngineKind::Other, |card| card.kind)
}

/// Whether nothing waits there.
fn is_idle(engine: &Endpoint) -> bool {
    engine.queued_prefill_tokens() == 0 && engine.signals().waiting.is_none_or(|count| count == 0.0)
}
