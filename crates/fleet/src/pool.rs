//! The endpoints serving one model, and the decision among them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use http::HeaderValue;
use http::uri::Authority;
use kvasir_balance::{Needs, Role, SessionSource, next_typical_prompt};

pub use self::choice::{Chosen, Decision, PrefillSide, Shadow};
pub use self::explain::Explained;
pub(crate) use self::shared::Shared;
pub(crate) use self::state::PoolState;
use crate::admission::Door;
use crate::asked::Asked;
use crate::decision_log::Account;
use crate::endpoint::Endpoint;
use crate::evidence::{Evidence, PromptTokens};
use crate::guess;
use crate::parity::tokens::TokenParity;
use crate::ranks::Ranks;
use crate::retry_budget::RetryBudget;
use crate::spec::{AdminState, Timeouts};
use crate::split::SplitSettings;
use crate::token_headers::TokenHeaders;
use crate::token_oracle::TokenOracle;
use crate::tokenizer::ModelPrompts;

mod admission;
mod asking;
mod candidates;
mod choice;
mod explain;
mod service;
mod shared;
mod side;
mod split;
mod state;
mod trials;

/// The endpoints serving one model.
#[derive(Debug)]
pub struct Pool {
    model: String,
    /// Other names for it.
    aliases: Vec<String>,
    /// Whether its answers tell of decisions, where it has an opinion.
    decision_headers: Option<bool>,
    authorization: Option<HeaderValue>,
    timeouts: Timeouts,
    /// How it splits requests, if it does.
    split: Option<SplitSettings>,
    /// Engines with a part in that, by what the configuration it was built from says.
    roles: HashMap<Authority, Role>,
    engines: Vec<Arc<Ranks>>,
    members: ArcSwap<Vec<Arc<Endpoint>>>,
    /// What the configuration it was built from says of engines that are not simply active.
    states: Vec<(Authority, AdminState)>,
    shared: Shared,
    state: PoolState,
    /// Where it does not take everything at once.
    door: Option<Arc<Door>>,
}

impl Pool {
    pub(crate) fn new(
        model: String,
        authorization: Option<HeaderValue>,
        timeouts: Timeouts,
        engines: Vec<Arc<Ranks>>,
        shared: Shared,
        state: PoolState,
    ) -> Self {
        let members = ArcSwap::from_pointee(members_of(&engines));
        let states = Vec::new();
        Self {
            model,
            aliases: Vec::new(),
            decision_headers: None,
            authorization,
            timeouts,
            split: None,
            roles: HashMap::new(),
            engines,
            members,
            states,
            shared,
            state,
            door: None,
        }
    }

    /// The same with engines in these states.
    pub(crate) fn with_states(mut self, states: Vec<(Authority, AdminState)>) -> Self {
        self.states = states;
        self
    }

    /// The same with other names for its model, and an opinion whether answers tell of decisions.
    pub(crate) fn with_names(mut self, aliases: Vec<String>, headers: Option<bool>) -> Self {
        (self.aliases, self.decision_headers) = (aliases, headers);
        self
    }

    /// The same with requests split so, among engines with these roles; others are unified.
    pub(crate) fn with_split(
        mut self,
        split: Option<SplitSettings>,
        roles: HashMap<Authority, Role>,
    ) -> Self {
        (self.split, self.roles) = (split, roles);
        self
    }

    /// Which of its engines have a part in requests that are split.
    pub(crate) fn roles(&self) -> &HashMap<Authority, Role> {
        &self.roles
    }

    /// What it was told of its engines.
    pub(crate) fn states(&self) -> &[(Authority, AdminState)] {
        &self.states
    }

    /// What another pool for the same model can go on with.
    pub(crate) fn state(&self) -> &PoolState {
        &self.state
    }

    /// Whether these are its engines, in this order.
    pub(crate) fn has_engines(&self, engines: &[Arc<Ranks>]) -> bool {
        self.engines.len() == engines.len()
            && self.engines.iter().zip(engines).all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// The model's name in requests.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Other names of the model in requests. Engines get them as they are.
    #[must_use]
    pub fn aliases(&self) -> &[String] {
        &self.aliases
    }

    /// Whether this is the model's name or one of its other names, and none of an adapter.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.model == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// Whether its answers tell of decisions; `None` where that is as for all pools.
    #[must_use]
    pub fn decision_headers(&self) -> Option<bool> {
        self.decision_headers
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.state.selecting.policy()
    }

    /// Whether its decisions are logged: only then ids of requests are of use to it.
    #[must_use]
    pub fn logs_decisions(&self) -> bool {
        self.state.selecting.log().is_some()
    }

    /// What became of its decision log's lines.
    pub(crate) fn decision_log(&self) -> Option<&Arc<Account>> {
        self.state.selecting.log()
    }

    /// The `authorization` header for its engines, in place of the client's.
    #[must_use]
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// How long its engines may take.
    #[must_use]
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// How it splits requests among prefill and decode endpoints; `None` where all of its endpoints
    /// serve whole requests, whatever their roles.
    #[must_use]
    pub fn split(&self) -> Option<&SplitSettings> {
        self.split.as_ref()
    }

    /// Its endpoints, in the order configured; those of one engine by rank.
    #[must_use]
    pub fn members(&self) -> Arc<Vec<Arc<Endpoint>>> {
        self.members.load_full()
    }

    /// Looks which endpoints its engines have now. For its [`Seat`](crate::seat::Seat) alone, which does
    /// it once at a time.
    pub(crate) fn refresh(&self) {
        let members = members_of(&self.engines);
        self.state.selecting.know(&members);
        self.members.store(Arc::new(members));
    }

    /// Its tokenizer.
    #[must_use]
    pub fn prompts(&self) -> &Arc<ModelPrompts> {
        &self.state.prompts
    }

    /// How far token ids in clients' headers are believed.
    #[must_use]
    pub fn token_headers(&self) -> &TokenHeaders {
        &self.state.token_headers
    }

    /// Own tokens held against the engines' `/tokenize`.
    #[must_use]
    pub fn token_oracle(&self) -> &TokenOracle {
        &self.state.token_oracle
    }

    /// Our count of prompt tokens held against the engines', by model and API.
    #[must_use]
    pub fn token_parity(&self) -> &TokenParity {
        &self.state.token_parity
    }

    /// How many of its requests may be sent again.
    #[must_use]
    pub fn retries(&self) -> &RetryBudget {
        &self.state.retries
    }

    /// What its policies read of requests, or others could that are tried on its decision log:
    /// callers need to find out no more.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.state.selecting.gathers()
    }

    /// Where a conversation's name is looked for, in this order; empty where nobody asks.
    #[must_use]
    pub fn sessions(&self) -> &[SessionSource] {
        self.state.selecting.sessions()
    }

    /// The same as [`Pool::evidence`], with what else is known of the request.
    #[must_use]
    pub fn evidence_of(&self, tokens: &PromptTokens<'_>, asked: &Asked<'_>) -> Evidence {
        let space = self.shared.inventory.space();
        let guess = || guess::keys(space, &self.model, tokens, asked.text);
        self.evidence(tokens).asked(asked, guess)
    }

    /// Looks up what every member holds of a prompt.
    #[must_use]
    pub fn evidence(&self, tokens: &PromptTokens<'_>) -> Evidence {
        let needs = self.state.selecting.gathers();
        Evidence::gather(self.members(), &self.shared.inventory, tokens, needs)
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
        let mean = self.state.typical_prompt.load(Ordering::Relaxed);
        self.state.typical_prompt.store(next_typical_prompt(mean, tokens), Ordering::Relaxed);
    }
}

fn members_of(engines: &[Arc<Ranks>]) -> Vec<Arc<Endpoint>> {
    engines.iter().flat_map(|engine| engine.endpoints()).collect()
}

#[cfg(test)]
mod tests;
