use super::*;
use crate::budget::Budget;
use crate::index::At;

struct Rig {
    handles: Handles,
    own: Own,
    budget: Budget,
}

impl Rig {
    fn new(limit: usize) -> Self {
        let own = Own { used: 0, limit: usize::MAX };
        Self { handles: Handles::new(limit), own, budget: Budget::new(usize::MAX) }
    }

    fn learn(&mut self, hash: u64, at: u16) -> Option<(u16, bool)> {
        let was = self.handles.learn(h(hash), place(at), 0, &mut self.own, self.budget.ordinary());
        was.unwrap().map(|known| (known.at.offset, known.live))
    }

    fn retire(&mut self, hash: u64) -> Option<u16> {
        self.handles.retire(h(hash), &mut self.own, self.budget.ordinary());
        self.handles.drop_oldest(false, &mut self.own).map(|at| at.offset)
    }

    fn get(&self, hash: u64) -> Option<(u16, bool)> {
        self.handles.get(h(hash)).map(|known| (known.at.offset, known.live))
    }
}

fn h(n: u64) -> EngineHash {
    EngineHash(n)
}

fn place(offset: u16) -> At {
    At { offset, ..At::unpack(1 << 32).0 }
}

#[test]
fn a_handle_is_live_then_retired_then_live_again() {
    let mut rig = Rig::new(10);
    assert_eq!(rig.learn(1, 11), None);
    assert_eq!(rig.retire(1), None);
    assert_eq!(rig.get(1), Some((11, false)));
    assert_eq!(rig.learn(1, 12), Some((11, false)));
    assert_eq!(rig.learn(1, 12), Some((12, true)));
    assert_eq!(rig.handles.forget(h(1), &mut rig.own), Some(place(12)));
    assert_eq!((rig.get(1), rig.handles.len()), (None, 0));
    rig.handles.clear(&mut rig.own, rig.budget.ordinary());
    assert_eq!((rig.own.used, rig.budget.used()), (0, 0));
}

#[test]
fn the_oldest_retired_handle_is_dropped_first() {
    let mut rig = Rig::new(2);
    for n in 1..=3 {
        rig.learn(n, n as u16);
    }
    assert_eq!((rig.retire(1), rig.retire(2)), (None, None));
    // Back and retired again: now the youngest.
    rig.learn(1, 1);
    assert_eq!((rig.retire(1), rig.retire(3)), (None, Some(2)));
    let known = [1, 2, 3].map(|n| rig.get(n).is_some());
    assert_eq!(known, [true, false, true]);
    assert_eq!(rig.handles.drop_oldest(true, &mut rig.own), Some(place(1)));
    assert_eq!(rig.handles.drop_oldest(true, &mut rig.own), Some(place(3)));
    assert_eq!(rig.handles.drop_oldest(true, &mut rig.own), None);
}

#[test]
fn coming_and_going_does_not_grow_the_queue() {
    let mut rig = Rig::new(4);
    for n in 0..10_000 {
        rig.learn(1, 1);
        rig.retire(1);
        // Among many others, in both directions of the numbers' wrap.
        rig.learn(2 + n % 3, 2);
        rig.retire(2 + n % 3);
        assert_eq!(rig.get(1), Some((1, false)));
    }
    assert!(rig.handles.order.len() <= 40, "{}", rig.handles.order.len());
    let mut none = Rig::new(0);
    none.learn(1, 1);
    assert_eq!(none.retire(1), Some(1));
    assert_eq!(none.get(1), None);
}

#[test]
fn a_block_is_released_by_its_last_handle() {
    let mut rig = Rig::new(4);
    let share = rig.budget.ordinary();
    for _ in 0..2 {
        assert!(rig.handles.share(place(3), &mut rig.own, share));
    }
    let last = [(); 3].map(|()| rig.handles.release(place(3), &mut rig.own, share));
    assert_eq!(last, [false, false, true]);
    assert_eq!(rig.own.used, 0);
}
