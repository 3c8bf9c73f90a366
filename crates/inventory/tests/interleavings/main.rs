//! Readers and writers under a scheduler that tries interleavings of all their lock and atomic
//! operations: `cargo test -p kvasir-inventory --features shuttle --test interleavings`.
//!
//! `KVASIR_SCHEDULES` multiplies the number of schedules, for a long run.

#![cfg(feature = "shuttle")]

use std::sync::Arc;

use kvasir_inventory::{
    EngineHash, Group, GroupKind, Identity, Inventory, Limits, Slot, StoredBlocks, Tier,
};
use kvasir_kv_hash::{BlockKey, KeySpace};
use shuttle::thread;

const ROOT: BlockKey = BlockKey(1);

struct Rig {
    inventory: Inventory,
}

impl Rig {
    fn new() -> Arc<Self> {
        Arc::new(Self { inventory: Inventory::new(KeySpace::fixed(), Limits::default()) })
    }

    fn slot(&self) -> Slot {
        self.inventory.register().unwrap_or_else(|| panic!("a slot is free"))
    }

    fn store(&self, slot: Slot, parent: Option<u64>, hashes: &[u64]) -> usize {
        let hashes: Vec<EngineHash> = hashes.iter().copied().map(EngineHash).collect();
        let blocks = StoredBlocks {
            parent: parent.map(EngineHash),
            root: ROOT,
            hashes: &hashes,
            tokens: &[],
            block_size: 1,
            extras: &[],
            lookahead: &[],
            identity: Identity::Engine,
            tier: Tier::Device,
            group: Group { index: 0, kind: GroupKind::FullAttention },
        };
        self.inventory.store(slot, &blocks).stored
    }

    fn remove(&self, slot: Slot, hash: u64) {
        self.inventory.remove(slot, &[EngineHash(hash)], Tier::Device, 0);
    }

    fn held(&self, slot: Slot, hashes: &[u64]) -> u32 {
        let hashes: Vec<EngineHash> = hashes.iter().copied().map(EngineHash).collect();
        let keys = self.inventory.engine_keys(ROOT, &hashes);
        self.inventory.overlaps(&keys, 1).get(slot).resident()
    }
}

/// Tries schedules that change threads all the time, and ones that change them seldom: what goes
/// wrong while one thread stands still for long is found by the latter.
fn check(test: impl Fn() + Send + Sync + 'static) {
    let times = std::env::var("KVASIR_SCHEDULES").ok().and_then(|n| n.parse().ok());
    let schedules = 1_000 * times.unwrap_or(1);
    let test = Arc::new(test);
    let again = Arc::clone(&test);
    shuttle::check_random(move || again(), schedules);
    shuttle::check_pct(move || test(), schedules * 3, 3);
}

/// Blocks 1 and 2 lie in runs of their own: [1, 9] is stored first, so 2 branches off behind 1.
/// The endpoint never holds both at once, whatever a reader sees of either.
#[test]
fn a_prefix_that_was_never_there_is_never_seen() {
    check(|| {
        let rig = Rig::new();
        let (other, slot) = (rig.slot(), rig.slot());
        rig.store(other, None, &[1, 9]);
        rig.store(slot, None, &[1]);
        let writer = thread::spawn({
            let rig = Arc::clone(&rig);
            move || {
                rig.remove(slot, 1);
                rig.store(slot, Some(1), &[2]);
                rig.remove(slot, 2);
                rig.store(slot, None, &[1]);
            }
        });
        for _ in 0..2 {
            assert!(rig.held(slot, &[1, 2]) <= 1);
        }
        assert!(writer.join().is_ok());
        assert_eq!(rig.held(slot, &[1, 2]), 1);
    });
}

/// Whoever comes first makes the run; nobody's blocks are lost in a second one.
#[test]
fn endpoints_that_store_the_same_chain_share_it() {
    check(|| {
        let rig = Rig::new();
        let slots = [rig.slot(), rig.slot()];
        let writers = slots.map(|slot| {
            let rig = Arc::clone(&rig);
            thread::spawn(move || {
                rig.store(slot, None, &[1, 2]);
                rig.store(slot, Some(2), &[3]);
                rig.store(slot, Some(1), &[4, 5]);
            })
        });
        for writer in writers {
            assert!(writer.join().is_ok());
        }
        for slot in slots {
            assert_eq!((rig.held(slot, &[1, 2, 3]), rig.held(slot, &[1, 4, 5])), (3, 3));
        }
        for slot in slots {
            rig.inventory.unregister(slot);
        }
    });
}

/// A slot's next owner inherits nothing, and a reader sees all or nothing of what is cleared.
#[test]
fn an_endpoint_that_goes_leaves_nothing_behind() {
    check(|| {
        let rig = Rig::new();
        let empty = rig.inventory.bytes();
        let (slot, other) = (rig.slot(), rig.slot());
        rig.store(other, None, &[1]);
        rig.store(slot, None, &[1, 2]);
        rig.store(slot, Some(1), &[3]);
        let threads = [
            thread::spawn({
                let rig = Arc::clone(&rig);
                move || {
                    rig.inventory.clear(slot);
                    assert_eq!(rig.held(slot, &[1, 3]), 0);
                    rig.inventory.unregister(slot);
                    let next = rig.slot();
                    assert_eq!(rig.held(next, &[1, 2]), 0);
                    rig.inventory.unregister(next);
                }
            }),
            thread::spawn({
                let rig = Arc::clone(&rig);
                move || {
                    rig.store(other, Some(1), &[2, 4]);
                    rig.remove(other, 2);
                }
            }),
        ];
        let seen = rig.held(slot, &[1, 3]);
        assert!(seen == 0 || seen == 2, "{seen}");
        for thread in threads {
            assert!(thread.join().is_ok());
        }
        assert_eq!((rig.held(other, &[1, 2]), rig.held(other, &[1, 3])), (1, 1));
        rig.inventory.unregister(other);
        assert_eq!(rig.inventory.bytes(), empty);
    });
}
