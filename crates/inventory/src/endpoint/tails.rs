//! Giving up blocks to stay within the byte budget: the ends of prompts before their beginnings.

use super::{Endpoint, Shared};
use crate::handles::DEEPEST;

/// The share of an endpoint's blocks that is given up at a time: finding them costs a look at all.
const PORTION: usize = 8;
/// Bytes that a block may need at most in tables of usual size.
const BLOCK_BYTES: usize = 64;

impl Endpoint {
    /// Gives up blocks while there may not be room for `blocks` more within the endpoint's limit.
    pub(super) fn keep_room(&mut self, blocks: usize, shared: Shared<'_>) {
        // A table that grows is there twice for a moment.
        let needed = blocks.saturating_mul(BLOCK_BYTES) + self.own.used / 6;
        if self.own.used.saturating_add(needed) > self.own.limit && self.own.used > 0 {
            self.give_up_tails(shared);
        }
    }

    /// Gives up all orphans and all retired handles and, where that is little, the deepest of its
    /// blocks. No block goes before one that follows it.
    pub(crate) fn give_up_tails(&mut self, shared: Shared<'_>) {
        let share = shared.index.budget().reserve();
        let enough = self.own.used - self.own.used / PORTION;
        self.given_up += self.orphans.clear(&mut self.own, share) as u64;
        while let Some(at) = self.handles.drop_oldest(true, &mut self.own) {
            self.leave(at, shared);
            self.settle(shared);
        }
        self.handles.compact(&mut self.own, share);
        if self.own.used < enough {
            return;
        }
        let wanted = self.handles.len().div_ceil(PORTION);
        for key in self.deepest(wanted, shared) {
            if let Some(at) = self.handles.forget_key(key, &mut self.own) {
                self.given_up += 1;
                self.leave(at, shared);
                self.settle(shared);
            }
        }
        self.handles.compact(&mut self.own, share);
    }

    /// The handles of the deepest blocks, deepest first.
    fn deepest(&self, wanted: usize, shared: Shared<'_>) -> Vec<u64> {
        let mut at_depth = vec![0_usize; DEEPEST as usize + 1];
        for (_, _, depth) in self.handles.iter() {
            at_depth[depth.unwrap_or(0) as usize] += 1;
        }
        let mut sum = 0;
        let deep_enough = (0..=DEEPEST).rev().find(|depth| {
            sum += at_depth[*depth as usize];
            sum >= wanted
        });
        let limit = deep_enough.unwrap_or(0);
        let mut found: Vec<(u32, u64)> = self
            .handles
            .iter()
            .map(|(key, at, depth)| (depth.unwrap_or(0), key, at))
            .filter(|(depth, _, _)| *depth >= limit)
            .map(|(depth, key, at)| {
                // Beyond what a handle tells, the block itself is asked.
                let exact = || shared.index.block(at).map_or(depth, |(_, depth)| depth);
                (if depth == DEEPEST { exact() } else { depth }, key)
            })
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(wanted);
        found.into_iter().map(|(_, key)| key).collect()
    }
}
