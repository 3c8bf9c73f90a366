//! Decisions written down: what was known, what was chosen and why, and the same decision made again.
//!
//! A decision log is one [`Line`] of JSON after the other. It holds digests, names and numbers, no
//! prompts.

mod endpoint;
mod replay;

use kvasir_kv_hash::BlockKey;
use serde::{Deserialize, Serialize};

pub use self::endpoint::EndpointRecord;
pub use self::replay::{Differs, Replay, ReplayError};
use crate::exclusion::Exclusion;
use crate::miss::Blind;
use crate::policies::ttft_cost;
use crate::query::{Prefix, Query};
use crate::select::{Decision, Members};
use crate::spec::SelectionSpec;

/// One line of a decision log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
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
}

/// How decisions are made from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The form of the log: 1.
    pub format: u32,
    /// The pool's model.
    pub model: String,
    /// Its stages.
    pub selection: SelectionSpec,
    /// The seed of the shadow policy's chance.
    pub seed: u64,
}

/// One decision: everything that went into it, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Its number in the log.
    pub id: u64,
    /// When, in microseconds on the pool's clock.
    pub at_us: u64,
    /// The state of the random source before it.
    pub seed: u64,
    /// The request.
    pub query: QueryRecord,
    /// Whether the request was sent nowhere before.
    pub first_attempt: bool,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// [`Query::blind`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blind: Option<Blind>,
    /// [`Prefix::keys`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<u64>,
    /// [`Prefix::tokens_per_key`].
    pub tokens_per_key: u32,
    /// [`Prefix::token_head`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_head: Option<u64>,
    /// [`Prefix::text_head`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_head: Option<u64>,
    /// [`Prefix::adapter`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// [`Prefix::salt`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub salt: Option<u64>,
    /// [`Prefix::tools`].
    pub tools: bool,
    /// [`Prefix::images`].
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
    /// The second best, where candidates were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<String>,
    /// What the shadow policy would have chosen.
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
pub struct Made {
    /// The decision's number in the log.
    pub id: u64,
    /// When, in microseconds on the pool's clock.
    pub at_us: u64,
    /// The state of the random source before it ([`crate::Rng::state`]).
    pub seed: u64,
}

// === impl DecisionRecord ===

impl DecisionRecord {
    /// Writes a decision down. `names` are those of the members, in their order.
    #[must_use]
    pub fn new(
        made: Made,
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
                let expected = ttft_cost(query, candidate);
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
        let Made { id, at_us, seed } = made;
        let choice = decision.map(|decision| ChoiceRecord::new(decision, name));
        let query = QueryRecord::new(query);
        Self { id, at_us, seed, query, first_attempt: members.first_attempt, endpoints, choice }
    }
}

impl ChoiceRecord {
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
    Exclusion::ALL.into_iter().find(|exclusion| exclusion.as_str() == word)
}
