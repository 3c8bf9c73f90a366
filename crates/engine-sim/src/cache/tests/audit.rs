//! Everything that must hold of a pool at any time, checked the slow way.

use std::collections::{BTreeMap, BTreeSet};

use super::{BlockId, BlockPool};

impl BlockPool {
    /// Panics if the pool is not sound. `tables` are the tables of all requests.
    pub(crate) fn audit<'a>(&self, tables: impl Iterator<Item = &'a [BlockId]>) {
        let mut references = vec![0_u32; self.blocks.len()];
        for table in tables {
            let distinct: BTreeSet<_> = table.iter().collect();
            assert_eq!(distinct.len(), table.len(), "a block twice in one table");
            table.iter().for_each(|&block| references[block as usize] += 1);
        }
        assert_eq!(references[0], 0, "the null block is in a table");

        let (forward, mut backward) = self.free.walk();
        backward.reverse();
        assert_eq!(forward, backward);
        assert_eq!(forward.len(), self.free.len());
        let free: BTreeSet<_> = forward.iter().copied().collect();
        assert_eq!(free.len(), forward.len(), "a block twice in the queue");

        let mut holders: BTreeMap<_, BTreeSet<BlockId>> = BTreeMap::new();
        for (id, block) in self.blocks.iter().enumerate() {
            let id = id as BlockId;
            assert_eq!(block.references, references[id as usize], "references of block {id}");
            assert_eq!(free.contains(&id), id != 0 && block.references == 0, "block {id}");
            assert_eq!(self.free.contains(id), free.contains(&id), "block {id}");
            if let Some(hash) = block.hash {
                holders.entry(hash).or_default().insert(id);
            }
        }
        let mut mapped: BTreeMap<_, BTreeSet<BlockId>> = BTreeMap::new();
        for (hash, &first) in &self.cached {
            let ids = mapped.entry(*hash).or_default();
            let mut id = first;
            while id != 0 {
                assert!(ids.insert(id), "a ring of copies at block {id}");
                id = self.blocks[id as usize].next_copy;
            }
        }
        assert_eq!(mapped, holders);
        assert_eq!(
            self.free.len() + (references.iter().filter(|&&r| r > 0).count()),
            self.usable_blocks()
        );
    }
}
