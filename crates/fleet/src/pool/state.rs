//! What pools share, and what one hands on to the pool that takes its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use kvasir_balance::DEFAULT_PROMPT_TOKENS;
use kvasir_inventory::Inventory;
use parking_lot::Mutex;

use crate::by_name::ByName;
use crate::health::Health;
use crate::load::LoadCounters;
use crate::parity::tokens::TokenParity;
use crate::pending::PendingPrefixes;
use crate::retired::Retired;
use crate::retry_budget::RetryBudget;
use crate::selecting::Selecting;
use crate::spec::TokenSpec;
use crate::token_headers::TokenHeaders;
use crate::token_oracle::TokenOracle;
use crate::tokenizer::ModelPrompts;
use crate::trust_changes::TrustChanges;

/// What is known of all engines, whichever pools and fleets they are in.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// What their caches hold.
    pub(crate) inventory: Arc<Inventory>,
    /// What they are computing.
    pub(crate) pending: Arc<PendingPrefixes>,
    /// What endpoints have in hand.
    pub(crate) accounts: Arc<ByName<LoadCounters>>,
    /// How engines are, by URL.
    pub(crate) healths: Arc<ByName<Mutex<Health>>>,
    /// Engines that were sent requests whose blocks differ by more than tokens, by URL: whoever
    /// follows their streams anew must know.
    pub(crate) carried_extras: Arc<ByName<AtomicBool>>,
    /// How often the trust in their events changed, by URL.
    pub(crate) trust_changes: Arc<ByName<TrustChanges>>,
    /// Endpoints that are none any more and still have requests.
    pub(crate) retired: Arc<Retired>,
}

impl Shared {
    /// Nothing is pending, nothing in hand.
    pub(crate) fn new(inventory: Arc<Inventory>) -> Self {
        Self {
            inventory,
            pending: Arc::default(),
            accounts: Arc::default(),
            healths: Arc::default(),
            carried_extras: Arc::default(),
            trust_changes: Arc::default(),
            retired: Arc::default(),
        }
    }
}

/// What a pool keeps when a reload changes it: all that was learned and does not depend on what
/// changed.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    pub(crate) selecting: Arc<Selecting>,
    pub(crate) prompts: Arc<ModelPrompts>,
    pub(crate) token_headers: Arc<TokenHeaders>,
    pub(crate) token_oracle: Arc<TokenOracle>,
    pub(crate) token_parity: Arc<TokenParity>,
    /// Moving mean of prompt tokens per request.
    pub(crate) typical_prompt: Arc<AtomicU64>,
    /// How many of its requests were sent again lately.
    pub(crate) retries: Arc<RetryBudget>,
}

impl PoolState {
    /// Of a pool that begins.
    pub(crate) fn new(selecting: Selecting, prompts: ModelPrompts, tokens: TokenSpec) -> Self {
        Self {
            selecting: Arc::new(selecting),
            prompts: Arc::new(prompts),
            token_headers: Arc::new(TokenHeaders::new(tokens.trust_headers)),
            token_oracle: Arc::new(TokenOracle::new(tokens.parity)),
            token_parity: Arc::default(),
            typical_prompt: Arc::new(AtomicU64::new(DEFAULT_PROMPT_TOKENS)),
            retries: Arc::default(),
        }
    }
}
