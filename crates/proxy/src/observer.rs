//! Somebody beside the data plane who is told of every request that was decided about.

use std::fmt;

use kvasir_fleet::Decision;

/// Is told of requests as they end. It is asked on the request path: it must not wait.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A request ended for which an endpoint was chosen.
    fn served(&self, served: Served<'_>);
}

/// One request, as it ended.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// The client's name for it.
    pub request_id: Option<&'a str>,
    /// The API's path.
    pub path: &'a str,
    /// The pool.
    pub pool: &'a str,
    /// The model asked for.
    pub model: &'a str,
    /// The endpoint that answered.
    pub endpoint: Option<&'a str>,
    /// The endpoint that computed the prompt, where that is another.
    pub prefill_endpoint: Option<&'a str>,
    /// How it was served in the end, in pools that split requests.
    pub plan: Option<&'static str>,
    /// The last decision about it.
    pub decision: &'a Decision,
    /// Tokens that the engine which computed the prompt was credited with holding.
    pub overlap: u64,
    /// Tokens beyond that which it was computing for others.
    pub pending: u64,
    /// How far the prompt was known.
    pub level: &'static str,
    /// `exact`, or why its tokens are not known exactly.
    pub tokens: &'static str,
    /// Cached tokens the engine reports.
    pub reported_cached_tokens: Option<u64>,
    /// Prompt tokens the engine reports.
    pub reported_prompt_tokens: Option<u64>,
    /// Whether report and prediction can be compared.
    pub comparable: bool,
    /// Engines that were asked.
    pub attempts: u32,
    /// The answer's status.
    pub status: u16,
    /// How it ended.
    pub outcome: &'static str,
    /// Milliseconds until the first data of the answer.
    pub first_data_ms: Option<f64>,
    /// Milliseconds in all.
    pub total_ms: f64,
}
