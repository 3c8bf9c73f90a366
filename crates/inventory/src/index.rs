//! Which endpoints hold a block: one structure for all of them.
//!
//! Blocks lie in runs ([`node`]): each block of a run is the parent of the next. Only a run's first
//! block, its *head*, is in a map. A block that cannot follow its parent in the parent's run,
//! because another block does already or because the run is full, becomes the head of a run of its
//! own; nothing is ever split or moved, so a place once given out stays good for as long as its
//! endpoint has a handle for it. A prompt's walk is then a few look-ups and long comparisons.
//!
//! A key is the identity of a block *and of all before it*. So a block is in one place only, as
//! long as whoever adds one looks at its parent's run, and then at the heads, under the lock of
//! the parent's run. A run that others branch off from stays for as long as they do, up to where
//! they branch off: what follows a new block is new.
//!
//! Locks: the runs' and the heads' are many small ones. Whoever holds a lock of runs may take one
//! of heads, not the other way round, and nobody takes two of one kind.

use std::ops::Range;

use kvasir_kv_hash::BlockKey;

use self::holder::Holder;
use self::node::{LONGEST, Node};
use self::runs::Runs;
use crate::budget::{Budget, Bytes, Share};
use crate::residency::Slot;
use crate::sync::{AtomicU32, Ordering, RwLock};
use crate::table::{Full, Table};
use crate::tiers::TierSet;

pub(crate) mod holder;
mod node;
mod runs;

pub(crate) use self::node::Added;

/// Locks of each kind. Few for a scheduler that tries interleavings: it counts each of them.
const SHARDS: u32 = if cfg!(feature = "shuttle") { 8 } else { 1024 };

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RunId(u32);

/// No run.
const NO_RUN: RunId = RunId(u32::MAX);

/// A block's place: good for as long as an endpoint has a handle for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) run: RunId,
    pub(crate) offset: u16,
}

/// What a handle's value can hold: a place and 16 bits.
impl At {
    /// Never 0.
    pub(crate) fn pack(self, bits: u16) -> u64 {
        (u64::from(self.run.0) + 1) << 32 | u64::from(self.offset) << 16 | u64::from(bits)
    }

    pub(crate) fn unpack(value: u64) -> (Self, u16) {
        let run = RunId((value >> 32).wrapping_sub(1) as u32);
        (Self { run, offset: (value >> 16) as u16 }, value as u16)
    }
}

/// Copies to add: whose, in which group, in which tiers (none: only the place in the chain).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    pub(crate) slot: Slot,
    pub(crate) group: u8,
    pub(crate) tiers: TierSet,
}

/// What one endpoint held of one block in any group, before and after an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) before: TierSet,
    pub(crate) after: TierSet,
    /// Whether anything changed in any single group.
    pub(crate) changed: bool,
    /// Blocks that are no longer in a tier, per tier.
    pub(crate) gone: [usize; 4],
    /// Other blocks that lost all of their copies, for want of bytes.
    pub(crate) cut: usize,
}

/// All runs.
pub(crate) struct Index {
    heads: Box<[RwLock<Table>]>,
    shards: Box<[Shard]>,
    budget: Budget,
}

#[derive(Default)]
struct Shard {
    /// Counts the times that residency ended in any run of the shard: a reader that took several
    /// looks finds out whether they fit together.
    removals: AtomicU32,
    runs: RwLock<Runs>,
}

/// A part of a prompt as one run has it.
pub(crate) struct Stretch<'a> {
    /// The pieces of the run's holders.
    pub(crate) holders: &'a [Holder],
    /// How many blocks of the run, from its first on, are the prompt's.
    pub(crate) len: u16,
}

/// The state of a shard at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    shard: u32,
    removals: u32,
}

/// What became of an attempt to place blocks.
enum Placed {
    /// So many of them, from this place on.
    There(At, usize, Added),
    /// Something else was there first: try again.
    Raced,
    /// The bytes do not suffice.
    Full,
}

impl Index {
    pub(crate) fn new(limit: usize) -> Self {
        let budget = Budget::new(limit);
        // Taken even where there is no room for it: then there is none for anything.
        budget.reserve().take(SHARDS as usize * (size_of::<Shard>() + size_of::<RwLock<Table>>()));
        Self {
            heads: (0..SHARDS).map(|_| RwLock::default()).collect(),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            budget,
        }
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Places blocks behind `parent`, or at a prompt's start, and adds copies of them. Calls
    /// `placed` for each stretch of them; returns how many there was room for.
    pub(crate) fn add(
        &self,
        mut parent: Option<At>,
        keys: &[BlockKey],
        put: Put,
        mut placed: impl FnMut(At, usize, Added),
    ) -> usize {
        let mut done = 0;
        while done < keys.len() {
            match self.add_some(parent, &keys[done..], put) {
                Placed::There(at, len, added) => {
                    done += len;
                    parent = Some(At { offset: at.offset + (len - 1) as u16, ..at });
                    placed(at, len, added);
                }
                Placed::Raced => {}
                Placed::Full => break,
            }
        }
        done
    }

    /// Adds copies of one block whose place is known.
    pub(crate) fn add_at(&self, at: At, put: Put) -> Option<Added> {
        let mut runs = self.shard(at.run).runs.write();
        let node = runs.get_mut(at.run)?;
        node.add(at.offset..at.offset + 1, put, &mut self.budget.ordinary())
    }

    /// Keeps of an endpoint's copies of a block, in one group or in all, what `keep` names.
    pub(crate) fn reduce(&self, at: At, slot: Slot, group: Option<u8>, keep: TierSet) -> Change {
        let shard = self.shard(at.run);
        let mut runs = shard.runs.write();
        let Some(node) = runs.get_mut(at.run) else { return Change::default() };
        let change = node.reduce(at.offset, slot, group, keep, &mut self.budget.reserve());
        if change.changed {
            shard.removals.fetch_add(1, Ordering::Release);
        }
        change
    }

    /// Ends what an endpoint holds of a block and the use of its place.
    pub(crate) fn forget(&self, at: At, slot: Slot) -> Change {
        self.leave(at.run, |node, bytes| node.forget(at.offset, slot, bytes)).unwrap_or_default()
    }

    /// Ends everything an endpoint holds of a run, and the use of its places.
    pub(crate) fn forget_run(&self, run: RunId, slot: Slot) {
        self.leave(run, |node, _| node.forget_all(slot));
    }

    /// The key of a block whose place is known, and its distance from the start of its prompt.
    pub(crate) fn block(&self, at: At) -> Option<(BlockKey, u32)> {
        let runs = self.shard(at.run).runs.read();
        let node = runs.get(at.run)?;
        let key = node.keys().get(usize::from(at.offset))?;
        Some((*key, node.depth.saturating_add(u32::from(at.offset))))
    }

    /// The tiers in which an endpoint holds a block whose place is known.
    pub(crate) fn tiers(&self, at: At, slot: Slot) -> TierSet {
        let runs = self.shard(at.run).runs.read();
        let Some(node) = runs.get(at.run) else { return TierSet::default() };
        holder::tiers_at(node.holders(), slot, at.offset)
    }

    /// Looks at the run that begins with the first of `keys`; `None` when there is none.
    pub(crate) fn look<T>(
        &self,
        keys: &[BlockKey],
        see: impl FnOnce(Stretch<'_>) -> T,
    ) -> Option<(T, Look)> {
        let run = self.head(*keys.first()?)?;
        let shard = self.shard(run);
        let runs = shard.runs.read();
        let node = runs.get(run)?;
        let len = node.common(0, keys) as u16;
        if len == 0 {
            // Given up and used again since the head was read.
            return None;
        }
        let removals = shard.removals.load(Ordering::Acquire);
        let seen = see(Stretch { holders: node.holders(), len });
        Some((seen, Look { shard: run.0 % SHARDS, removals }))
    }

    /// Whether no residency ended since a look, in any run of its shard.
    pub(crate) fn is_unchanged(&self, look: Look) -> bool {
        self.shards[look.shard as usize].removals.load(Ordering::Acquire) == look.removals
    }

    /// How many runs there are.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> usize {
        self.shards.iter().map(|shard| shard.runs.read().used()).sum()
    }

    /// Applies an update that may make a run shorter or unused.
    fn leave<T>(
        &self,
        run: RunId,
        update: impl FnOnce(&mut Node, &mut Share<'_>) -> T,
    ) -> Option<T> {
        let bytes = &mut self.budget.reserve();
        let (result, mut parent) = {
            let shard = self.shard(run);
            let mut runs = shard.runs.write();
            let node = runs.get_mut(run).filter(|node| !node.keys().is_empty())?;
            let result = update(node, bytes);
            shard.removals.fetch_add(1, Ordering::Release);
            (result, self.settle(&mut runs, run, bytes))
        };
        // A run that is gone is no branch of its parent any more.
        while let Some(run) = parent {
            let mut runs = self.shard(run).runs.write();
            if let Some(node) = runs.get_mut(run) {
                node.unbranch();
            }
            parent = self.settle(&mut runs, run, bytes);
        }
        Some(result)
    }

    /// Takes back what of a run nobody needs; the run it branched off from, if it is gone.
    fn settle(&self, runs: &mut Runs, run: RunId, bytes: &mut Share<'_>) -> Option<RunId> {
        let node = runs.get_mut(run)?;
        if !node.is_unused() {
            node.trim(bytes);
            return None;
        }
        let parent = node.parent();
        if let Some(head) = node.keys().first() {
            let mut heads = self.heads_of(*head).write();
            heads.remove(head.0);
            heads.shrink(bytes);
        }
        runs.give_back(run, bytes);
        parent
    }

    fn add_some(&self, parent: Option<At>, keys: &[BlockKey], put: Put) -> Placed {
        let Some(first) = keys.first() else { return Placed::Full };
        let Some(parent) = parent else {
            return match self.head(*first) {
                Some(run) => self.add_to_head(run, keys, put),
                None => self.add_run(None, 0, keys, put),
            };
        };
        let next = usize::from(parent.offset) + 1;
        let depth = {
            let mut runs = self.shard(parent.run).runs.write();
            let Some(node) = runs.get_mut(parent.run) else { return Placed::Full };
            let mut len = node.common(next, keys);
            if len == 0 {
                let branch = if node.has_branches() { self.head(*first) } else { None };
                if let Some(run) = branch {
                    drop(runs);
                    return self.add_to_head(run, keys, put);
                }
                if next == node.keys().len() && next < LONGEST {
                    len = keys.len().min(LONGEST - next);
                    if !node.append(&keys[..len], &mut self.budget.ordinary()) {
                        return Placed::Full;
                    }
                }
            }
            if len > 0 {
                let at = At { run: parent.run, offset: next as u16 };
                return self.mark(node, at, len, put);
            }
            node.depth.saturating_add(next as u32)
        };
        self.add_run(Some(parent), depth, keys, put)
    }

    /// Adds copies of blocks that lie in a run already, in front.
    fn add_to_head(&self, run: RunId, keys: &[BlockKey], put: Put) -> Placed {
        let mut runs = self.shard(run).runs.write();
        let Some(node) = runs.get_mut(run) else { return Placed::Raced };
        match node.common(0, keys) {
            0 => Placed::Raced,
            len => self.mark(node, At { run, offset: 0 }, len, put),
        }
    }

    fn mark(&self, node: &mut Node, at: At, len: usize, put: Put) -> Placed {
        let range = at.offset..at.offset + len as u16;
        let bytes = &mut self.budget.ordinary();
        match node.add(range, put, bytes) {
            Some(added) => Placed::There(at, len, added),
            None => {
                node.trim(bytes);
                Placed::Full
            }
        }
    }

    /// Makes a run of blocks that are nowhere yet, unless another thread was faster.
    fn add_run(&self, parent: Option<At>, depth: u32, keys: &[BlockKey], put: Put) -> Placed {
        let Some(first) = keys.first() else { return Placed::Full };
        let len = keys.len().min(LONGEST);
        let node = Node::new(depth, parent.map(|at| at.run));
        let Some((run, added)) = self.build(*first, node, &keys[..len], put) else {
            return Placed::Full;
        };
        let published = match parent {
            None => self.publish(*first, run),
            Some(parent) => {
                let next = usize::from(parent.offset) + 1;
                let mut runs = self.shard(parent.run).runs.write();
                // Between the two looks another endpoint may have put the block behind its parent.
                match runs.get_mut(parent.run) {
                    Some(node) => match node.keys().get(next) {
                        Some(there) if there == first => Ok(false),
                        None if next < LONGEST => Ok(false),
                        _ => {
                            let published = self.publish(*first, run);
                            if published == Ok(true) {
                                node.branch(parent.offset);
                            }
                            published
                        }
                    },
                    None => Ok(false),
                }
            }
        };
        if published == Ok(true) {
            return Placed::There(At { run, offset: 0 }, len, added);
        }
        let mut runs = self.shard(run).runs.write();
        runs.give_back(run, &mut self.budget.reserve());
        if published.is_err() { Placed::Full } else { Placed::Raced }
    }

    /// A run that nobody can find yet.
    fn build(
        &self,
        head: BlockKey,
        mut node: Node,
        keys: &[BlockKey],
        put: Put,
    ) -> Option<(RunId, Added)> {
        let shard = shard_of(head);
        let bytes = &mut self.budget.ordinary();
        let range: Range<u16> = 0..keys.len() as u16;
        let added = node.append(keys, bytes).then(|| node.add(range, put, bytes)).flatten();
        let index = added
            .as_ref()
            .and_then(|_| self.shards[shard as usize].runs.write().take(shard, &mut node, bytes));
        match (index, added) {
            (Some(run), Some(added)) => Some((run, added)),
            _ => {
                node.release(bytes);
                None
            }
        }
    }

    /// Puts a run's head on the map; `false` when there is one already.
    fn publish(&self, head: BlockKey, run: RunId) -> Result<bool, Full> {
        let mut heads = self.heads_of(head).write();
        if heads.get(head.0).is_some() {
            return Ok(false);
        }
        let value = u64::from(run.0) + 1;
        heads.insert(head.0, value, &mut self.budget.ordinary()).map(|_| true)
    }

    fn head(&self, key: BlockKey) -> Option<RunId> {
        let value = self.heads_of(key).read().get(key.0)?;
        Some(RunId(value.wrapping_sub(1) as u32))
    }

    fn heads_of(&self, key: BlockKey) -> &RwLock<Table> {
        &self.heads[shard_of(key) as usize]
    }

    fn shard(&self, run: RunId) -> &Shard {
        &self.shards[(run.0 % SHARDS) as usize]
    }
}

/// From the bits that tables use least.
fn shard_of(key: BlockKey) -> u32 {
    key.0 as u32 % SHARDS
}

#[cfg(test)]
mod tests;
