//! The paged KV cache: a pool of blocks, reused in vLLM's order, and what each of them holds.
//!
//! A block is *used* while a request refers to it and *free* otherwise; a free block keeps its
//! content, and can be hit, until it is reused. Several blocks may hold the same content: a
//! request's table never changes, so a block that fills with what another block holds already is
//! kept beside it.

mod free_queue;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use kvasir_kv_hash::vllm::Version;

use self::free_queue::FreeQueue;
use crate::block_hash::{BlockHash, TailHasher};
use crate::events::{BlockRemoved, Event, GPU};

pub(crate) use self::free_queue::BlockId;

/// Most clears that wait for a step to publish them; vLLM has no bound.
const MAX_PENDING_CLEARS: usize = 1_024;

/// The blocks of an engine.
#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    free: FreeQueue,
    /// For every cached content the block that was cached first of those that hold it.
    cached: HashMap<BlockHash, BlockId, BuildHasherDefault<TailHasher>>,
    /// Whether blocks without content are reused before all others, or in turn.
    unhashed_first: bool,
    events: Option<Vec<Event>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    hash: Option<BlockHash>,
    references: u32,
    /// The next block of the same content, in the order they were cached; 0 if there is none.
    next_copy: BlockId,
}

impl BlockPool {
    /// `blocks` blocks, of which the first is the null block.
    pub(crate) fn new(blocks: usize, version: Version, with_events: bool) -> Self {
        Self {
            blocks: vec![Block::default(); blocks],
            free: FreeQueue::new(blocks),
            cached: HashMap::default(),
            // 0.22.1 appends them to the queue like all others, 0.23.0 puts them in front.
            unhashed_first: version >= Version::release(0, 23, 0),
            events: with_events.then(Vec::new),
        }
    }

    pub(crate) fn free_blocks(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn usable_blocks(&self) -> usize {
        self.blocks.len() - 1
    }

    /// The block that holds this content, the one cached first if there are several.
    pub(crate) fn lookup(&self, hash: &BlockHash) -> Option<BlockId> {
        self.cached.get(hash).copied()
    }

    pub(crate) fn is_free(&self, block: BlockId) -> bool {
        self.free.contains(block)
    }

    /// Adds a reference to a block that was hit.
    pub(crate) fn touch(&mut self, block: BlockId) {
        self.free.remove(block);
        self.blocks[block as usize].references += 1;
    }

    /// Appends `count` blocks to a request's table, evicting what they hold.
    ///
    /// The caller has made sure that so many are free.
    pub(crate) fn allocate(&mut self, count: usize, table: &mut Vec<BlockId>) {
        for _ in 0..count {
            let Some(block) = self.free.pop_front() else {
                debug_assert!(false, "allocated more blocks than are free");
                return;
            };
            self.evict(block);
            self.blocks[block as usize].references = 1;
            table.push(block);
        }
    }

    /// Gives a request's blocks back, the last of its table first: tails are evicted before what
    /// they hang on.
    pub(crate) fn release(&mut self, table: &[BlockId]) {
        let mut unhashed = false;
        for &id in table.iter().rev() {
            let block = &mut self.blocks[id as usize];
            debug_assert!(block.references > 0, "block {id} is freed twice");
            block.references = block.references.saturating_sub(1);
            if block.references > 0 {
                continue;
            }
            if self.unhashed_first && block.hash.is_none() {
                unhashed = true;
            } else {
                self.free.push_back(id);
            }
        }
        if unhashed {
            // In table order, so that here too the last one ends up first.
            for &id in table {
                let block = &self.blocks[id as usize];
                if block.references == 0 && block.hash.is_none() {
                    self.free.push_front(id);
                }
            }
        }
    }

    /// Notes what a block holds now that it is full.
    pub(crate) fn insert(&mut self, hash: BlockHash, block: BlockId) {
        debug_assert!(self.blocks[block as usize].hash.is_none(), "block {block} is cached");
        self.blocks[block as usize].hash = Some(hash);
        let mut last = *self.cached.entry(hash).or_insert(block);
        while last != block {
            let next = &mut self.blocks[last as usize].next_copy;
            if *next == 0 {
                *next = block;
            }
            last = *next;
        }
    }

    /// Forgets what a block holds, and says so.
    fn evict(&mut self, block: BlockId) {
        let Block { hash, next_copy, .. } = self.blocks[block as usize];
        let Some(hash) = hash else { return };
        self.blocks[block as usize].hash = None;
        self.blocks[block as usize].next_copy = 0;
        match self.cached.get(&hash).copied() {
            Some(first) if first == block && next_copy == 0 => {
                self.cached.remove(&hash);
            }
            Some(first) if first == block => {
                self.cached.insert(hash, next_copy);
            }
            Some(mut copy) => {
                while copy != 0 {
                    let next = &mut self.blocks[copy as usize].next_copy;
                    if *next == block {
                        *next = next_copy;
                    }
                    copy = *next;
                }
            }
            None => debug_assert!(false, "block {block} is not in the map"),
        }
        self.publish(|| {
            Event::Removed(BlockRemoved {
                block_hashes: vec![hash],
                medium: Some(GPU),
                group_idx: Some(0),
                ..BlockRemoved::default()
            })
        });
    }

    /// Forgets everything, if no request refers to any block.
    pub(crate) fn reset(&mut self) -> bool {
        if self.free.len() != self.usable_blocks() {
            return false;
        }
        self.cached.clear();
        for block in &mut self.blocks {
            block.hash = None;
            block.next_copy = 0;
        }
        if self.events.as_ref().is_some_and(|events| events.len() < MAX_PENDING_CLEARS) {
            self.publish(|| Event::Cleared);
        }
        true
    }

    /// Keeps an event for the batch of the current step.
    pub(crate) fn publish(&mut self, event: impl FnOnce() -> Event) {
        if let Some(events) = &mut self.events {
            events.push(event());
        }
    }

    /// The events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Every cached content, and how many blocks hold it; in no particular order.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (BlockHash, usize)> {
        self.cached.iter().map(|(hash, &first)| {
            let copies = std::iter::successors(Some(first), |&id| {
                Some(self.blocks[id as usize].next_copy).filter(|&next| next != 0)
            });
            (*hash, copies.count())
        })
    }
}

#[cfg(test)]
mod tests;
