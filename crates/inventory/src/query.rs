//! The walk over a prompt's blocks.

use kvasir_kv_hash::BlockKey;
use parking_lot::RwLock;

use crate::index::{Holder, Index};
use crate::overlap::{Overlap, Overlaps};
use crate::residency::Slot;

/// Blocks looked up under one hold of the lock: a long prompt must not keep events waiting, nor,
/// behind them, other prompts.
const BLOCKS: usize = 256;

/// What every endpoint holds of the prefix `keys`.
pub(crate) fn overlaps(index: &RwLock<Index>, keys: &[BlockKey], block_size: u32) -> Overlaps {
    // The endpoints that hold all blocks so far, in order; at first nobody is ruled out.
    let mut with_all: Option<Vec<(Slot, Overlap)>> = None;
    let mut found = Overlaps::default();
    for keys in keys.chunks(BLOCKS) {
        let index = index.read();
        for key in keys {
            let mut holders = index.holders(*key);
            let Some(slots) = &mut with_all else {
                with_all = Some(first_holders(&index, holders, block_size));
                continue;
            };
            slots.retain_mut(|(slot, overlap)| {
                match index.credit(*slot, next_run(&mut holders, *slot)) {
                    Some(tier) => overlap.add(tier, block_size),
                    None => {
                        found.set(*slot, *overlap);
                        return false;
                    }
                }
                true
            });
            if slots.is_empty() {
                return found;
            }
        }
    }
    for (slot, overlap) in with_all.into_iter().flatten() {
        found.set(slot, overlap);
    }
    found
}

/// The endpoints that hold a prompt's first block.
fn first_holders(index: &Index, holders: &[Holder], block_size: u32) -> Vec<(Slot, Overlap)> {
    let runs = holders.chunk_by(|a, b| a.slot() == b.slot());
    let credited = runs.filter_map(|run| {
        let slot = run.first()?.slot();
        let mut overlap = Overlap::default();
        overlap.add(index.credit(slot, run)?, block_size);
        Some((slot, overlap))
    });
    credited.collect()
}

/// What one endpoint holds of the prefix `keys`.
pub(crate) fn overlap_of(
    index: &RwLock<Index>,
    slot: Slot,
    keys: &[BlockKey],
    block_size: u32,
) -> Overlap {
    let mut found = Overlap::default();
    for keys in keys.chunks(BLOCKS) {
        let index = index.read();
        for key in keys {
            let mut holders = index.holders(*key);
            match index.credit(slot, next_run(&mut holders, slot)) {
                Some(tier) => found.add(tier, block_size),
                None => return found,
            }
        }
    }
    found
}

/// Splits the holders of `slot` off, and drops those of lower slots before them.
fn next_run<'a>(holders: &mut &'a [Holder], slot: Slot) -> &'a [Holder] {
    // Where all hold the same blocks, the next one is the only one.
    if let [first, rest @ ..] = *holders
        && first.slot() == slot
        && rest.first().is_none_or(|next| next.slot() != slot)
    {
        *holders = rest;
        return std::slice::from_ref(first);
    }
    // Else mostly close by, or found by halves.
    let near = holders.iter().take(4).take_while(|holder| holder.slot() < slot).count();
    let start =
        if near < 4 { near } else { holders.partition_point(|holder| holder.slot() < slot) };
    let (_, from) = holders.split_at(start);
    let len = from.iter().take_while(|holder| holder.slot() == slot).count();
    let (run, rest) = from.split_at(len);
    *holders = rest;
    run
}
