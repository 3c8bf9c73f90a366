//! Heard events in the shape that detection takes, a bounded and telling choice of them.

use std::collections::{BTreeMap, HashSet};

use kvasir_kv_events::{BlockStored, ExtraKey, PublishedHash};
use kvasir_kv_hash::detect::{EventHash, EventKey, StoredEvent};

use crate::stream::Collected;

/// Chains that are looked at for each adapter; the latest.
const MAX_CHAINS: usize = 16;

/// Blocks that are looked at for each adapter: what detection looks at.
const MAX_BLOCKS: usize = 256;

/// Adapters that are told apart.
const MAX_ADAPTERS: usize = 16;

/// An event of which detection can borrow.
pub(super) struct Owned<'a> {
    hashes: Vec<EventHash>,
    parent: Option<EventHash>,
    keys: Vec<Vec<EventKey<'a>>>,
    lookahead: Vec<&'a [u32]>,
    event: &'a BlockStored<PublishedHash>,
}

/// Events by adapter; `None` for the base model's. Events that detection cannot read are left out.
pub(super) fn by_adapter<'a>(heard: &'a Collected) -> BTreeMap<Option<&'a str>, Vec<Owned<'a>>> {
    let mut groups: BTreeMap<Option<&str>, Vec<&BlockStored<PublishedHash>>> = BTreeMap::new();
    for event in heard.stored() {
        // Numbered adapters (vLLM before 0.14) hash what no event shows.
        if event.lora_id.is_some() && event.lora_name.is_none() {
            continue;
        }
        let name = event.lora_name.as_deref();
        if groups.contains_key(&name) || groups.len() < MAX_ADAPTERS {
            groups.entry(name).or_default().push(event);
        }
    }
    let owned = |events: &[&'a BlockStored<PublishedHash>]| {
        choose(events).into_iter().filter_map(Owned::of).collect()
    };
    groups.into_iter().map(|(name, events)| (name, owned(&events))).collect()
}

/// The latest chains from their beginnings, in the order heard; without any, the latest events.
fn choose<'a>(events: &[&'a BlockStored<PublishedHash>]) -> Vec<&'a BlockStored<PublishedHash>> {
    let begins = |event: &&&BlockStored<PublishedHash>| event.parent.is_none();
    let chains = events.iter().filter(begins).count();
    if chains == 0 {
        let skipped = events.len().saturating_sub(MAX_CHAINS);
        return events.iter().skip(skipped).copied().collect();
    }
    let mut skip = chains.saturating_sub(MAX_CHAINS);
    let mut known: HashSet<&PublishedHash> = HashSet::new();
    let (mut chosen, mut blocks) = (Vec::new(), 0);
    for event in events {
        let wanted = match &event.parent {
            None if skip > 0 => {
                skip -= 1;
                false
            }
            None => true,
            Some(parent) => known.contains(parent),
        };
        if wanted && blocks < MAX_BLOCKS {
            known.extend(&event.block_hashes);
            blocks += event.block_hashes.len();
            chosen.push(*event);
        }
    }
    chosen
}

// === impl Owned ===

impl<'a> Owned<'a> {
    /// `None` for extra keys of unknown shapes.
    fn of(event: &'a BlockStored<PublishedHash>) -> Option<Self> {
        let keys = event.extra_keys.iter().flatten().map(|list| list.iter().map(key).collect());
        let lookahead = event.lookahead_token_ids.iter().flatten().map(Vec::as_slice).collect();
        Some(Self {
            hashes: event.block_hashes.iter().map(hash).collect(),
            parent: event.parent.as_ref().map(hash),
            keys: keys.collect::<Option<_>>()?,
            lookahead,
            event,
        })
    }

    /// The lists of keys, to borrow from.
    pub(super) fn lists(&self) -> Vec<&[EventKey<'a>]> {
        self.keys.iter().map(Vec::as_slice).collect()
    }

    /// The event; `lists` are this one's own.
    pub(super) fn borrow<'b>(&'b self, lists: &'b [&'b [EventKey<'b>]]) -> StoredEvent<'b> {
        StoredEvent {
            hashes: &self.hashes,
            parent: self.parent.as_ref(),
            tokens: &self.event.token_ids,
            block_size: self.event.block_size as usize,
            lora_name: self.event.lora_name.as_deref(),
            extra_keys: lists,
            cache_salt: self.event.cache_salt.as_deref(),
            lookahead: &self.lookahead,
        }
    }
}

fn hash(hash: &PublishedHash) -> EventHash {
    match hash {
        PublishedHash::Int(int) => EventHash::Int(*int),
        PublishedHash::Bytes(bytes) => EventHash::Bytes(bytes.clone()),
    }
}

fn key(key: &ExtraKey) -> Option<EventKey<'_>> {
    match key {
        ExtraKey::Text(text) => Some(EventKey::Text(text)),
        ExtraKey::Bytes(bytes) => Some(EventKey::Bytes(bytes)),
        ExtraKey::Item { identifier, offset } => Some(EventKey::Item(identifier, *offset)),
        ExtraKey::Unknown => None,
    }
}
