use kvasir_inventory::Limits;
use kvasir_kv_events::Event;
use kvasir_kv_hash::KeySpace;

use super::*;
use crate::test_events::{self, batch};

fn stored(block_size: u32) -> Update {
    let tokens = vec![7; block_size as usize];
    batch(vec![Event::Stored(test_events::stored([1], tokens, block_size))])
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
