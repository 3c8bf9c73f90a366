use kvasir_inventory::{EngineHash, Limits};
use kvasir_kv_events::{Batch, BlockStored, Event, Medium, Schema};
use kvasir_kv_hash::KeySpace;

use super::*;

fn stored(block_size: u32) -> Update {
    let stored = BlockStored {
        block_hashes: vec![EngineHash(1)],
        parent: None,
        token_ids: vec![7; block_size as usize],
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
    };
    let batch =
        Batch { ts: 0.0, rank: None, events: vec![Event::Stored(stored)], unknown_events: 0 };
    Update::Batch { seq: 0, replayed: false, batch, payload: Arc::default() }
}

#[test]
fn another_block_size_is_another_picture() {
    let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
    let mut picture = Picture::new(inventory, BlockIdentity::Tokens).unwrap();
    let card = EngineCard::default();
    let mut pictures = Vec::new();
    for size in [2, 2, 4, 4] {
        picture.apply(&stored(size), &card);
        pictures.push(picture.credit.stamp.picture);
    }
    assert_eq!(pictures, [0, 0, 1, 1]);
}
