//! Decisions written down: what was known, what was chosen and why, and the same decision made again.
//!
//! A decision log is one [`Line`] of JSON after the other. It holds digests, names and numbers, no
//! prompts. Digests and seeds are text of 16 hexadecimal digits.

mod again;
mod endpoint;
mod hex;
mod pair;
mod replay;
mod run;
mod what_if;

use kvasir_kv_hash::BlockKey;
use serde::{Deserialize, Serialize};

pub use self::endpoint::{EndpointRecord, OverlapRecord};
pub use self::pair::{CutRecord, DecodeLoad, Named, PairRecord};
pub use self::replay::{Differs, Memory, Replay, ReplayError};
pub use self::what_if::{Expected, WhatIf, WhatIfFound};
use crate::exclusion::Exclusion;
use crate::miss::Blind;
use crate::pair::{PairPlan, Pairing};
use crate::policies::expected_ttft;
use crate::query::{Prefix, Query};
use crate::select::{Decision, Members};
use crate::spec::SelectionSpec;

/// The form of logs that are written. Since 2 decisions may be of pools that split requests, since 3 they
/// name who hands over nothing to whom.
pub(crate) const FORMAT: u32 = 3;
/// The oldest form that can be read.
pub const OLDEST_FORMAT: u32 = 1;

/// One line of a decision log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The first line of a file.
    Start(Start),
    /// A decision.
    Decision(DecisionRecord),
    /// What became of a request.
    Outcome(OutcomeRecord),
    /// An endpoint has lost its cache, or is gone.
    Forget {
        /// Its name.
        endpoint: String,
    },
    /// Here lines could not be written.
    Missing {
        /// How many.
        lines: u64,
    },
}

/// How decisions are made from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The form of the log, as a number.
    pub format: u32,
    /// The release that wrote it.
    #[serde(default)]
    pub version: String,
    /// The pool's model.
    pub model: String,
    /// Its stages.
    pub selection: SelectionSpec,
    /// The seed of the shadow policy's chance; of a gateway it is random, and tells one run from
    /// another.
    #[serde(with = "hex")]
    pub seed: u64,
    /// How many lines of the same run are before this one, in files before this: what policies
    /// remember goes on. Missing lines count, lines `start` and `missing` do not. 0 where a run
    /// begins.
    #[serde(default, skip_serializing_if = "is_default")]
    pub continues: u64,
    /// The wall clock when the pool's clock was 0, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_unix_ms: Option<u64>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One decision: everything that went into it, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Its number in the run.
    pub id: u64,
    /// When, in microseconds on the pool's clock.
    pub at_us: u64,
    /// The request's id, as the client gave it in `x-request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How long the request had waited for room by then, in milliseconds; `None` where it did not, and
    /// in logs of releases that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// The state of the random source before it.
    #[serde(with = "hex")]
    pub seed: u64,
    /// The request.
    pub query: QueryRecord,
    /// Whether the request was sent nowhere before: an attempt that found no connection sent nothing.
    pub first_attempt: bool,
    /// How the pool splits requests, and what was asked for of this one; `None` where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing: Option<Pairing>,
    /// Who handed over nothing to whom, since it failed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<CutRecord>,
    /// Every endpoint of the pool, in its order.
    pub endpoints: Vec<EndpointRecord>,
    /// What was chosen; `None` where nothing could be.
    pub choice: Option<ChoiceRecord>,
}

/// A request, as [`Query`] has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueryRecord {
    /// [`Query::prompt_tokens`].
    pub prompt_tokens: u64,
    /// [`Query::session`].
    #[serde(with = "hex::option", skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// [`Query::blind`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blind: Option<Blind>,
    /// [`Prefix::keys`], where a stage of the pool reads them: there may be thousands.
    #[serde(with = "hex::list", skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<u64>,
    /// [`Prefix::tokens_per_key`].
    pub tokens_per_key: u32,
    /// [`Prefix::token_head`].
    #[serde(with = "hex::option", skip_serializing_if = "Option::is_none")]
    pub token_head: Option<u64>,
    /// [`Prefix::text_head`].
    #[serde(with = "hex::option", skip_serializing_if = "Option::is_none")]
    pub text_head: Option<u64>,
    /// [`Prefix::adapter`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// [`Prefix::salt`].
    #[serde(with = "hex::option", skip_serializing_if = "Option::is_none")]
    pub salt: Option<u64>,
    /// [`Prefix::tools`].
    #[serde(skip_serializing_if = "is_default")]
    pub tools: bool,
    /// [`Prefix::images`].
    #[serde(skip_serializing_if = "is_default")]
    pub images: bool,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoiceRecord {
    /// The endpoint's name.
    pub endpoint: String,
    /// The policy that chose it.
    pub policy: String,
    /// Why.
    pub reason: String,
    /// What was special about it; empty for nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// How the request is served, where the pool splits requests ([`crate::PairPlan`]); else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan: String,
    /// Who computes the prompt, where `endpoint` only answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<String>,
    /// The second best, where candidates were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<String>,
    /// What the shadow policy would have chosen: who would compute the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<String>,
    /// What every stage did, in order.
    pub stages: Vec<StageRecord>,
}

/// What one stage did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRecord {
    /// The stage, a policy by its name.
    pub stage: String,
    /// What it did.
    pub outcome: String,
    /// How many candidates were left after it.
    pub left: usize,
    /// Why a policy had no say, where it can tell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub miss: String,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeRecord {
    /// The decision's number.
    pub of: u64,
    /// Whether the endpoint answered.
    pub answered: bool,
    /// When, in microseconds on the pool's clock.
    pub at_us: u64,
}

/// The moment of a decision, for its record.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// The decision's number in the run.
    pub id: u64,
    /// The request's id, where the client gave one.
    pub request_id: Option<&'a str>,
    /// When, in microseconds on the pool's clock.
    pub at_us: u64,
    /// How long the request had waited for room, in milliseconds, where it did.
    pub waited_ms: Option<u64>,
    /// The state of the random source before it ([`crate::Rng::state`]).
    pub seed: u64,
}

// === impl Line ===

impl Line {
    /// How many lines that drive a selection it is or stands for, as [`Start::continues`] counts.
    #[must_use]
    pub fn entries(&self) -> u64 {
        match self {
            Self::Start(_) => 0,
            Self::Decision(_) | Self::Outcome(_) | Self::Forget { .. } => 1,
            Self::Missing { lines } => *lines,
        }
    }
}

// === impl Start ===

impl Start {
    /// The beginning of a run of `model`'s pool.
    #[must_use]
    pub fn new(model: String, selection: SelectionSpec, seed: u64) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (continues, clock_unix_ms) = (0, None);
        Self { format: FORMAT, version, model, selection, seed, continues, clock_unix_ms }
    }

    fn check(&self) -> Result<(), ReplayError> {
        let is_known = (OLDEST_FORMAT..=FORMAT).contains(&self.format);
        if is_known { Ok(()) } else { Err(ReplayError::Format(self.format)) }
    }
}

// === impl DecisionRecord ===

impl DecisionRecord {
    /// Writes a decision down. `names` are those of the members, in their order.
    #[must_use]
    pub fn new(
        made: Made<'_>,
        query: &Query<'_>,
        members: &Members<'_>,
        names: &[impl AsRef<str>],
        decision: Option<&Decision>,
    ) -> Self {
        let name = |place: usize| names.get(place).map_or("", AsRef::as_ref);
        let mut endpoints: Vec<EndpointRecord> = members
            .candidates
            .iter()
            .enumerate()
            .map(|(place, candidate)| {
                let exclusion = members.exclusions.get(place).copied().flatten();
                let expected = expected_ttft(query, candidate);
                EndpointRecord::new(name(place), candidate, exclusion, expected)
            })
            .collect();
        if let Some(decision) = decision {
            for (place, score) in decision.considered.iter().zip(&decision.scores) {
                if let Some(endpoint) = endpoints.get_mut(*place) {
                    endpoint.score = Some(*score);
                }
            }
        }
        let Made { id, request_id, at_us, waited_ms, seed } = made;
        let choice = decision.map(|decision| ChoiceRecord::new(decision, name));
        let (query, first_attempt) = (QueryRecord::new(query), members.first_attempt);
        let request_id = request_id.map(str::to_owned);
        let pairing = None;
        Self {
            id,
            at_us,
            request_id,
            waited_ms,
            seed,
            query,
            first_attempt,
            pairing,
            cut: Vec::new(),
            endpoints,
            choice,
        }
    }

    /// The same of a pool that splits requests so.
    #[must_use]
    pub fn split_by(mut self, pairing: Option<Pairing>) -> Self {
        self.pairing = pairing;
        self
    }
}

impl ChoiceRecord {
    /// Who computes the prompt.
    #[must_use]
    pub fn computes(&self) -> &str {
        self.prefill.as_deref().unwrap_or(&self.endpoint)
    }

    fn new<'a>(decision: &Decision, name: impl Fn(usize) -> &'a str) -> Self {
        let stages = decision.notes.iter().map(|note| StageRecord {
            stage: note.stage.to_owned(),
            outcome: note.outcome.to_owned(),
            left: note.left,
            miss: note.miss.to_owned(),
        });
        Self {
            endpoint: name(decision.index).to_owned(),
            policy: decision.policy.to_owned(),
            reason: decision.reason.as_str().to_owned(),
            detail: decision.detail.to_owned(),
            plan: decision.plan.map_or("", PairPlan::as_str).to_owned(),
            prefill: decision.prefill.map(|place| name(place).to_owned()),
            runner_up: decision.runner_up.map(|place| name(place).to_owned()),
            shadow: decision.shadow.map(|place| name(place).to_owned()),
            stages: stages.collect(),
        }
    }
}

// === impl QueryRecord ===

impl QueryRecord {
    fn new(query: &Query<'_>) -> Self {
        let Query { prompt_tokens, session, blind, prefix } = *query;
        Self {
            prompt_tokens,
            session,
            blind,
            keys: prefix.keys.iter().map(|key| key.0).collect(),
            tokens_per_key: prefix.tokens_per_key,
            token_head: prefix.token_head,
            text_head: prefix.text_head,
            adapter: prefix.adapter.map(str::to_owned),
            salt: prefix.salt,
            tools: prefix.tools,
            images: prefix.images,
        }
    }

    fn keys(&self) -> Vec<BlockKey> {
        self.keys.iter().copied().map(BlockKey).collect()
    }

    /// The query; `keys` are this record's.
    fn query<'a>(&'a self, keys: &'a [BlockKey]) -> Query<'a> {
        let prefix = Prefix {
            keys,
            tokens_per_key: self.tokens_per_key,
            token_head: self.token_head,
            text_head: self.text_head,
            adapter: self.adapter.as_deref(),
            salt: self.salt,
            tools: self.tools,
            images: self.images,
        };
        let Self { prompt_tokens, session, blind, .. } = *self;
        Query { prompt_tokens, session, blind, prefix }
    }
}

/// The exclusion a word stands for.
fn exclusion_of(word: &str) -> Option<Exclusion> {
    // As logs called it before there were trials.
    if word == "failing" {
        return Some(Exclusion::BreakerOpen);
    }
    Exclusion::ALL.into_iter().find(|exclusion| exclusion.as_str() == word)
}
