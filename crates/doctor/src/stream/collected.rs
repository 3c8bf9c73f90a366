//! What was heard of a publisher, bounded: enough to tell its forms and to verify its hashes.

use std::collections::{BTreeSet, HashSet, VecDeque};

use kvasir_fleet::HashContract;
use kvasir_inventory::{AbsentReason, Tier, Trust};
use kvasir_kv_events::{
    BlockStored, Event, ExtraKey, PublishedHash, StreamStats, Update, Why, decode_published,
};

use super::wire_form::{self, EventForm};
use crate::shown::shown;

/// Stored events kept; the oldest go first.
const MAX_EVENTS: usize = 1024;

/// Of these, events after a parent that was not heard.
const MAX_LOOSE: usize = 128;

/// Blocks of one event that are kept: its first ones.
const MAX_BLOCKS: usize = 16;

/// Tokens of one event that are kept.
const MAX_TOKENS: usize = 1 << 16;

/// Bytes of all events that are kept, as far as their lengths are the publisher's to choose.
const MAX_BYTES: usize = 64 << 20;

/// Distinct values kept of anything that should have one or two.
const MAX_VALUES: usize = 8;

/// What was heard.
#[derive(Debug)]
pub(crate) struct Collected {
    /// Stored events of device blocks with tokens, in the order heard: those that begin chains,
    /// and their successors.
    kept: VecDeque<BlockStored<PublishedHash>>,
    /// Those after a parent that was not heard.
    loose: VecDeque<BlockStored<PublishedHash>>,
    /// The hashes of blocks in `kept`.
    known: HashSet<PublishedHash>,
    /// What `kept` and `loose` hold, in bytes.
    held: usize,
    pub(crate) shapes: Shapes,
    /// Batches heard, replayed ones among them.
    pub(crate) batches: u64,
    replayed: u64,
    /// Events that took blocks away.
    pub(crate) removals: u64,
    /// The first and the last number that the replay socket held when it was first asked.
    pub(crate) history: Option<(u64, u64)>,
    /// How far the gateway would believe the endpoint now.
    pub(crate) trust: Trust,
    /// How far the stream alone can be believed.
    pub(super) stream_trust: Trust,
    pub(crate) stats: StreamStats,
    /// Where the first event that could not be decoded is wrong.
    pub(crate) schema_error: Option<String>,
    /// What the gateway would say of the hashes, under the identity of the engine's pool.
    pub(crate) contract: HashContract,
}

/// The forms seen. Sets are bounded.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    pub(crate) arrays: bool,
    pub(crate) maps: bool,
    /// Of device blocks.
    pub(crate) integers: bool,
    pub(crate) bytes: bool,
    /// Lists of extra keys published, or left out.
    pub(crate) extras_published: bool,
    pub(crate) extras_left_out: bool,
    pub(crate) lookahead: bool,
    /// Blocks of the main group on the device, with their tokens, or without.
    pub(crate) with_tokens: bool,
    pub(crate) without_tokens: bool,
    pub(crate) groups: BTreeSet<u32>,
    /// What the groups serve, in the engine's words.
    pub(crate) kinds: BTreeSet<String>,
    /// Tiers other than the device, and places nobody knows.
    pub(crate) places: BTreeSet<String>,
    /// Tokens per block of the main group on the device.
    pub(crate) block_sizes: BTreeSet<u32>,
    /// Extra keys that fit no contract, the first.
    pub(crate) bad_extras: Option<String>,
    pub(crate) unknown_events: u64,
    /// Stored events.
    pub(crate) stored: u64,
}

impl Default for Collected {
    fn default() -> Self {
        let absent = Trust::Absent(AbsentReason::Connecting);
        Self {
            kept: VecDeque::new(),
            loose: VecDeque::new(),
            known: HashSet::new(),
            held: 0,
            shapes: Shapes::default(),
            batches: 0,
            replayed: 0,
            removals: 0,
            history: None,
            trust: absent,
            stream_trust: absent,
            stats: StreamStats::default(),
            schema_error: None,
            contract: HashContract::default(),
        }
    }
}

// === impl Collected ===

impl Collected {
    /// The events to verify hashes on: chains from their beginnings, then what is left.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &BlockStored<PublishedHash>> {
        self.kept.iter().chain(&self.loose)
    }

    /// Batches that came from the publisher itself, not from its replay socket.
    pub(super) fn live(&self) -> u64 {
        self.batches - self.replayed
    }

    /// How much was heard, in words.
    pub(super) fn count(&self) -> String {
        match (self.batches, self.replayed) {
            (0, _) => "no batch yet".to_owned(),
            (1, _) => "1 batch".to_owned(),
            (all, 0) => format!("{all} batches"),
            (all, replayed) => format!("{all} batches, {replayed} of them replayed"),
        }
    }

    pub(crate) fn take(&mut self, update: &Update) {
        match update {
            Update::Forget { trust, why } => {
                self.stream_trust = *trust;
                // Another life may hash otherwise.
                if matches!(why, Why::Restart | Why::Disconnected | Why::TwoPublishers) {
                    self.kept.clear();
                    self.loose.clear();
                    self.known.clear();
                    self.held = 0;
                }
            }
            Update::Trust { trust, .. } => self.stream_trust = *trust,
            Update::Batch { seq, replayed, payload, .. } => {
                self.batches += 1;
                if *replayed {
                    self.replayed += 1;
                    let first = self.history.map_or(*seq, |(first, _)| first);
                    self.history = Some((first, *seq));
                }
                self.read(payload);
            }
        }
    }

    fn read(&mut self, payload: &[u8]) {
        match wire_form::of(payload) {
            Some(EventForm::Array) => self.shapes.arrays = true,
            Some(EventForm::Map) => self.shapes.maps = true,
            None => {}
        }
        // What the subscriber handed on decodes; what does not, it counts.
        let Ok(batch) = decode_published(payload) else { return };
        self.shapes.unknown_events += u64::from(batch.unknown_events);
        for event in batch.events {
            match event {
                Event::Stored(stored) => {
                    self.shapes.note(&stored);
                    self.keep(stored);
                }
                Event::Removed(_) | Event::Cleared => self.removals += 1,
            }
        }
    }

    /// Keeps what hashes can be verified on.
    fn keep(&mut self, mut stored: BlockStored<PublishedHash>) {
        let size = stored.block_size as usize;
        let lines_up = stored.block_hashes.len().checked_mul(size) == Some(stored.token_ids.len());
        let device = stored.medium.tier() == Some(Tier::Device);
        let main = stored.group.unwrap_or(0) == 0;
        if size == 0 || size > MAX_TOKENS || !lines_up || !device || !main {
            return;
        }
        shorten(&mut stored, (MAX_TOKENS / size).clamp(1, MAX_BLOCKS));
        let chained = stored.parent.as_ref().is_none_or(|parent| self.known.contains(parent));
        self.held += bytes(&stored);
        if chained {
            self.known.extend(stored.block_hashes.iter().cloned());
            self.kept.push_back(stored);
        } else {
            self.loose.push_back(stored);
        }
        while self.loose.len() > MAX_LOOSE || (self.held > MAX_BYTES && !self.loose.is_empty()) {
            let oldest = self.loose.pop_front();
            self.held -= oldest.as_ref().map_or(0, bytes);
        }
        while self.kept.len() > MAX_EVENTS || self.held > MAX_BYTES {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.held -= bytes(&oldest);
            for hash in &oldest.block_hashes {
                self.known.remove(hash);
            }
        }
    }
}

/// What an event holds beside its own size.
fn bytes(stored: &BlockStored<PublishedHash>) -> usize {
    let hash = |hash: &PublishedHash| match hash {
        PublishedHash::Int(_) => size_of::<PublishedHash>(),
        PublishedHash::Bytes(digest) => size_of::<PublishedHash>() + digest.len(),
    };
    let key = |key: &ExtraKey| {
        size_of::<ExtraKey>()
            + match key {
                ExtraKey::Text(text) | ExtraKey::Item { identifier: text, .. } => text.len(),
                ExtraKey::Bytes(bytes) => bytes.len(),
                ExtraKey::Unknown => 0,
            }
    };
    let hashes: usize = stored.block_hashes.iter().map(hash).sum();
    let keys: usize = stored.extra_keys.iter().flatten().flatten().map(key).sum();
    let ahead: usize = stored.lookahead_token_ids.iter().flatten().map(Vec::len).sum();
    let salt = stored.cache_salt.as_ref().map_or(0, String::len);
    hashes + keys + salt + (stored.token_ids.len() + ahead) * size_of::<u32>()
}

/// Cuts an event to its first blocks.
fn shorten(stored: &mut BlockStored<PublishedHash>, blocks: usize) {
    stored.block_hashes.truncate(blocks);
    let blocks = stored.block_hashes.len();
    stored.token_ids.truncate(blocks.saturating_mul(stored.block_size as usize));
    if let Some(lists) = &mut stored.extra_keys {
        lists.truncate(blocks);
    }
    if let Some(lists) = &mut stored.lookahead_token_ids {
        lists.truncate(blocks);
    }
}

// === impl Shapes ===

impl Shapes {
    fn note(&mut self, stored: &BlockStored<PublishedHash>) {
        self.stored += 1;
        self.lookahead |= stored.lookahead_token_ids.is_some();
        put(&mut self.groups, stored.group.unwrap_or(0));
        if let Some(kind) = &stored.spec_kind {
            put(&mut self.kinds, shown(kind.as_str()));
        }
        match stored.medium.tier() {
            Some(Tier::Device) => {}
            Some(tier) => return put(&mut self.places, tier.as_str().to_owned()),
            None => return put(&mut self.places, shown(&format!("{:?}", stored.medium))),
        }
        for hash in &stored.block_hashes {
            match hash {
                PublishedHash::Int(_) => self.integers = true,
                PublishedHash::Bytes(_) => self.bytes = true,
            }
        }
        match stored.extra_keys {
            Some(_) => self.extras_published = true,
            None => self.extras_left_out = true,
        }
        if let Err(error) = stored.extras() {
            self.bad_extras.get_or_insert_with(|| error.to_string());
        }
        if stored.group.unwrap_or(0) != 0 {
            return;
        }
        if stored.token_ids.is_empty() {
            self.without_tokens = true;
        } else {
            self.with_tokens = true;
            put(&mut self.block_sizes, stored.block_size);
        }
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, value: T) {
    if set.len() < MAX_VALUES {
        set.insert(value);
    }
}

#[cfg(test)]
mod tests;
