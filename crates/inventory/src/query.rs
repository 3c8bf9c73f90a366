//! The walk over a prompt's blocks.

mod groups;

use kvasir_kv_hash::BlockKey;

use self::groups::Held;
use crate::gates::{Gate, Gates};
use crate::index::holder::{Holder, of_slot};
use crate::index::{Index, Look, Stretch};
use crate::overlap::{Overlap, Overlaps};
use crate::residency::Slot;

/// Walks before a reader that residency keeps ending under settles for a prompt's first run.
const WALKS: usize = 6;

/// What every endpoint holds of the prefix `keys`.
pub(crate) fn overlaps(
    index: &Index,
    gates: &Gates,
    keys: &[BlockKey],
    block_size: u32,
) -> Overlaps {
    walk(index, gates, keys, block_size, None)
}

/// What one endpoint holds of the prefix `keys`.
pub(crate) fn overlap_of(
    index: &Index,
    gates: &Gates,
    slot: Slot,
    keys: &[BlockKey],
    block_size: u32,
) -> Overlap {
    walk(index, gates, keys, block_size, Some(slot)).get(slot)
}

fn walk(
    index: &Index,
    gates: &Gates,
    keys: &[BlockKey],
    block_size: u32,
    only: Option<Slot>,
) -> Overlaps {
    gates.all(|gates, headless| {
        for _ in 1..WALKS {
            let mut walk = Walk::new(gates, headless, block_size, only);
            walk.run(index, keys, usize::MAX);
            // Each run was seen at a moment of its own. Where no residency has ended since, all
            // that was seen was there at the last of these moments.
            if walk.looks.len() < 2 || walk.looks.iter().all(|look| index.is_unchanged(*look)) {
                return walk.finish();
            }
        }
        let mut walk = Walk::new(gates, headless, block_size, only);
        walk.run(index, keys, 1);
        walk.finish()
    })
}

/// An endpoint with one full-attention group that holds all blocks so far.
struct Active {
    slot: Slot,
    group: u8,
    overlap: Overlap,
}

struct Walk<'a> {
    gates: &'a [Gate],
    /// Whether somebody may hold a prefix without its first block.
    headless: bool,
    block_size: u32,
    only: Option<Slot>,
    active: Vec<Active>,
    /// Endpoints with other groups.
    held: Vec<Held<'a>>,
    looks: Vec<Look>,
    found: Overlaps,
}

impl<'a> Walk<'a> {
    fn new(gates: &'a [Gate], headless: bool, block_size: u32, only: Option<Slot>) -> Self {
        let (active, held, looks) = (Vec::new(), Vec::new(), Vec::with_capacity(8));
        let found = Overlaps::default();
        Self { gates, headless, block_size, only, active, held, looks, found }
    }

    /// Looks at up to `looks` runs.
    fn run(&mut self, index: &Index, keys: &[BlockKey], looks: usize) {
        let mut at = 0;
        while at < keys.len() && self.looks.len() < looks {
            let seen = index.look(&keys[at..], |stretch| {
                self.see(at, &stretch);
                usize::from(stretch.len)
            });
            match seen {
                Some((len, look)) => {
                    self.looks.push(look);
                    at += len;
                }
                // Nobody holds this block: that ends the walk of those who need every block.
                None => {
                    self.finish_active();
                    at += 1;
                }
            }
            self.held.iter_mut().for_each(|held| held.end(at));
            if self.active.is_empty() && !self.headless && self.held.iter().all(Held::is_over) {
                return;
            }
        }
    }

    /// Takes in who holds what of the prompt's blocks from `at` on.
    fn see(&mut self, at: usize, stretch: &Stretch<'_>) {
        if at == 0 {
            self.see_first(stretch);
        } else {
            self.go_on(stretch);
        }
        if !self.held.is_empty() || self.headless {
            self.see_groups(at, stretch);
        }
    }

    fn see_first(&mut self, stretch: &Stretch<'_>) {
        let holders = match self.only {
            Some(slot) => &stretch.holders[of_slot(stretch.holders, slot)],
            None => {
                self.found = Overlaps::with_slots(self.gates.len());
                stretch.holders
            }
        };
        for run in holders.chunk_by(|a, b| a.slot() == b.slot()) {
            let slot = run[0].slot();
            match self.gates.get(slot.index()) {
                None | Some(Gate::Closed) => {}
                Some(Gate::Each(groups)) => self.held.push(Held::new(slot, groups)),
                Some(Gate::One(group)) => {
                    let mut overlap = Overlap::default();
                    if extend(&mut overlap, run, *group, stretch.len, self.block_size) {
                        self.active.push(Active { slot, group: *group, overlap });
                    } else {
                        self.found.set(slot, overlap);
                    }
                }
            }
        }
    }

    fn go_on(&mut self, stretch: &Stretch<'_>) {
        let mut holders = stretch.holders;
        let (found, block_size) = (&mut self.found, self.block_size);
        self.active.retain_mut(|Active { slot, group, overlap }| {
            let run = next_run(&mut holders, *slot);
            let all = extend(overlap, run, *group, stretch.len, block_size);
            if !all {
                found.set(*slot, *overlap);
            }
            all
        });
    }

    /// As [`Self::see`], for endpoints with other groups than one of full attention.
    fn see_groups(&mut self, at: usize, stretch: &Stretch<'_>) {
        for run in stretch.holders.chunk_by(|a, b| a.slot() == b.slot()) {
            let slot = run[0].slot();
            let Some(Gate::Each(groups)) = self.gates.get(slot.index()) else { continue };
            if self.only.is_some_and(|only| only != slot) {
                continue;
            }
            let known = self.held.iter().position(|held| held.slot() == slot);
            let known = known.unwrap_or_else(|| {
                self.held.push(Held::new(slot, groups));
                self.held.len() - 1
            });
            self.held[known].see(at, run, stretch.len);
        }
    }

    fn finish_active(&mut self) {
        for Active { slot, overlap, .. } in self.active.drain(..) {
            self.found.set(slot, overlap);
        }
    }

    fn finish(mut self) -> Overlaps {
        self.finish_active();
        for held in &self.held {
            self.found.set(held.slot(), held.overlap(self.block_size));
        }
        self.found
    }
}

/// Adds what one endpoint holds of a stretch in one group, up to the first hole; whether it holds
/// all of it.
fn extend(overlap: &mut Overlap, run: &[Holder], group: u8, len: u16, block_size: u32) -> bool {
    let mut at = 0;
    for holder in run.iter().skip_while(|h| h.group() < group).take_while(|h| h.group() == group) {
        let Some(tier) = holder.tiers().fastest().filter(|_| holder.start() <= at) else { break };
        let end = holder.end().min(len);
        overlap.add(tier, u32::from(end - at).saturating_mul(block_size));
        at = end;
        if at == len {
            return true;
        }
    }
    false
}

/// Splits the holders of `slot` off, and drops those of lower slots before them.
fn next_run<'a>(holders: &mut &'a [Holder], slot: Slot) -> &'a [Holder] {
    // Mostly close by, or found by halves.
    let near = holders.iter().take(4).take_while(|holder| holder.slot() < slot).count();
    let start =
        if near < 4 { near } else { holders.partition_point(|holder| holder.slot() < slot) };
    let (_, from) = holders.split_at(start);
    let len = from.iter().take_while(|holder| holder.slot() == slot).count();
    let (run, rest) = from.split_at(len);
    *holders = rest;
    run
}
