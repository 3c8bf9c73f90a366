//! What an engine's `/metrics` would say.

/// Counters and gauges of one life of an engine, as of the end of its last step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// Requests in the running batch (`vllm:num_requests_running`).
    pub running: usize,
    /// Requests that wait, preempted ones among them (`vllm:num_requests_waiting`).
    pub waiting: usize,
    /// Blocks that hold tokens of running requests, or are kept for another engine.
    pub used_blocks: usize,
    /// Blocks that could be used, the null block not counted.
    pub usable_blocks: usize,
    /// Tokens looked up in the prefix cache (`vllm:prefix_cache_queries_total`). Up to 0.26 a
    /// request that cannot be admitted is counted again at every attempt, as vLLM does.
    pub prefix_queries: u64,
    /// Tokens found there (`vllm:prefix_cache_hits_total`).
    pub prefix_hits: u64,
    /// Prompt tokens that were not in the cache and could have come from another engine
    /// (`vllm:external_prefix_cache_queries_total` of a server with a KV connector).
    pub external_queries: u64,
    /// Those that did (`vllm:external_prefix_cache_hits_total`).
    pub external_hits: u64,
    /// Ended requests whose prompt's blocks are kept.
    pub held_requests: usize,
    /// Times a running request was put back for want of blocks (`vllm:num_preemptions_total`).
    pub preemptions: u64,
    /// Prompt tokens of requests whose prefill has ended, cached ones included
    /// (`vllm:prompt_tokens_total`).
    pub prompt_tokens: u64,
    /// Tokens generated (`vllm:generation_tokens_total`).
    pub generation_tokens: u64,
    /// Requests that ended by themselves.
    pub finished: u64,
    /// Scheduler steps.
    pub steps: u64,
}

impl EngineStats {
    /// The used part of the cache, 0 to 1 (`vllm:kv_cache_usage_perc`).
    #[must_use]
    pub fn kv_usage(&self) -> f64 {
        if self.usable_blocks == 0 {
            return 0.0;
        }
        self.used_blocks as f64 / self.usable_blocks as f64
    }
}
