//! The walk over a prompt's blocks.

mod groups;

use kvasir_kv_hash::BlockKey;

use self::groups::Held;
use crate::gates::{CLOSED, EACH, Gates, Open};
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

struct Walk<'a> {
    gates: &'a Open,
    /// Whether somebody may hold a prefix without its first block.
    headless: bool,
    block_size: u32,
    only: Option<Slot>,
    /// Endpoints with one full-attention group, and which, that hold all blocks so far, in order.
    active: Vec<(Slot, u16)>,
    /// Endpoints with other groups.
    held: Vec<Held<'a>>,
    looks: Vec<Look>,
    found: Overlaps,
}

impl<'a> Walk<'a> {
    fn new(gates: &'a Open, headless: bool, block_size: u32, only: Option<Slot>) -> Self {
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
                    self.active.clear();
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
                self.active.reserve(stretch.holders.len().min(self.gates.len()));
                stretch.holders
            }
        };
        // One pass over all pieces: this is most of the work where many begin alike.
        let (len, block_size) = (stretch.len, self.block_size);
        let mut now = (Slot::new(u16::MAX), CLOSED);
        let mut at = 0;
        for holder in holders {
            if holder.slot() != now.0 {
                now = (holder.slot(), self.gates.group(holder.slot()));
                at = 0;
                if now.1 == EACH
                    && let Some(groups) = self.gates.each(now.0)
                {
                    self.held.push(Held::new(now.0, groups));
                }
            }
            if u16::from(holder.group()) == now.1 && holder.start() <= at && at < len {
                let Some(tier) = holder.tiers().fastest() else { continue };
                let end = holder.end().min(len);
                self.found.entry(now.0).add(tier, u32::from(end - at).saturating_mul(block_size));
                at = end;
                if at == len {
                    self.active.push(now);
                }
            }
        }
    }

    fn go_on(&mut self, stretch: &Stretch<'_>) {
        let mut holders = stretch.holders;
        let (found, block_size, len) = (&mut self.found, self.block_size, stretch.len);
        if holders.len() < self.active.len() / 4 {
            // Few go on, of many: looked for among the many.
            let goes_on = |run: &[Holder]| {
                let slot = run[0].slot();
                let at = self.active.binary_search_by_key(&slot, |active| active.0).ok()?;
                let (_, group) = self.active[at];
                extend(found.entry(slot), run, group, len, block_size).then_some((slot, group))
            };
            self.active = runs(holders).filter_map(goes_on).collect();
            return;
        }
        self.active.retain(|(slot, group)| {
            let run = next_run(&mut holders, *slot);
            extend(found.entry(*slot), run, *group, len, block_size)
        });
    }

    /// As [`Self::see`], for endpoints with other groups than one of full attention.
    fn see_groups(&mut self, at: usize, stretch: &Stretch<'_>) {
        for run in runs(stretch.holders) {
            let slot = run[0].slot();
            let Some(groups) = self.gates.each(slot) else { continue };
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

    fn finish(mut self) -> Overlaps {
        for held in &self.held {
            *self.found.entry(held.slot()) = held.overlap(self.block_size);
        }
        self.found
    }
}

/// The holders of one slot after those of another.
fn runs(holders: &[Holder]) -> impl Iterator<Item = &[Holder]> {
    holders.chunk_by(|a, b| a.slot() == b.slot())
}

/// Adds what one endpoint holds of a stretch in one group, up to the first hole; whether it holds
/// all of it.
fn extend(overlap: &mut Overlap, run: &[Holder], group: u16, len: u16, block_size: u32) -> bool {
    let mut at = 0;
    for holder in run.iter().filter(|holder| u16::from(holder.group()) == group) {
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
