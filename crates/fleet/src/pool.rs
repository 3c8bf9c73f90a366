//! The endpoints serving one model, and the decision among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use http::HeaderValue;
use kvasir_balance::{
    Candidate, DEFAULT_PROMPT_TOKENS, FleetView, Load, Policy, PolicyState, Query, Reason,
    next_typical_prompt,
};
use kvasir_inventory::{Inventory, Overlap, Trust};
use parking_lot::Mutex;

use crate::endpoint::Endpoint;
use crate::engine::Exclusion;
use crate::evidence::{Evidence, PromptTokens};
use crate::load::Reservation;
use crate::parity::tokens::TokenParity;
use crate::parity::{Prediction, Unjudged};
use crate::pending::PendingPrefixes;
use crate::ranks::Ranks;
use crate::spec::TokenSpec;
use crate::token_headers::TokenHeaders;
use crate::token_oracle::TokenOracle;
use crate::tokenizer::ModelPrompts;

/// The endpoints serving one model.
#[derive(Debug)]
pub struct Pool {
    model: String,
    policy: &'static dyn Policy,
    authorization: Option<HeaderValue>,
    engines: Vec<Arc<Ranks>>,
    members: ArcSwap<Vec<Arc<Endpoint>>>,
    prompts: Arc<ModelPrompts>,
    caches: Caches,
    token_headers: TokenHeaders,
    token_oracle: TokenOracle,
    /// Choosing and committing happen under this lock: two requests of one pool never take the same
    /// idle endpoint without seeing each other.
    state: Mutex<PolicyState>,
    /// Moving mean of prompt tokens per request.
    typical_prompt: AtomicU64,
    token_parity: TokenParity,
}

/// What is known of all engines' caches, whichever pools they are in.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    /// What they hold.
    pub(crate) inventory: Arc<Inventory>,
    /// What they are computing.
    pub(crate) pending: Arc<PendingPrefixes>,
}

/// An endpoint chosen for a request, and the claim on it.
#[derive(Debug)]
pub struct Chosen {
    /// Keeps the endpoint's load accounted for until it is dropped.
    pub reservation: Reservation,
    /// What was decided and on what grounds.
    pub decision: Decision,
}

/// The grounds of one decision.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The policy's name.
    pub policy: &'static str,
    /// Why this endpoint.
    pub reason: Reason,
    /// What it is credited with holding of the prompt.
    pub overlap: Overlap,
    /// Tokens of the prompt beyond that which it was computing for others, or had just computed.
    pub pending: u32,
    /// How far its events were believed.
    pub trust: Trust,
    /// Prompt tokens, all prompts together.
    pub prompt_tokens: u64,
    /// How many endpoints could have been chosen.
    pub candidates: usize,
    /// How much the engine is expected to hit, to be held against what it reports
    /// ([`Endpoint::judge`]); or why it is not.
    pub prediction: Result<Prediction, Unjudged>,
}

impl Pool {
    #[expect(clippy::too_many_arguments, reason = "called once, by the registry")]
    pub(crate) fn new(
        model: String,
        policy: &'static dyn Policy,
        authorization: Option<HeaderValue>,
        engines: Vec<Arc<Ranks>>,
        prompts: Arc<ModelPrompts>,
        tokens: TokenSpec,
        caches: Caches,
        seed: u64,
    ) -> Self {
        Self {
            model,
            policy,
            authorization,
            members: ArcSwap::from_pointee(members_of(&engines)),
            engines,
            prompts,
            caches,
            token_headers: TokenHeaders::new(tokens.trust_headers),
            token_oracle: TokenOracle::new(tokens.parity),
            state: Mutex::new(PolicyState::new(seed)),
            typical_prompt: AtomicU64::new(DEFAULT_PROMPT_TOKENS),
            token_parity: TokenParity::default(),
        }
    }

    /// The model's name in requests.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    /// The `authorization` header for its engines, in place of the client's.
    #[must_use]
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Its endpoints, in the order configured; those of one engine by rank.
    #[must_use]
    pub fn members(&self) -> Arc<Vec<Arc<Endpoint>>> {
        self.members.load_full()
    }

    /// Looks which endpoints its engines have now.
    pub(crate) fn refresh(&self) {
        self.members.store(Arc::new(members_of(&self.engines)));
    }

    /// Its tokenizer.
    #[must_use]
    pub fn prompts(&self) -> &Arc<ModelPrompts> {
        &self.prompts
    }

    /// How far token ids in clients' headers are believed.
    #[must_use]
    pub fn token_headers(&self) -> &TokenHeaders {
        &self.token_headers
    }

    /// Own tokens held against the engines' `/tokenize`.
    #[must_use]
    pub fn token_oracle(&self) -> &TokenOracle {
        &self.token_oracle
    }

    /// Our count of prompt tokens held against the engines', by model and API.
    #[must_use]
    pub fn token_parity(&self) -> &TokenParity {
        &self.token_parity
    }

    /// Whether any member is known to take a request for the pool's model now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.members
            .load()
            .iter()
            .any(|member| member.has_answered() && member.exclusion(&self.model).is_none())
    }

    /// Looks up what every member holds of a prompt.
    #[must_use]
    pub fn evidence(&self, tokens: &PromptTokens<'_>) -> Evidence {
        Evidence::gather(self.members(), &self.caches.inventory, tokens)
    }

    /// Chooses an endpoint for a request for `model` (the pool's, or an adapter) and commits the
    /// request's load and its prompt, as pending there, to it, in one step: the next request sees
    /// both.
    ///
    /// `tried` are endpoints where this request already failed: other ranks of their engines are
    /// not better. Endpoints that fail or stay silent
    /// are taken only where there is no other; one that is known to be unreachable only by a first
    /// attempt, since it may just have come back. Otherwise there is `None`.
    #[must_use]
    pub fn choose(
        &self,
        model: &str,
        evidence: &Evidence,
        tried: &[Arc<Endpoint>],
    ) -> Option<Chosen> {
        let exclusion = |member: &Arc<Endpoint>| {
            if tried.iter().any(|known| known.same_engine(member)) {
                return Some(Exclusion::Tried);
            }
            // That it serves the pool's model, the configuration says; an adapter, only the engine.
            if model != self.model && member.card().is_none() {
                return Some(Exclusion::ModelNotServed);
            }
            member.exclusion(model)
        };
        let mut eligible = Vec::with_capacity(evidence.endpoints.len());
        let mut doubtful = Vec::new();
        let mut unreachable = Vec::new();
        for (place, member) in evidence.endpoints.iter().enumerate() {
            match exclusion(member) {
                None => eligible.push(place),
                Some(Exclusion::Failing | Exclusion::Silent) => doubtful.push(place),
                Some(Exclusion::Unreachable(_)) => unreachable.push(place),
                Some(_) => {}
            }
        }
        if eligible.is_empty() {
            eligible = doubtful;
        }
        if eligible.is_empty() && tried.is_empty() {
            eligible = unreachable;
        }
        self.commit(evidence, &eligible)
    }

    /// The longest prompt some engine takes, in tokens; `u64::MAX` where one does not say.
    #[must_use]
    pub fn longest_prompt(&self) -> u64 {
        let longest = self.members().iter().map(|member| member.longest_prompt(&self.model)).max();
        longest.unwrap_or(u64::MAX)
    }

    /// A prompt came by: remembers how long prompts are here.
    pub fn note_prompt(&self, tokens: u64) {
        // A lost update between two requests costs nothing worth a lock.
        let mean = self.typical_prompt.load(Ordering::Relaxed);
        self.typical_prompt.store(next_typical_prompt(mean, tokens), Ordering::Relaxed);
    }

    fn commit(&self, evidence: &Evidence, eligible: &[usize]) -> Option<Chosen> {
        let query = Query { prompt_tokens: evidence.prompt_tokens };
        let fallback_rate = median_rate(&evidence.endpoints);
        let mut state = self.state.lock();
        let pending = evidence.pending(&self.caches.pending, Instant::now());
        let candidate = |place: &usize| Candidate {
            pending: pending[*place],
            ..self.candidate(*place, evidence, fallback_rate)
        };
        let candidates: Vec<Candidate> = eligible.iter().map(candidate).collect();
        let view = FleetView { candidates: &candidates };
        let choice = self.policy.choose(&query, &view, &mut state)?;
        let candidate = candidates.get(choice.index)?;
        let place = *eligible.get(choice.index)?;
        let member = evidence.endpoints.get(place)?;
        let uncached = candidate.uncached(&query);
        // How much of what is pending it will still wait for is not known.
        let measured = evidence.exact && candidate.trust == Trust::Exact && candidate.pending == 0;
        let claim = evidence.keys(place).and_then(|keys| member.pending().begin(keys));
        let prediction = evidence.members.get(place)?.prediction;
        let reservation =
            Reservation::new(Arc::clone(member), uncached, measured, claim, prediction.ok());
        drop(state);
        let decision = Decision {
            policy: self.policy.name(),
            reason: choice.reason,
            overlap: candidate.overlap,
            pending: candidate.pending,
            trust: candidate.trust,
            prompt_tokens: evidence.prompt_tokens,
            candidates: candidates.len(),
            prediction,
        };
        Some(Chosen { reservation, decision })
    }

    fn candidate(&self, place: usize, evidence: &Evidence, fallback_rate: f64) -> Candidate {
        let member = &evidence.endpoints[place];
        let known = evidence.members[place];
        let foreign = u64::from(member.foreign_waiting())
            .saturating_mul(self.typical_prompt.load(Ordering::Relaxed));
        Candidate {
            overlap: known.overlap,
            pending: 0,
            trust: known.trust,
            load: Load {
                in_flight: member.in_flight(),
                queued_prefill_tokens: member.queued_prefill_tokens().saturating_add(foreign),
            },
            prefill_rate: member.learned_prefill_rate().unwrap_or(fallback_rate),
        }
    }
}

fn members_of(engines: &[Arc<Ranks>]) -> Vec<Arc<Endpoint>> {
    engines.iter().flat_map(|engine| engine.endpoints()).collect()
}

/// What an endpoint nobody has timed yet is taken to do.
fn median_rate(members: &[Arc<Endpoint>]) -> f64 {
    kvasir_balance::median_rate(members.iter().filter_map(|member| member.learned_prefill_rate()))
}

#[cfg(test)]
mod tests;
