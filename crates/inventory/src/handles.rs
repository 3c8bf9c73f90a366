//! What one endpoint's handles stand for: live ones, and a bounded memory of those whose blocks
//! went away, for late children and token-less events.

use std::collections::{HashMap, VecDeque};

use kvasir_kv_hash::BlockKey;

use crate::hashing::SeededState;
use crate::terms::EngineHash;

/// The handles of one endpoint. Each is unknown, live or retired.
#[derive(Debug)]
pub(crate) struct Handles {
    live: HashMap<EngineHash, BlockKey, SeededState>,
    retired: HashMap<EngineHash, Retired, SeededState>,
    /// Retirements, oldest first; entries whose handle has come back since are stale.
    order: VecDeque<(EngineHash, u64)>,
    next_age: u64,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Retired {
    key: BlockKey,
    age: u64,
}

/// What a handle stood for before it was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    Unknown,
    Live(BlockKey),
    Retired(BlockKey),
}

impl Was {
    pub(crate) fn key(self) -> Option<BlockKey> {
        match self {
            Self::Unknown => None,
            Self::Live(key) | Self::Retired(key) => Some(key),
        }
    }
}

impl Handles {
    /// Remembers at most `limit` retired handles.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            live: HashMap::default(),
            retired: HashMap::default(),
            order: VecDeque::new(),
            next_age: 0,
            limit,
        }
    }

    /// The block a live or retired handle stands for.
    pub(crate) fn get(&self, hash: EngineHash) -> Option<BlockKey> {
        let retired = || self.retired.get(&hash).map(|retired| retired.key);
        self.live.get(&hash).copied().or_else(retired)
    }

    /// Makes `hash` live for `key`.
    pub(crate) fn learn(&mut self, hash: EngineHash, key: BlockKey) -> Was {
        match self.live.insert(hash, key) {
            Some(old) => Was::Live(old),
            None => match self.retired.remove(&hash) {
                Some(retired) => Was::Retired(retired.key),
                None => Was::Unknown,
            },
        }
    }

    /// Moves a live handle to the retired ones, or learns it as one.
    pub(crate) fn retire(&mut self, hash: EngineHash, key: BlockKey) {
        self.live.remove(&hash);
        if self.limit == 0 || self.retired.contains_key(&hash) {
            return;
        }
        let age = self.next_age;
        self.next_age += 1;
        self.retired.insert(hash, Retired { key, age });
        self.order.push_back((hash, age));
        while self.retired.len() > self.limit {
            let Some((oldest, age)) = self.order.pop_front() else { break };
            if self.retired.get(&oldest).is_some_and(|retired| retired.age == age) {
                self.retired.remove(&oldest);
            }
        }
        // Stale entries go when they are half of the queue, so that each costs one visit.
        if self.order.len() > self.limit.saturating_mul(2) {
            let retired = &self.retired;
            self.order.retain(|(hash, age)| retired.get(hash).is_some_and(|r| r.age == *age));
        }
    }

    /// Makes a handle unknown again and tells what it stood for.
    pub(crate) fn forget(&mut self, hash: EngineHash) -> Option<BlockKey> {
        let live = self.live.remove(&hash);
        live.or_else(|| self.retired.remove(&hash).map(|retired| retired.key))
    }

    /// Forgets everything and returns the keys that live handles stood for, some perhaps twice.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = BlockKey> + use<> {
        let empty = Self::new(self.limit);
        std::mem::replace(self, empty).live.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h(n: u64) -> EngineHash {
        EngineHash(n)
    }

    #[test]
    fn a_handle_is_live_then_retired_then_live_again() {
        let mut handles = Handles::new(10);
        assert_eq!(handles.learn(h(1), BlockKey(11)), Was::Unknown);
        handles.retire(h(1), BlockKey(11));
        assert_eq!(handles.get(h(1)), Some(BlockKey(11)));
        assert_eq!(handles.learn(h(1), BlockKey(12)), Was::Retired(BlockKey(11)));
        assert_eq!(handles.learn(h(1), BlockKey(12)), Was::Live(BlockKey(12)));
        assert_eq!(handles.forget(h(1)), Some(BlockKey(12)));
        assert_eq!(handles.get(h(1)), None);
    }

    #[test]
    fn the_oldest_retired_handle_is_dropped_first() {
        let mut handles = Handles::new(2);
        for n in 1..=3 {
            handles.learn(h(n), BlockKey(n));
        }
        handles.retire(h(1), BlockKey(1));
        handles.retire(h(2), BlockKey(2));
        // Back and retired again: now the youngest.
        handles.learn(h(1), BlockKey(1));
        handles.retire(h(1), BlockKey(1));
        handles.retire(h(3), BlockKey(3));
        let known = [1, 2, 3].map(|n| handles.get(h(n)).is_some());
        assert_eq!(known, [true, false, true]);
    }

    #[test]
    fn coming_and_going_does_not_grow_the_queue() {
        let mut handles = Handles::new(4);
        for _ in 0..1000 {
            handles.learn(h(1), BlockKey(1));
            handles.retire(h(1), BlockKey(1));
        }
        assert!(handles.order.len() <= 8, "{}", handles.order.len());
        let mut none = Handles::new(0);
        none.learn(h(1), BlockKey(1));
        none.retire(h(1), BlockKey(1));
        assert_eq!(none.get(h(1)), None);
        assert!(none.order.is_empty());
    }
}
