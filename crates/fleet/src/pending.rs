//! Prefixes that are being computed: of every endpoint the prompts sent there whose blocks its
//! events may not show yet.
//!
//! A burst of requests with one new prefix is routed before the first of them is computed. What was
//! sent where is known all the same, and kept here from the moment of the choice until
//!
//! - the claim is dropped before the answer began: the request failed or its client left;
//! - `GRACE` after the answer began: by then events show the blocks, or nothing will;
//! - the engine empties its cache (`PendingSlot::end_computed`: what had begun to answer is
//!   gone, the rest is still to be computed) or is another process ([`PendingSlot::end_all`]).
//!
//! All of it is told the time, so that it can be simulated.
//!
//! It is a credit for choosing only, never part of what is predicted. What a failed request leaves
//! to those that counted on it is not added to their load.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_kv_events::{Event, Update, Why};
use kvasir_kv_hash::BlockKey;
use parking_lot::Mutex;

use self::prefixes::Prefixes;

mod prefixes;

/// How long a prefix stays pending after its first token. An engine publishes the blocks of a step
/// with that step, so it is the way from there into the inventory that has to be bridged:
/// milliseconds, or half a second where events are fetched, or a catch-up after a lost batch.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Prompts of one batch that are taken in and looked up; each costs a search under the lock.
pub(crate) const MAX_PROMPTS: usize = 16;
/// Segments followed for one request, all its prompts and all ways of keying them together.
const MAX_FIND_STEPS: usize = 1_024;
/// Keys of one prompt that are taken in: 256k tokens in blocks of 16.
const MAX_KEYS: usize = 16_384;
/// What all of it may take: the keys, once for each prompt and once for each prefix, and what
/// keeps them, with the share of tables that are half empty. One request may exceed it by the
/// holders it adds to segments; tables keep the size they once had.
const MAX_BYTES: usize = 64 << 20;
const KEY: usize = size_of::<BlockKey>();
/// What the allocator adds to one allocation, about.
const ALLOCATION: usize = 16;
/// A request but for its prompts: its entries by number, by its end and in its slot.
const CLAIM: usize = entry::<(u64, Claimed)>()
    + entry::<(Instant, u64)>()
    + entry::<u64>()
    + size_of::<PromptKeys>()
    + 4 * ALLOCATION;
/// A prompt but for its keys.
const PROMPT: usize = size_of::<Chain>() + size_of::<usize>() + ALLOCATION;
const MAX_CLAIMS: usize = 65_536;

/// Bytes of an entry of a table, which may be half empty, with its share of what manages it.
const fn entry<T>() -> usize {
    2 * (size_of::<T>() + 1)
}

/// A request's prompts, as engines of one kind key their blocks.
#[derive(Debug, Default)]
pub struct PromptKeys {
    /// Tokens per block.
    pub block_size: u32,
    /// Its prompts, in order; more than one in a batch.
    pub prompts: Vec<Chain>,
}

/// The keys of one prompt.
#[derive(Debug)]
pub struct Chain {
    /// Of all its full blocks: what an engine that computed it holds.
    pub keys: Vec<BlockKey>,
    /// How many of them an engine can use when it gets the prompt: not the last token's.
    pub usable: usize,
}

impl Chain {
    /// The part that can be hit.
    #[must_use]
    pub fn usable(&self) -> &[BlockKey] {
        &self.keys[..self.usable.min(self.keys.len())]
    }
}

/// The pending prefixes of all endpoints of a fleet.
#[derive(Debug, Default)]
pub struct PendingPrefixes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    prefixes: Prefixes,
    claims: HashMap<u64, Claimed>,
    next_claim: u64,
    /// Claims that were computed, and when they end: in that order.
    ending: VecDeque<(Instant, u64)>,
    slots: Vec<SlotState>,
    free_slots: Vec<u32>,
    /// Of all claims; with the prefixes', what is counted against [`MAX_BYTES`].
    bytes: usize,
}

#[derive(Debug, Default)]
struct SlotState {
    /// Prompts of all its claims.
    prompts: usize,
    claims: BTreeSet<u64>,
}

#[derive(Debug)]
struct Claimed {
    slot: u32,
    keys: Arc<PromptKeys>,
    /// How many keys of each prompt were taken in.
    taken: Vec<usize>,
    computed: bool,
}

/// One endpoint's place among the pending prefixes; what is left in it ends with it.
#[derive(Debug)]
pub struct PendingSlot {
    all: Arc<PendingPrefixes>,
    number: u32,
}

/// One request's prompts at one endpoint; dropped before the answer began, it ends them.
#[derive(Debug)]
pub struct PendingClaim {
    all: Arc<PendingPrefixes>,
    claim: u64,
    computed: bool,
}

/// What was found of one prompt: keys by slot.
#[derive(Debug, Default)]
pub struct Found(Vec<usize>);

impl Found {
    /// How many keys of the prompt are pending in `slot`.
    #[must_use]
    pub fn keys(&self, slot: &PendingSlot) -> usize {
        self.0.get(slot.number as usize).copied().unwrap_or(0)
    }
}

// === impl PendingPrefixes ===

impl PendingPrefixes {
    /// A place for one more endpoint.
    #[must_use]
    pub fn slot(self: &Arc<Self>) -> PendingSlot {
        let mut state = self.state.lock();
        let number = state.free_slots.pop().unwrap_or_else(|| {
            state.slots.push(SlotState::default());
            u32::try_from(state.slots.len() - 1).unwrap_or(u32::MAX)
        });
        drop(state);
        PendingSlot { all: Arc::clone(self), number }
    }

    /// How much of each prompt (of the first `MAX_PROMPTS`) is pending where, for each way a
    /// request's prompts are keyed; nothing for those that nobody uses, and where nothing is
    /// pending at all.
    ///
    /// All of them together take `MAX_FIND_STEPS`, shared evenly: what one leaves is the next
    /// ones'. Of a prompt that would take more only the beginning is found.
    #[must_use]
    pub fn find(&self, keyed: &[Option<&PromptKeys>], now: Instant) -> Vec<Vec<Found>> {
        let prompts = |keys: &PromptKeys| keys.prompts.len().min(MAX_PROMPTS);
        let mut to_find: usize = keyed.iter().flatten().map(|keys| prompts(keys)).sum();
        let mut left = MAX_FIND_STEPS;
        let mut state = self.state.lock();
        state.expire(now);
        let mut one = |chain: &Chain| {
            let share = left.div_ceil(to_find.max(1));
            let mut steps = share;
            let found = state.find(chain, &mut steps);
            left -= share - steps;
            to_find -= 1;
            found
        };
        let all = |keys: &Option<&PromptKeys>| match keys {
            Some(keys) if !state.claims.is_empty() => {
                keys.prompts.iter().take(MAX_PROMPTS).map(&mut one).collect()
            }
            _ => Vec::new(),
        };
        keyed.iter().map(all).collect()
    }

    fn computed(&self, claim: u64, now: Instant) {
        let mut state = self.state.lock();
        state.expire(now);
        if let Some(claimed) = state.claims.get_mut(&claim) {
            claimed.computed = true;
            state.ending.push_back((now + GRACE, claim));
        }
    }

    fn end(&self, claim: u64) {
        self.state.lock().end(claim);
    }
}

impl State {
    fn bytes(&self) -> usize {
        self.bytes + self.prefixes.bytes()
    }

    fn find(&self, chain: &Chain, steps: &mut usize) -> Found {
        let mut found = Vec::new();
        self.prefixes.find(chain.usable(), steps, |slot, keys| {
            if found.is_empty() {
                found.resize(self.slots.len(), 0);
            }
            if let Some(known) = found.get_mut(slot as usize) {
                *known = keys;
            }
        });
        Found(found)
    }

    fn expire(&mut self, now: Instant) {
        while self.ending.front().is_some_and(|(end, _)| *end <= now) {
            if let Some((_, claim)) = self.ending.pop_front() {
                self.end(claim);
            }
        }
    }

    fn end(&mut self, claim: u64) {
        let Some(Claimed { slot, keys, taken, .. }) = self.claims.remove(&claim) else { return };
        self.bytes -= cost(&keys);
        for (chain, taken) in keys.prompts.iter().zip(&taken) {
            self.prefixes.remove(&chain.keys[..*taken], slot);
        }
        if let Some(known) = self.slots.get_mut(slot as usize) {
            known.prompts -= taken.len();
            known.claims.remove(&claim);
        }
    }

    /// Ends claims of one slot. It is asked for with every scrape of an engine that is not there:
    /// others' claims must not be looked at.
    fn end_where(&mut self, slot: u32, ends: impl Fn(&Claimed) -> bool) {
        let Some(known) = self.slots.get(slot as usize) else { return };
        let ends = |claim: &&u64| self.claims.get(*claim).is_some_and(&ends);
        let mut ending: Vec<u64> = known.claims.iter().filter(ends).copied().collect();
        // In one order, so that the same requests always leave the same prefixes.
        ending.sort_unstable();
        ending.into_iter().for_each(|claim| self.end(claim));
    }

    fn begin(&mut self, slot: u32, keys: &Arc<PromptKeys>) -> Option<u64> {
        let wanted: Vec<usize> = keys
            .prompts
            .iter()
            .take(MAX_PROMPTS)
            .map(|chain| chain.keys.len().min(MAX_KEYS))
            .collect();
        if wanted.iter().all(|keys| *keys == 0) {
            return None;
        }
        left_out("batch", keys.prompts.len() - wanted.len());
        // A prompt parts one segment, and adds one.
        let grows = wanted.iter().map(|keys| keys * KEY + 2 * prefixes::SEGMENT).sum::<usize>();
        let bytes = self.bytes() + cost(keys) + grows;
        if self.claims.len() >= MAX_CLAIMS || bytes > MAX_BYTES {
            left_out("memory", wanted.len());
            return None;
        }
        let mut cut = 0;
        let mut taken = Vec::with_capacity(wanted.len());
        for (chain, wanted) in keys.prompts.iter().zip(wanted) {
            let keys = self.prefixes.insert(&chain.keys[..wanted], slot);
            cut += usize::from(keys < chain.keys.len());
            taken.push(keys);
        }
        left_out("length", cut);
        self.bytes += cost(keys);
        let claim = self.next_claim;
        self.next_claim += 1;
        if let Some(known) = self.slots.get_mut(slot as usize) {
            known.prompts += taken.len();
            known.claims.insert(claim);
        }
        let keys = Arc::clone(keys);
        self.claims.insert(claim, Claimed { slot, keys, taken, computed: false });
        Some(claim)
    }
}

/// Bytes kept for a request but for what is in the tree; all its keys stay, taken in or not.
fn cost(keys: &PromptKeys) -> usize {
    let own = keys.prompts.iter().map(|chain| chain.keys.capacity() * KEY).sum::<usize>();
    CLAIM + keys.prompts.capacity() * PROMPT + own
}

/// Prompts of which nothing, or only the beginning, is pending: they may scatter.
fn left_out(why: &'static str, prompts: usize) {
    if prompts > 0 {
        metrics::counter!("kvasir_pending_prompts_left_out_total", "reason" => why)
            .increment(prompts as u64);
    }
}

// === impl PendingSlot ===

impl PendingSlot {
    /// A request with these prompts is on its way there. `None` where there is nothing to keep, or
    /// no room.
    #[must_use]
    pub fn begin(&self, keys: &Arc<PromptKeys>) -> Option<PendingClaim> {
        let claim = self.all.state.lock().begin(self.number, keys)?;
        Some(PendingClaim { all: Arc::clone(&self.all), claim, computed: false })
    }

    /// An update of the engine's event stream is about to be applied: what it is computing outlives
    /// what its events say; what it had computed, and the engine itself, may be gone.
    pub fn before(&self, update: &Update) {
        match update {
            Update::Forget { why: Why::Restart, .. } => self.end_all(),
            Update::Forget { .. } => self.end_computed(),
            Update::Batch { batch, .. } if batch.events.contains(&Event::Cleared) => {
                self.end_computed();
            }
            Update::Batch { .. } | Update::Trust { .. } => {}
        }
    }

    /// The engine forgot what it had computed.
    pub(crate) fn end_computed(&self) {
        self.all.state.lock().end_where(self.number, |known| known.computed);
    }

    /// Another engine answers there, or none.
    pub fn end_all(&self) {
        self.all.state.lock().end_where(self.number, |_| true);
    }

    /// Prompts pending there.
    pub(crate) fn prompts(&self, now: Instant) -> usize {
        let mut state = self.all.state.lock();
        state.expire(now);
        state.slots.get(self.number as usize).map_or(0, |known| known.prompts)
    }
}

impl Drop for PendingSlot {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        state.end_where(self.number, |_| true);
        state.free_slots.push(self.number);
    }
}

// === impl PendingClaim ===

impl PendingClaim {
    /// The answer began: the prompts are computed, and pending for `GRACE` more, whatever
    /// becomes of the request.
    pub fn computed(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.computed, true) {
            self.all.computed(self.claim, now);
        }
    }
}

impl Drop for PendingClaim {
    fn drop(&mut self) {
        if !self.computed {
            self.all.end(self.claim);
        }
    }
}

#[cfg(test)]
mod tests;
