//! What is queued for the log: as much as is at hand under the lock; the writer makes lines of it.

use std::sync::Arc;
use std::time::Duration;

use kvasir_balance::record::{DecisionRecord, Line, Made, OutcomeRecord};
use kvasir_balance::{Blind, Candidate, Cut, Decision, Exclusion, Members, Pairing, Query};

use super::Account;
use crate::endpoint::Endpoint;
use crate::evidence::Evidence;
use crate::pending::PromptKeys;
use crate::selecting::Traits;

/// One line to be.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Whose it is.
    pub(super) account: Arc<Account>,
    /// Lines that were left out before it.
    pub(super) missing: u64,
    pub(super) what: What,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum What {
    Decision(Box<Noted>),
    Outcome(OutcomeRecord),
    Forget(Arc<Endpoint>),
    /// The pool is gone.
    End,
}

/// The moment of a decision.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MadeAt {
    /// Its number.
    pub(crate) id: u64,
    pub(crate) at: Duration,
    /// The state of the random source before it.
    pub(crate) seed: u64,
}

/// A decision as it was made.
#[derive(Debug)]
pub(crate) struct Noted {
    made: MadeAt,
    prompt_tokens: u64,
    traits: Traits,
    blind: Option<Blind>,
    /// Of the keys policies were told of: some read it who do not read the keys.
    tokens_per_key: u32,
    /// Where a stage reads them.
    keys: Option<Arc<PromptKeys>>,
    endpoints: Arc<Vec<Arc<Endpoint>>>,
    candidates: Vec<Candidate>,
    exclusions: Vec<Option<Exclusion>>,
    first_attempt: bool,
    pairing: Option<Pairing>,
    cut: Vec<Cut>,
    decision: Option<Decision>,
}

impl Entry {
    /// About how many bytes it keeps in memory.
    pub(super) fn cost(&self) -> usize {
        let noted = match &self.what {
            What::Decision(noted) => noted.cost(),
            What::Outcome(_) | What::Forget(_) | What::End => 0,
        };
        size_of::<Self>() + noted
    }
}

impl What {
    pub(super) fn line(&self) -> Option<Line> {
        match self {
            Self::Decision(noted) => Some(Line::Decision(noted.record())),
            Self::Outcome(outcome) => Some(Line::Outcome(*outcome)),
            Self::Forget(endpoint) => Some(Line::Forget { endpoint: endpoint.name() }),
            Self::End => None,
        }
    }
}

impl Noted {
    pub(crate) fn new(
        made: MadeAt,
        evidence: &Evidence,
        query: &Query<'_>,
        keys: Option<Arc<PromptKeys>>,
        members: &Members<'_>,
        pairing: Option<(&Pairing, &[Cut])>,
        decision: Option<&Decision>,
    ) -> Self {
        Self {
            made,
            prompt_tokens: evidence.prompt_tokens,
            traits: evidence.traits.clone(),
            blind: query.blind,
            tokens_per_key: query.prefix.tokens_per_key,
            keys,
            endpoints: Arc::clone(&evidence.endpoints),
            candidates: members.candidates.to_vec(),
            exclusions: members.exclusions.to_vec(),
            first_attempt: members.first_attempt,
            pairing: pairing.map(|(pairing, _)| *pairing),
            cut: pairing.map(|(_, cut)| cut.to_vec()).unwrap_or_default(),
            decision: decision.cloned(),
        }
    }

    pub(crate) fn record(&self) -> DecisionRecord {
        let mut query = self.traits.query(self.prompt_tokens, self.keys.as_deref(), self.blind);
        query.prefix.tokens_per_key = self.tokens_per_key;
        let members = Members {
            candidates: &self.candidates,
            exclusions: &self.exclusions,
            first_attempt: self.first_attempt,
        };
        let names: Vec<String> = self.endpoints.iter().map(|endpoint| endpoint.name()).collect();
        let made = Made {
            id: self.made.id,
            request_id: self.traits.request_id(),
            at_us: micros(self.made.at),
            waited_ms: self.traits.waited_ms(),
            seed: self.made.seed,
        };
        let decision = self.decision.as_ref();
        let record = DecisionRecord::new(made, &query, &members, &names, decision);
        record.split_by(self.pairing).cut_by(&self.cut)
    }

    fn cost(&self) -> usize {
        let keys = self.keys.iter().flat_map(|keys| &keys.prompts).map(|chain| chain.keys.len());
        size_of::<Self>()
            + self.candidates.len() * (size_of::<Candidate>() + size_of::<Option<Exclusion>>())
            + self.cut.len() * size_of::<Cut>()
            + keys.sum::<usize>() * size_of::<u64>()
            + self.decision.iter().map(|decision| 16 * decision.considered.len()).sum::<usize>()
    }
}

/// Microseconds on a pool's clock.
pub(crate) fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}
