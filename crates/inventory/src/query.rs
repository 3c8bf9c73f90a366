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
    let mut found = Overlaps::default();
    let Some((first, rest)) = keys.split_first() else { return found };
    // The endpoints that hold all blocks so far, in order.
    let mut with_all = Vec::new();
    {
        let index = index.read();
        for holders in index.holders(*first).chunk_by(|a, b| a.slot() == b.slot()) {
            let Some(slot) = holders.first().map(|holder| holder.slot()) else { continue };
            if let Some(tier) = index.credit(slot, holders) {
                found.add(slot, tier, block_size);
                with_all.push(slot);
            }
        }
    }
    for keys in rest.chunks(BLOCKS) {
        let index = index.read();
        for key in keys {
            if with_all.is_empty() {
                return found;
            }
            let mut holders = index.holders(*key);
            with_all.retain(|slot| {
                let tier = index.credit(*slot, next_run(&mut holders, *slot));
                if let Some(tier) = tier {
                    found.add(*slot, tier, block_size);
                }
                tier.is_some()
            });
        }
    }
    found
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
    // Mostly the next one or close by; else by halves.
    let near = holders.iter().take(4).take_while(|holder| holder.slot() < slot).count();
    let start =
        if near < 4 { near } else { holders.partition_point(|holder| holder.slot() < slot) };
    let from = &holders[start..];
    let len = from.iter().take_while(|holder| holder.slot() == slot).count();
    let (run, rest) = from.split_at(len);
    *holders = rest;
    run
}
