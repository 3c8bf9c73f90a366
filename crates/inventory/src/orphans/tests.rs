use super::*;
use crate::budget::Budget;

fn block(hash: u64, tokens: &[u32]) -> Content<'_> {
    let tokens = Tokens::Read(tokens);
    Content { hash: EngineHash(hash), tokens, extras: &[], lookahead: &[] }
}

struct Rig {
    orphans: Orphans,
    own: Own,
    budget: Budget,
}

impl Rig {
    fn new(limit: usize) -> Self {
        let own = Own { used: 0, limit: usize::MAX };
        Self { orphans: Orphans::new(limit), own, budget: Budget::new(usize::MAX) }
    }

    fn park(&mut self, parent: u64, block: &Content<'_>, group: u8, tier: Tier) -> bool {
        let share = self.budget.ordinary();
        self.orphans.park(EngineHash(parent), block, (group, tier), &mut self.own, share)
    }

    fn park_bare(&mut self, hash: u64, group: u8, tier: Tier) -> bool {
        let share = self.budget.ordinary();
        self.orphans.park_bare(EngineHash(hash), (group, tier), &mut self.own, share)
    }

    fn take_child(&mut self, parent: u64) -> Option<(EngineHash, Orphan)> {
        let share = self.budget.ordinary();
        self.orphans.take_child(EngineHash(parent), &mut self.own, share)
    }

    fn remove_copy(&mut self, hash: u64, group: u8, tier: Tier) -> bool {
        let share = self.budget.ordinary();
        self.orphans.remove_copy(EngineHash(hash), (group, tier), &mut self.own, share)
    }

    fn copies(&self, hash: u64) -> &[(u8, TierSet)] {
        self.orphans.blocks[&EngineHash(hash)].copies()
    }
}

#[test]
fn the_oldest_orphan_goes_first_and_large_ones_count_more() {
    let mut rig = Rig::new(3);
    for hash in 1..=4 {
        assert!(rig.park(100, &block(hash, &[1, 2]), 0, Tier::Device));
    }
    assert_eq!(rig.orphans.len(), 3);
    assert!(!rig.orphans.blocks.contains_key(&EngineHash(1)));
    let large = vec![7; 4096];
    assert!(rig.park(100, &block(5, &large), 0, Tier::Device));
    assert_eq!(rig.orphans.len(), 1);
    assert!(!rig.park(100, &block(6, &vec![7; 1 << 16]), 0, Tier::Device));
    assert_eq!((rig.orphans.len(), rig.orphans.weight), (0, 0));
    assert!(rig.orphans.children.is_empty() && rig.orphans.by_age.is_empty());
    assert_eq!((rig.own.used, rig.budget.used()), (0, 0));
}

#[test]
fn a_repeated_orphan_adds_copies_and_another_one_replaces() {
    let mut rig = Rig::new(10);
    rig.park(9, &block(1, &[1, 2]), 0, Tier::Device);
    rig.park(9, &block(1, &[1, 2]), 0, Tier::Host);
    rig.park(9, &block(1, &[1, 2]), 3, Tier::Host);
    assert!(rig.remove_copy(1, 0, Tier::Device));
    assert!(!rig.remove_copy(1, 0, Tier::Device));
    let host = TierSet::of(Tier::Host);
    assert_eq!(rig.copies(1), [(0, host), (3, host)]);
    rig.park(8, &block(1, &[1, 2]), 0, Tier::Disk);
    assert!(rig.take_child(9).is_none());
    let only = |tier| [(0, TierSet::of(tier))];
    assert_eq!(rig.copies(1), only(Tier::Disk));
    rig.park(8, &block(1, &[1, 3]), 0, Tier::Host);
    assert_eq!(rig.copies(1), only(Tier::Host));
    let ahead = Content { lookahead: &[5], ..block(1, &[1, 3]) };
    rig.park(8, &ahead, 0, Tier::Device);
    assert_eq!(rig.copies(1), only(Tier::Device));
    let extras = [BlockExtra { identity: b"i", offset: 0 }];
    let other = Content { extras: &extras, ..block(1, &[1, 3]) };
    rig.park(8, &other, 0, Tier::Remote);
    let (hash, orphan) = rig.take_child(8).unwrap();
    assert_eq!((hash, orphan.copies()), (EngineHash(1), &only(Tier::Remote)[..]));
}

#[test]
fn a_bare_copy_waits_for_its_handle_and_goes_with_its_removal() {
    let mut rig = Rig::new(10);
    assert!(rig.park_bare(1, 0, Tier::Host) && rig.park_bare(1, 2, Tier::Host));
    assert!(rig.remove_copy(1, 0, Tier::Host));
    // Its place, once told, keeps the copy.
    rig.park(9, &block(1, &[1, 2]), 0, Tier::Device);
    let both = [(2, TierSet::of(Tier::Host)), (0, TierSet::of(Tier::Device))];
    assert_eq!(rig.copies(1), both);
    assert!(rig.park_bare(2, 0, Tier::Host));
    assert!(rig.remove_copy(2, 0, Tier::Host));
    assert_eq!(rig.orphans.len(), 1);
}
