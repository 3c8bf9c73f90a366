//! What a pool hands on to the pool that takes its place.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use kvasir_balance::DEFAULT_PROMPT_TOKENS;

use crate::parity::tokens::TokenParity;
use crate::retry_budget::RetryBudget;
use crate::selecting::Selecting;
use crate::spec::TokenSpec;
use crate::token_headers::TokenHeaders;
use crate::token_oracle::TokenOracle;
use crate::tokenizer::ModelPrompts;

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
