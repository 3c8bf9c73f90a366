//! A pool's selection at run time: its lock, clock and chance, and what answers teach it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_balance::{
    Blind, Decision, EndpointId, Members, Moment, Needs, Outcome, Prefix, Query, Rng, Selection,
    SelectionSpec, SessionSource, digest, digest_of_text, digest_of_tokens,
};
use parking_lot::{Mutex, MutexGuard};

use crate::asked::Asked;
use crate::endpoint::Endpoint;
use crate::evidence::PromptTokens;
use crate::pending::PromptKeys;

/// A pool's selection.
#[derive(Debug)]
pub(crate) struct Selecting {
    policy: &'static str,
    shadow: Option<&'static str>,
    needs: Needs,
    sessions: Vec<SessionSource>,
    began: Instant,
    state: Mutex<State>,
}

/// Behind the lock: choosing and committing happen under it, so that two requests of one pool never
/// take the same idle endpoint without seeing each other.
#[derive(Debug)]
pub(crate) struct State {
    selection: Selection,
    rng: Rng,
    /// How often each endpoint had begun anew when it was last looked at.
    lives: HashMap<EndpointId, u64>,
}

/// Who asks, and how the request begins, besides its prompt's keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traits {
    /// What is read of them.
    pub(crate) needs: Needs,
    session: Option<u64>,
    token_head: Option<u64>,
    text_head: Option<u64>,
    adapter: Option<String>,
    salt: Option<u64>,
    tools: bool,
    images: bool,
    /// Why the prompt's tokens are not known.
    pub(crate) blind: Option<Blind>,
}

/// What a selection learns of one request; dropped before the answer began, it learns that there was
/// none.
#[derive(Debug)]
pub(crate) struct Watch {
    selecting: Arc<Selecting>,
    endpoint: EndpointId,
    prompt_tokens: u64,
    traits: Traits,
    keys: Option<Arc<PromptKeys>>,
    told: bool,
}

// === impl Selecting ===

impl Selecting {
    pub(crate) fn new(spec: &SelectionSpec, seed: u64) -> Self {
        let selection = spec.build(seed);
        let needs = selection.needs();
        let state = State { selection, rng: Rng::new(seed), lives: HashMap::new() };
        let shadow = spec.shadow.as_ref().map(kvasir_balance::PolicySpec::name);
        let policy = spec.policy.name();
        let sessions = if needs.session { spec.sessions.clone() } else { Vec::new() };
        Self { policy, shadow, needs, sessions, began: Instant::now(), state: Mutex::new(state) }
    }

    /// The policy's name.
    pub(crate) fn policy(&self) -> &'static str {
        self.policy
    }

    /// The shadow policy's name.
    pub(crate) fn shadow(&self) -> Option<&'static str> {
        self.shadow
    }

    /// What it reads of a request.
    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }

    /// Where it looks for a conversation's name; empty where it asks for none.
    pub(crate) fn sessions(&self) -> &[SessionSource] {
        &self.sessions
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Forgets what was remembered of endpoints whose engine began anew.
    pub(crate) fn note_lives(&self, state: &mut State, endpoints: &[Arc<Endpoint>]) {
        if !self.needs.keys {
            return;
        }
        for endpoint in endpoints {
            let (id, life) = (endpoint.id(), endpoint.lives());
            if state.lives.insert(id, life).is_some_and(|known| known != life) {
                state.selection.forget(id);
            }
        }
    }

    /// Follows a request that was sent to an endpoint, if anything is to be learned of it.
    pub(crate) fn watch(
        self: &Arc<Self>,
        endpoint: EndpointId,
        prompt_tokens: u64,
        traits: &Traits,
        keys: Option<Arc<PromptKeys>>,
    ) -> Option<Watch> {
        let learns = self.needs.keys || self.needs.session;
        learns.then(|| Watch {
            selecting: Arc::clone(self),
            endpoint,
            prompt_tokens,
            traits: traits.clone(),
            keys: keys.filter(|_| self.needs.keys),
            told: false,
        })
    }
}

// === impl State ===

impl State {
    pub(crate) fn select(
        &mut self,
        query: &Query<'_>,
        members: &Members<'_>,
        now: Duration,
    ) -> Option<Decision> {
        self.selection.select(query, members, &mut Moment { now, rng: &mut self.rng })
    }
}

// === impl Traits ===

impl Traits {
    pub(crate) fn of(tokens: &PromptTokens<'_>, needs: Needs) -> Self {
        let first = tokens.prompts.and_then(|prompts| prompts.first());
        Self {
            needs,
            token_head: first.filter(|_| needs.head).and_then(|prompt| digest_of_tokens(prompt)),
            adapter: tokens.adapter.filter(|_| needs.head).map(str::to_owned),
            salt: tokens
                .salt
                .filter(|_| needs.head || needs.session)
                .map(|salt| digest(salt.as_bytes())),
            ..Self::default()
        }
    }

    pub(crate) fn ask(&mut self, asked: &Asked<'_>) {
        let Asked { session, text, head, tools, images, blind } = *asked;
        self.session = session.filter(|_| self.needs.session);
        (self.tools, self.images, self.blind) = (tools, images, blind);
        if self.needs.head && self.token_head.is_none() {
            self.text_head = digest_of_text(text.map_or(head, |text| &text.text));
        }
    }

    pub(crate) fn query<'a>(
        &'a self,
        prompt_tokens: u64,
        keys: Option<&'a PromptKeys>,
        blind: Option<Blind>,
    ) -> Query<'a> {
        let first = keys.and_then(|keys| keys.prompts.first());
        let prefix = Prefix {
            keys: first.map_or(&[], |chain| chain.keys.as_slice()),
            tokens_per_key: keys.map_or(0, |keys| keys.block_size),
            token_head: self.token_head,
            text_head: self.text_head,
            adapter: self.adapter.as_deref(),
            salt: self.salt,
            tools: self.tools,
            images: self.images,
        };
        Query { prompt_tokens, session: self.session, blind, prefix }
    }
}

// === impl Watch ===

impl Watch {
    /// The endpoint answered, or it did not.
    pub(crate) fn tell(&mut self, answered: bool) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let query = &self.traits.query(self.prompt_tokens, self.keys.as_deref(), self.traits.blind);
        let (endpoint, now) = (self.endpoint, self.selecting.now());
        let outcome = Outcome { query, endpoint, answered, now };
        self.selecting.lock().selection.observe(&outcome);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tell(false);
    }
}

#[cfg(test)]
mod tests;
