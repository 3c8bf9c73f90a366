//! Many threads at once: what readers may see meanwhile, and that the end is what one thread
//! would have made of it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use super::*;

const WRITERS: usize = 4;
const ROUNDS: u64 = 402;

/// What writer `n` does in one round: grow shared and own chains, remove, orphan, clear.
fn round(rig: &Rig, slot: Slot, n: usize, round: u64) {
    let own = format!("{}{}", ["e", "f", "g", "h"][n], "pqrs");
    let base = 100 + (round % 3) * 10;
    rig.store(slot, None, &[1, 2, 3], "abc");
    rig.store(slot, Some(base + 4), &[base + 5], "z");
    rig.store(slot, None, &[base, base + 1, base + 2, base + 3, base + 4], &own);
    rig.remove(slot, &[2, base + 3], Tier::Device);
    rig.store_as(slot, Some(1), &[2], "b", |blocks| blocks.tier = Tier::Host);
    if round.is_multiple_of(7) {
        rig.inventory.clear(slot);
    }
    if round % 5 == n as u64 {
        rig.store(slot, None, &[1], "x");
    }
}

/// Says that the writers are through, even when one of them failed.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

const TEXTS: [&str; 6] = ["abc", "xbc", "epqrsz", "fpqrsz", "gpqrsz", "hpqrsz"];

#[test]
fn threads_end_where_one_thread_would() {
    let rig = Rig::new();
    let still = rig.slot();
    let long = "abc".repeat(300);
    let hashes: Vec<u64> = (0..900).collect();
    rig.store(still, None, &hashes, &long);
    let slots: Vec<Slot> = (0..WRITERS).map(|_| rig.slot()).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut looks = 0_u64;
                while looks < 50 || !done.load(Ordering::Acquire) {
                    let keys = rig.inventory.space().chain(rig.root, &tokens(&long), 2);
                    let overlaps = rig.inventory.overlaps(&keys, SIZE);
                    // Nobody touches this one.
                    assert_eq!(overlaps.get(still).in_tier(Tier::Device), 1800);
                    for slot in &slots {
                        assert!(overlaps.get(*slot).resident() <= 6);
                    }
                    looks += 1;
                }
            });
        }
        let done = Done(&done);
        let churn = scope.spawn(|| {
            for _ in 0..ROUNDS {
                let slot = rig.slot();
                assert!(!slots.contains(&slot) && slot != still);
                assert_eq!(rig.on_device(slot, "abc"), 0);
                assert_eq!(rig.store(slot, None, &[1, 2], "ab"), stored(2));
                assert_eq!(rig.on_device(slot, "abc"), 2);
                rig.inventory.unregister(slot);
            }
        });
        let writers: Vec<_> = slots
            .iter()
            .enumerate()
            .map(|(n, slot)| {
                let rig = &rig;
                scope.spawn(move || (0..ROUNDS).for_each(|r| round(rig, *slot, n, r)))
            })
            .collect();
        for thread in writers.into_iter().chain([churn]) {
            thread.join().unwrap();
        }
        drop(done);
    });
    let alone = Rig::new();
    for (n, slot) in slots.iter().enumerate() {
        let same = alone.slot();
        (0..ROUNDS).for_each(|r| round(&alone, same, n, r));
        let stats = |rig: &Rig, slot| without_bytes(rig.inventory.stats(slot));
        assert_eq!(stats(&rig, *slot), stats(&alone, same));
        for text in TEXTS {
            assert_eq!(rig.held(*slot, text), alone.held(same, text), "{text}");
        }
        assert!(TEXTS.iter().any(|text| rig.held(*slot, text) != [0; 4]));
        rig.inventory.unregister(*slot);
    }
    rig.inventory.unregister(still);
    assert_eq!(rig.inventory.runs(), 0);
}

#[test]
fn calls_that_race_with_unregister_leave_nothing_behind() {
    let rig = Rig::new();
    for _ in 0..200 {
        let slot = rig.slot();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for hash in 0..20_u64 {
                        rig.store(slot, hash.checked_sub(1), &[hash], "a");
                    }
                });
            }
            scope.spawn(|| rig.inventory.unregister(slot));
        });
        assert_eq!(rig.inventory.runs(), 0);
        assert_eq!(rig.inventory.stats(slot), SlotStats::default());
    }
}

#[test]
fn a_reader_sees_all_or_nothing_of_an_endpoint_being_cleared() {
    let rig = Rig::new();
    let slot = rig.slot();
    let text = "q".repeat(256);
    let hashes: Vec<u64> = (0..256).collect();
    // Odd while nothing but a clear is under way.
    let phase = AtomicU32::new(0);
    let looks = AtomicU32::new(0);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rounds = 0;
            while rounds < 300 || (looks.load(Ordering::SeqCst) < 50 && rounds < 100_000) {
                rig.store(slot, None, &hashes, &text);
                phase.fetch_add(1, Ordering::SeqCst);
                rig.inventory.clear(slot);
                phase.fetch_add(1, Ordering::SeqCst);
                rounds += 1;
            }
        });
        let keys = rig.inventory.space().chain(rig.root, &tokens(&text), SIZE as usize);
        while !writer.is_finished() {
            let before = phase.load(Ordering::SeqCst);
            let resident = rig.inventory.overlaps(&keys, SIZE).get(slot).resident();
            if before % 2 == 1 && before == phase.load(Ordering::SeqCst) {
                assert!(resident == 0 || resident == 512, "{resident}");
                looks.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    assert!(looks.into_inner() > 0);
}
