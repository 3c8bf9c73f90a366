//! Events for unit tests, as a stream would hand them on.

use std::sync::Arc;

use kvasir_inventory::{EngineHash, Tier};
use kvasir_kv_events::{Batch, BlockStored, Event, Medium, Schema, Update};

/// Device blocks of tokens, without anything else that can be said of them.
pub(crate) fn stored(
    hashes: impl IntoIterator<Item = u64>,
    token_ids: Vec<u32>,
    block_size: u32,
) -> BlockStored {
    BlockStored {
        block_hashes: hashes.into_iter().map(EngineHash).collect(),
        parent: None,
        token_ids,
        block_size,
        lora_id: None,
        lora_name: None,
        medium: Medium::Known(Tier::Device),
        extra_keys: None,
        cache_salt: None,
        group: None,
        spec_kind: None,
        sliding_window: None,
        lookahead_token_ids: None,
        schema: Schema::Paired,
    }
}

/// A live batch of these events.
pub(crate) fn batch(events: Vec<Event>) -> Update {
    let batch = Batch { ts: 0.0, rank: None, events, unknown_events: 0 };
    Update::Batch { seq: 0, replayed: false, batch, payload: Arc::default() }
}
