//! Token ids of texts seen before, by prefix: turn n of a conversation costs its delta.
//!
//! A text is a chain of segments that end at boundaries. An entry holds the ids of one segment
//! and names the entry of the segment before it, so that all texts with one beginning share it.
//! What is found is compared byte for byte, segment by segment, from the start: equal text is the
//! only way to an entry, and a keyed hash that is random per process only says where to look.
//! Chains start at the request's cache salt, as the engines' block hashes do, so tenants that keep
//! their caches apart keep this one apart, too.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use twox_hash::XxHash3_64;

/// Parts with a lock of their own.
const SHARDS: usize = 16;
const SECRET_LEN: usize = 192;
/// Memory of an entry besides its text and ids: the entry, three allocations, its place in map
/// and ring.
const OVERHEAD: usize = 208;

/// An entry. Never given twice, so a chain whose middle was evicted ends there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(u64);

/// One segment of a text.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    parent: NodeId,
    text: Box<str>,
    pub(crate) ids: Box<[u32]>,
}

impl Node {
    fn is(&self, parent: NodeId, text: &str) -> bool {
        self.parent == parent && *self.text == *text
    }

    fn cost(text: &str, ids: &[u32]) -> usize {
        OVERHEAD + text.len() + size_of_val(ids)
    }
}

/// What the cache holds and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixCacheStats {
    /// Bytes of memory held, as accounted.
    pub bytes: usize,
    /// Most bytes it may hold.
    pub budget: usize,
    /// Segments held.
    pub entries: usize,
    /// Texts of which a beginning was found.
    pub hits: u64,
    /// Texts of which nothing was found.
    pub misses: u64,
    /// Bytes of text whose ids were found.
    pub hit_bytes: u64,
    /// Token ids that were found, and not computed anew.
    pub hit_tokens: u64,
    /// Bytes of text that had to be tokenized.
    pub miss_bytes: u64,
    /// Segments dropped for room.
    pub evictions: u64,
}

/// The cache of one tokenizer.
pub(crate) struct PrefixCache {
    secret: Box<[u8; SECRET_LEN]>,
    shards: Vec<Mutex<Shard>>,
    shard_budget: usize,
    next_id: AtomicU64,
    /// The parent of first segments where the request has no salt. The next id is the parent of
    /// salts.
    base: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    hit_bytes: AtomicU64,
    hit_tokens: AtomicU64,
    miss_bytes: AtomicU64,
}

impl std::fmt::Debug for PrefixCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PrefixCache").field(&self.stats()).finish()
    }
}

impl PrefixCache {
    /// A cache of at most `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        let random = RandomState::new();
        let mut secret = Box::new([0; SECRET_LEN]);
        for (at, word) in secret.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = random.hash_one(at).to_le_bytes();
        }
        Self {
            secret,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_budget: budget / SHARDS,
            next_id: AtomicU64::new(2),
            base: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            hit_bytes: AtomicU64::new(0),
            hit_tokens: AtomicU64::new(0),
            miss_bytes: AtomicU64::new(0),
        }
    }

    /// Where texts of requests with this salt start; `None`: they cannot be cached.
    pub(crate) fn root(&self, salt: Option<&str>) -> Option<NodeId> {
        let base = self.base.load(Ordering::Relaxed);
        match salt {
            None | Some("") => Some(NodeId(base)),
            Some(salt) => {
                let salts = NodeId(base + 1);
                self.get(salts, salt).or_else(|| self.insert(salts, salt, &[])).map(|n| n.id)
            }
        }
    }

    /// Makes everything held unreachable: texts start at new roots.
    pub(crate) fn forget(&self) {
        let base = self.next_id.fetch_add(2, Ordering::Relaxed);
        self.base.store(base, Ordering::Relaxed);
    }

    /// The segment with this text behind `parent`.
    pub(crate) fn get(&self, parent: NodeId, text: &str) -> Option<Arc<Node>> {
        let key = self.key(parent, text);
        let node = {
            let mut shard = self.shard(key).lock();
            let slot = shard.slots.get_mut(&key)?;
            slot.used = true;
            Arc::clone(&slot.node)
        };
        node.is(parent, text).then_some(node)
    }

    /// Puts a segment behind `parent`; `None` if it is too large to be kept.
    pub(crate) fn insert(&self, parent: NodeId, text: &str, ids: &[u32]) -> Option<Arc<Node>> {
        let cost = Node::cost(text, ids);
        if cost > self.shard_budget / 2 {
            return None;
        }
        let key = self.key(parent, text);
        let id = NodeId(self.next_id.fetch_add(1, Ordering::Relaxed));
        // Copied before the lock is taken.
        let node = Arc::new(Node { id, parent, text: text.into(), ids: ids.into() });
        self.shard(key).lock().insert(key, node, cost, self.shard_budget)
    }

    /// Counts what a text took: bytes found and not found, and the token ids of the former.
    pub(crate) fn count(&self, hit: usize, miss: usize, tokens: usize) {
        let texts = if hit > 0 { &self.hits } else { &self.misses };
        texts.fetch_add(1, Ordering::Relaxed);
        self.hit_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
        self.hit_bytes.fetch_add(hit as u64, Ordering::Relaxed);
        self.miss_bytes.fetch_add(miss as u64, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> PrefixCacheStats {
        let mut stats = PrefixCacheStats {
            budget: self.shard_budget * SHARDS,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            hit_bytes: self.hit_bytes.load(Ordering::Relaxed),
            hit_tokens: self.hit_tokens.load(Ordering::Relaxed),
            miss_bytes: self.miss_bytes.load(Ordering::Relaxed),
            ..PrefixCacheStats::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.bytes += shard.bytes;
            stats.entries += shard.slots.len();
            stats.evictions += shard.evictions;
        }
        stats
    }

    fn key(&self, parent: NodeId, text: &str) -> u64 {
        let hash = XxHash3_64::oneshot_with_secret(&self.secret[..], text.as_bytes());
        // The secret is long enough by its type.
        hash.unwrap_or_default() ^ parent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        // The map takes the lowest and the highest bits.
        &self.shards[(key >> 40) as usize % SHARDS]
    }
}

#[derive(Default)]
struct Shard {
    slots: HashMap<u64, Slot, BuildHasherDefault<Keyed>>,
    /// Keys in the order they are looked at when room is needed; each key of `slots` once.
    ring: VecDeque<u64>,
    bytes: usize,
    evictions: u64,
}

struct Slot {
    node: Arc<Node>,
    cost: usize,
    /// Found since it was last looked at for eviction.
    used: bool,
}

impl Shard {
    fn insert(
        &mut self,
        key: u64,
        node: Arc<Node>,
        cost: usize,
        budget: usize,
    ) -> Option<Arc<Node>> {
        if let Some(slot) = self.slots.get_mut(&key)
            && slot.node.is(node.parent, &node.text)
        {
            // Another request was faster; its entry may have children already.
            slot.used = true;
            return Some(Arc::clone(&slot.node));
        }
        self.remove(key);
        self.make_room(budget.saturating_sub(cost));
        self.bytes += cost;
        self.ring.push_back(key);
        self.slots.insert(key, Slot { node: Arc::clone(&node), cost, used: false });
        Some(node)
    }

    /// Takes out the entry that another text with the same hash is to replace.
    fn remove(&mut self, key: u64) {
        if let Some(slot) = self.slots.remove(&key) {
            self.bytes -= slot.cost;
            self.ring.retain(|k| *k != key);
        }
    }

    /// Second chance: what was used since the last look goes to the end of the ring.
    fn make_room(&mut self, budget: usize) {
        while self.bytes > budget
            && let Some(key) = self.ring.pop_front()
        {
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            if std::mem::take(&mut slot.used) {
                self.ring.push_back(key);
                continue;
            }
            self.bytes -= slot.cost;
            self.slots.remove(&key);
            self.evictions += 1;
        }
    }
}

/// The keys are hashes already.
#[derive(Default)]
struct Keyed(u64);

impl Hasher for Keyed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
