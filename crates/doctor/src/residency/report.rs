//! What playing a recording tells.

use kvasir_inventory::{AbsentReason, Tier, Trust};
use serde::Serialize;

use super::weakest;

/// What a recorded engine held, step by step, and what was predicted of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Residency {
    /// The engine and its version, such as `vllm 0.32.0`, where the recording tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// What the hashes in each publisher's events say of the contract that made them, such as
    /// `verified(vllm sha256_cbor)`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hash_contracts: Vec<String>,
    /// The recorded steps, in order.
    pub steps: Vec<Step>,
    /// Every request of one prompt whose cached tokens are known.
    pub requests: Vec<Predicted>,
    /// Every other request for an answer, and why it is not compared.
    pub left_out: Vec<LeftOut>,
}

/// The state after one recorded step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The recorder's name for it, or `line N`.
    pub step: String,
    /// How far the engine's events can be believed; of several publishers the weakest.
    pub trust: String,
    /// Blocks of all publishers together.
    pub resident_blocks: BlocksByTier,
    /// Each publisher's part, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceState>,
    /// Changes of trust during the step, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<TrustChange>,
    /// What was asked of the replay socket during the step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replays: Vec<ReplayFound>,
}

/// Numbers of blocks, by the tier they lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlocksByTier {
    /// In the accelerator's memory.
    pub device: usize,
    /// In the host's memory.
    pub host: usize,
    /// On a disk.
    pub disk: usize,
    /// On another machine.
    pub remote: usize,
}

/// One publisher's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceState {
    /// Its address or name in the recording; empty in recordings of one publisher.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// How far it can be believed.
    pub trust: String,
    /// Its engine's blocks.
    pub resident_blocks: BlocksByTier,
    #[serde(skip)]
    pub(super) believed: Trust,
}

/// A change of trust.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrustChange {
    /// The publisher, where there are several.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// The trust from then on.
    pub trust: String,
    /// What happened, in the word of metrics.
    pub why: &'static str,
    /// Whether every block was forgotten.
    pub forgot: bool,
}

/// What one recorded question to a replay socket shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplayFound {
    /// The first number asked for.
    pub from: u64,
    /// Batches that came.
    pub batches: usize,
    /// Whether the end marker came.
    pub ended: bool,
    /// Batches that came live, too, byte for byte the same.
    pub as_live: usize,
    /// Batches that came live with other bytes.
    pub differing: usize,
    /// Batches that did not come live, at least not in this recording.
    pub not_live: usize,
    /// What somebody would know who had only asked this; for questions from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuilt: Option<SourceState>,
}

/// A request, and what was expected of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Predicted {
    /// The step it was sent in.
    pub step: String,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// What the gateway would have expected the engine to hit, before the request's own events.
    pub predicted_cached_tokens: u64,
    /// What the engine reported.
    pub reported_cached_tokens: u64,
    /// Why the engine was expected to hit less than it held: `prompt_logprobs` (the whole prompt
    /// is computed) or `reset_not_announced` (the recording shows a reset of the cache that no
    /// event has told yet).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
    /// With a note: what it held by its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_tokens: Option<u64>,
}

/// A request that is not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The step it was sent in.
    pub step: String,
    /// Why, in one word.
    pub why: &'static str,
}

/// Why a recording cannot be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResidencyError {
    /// Neither a message nor a request is in it.
    #[error("the recording is empty: it holds no message of a publisher and no request")]
    Empty,
    /// More publishers than any engine has.
    #[error("the recording has {0} publishers")]
    TooManySources(usize),
    /// No inventory to be had.
    #[error("no room for the publisher's blocks")]
    NoRoom,
}

impl Step {
    pub(super) fn new(step: String) -> Self {
        Self {
            step,
            trust: String::new(),
            resident_blocks: BlocksByTier::default(),
            sources: Vec::new(),
            changes: Vec::new(),
            replays: Vec::new(),
        }
    }

    /// Takes in the state of every publisher. A recording without any has an absent stream.
    pub(super) fn finish(&mut self, states: Vec<SourceState>) {
        let nothing = Trust::Absent(AbsentReason::NoStream);
        let trust = weakest(states.iter().map(|state| state.believed)).unwrap_or(nothing);
        self.trust = trust.to_string();
        self.resident_blocks =
            states.iter().fold(BlocksByTier::default(), |sum, s| sum.plus(s.resident_blocks));
        if states.len() > 1 {
            self.sources = states;
        }
    }
}

impl BlocksByTier {
    pub(super) fn of(blocks: [usize; Tier::ALL.len()]) -> Self {
        let [device, host, disk, remote] = blocks;
        Self { device, host, disk, remote }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            device: self.device + other.device,
            host: self.host + other.host,
            disk: self.disk + other.disk,
            remote: self.remote + other.remote,
        }
    }
}
