//! What an engine is started with.

use kvasir_kv_hash::vllm::Version;

use crate::hashing::Hashing;
use crate::timing::CostModel;

/// What an engine is started with. Names follow vLLM's options.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// The release to behave like: order of freed blocks, accounting of cache queries.
    pub version: Version,
    /// Tokens per block.
    pub block_size: usize,
    /// Blocks of the cache (`num_gpu_blocks`); one of them, the null block, holds nothing.
    pub num_blocks: usize,
    /// Context length in tokens, prompt and output; must fit the cache.
    pub max_model_len: usize,
    /// Token budget of one step.
    pub max_num_batched_tokens: usize,
    /// Most requests that run at once.
    pub max_num_seqs: usize,
    /// Most requests that wait (vLLM has no such limit); further ones are refused.
    pub max_waiting: usize,
    /// Whether blocks are cached at all.
    pub enable_prefix_caching: bool,
    /// Whether a request is admitted only if its whole prompt fits the free blocks, not just its
    /// first chunk (`scheduler_reserve_full_isl`; vLLM 0.20 and newer).
    pub reserve_full_prompt: bool,
    /// The part of all blocks to keep free when a request is admitted beside others, from 0 to
    /// less than 1 (`watermark`; 0.26 has it, 0.23 does not).
    pub watermark: f64,
    /// Which hashes blocks get.
    pub hashing: Hashing,
    /// Whether KV events are made.
    pub enable_kv_cache_events: bool,
    /// How long steps take.
    pub cost: CostModel,
}

impl EngineConfig {
    /// vLLM 0.32.0, the newest release whose recordings the model is compared with.
    pub const DEFAULT_VERSION: Version = Version::release(0, 32, 0);

    /// Blocks that can hold tokens.
    #[must_use]
    pub fn usable_blocks(&self) -> usize {
        self.num_blocks.saturating_sub(1)
    }

    /// Checks the values against each other.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let range = |name, value, least, most| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(ConfigError::OutOfRange { name, value, least, most })
        };
        range("block_size", self.block_size, 1, MAX_BLOCK_SIZE)?;
        range("num_blocks", self.num_blocks, 2, MAX_BLOCKS)?;
        let capacity = self.usable_blocks() * self.block_size;
        range("max_model_len", self.max_model_len, 2, capacity)?;
        range("max_num_batched_tokens", self.max_num_batched_tokens, 1, usize::MAX)?;
        range("max_num_seqs", self.max_num_seqs, 1, usize::MAX)?;
        range("max_waiting", self.max_waiting, 1, usize::MAX)?;
        if !(0.0..1.0).contains(&self.watermark) {
            return Err(ConfigError::Watermark(self.watermark));
        }
        if matches!(&self.hashing, Hashing::Contract(contract) if contract.lookahead() > 0) {
            return Err(ConfigError::Lookahead);
        }
        match self.cost.bad_value() {
            Some((name, value)) => Err(ConfigError::Cost { name, value }),
            None => Ok(()),
        }
    }
}

/// Bounds of the tables: 16 million blocks are 500 TB of KV cache of a small model.
const MAX_BLOCKS: usize = 1 << 24;
/// The most tokens of a block.
pub const MAX_BLOCK_SIZE: usize = 1 << 16;

impl Default for EngineConfig {
    /// A model of 8 billion parameters on a mid-size GPU: 160,000 tokens of cache in blocks of 16.
    fn default() -> Self {
        Self {
            version: Self::DEFAULT_VERSION,
            block_size: 16,
            num_blocks: 10_001,
            max_model_len: 32_768,
            max_num_batched_tokens: 8_192,
            max_num_seqs: 256,
            max_waiting: 65_536,
            enable_prefix_caching: true,
            reserve_full_prompt: true,
            watermark: 0.0,
            hashing: Hashing::default(),
            enable_kv_cache_events: true,
            cost: CostModel::default(),
        }
    }
}

fn range(least: usize, most: usize) -> String {
    if most == usize::MAX { format!("at least {least}") } else { format!("from {least} to {most}") }
}

/// Why an engine cannot be started so.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A number out of its range.
    #[error("{name} is {value}: must be {}", range(*least, *most))]
    OutOfRange {
        /// The field.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The least possible value.
        least: usize,
        /// The greatest possible value (for `max_model_len`, what the cache holds).
        most: usize,
    },
    /// The watermark is no part of the blocks.
    #[error("watermark is {0}; it must be at least 0 and less than 1")]
    Watermark(f64),
    /// Lookahead hashing is not modelled.
    #[error("lookahead hashing (EAGLE, MTP) is not modelled")]
    Lookahead,
    /// A cost that is negative, infinite or no number, or a speed of 0.
    #[error("cost.{name} is {value}")]
    Cost {
        /// The field.
        name: &'static str,
        /// Its value.
        value: f64,
    },
}
