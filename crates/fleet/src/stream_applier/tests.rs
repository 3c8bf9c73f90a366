use std::time::Instant;

use kvasir_inventory::{EngineHash, Limits, Tier};
use kvasir_kv_events::{BlockRemoved, BlockStored, Medium};
use kvasir_kv_hash::KeySpace;

use super::*;
use crate::identity::BlockIdentity;
use crate::pending::{Chain, PromptKeys};
use crate::pool::Shared;
use crate::ranks::{Configured, Ranks};
use crate::spec::RankAddressing;
use crate::test_events::{self, batch};

/// The blocks after one that nobody knows.
fn stored(blocks: u64, block_size: u32) -> Event {
    let tokens = vec![7; blocks as usize * block_size as usize];
    let parent = Some(EngineHash(u64::MAX));
    Event::Stored(BlockStored { parent, ..test_events::stored(0..blocks, tokens, block_size) })
}

#[test]
fn work_is_long_by_the_blocks_it_is_about() {
    let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
    let slot = inventory.register().unwrap();
    let applier = Applier::new(inventory, slot, Trust::Exact);
    let removed = Event::Removed(BlockRemoved {
        block_hashes: (0..600).map(EngineHash).collect(),
        medium: Medium::Known(Tier::Device),
        group: None,
    });
    for (events, heavy) in [
        (vec![stored(1, 16); 100], false),
        (vec![stored(2_000, 16)], true),
        (vec![removed.clone()], false),
        (vec![removed.clone(), removed], true),
        (vec![Event::Cleared], true),
    ] {
        assert_eq!(is_heavy(&batch(events), &applier), heavy);
    }
}

#[test]
fn another_block_size_ends_what_was_computed_and_what_was_predicted() {
    let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
    let (authority, shared) =
        (http::uri::Authority::from_static("engine:1"), Shared::new(Arc::clone(&inventory)));
    let (addressing, identity) = (RankAddressing::None, BlockIdentity::Tokens);
    let ranks =
        Ranks::new(authority.into(), addressing, Configured::default(), identity, shared).unwrap();
    let endpoint = Arc::clone(&ranks.endpoints()[0]);
    let stream = Arc::clone(&endpoint.streams()[0]);
    let to = Followed { endpoint: Arc::clone(&endpoint), stream: Arc::clone(&stream) };
    let mut application = StreamApplier::new(to, Arc::clone(&inventory));
    application.apply(&batch(vec![stored(1, 16)]));
    let root = inventory.space().root(&kvasir_kv_hash::Scope::default());
    let chain = Chain { keys: inventory.keys(root, &[7; 64], 16, 0), usable: 3 };
    let keys = Arc::new(PromptKeys { block_size: 16, prompts: vec![chain] });
    let mut claim = endpoint.pending().begin(&keys).unwrap();
    claim.computed(Instant::now());
    let before = stream.creditable().stamp;
    for (size, prompts) in [(16, 1), (32, 0)] {
        application.apply(&batch(vec![stored(1, size)]));
        assert_eq!(endpoint.pending().prompts(Instant::now()), prompts);
        assert_eq!(stream.creditable().stamp.picture == before.picture, prompts == 1);
    }
}
