//! A pool's selection at run time: its lock, clock and chance, and what answers teach it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_balance::record::OutcomeRecord;
use kvasir_balance::{
    Blind, Cut, Decision, EndpointId, Members, Moment, Needs, Outcome, Pairing, Prefix, Query, Rng,
    Selection, SelectionSpec, SessionSource, digest, digest_of_text, digest_of_tokens,
};
use parking_lot::{Mutex, MutexGuard};

use crate::asked::Asked;
use crate::decision_log::{Account, MadeAt, Noted, PoolLog, What, micros};
use crate::endpoint::Endpoint;
use crate::evidence::PromptTokens;
use crate::pending::PromptKeys;

/// A pool's selection.
#[derive(Debug)]
pub(crate) struct Selecting {
    policy: &'static str,
    shadow: Option<&'static str>,
    /// What its stages read.
    needs: Needs,
    /// What is gathered: for the log, so that other policies can be tried on it.
    gathers: Needs,
    sessions: Vec<SessionSource>,
    began: Instant,
    log: Option<Arc<Account>>,
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
    /// The pool's endpoints. Requests that began before a reload may still choose others: of those
    /// nothing is kept.
    members: HashMap<EndpointId, Arc<Endpoint>>,
    /// Decisions so far.
    decisions: u64,
    /// The last one.
    last: MadeAt,
    log: Option<PoolLog>,
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
    /// The request's id, and how long it had waited for room, for the log.
    request_id: Option<String>,
    waited: Option<Duration>,
}

/// Longer ids of requests are cut in the log.
const MAX_REQUEST_ID: usize = 256;

/// What a selection learns of one request; dropped before the answer began, it learns that there was
/// none.
#[derive(Debug)]
pub(crate) struct Watch {
    selecting: Arc<Selecting>,
    /// The decision's number.
    decision: u64,
    endpoint: Arc<Endpoint>,
    prompt_tokens: u64,
    traits: Traits,
    keys: Option<Arc<PromptKeys>>,
    told: bool,
}

// === impl Selecting ===

impl Selecting {
    pub(crate) fn new(spec: &SelectionSpec, seed: u64, log: Option<PoolLog>) -> Self {
        let selection = spec.build(seed);
        let needs = selection.needs();
        let gathers = match &log {
            Some(_) => logged_needs(needs),
            None => needs,
        };
        let account = log.as_ref().map(|log| Arc::clone(log.account()));
        let state = Mutex::new(State {
            selection,
            rng: Rng::new(seed),
            lives: HashMap::new(),
            members: HashMap::new(),
            decisions: 0,
            last: MadeAt::default(),
            log,
        });
        let shadow = spec.shadow.as_ref().map(kvasir_balance::PolicySpec::name);
        let policy = spec.policy.name();
        let sessions = if gathers.session { spec.sessions.clone() } else { Vec::new() };
        let began = Instant::now();
        Self { policy, shadow, needs, gathers, sessions, began, log: account, state }
    }

    /// The policy's name.
    pub(crate) fn policy(&self) -> &'static str {
        self.policy
    }

    /// The shadow policy's name.
    pub(crate) fn shadow(&self) -> Option<&'static str> {
        self.shadow
    }

    /// What is to be gathered of a request and of endpoints.
    pub(crate) fn gathers(&self) -> Needs {
        self.gathers
    }

    /// Whether its stages read a prompt's keys.
    pub(crate) fn reads_keys(&self) -> bool {
        self.needs.keys
    }

    /// What became of its log's lines, where it has one.
    pub(crate) fn log(&self) -> Option<&Arc<Account>> {
        self.log.as_ref()
    }

    /// Where it looks for a conversation's name; empty where nobody asks for one.
    pub(crate) fn sessions(&self) -> &[SessionSource] {
        &self.sessions
    }

    /// Of how many endpoints it knows the lives.
    #[cfg(test)]
    pub(crate) fn remembers(&self) -> usize {
        self.state.lock().lives.len()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// In whole microseconds, as they are in the log.
    pub(crate) fn now(&self) -> Duration {
        Duration::from_micros(micros(self.began.elapsed()))
    }

    /// Forgets what was remembered of endpoints whose engine began anew.
    pub(crate) fn note_lives(&self, state: &mut State, endpoints: &[Arc<Endpoint>]) {
        if !self.needs.keys {
            return;
        }
        for endpoint in endpoints {
            let (id, life) = (endpoint.id(), endpoint.lives());
            if !state.members.contains_key(&id) {
                continue;
            }
            if state.lives.insert(id, life).is_some_and(|known| known != life) {
                state.selection.forget(id);
                if let Some(log) = &mut state.log {
                    log.push(What::Forget(Arc::clone(endpoint)));
                }
            }
        }
    }

    /// These are the pool's endpoints from now on: what was remembered of others is forgotten.
    pub(crate) fn know(&self, members: &[Arc<Endpoint>]) {
        let members = members.iter().map(|member| (member.id(), Arc::clone(member))).collect();
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.members, members);
        for endpoint in before.values() {
            state.forget_if_gone(endpoint);
        }
    }

    /// Follows a request that was sent to an endpoint, if anything is to be learned of it or it is
    /// logged.
    pub(crate) fn watch(
        self: &Arc<Self>,
        decision: u64,
        endpoint: &Arc<Endpoint>,
        prompt_tokens: u64,
        traits: &Traits,
        keys: Option<Arc<PromptKeys>>,
    ) -> Option<Watch> {
        let learns = self.needs.keys || self.needs.session || self.log.is_some();
        learns.then(|| Watch {
            selecting: Arc::clone(self),
            decision,
            endpoint: Arc::clone(endpoint),
            prompt_tokens,
            traits: traits.clone(),
            keys: keys.filter(|_| self.needs.keys),
            told: false,
        })
    }
}

/// What is gathered of requests that are logged. No policy may choose otherwise for knowing more
/// than it needs.
fn logged_needs(needs: Needs) -> Needs {
    Needs { session: true, head: true, images: true, blocks: true, ..needs }
}

// === impl State ===

impl State {
    pub(crate) fn select(
        &mut self,
        query: &Query<'_>,
        members: &Members<'_>,
        pairing: Option<(&Pairing, &[Cut])>,
        now: Duration,
    ) -> Option<Decision> {
        self.decisions += 1;
        self.last = MadeAt { id: self.decisions, at: now, seed: self.rng.state() };
        let mut moment = Moment { now, rng: &mut self.rng };
        match pairing {
            Some((pairing, cut)) => {
                self.selection.select_pair(query, members, pairing, cut, &mut moment)
            }
            None => self.selection.select(query, members, &mut moment),
        }
    }

    /// What [`select`](Self::select) would choose now; nothing is kept of it.
    pub(crate) fn foresee(
        &self,
        query: &Query<'_>,
        members: &Members<'_>,
        pairing: Option<(&Pairing, &[Cut])>,
        now: Duration,
    ) -> (MadeAt, Option<Decision>) {
        let (mut selection, mut rng) = (self.selection.fork(query), self.rng.clone());
        let mut moment = Moment { now, rng: &mut rng };
        let decision = match pairing {
            Some((pairing, cut)) => {
                selection.select_pair(query, members, pairing, cut, &mut moment)
            }
            None => selection.select(query, members, &mut moment),
        };
        (self.next(now), decision)
    }

    /// The moment of the decision that comes next.
    pub(crate) fn next(&self, now: Duration) -> MadeAt {
        MadeAt { id: self.decisions + 1, at: now, seed: self.rng.state() }
    }

    /// Keeps nothing of an endpoint that is not the pool's.
    pub(crate) fn forget_if_gone(&mut self, endpoint: &Arc<Endpoint>) {
        if self.members.contains_key(&endpoint.id()) {
            return;
        }
        self.selection.forget(endpoint.id());
        self.lives.remove(&endpoint.id());
        if let Some(log) = &mut self.log {
            log.push(What::Forget(Arc::clone(endpoint)));
        }
    }

    /// The number of the last decision.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Logs the last decision, if there is a log.
    pub(crate) fn note(&mut self, noted: impl FnOnce(MadeAt) -> Noted) {
        if let Some(log) = &mut self.log {
            log.push(What::Decision(Box::new(noted(self.last))));
        }
    }
}

// === impl Traits ===

impl Traits {
    pub(crate) fn of(tokens: &PromptTokens<'_>, needs: Needs) -> Self {
        let first = tokens.prompts.and_then(|prompts| prompts.first());
        Self {
            needs,
            token_head: first.filter(|_| needs.head).and_then(|prompt| digest_of_tokens(prompt)),
            // Conversations are told apart by both, too.
            adapter: tokens.adapter.filter(|_| needs.head || needs.session).map(str::to_owned),
            salt: tokens
                .salt
                .filter(|_| needs.head || needs.session)
                .map(|salt| digest(salt.as_bytes())),
            ..Self::default()
        }
    }

    pub(crate) fn known_as(&mut self, request_id: &str) {
        self.request_id = Some(request_id.chars().take(MAX_REQUEST_ID).collect());
    }

    pub(crate) fn waited(&mut self, waited: Option<Duration>) {
        self.waited = waited;
    }

    /// In whole milliseconds, as it is in the log.
    pub(crate) fn waited_ms(&self) -> Option<u64> {
        self.waited.map(|waited| u64::try_from(waited.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    pub(crate) fn ask(&mut self, asked: &Asked<'_>) {
        let Asked { session, text, head, tools, images, blind, foreseen: _ } = *asked;
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
        let (endpoint, now) = (self.endpoint.id(), self.selecting.now());
        let outcome = Outcome { query, endpoint, answered, now };
        let mut state = self.selecting.lock();
        state.selection.observe(&outcome);
        if let Some(log) = &mut state.log {
            let of = self.decision;
            log.push(What::Outcome(OutcomeRecord { of, answered, at_us: micros(now) }));
        }
        state.forget_if_gone(&self.endpoint);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tell(false);
    }
}

#[cfg(test)]
mod tests;
