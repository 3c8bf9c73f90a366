//! The engines the workload is sized for.

use kvasir_engine_sim::{CostModel, EngineConfig};

/// Context length: a conversation at its longest is a good half of it.
const MAX_MODEL_LEN: usize = 4_096;

/// An engine whose cache holds its own share of the workload's prompts, but not all of them: what
/// routing is about. Its device is the simulator's mid-size GPU, in real time.
///
/// For every engine the workload has two system prompts of about 2,300 tokens and eight users
/// with up to 600 tokens of their own: 9,000 tokens at most, besides the remains of conversations
/// that are over. Four engines' worth are 37,000. The cache has 17,600.
#[must_use]
pub fn engine_config() -> EngineConfig {
    EngineConfig {
        block_size: 16,
        num_blocks: 1_101,
        max_model_len: MAX_MODEL_LEN,
        max_num_batched_tokens: 2_048,
        max_num_seqs: 64,
        max_waiting: 256,
        cost: CostModel::MID_GPU,
        ..EngineConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_one() {
        assert_eq!(engine_config().validate(), Ok(()));
    }
}
