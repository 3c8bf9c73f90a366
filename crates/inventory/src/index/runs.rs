//! The runs of one shard, in a list whose free places are used again.

use super::node::Node;
use super::{RunId, SHARDS};
use crate::budget::{Bytes, grow, vec_bytes};

/// The end of the list of free runs.
const NONE: u32 = u32::MAX;

/// The runs of one shard.
pub(super) struct Runs {
    list: Vec<Node>,
    free: u32,
    used: u32,
}

impl Default for Runs {
    fn default() -> Self {
        Self { list: Vec::new(), free: NONE, used: 0 }
    }
}

impl Runs {
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used as usize
    }

    pub(super) fn get(&self, run: RunId) -> Option<&Node> {
        self.list.get((run.0 / SHARDS) as usize)
    }

    pub(super) fn get_mut(&mut self, run: RunId) -> Option<&mut Node> {
        self.list.get_mut((run.0 / SHARDS) as usize)
    }

    /// Moves a node in; `None`, and nothing done, when there is no room for it.
    pub(super) fn take(
        &mut self,
        shard: u32,
        node: &mut Node,
        bytes: &mut impl Bytes,
    ) -> Option<RunId> {
        let index = if self.free == NONE {
            let index = u32::try_from(self.list.len()).ok().filter(|n| *n < NONE / SHARDS)?;
            if !grow(&mut self.list, 1, bytes) {
                return None;
            }
            self.list.push(Node::default());
            index
        } else {
            self.free
        };
        let there = self.list.get_mut(index as usize)?;
        if self.free == index {
            self.free = there.next_free;
        }
        *there = std::mem::take(node);
        self.used += 1;
        Some(RunId(index * SHARDS + shard))
    }

    /// Gives a run's bytes back; the last one's with those of the list.
    pub(super) fn give_back(&mut self, run: RunId, bytes: &mut impl Bytes) {
        let free = self.free;
        let Some(node) = self.get_mut(run) else { return };
        node.release(bytes);
        node.next_free = free;
        self.free = run.0 / SHARDS;
        self.used -= 1;
        // Once all are free, the list goes as well.
        if self.used == 0 {
            bytes.give(vec_bytes::<Node>(self.list.capacity()));
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[test]
    fn freed_places_are_taken_before_new_ones() {
        let budget = Budget::new(usize::MAX);
        let bytes = &mut budget.reserve();
        for shard in [0, 1, SHARDS - 1] {
            let mut runs = Runs::default();
            let mut take = |runs: &mut Runs| runs.take(shard, &mut Node::default(), bytes).unwrap();
            let all: Vec<RunId> = (0..9).map(|_| take(&mut runs)).collect();
            assert!(all.iter().all(|run| run.0 % SHARDS == shard && runs.get(*run).is_some()));
            for count in 1..9 {
                for run in &all[..count] {
                    runs.give_back(*run, &mut budget.reserve());
                }
                assert_eq!(runs.used(), 9 - count);
                let mut again: Vec<RunId> = (0..count).map(|_| take(&mut runs)).collect();
                again.sort_unstable_by_key(|run| run.0);
                assert_eq!(again, all[..count]);
            }
            assert_eq!(take(&mut runs).0, 9 * SHARDS + shard, "none free, a new one");
            runs.give_back(RunId(9 * SHARDS + shard), &mut budget.reserve());
            all.iter().for_each(|run| runs.give_back(*run, &mut budget.reserve()));
            assert_eq!((runs.used(), budget.used()), (0, 0));
        }
    }
}
