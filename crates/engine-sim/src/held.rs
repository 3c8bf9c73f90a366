//! Blocks of ended requests that are kept for another engine to fetch.

use crate::cache::{BlockId, BlockPool};
use crate::engine::Engine;
use crate::request::RequestId;
use crate::sequence::Sequence;

/// A request that has ended and whose prompt's blocks are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The request; its number may not be used again before the blocks are released.
    pub id: RequestId,
    /// Tokens of its prompt.
    pub tokens: usize,
    /// The numbers of the blocks, in prompt order; the null block is 0.
    pub blocks: Vec<u32>,
}

impl Engine {
    /// Gives the kept blocks of a request back; they stay cached until they are reused. False if
    /// there are none of this number.
    pub fn release_held(&mut self, id: RequestId) -> bool {
        let Some(blocks) = self.held.remove(&id) else { return false };
        self.pool.release(&blocks);
        self.update_gauges();
        true
    }
}

impl Sequence {
    /// Takes the prompt's blocks out of the table: whoever gets them has to release them.
    pub(crate) fn hold_prompt(&mut self, pool: &mut BlockPool, block_size: usize) -> Vec<BlockId> {
        let prompt = self.prompt_len.div_ceil(block_size).min(self.table.len());
        let rest = self.table.split_off(prompt);
        pool.release(&rest);
        std::mem::take(&mut self.table)
    }
}
