use kvasir_inventory::Limits;
use kvasir_kv_events::{Medium, SpecKind, Why};
use kvasir_kv_hash::KeySpace;

use super::*;
use crate::credit::Credit;
use crate::test_events;

mod hashes;

const SIZE: u32 = 2;

struct Rig {
    inventory: Arc<Inventory>,
    slot: Slot,
    applier: Applier,
}

impl Rig {
    fn new(limits: Limits) -> Self {
        let inventory = Arc::new(Inventory::new(KeySpace::fixed(), limits));
        let slot = inventory.register().unwrap();
        let applier = Applier::new(Arc::clone(&inventory), slot, Trust::Exact);
        Self { inventory, slot, applier }
    }

    fn apply(&mut self, stored: BlockStored) {
        self.applier.apply(&update(stored), &EngineCard::default());
    }

    /// Blocks held of a prompt whose block `n` is `SIZE` times the token `n`.
    fn held(&self, tokens: &[u32]) -> u32 {
        let root = self.inventory.space().root(&Scope::default());
        let lookahead = self.applier.lookahead() as usize;
        let keys = self.inventory.keys(root, tokens, SIZE as usize, lookahead);
        self.inventory.overlap_of(self.slot, &keys, SIZE).resident() / SIZE
    }
}

/// Blocks 1 to `count` of a prompt.
fn stored(count: u32) -> BlockStored {
    test_events::stored((1..=count).map(u64::from), prompt(count), SIZE)
}

fn prompt(blocks: u32) -> Vec<u32> {
    (1..=blocks).flat_map(|n| [n; SIZE as usize]).collect()
}

fn in_group(group: u32, kind: SpecKind, stored: BlockStored) -> BlockStored {
    BlockStored { group: Some(group), spec_kind: Some(kind), ..stored }
}

#[test]
fn blocks_that_are_fetched_from_another_tier_are_not_computed_anew() {
    const BLOCKS: u32 = 2_000;
    let on_host = |stored: BlockStored| BlockStored { medium: Medium::Known(Tier::Host), ..stored };
    let mut rig = Rig::new(Limits::default());
    let evict = |rig: &mut Rig| {
        let hashes = stored(BLOCKS).block_hashes;
        let medium = Medium::Known(Tier::Device);
        rig.applier.remove(&BlockRemoved { block_hashes: hashes, medium, group: None });
    };
    rig.apply(stored(BLOCKS));
    rig.apply(on_host(stored(BLOCKS)));
    evict(&mut rig);
    rig.apply(stored(BLOCKS));
    let counts = rig.applier.evictions();
    assert!(counts.watched > 100, "{counts:?}");
    assert_eq!((counts.regretted, counts.regretted_share), (0, Some(0.0)));
    // Gone from there too: computed anew.
    let medium = Medium::Known(Tier::Host);
    let gone = BlockRemoved { block_hashes: stored(BLOCKS).block_hashes, medium, group: None };
    rig.applier.remove(&gone);
    evict(&mut rig);
    rig.apply(stored(BLOCKS));
    assert_eq!(rig.applier.evictions().regretted, counts.watched);
}

#[test]
fn groups_of_hybrid_models_are_followed() {
    let mut rig = Rig::new(Limits::default());
    rig.apply(in_group(0, SpecKind::FullAttention, stored(4)));
    assert_eq!(rig.held(&prompt(4)), 4);
    // The event carries all tokens, but only the blocks that were kept.
    let window = BlockStored {
        block_hashes: stored(4).block_hashes[2..3].to_vec(),
        sliding_window: Some(3),
        ..in_group(1, SpecKind::SlidingWindow, stored(4))
    };
    rig.apply(window.clone());
    assert_eq!((rig.held(&prompt(4)), rig.applier.trust()), (3, Trust::Exact));
    let state = BlockStored {
        block_hashes: stored(4).block_hashes[1..].to_vec(),
        ..in_group(2, SpecKind::Mamba, stored(4))
    };
    rig.apply(state);
    assert_eq!((rig.held(&prompt(4)), rig.held(&prompt(2))), (3, 0));
    // Offload events do not say the kind again.
    let offload = BlockStored {
        group: Some(1),
        token_ids: Vec::new(),
        medium: Medium::Known(Tier::Host),
        block_hashes: stored(4).block_hashes[3..].to_vec(),
        ..stored(4)
    };
    rig.apply(offload);
    assert_eq!((rig.held(&prompt(4)), rig.applier.trust()), (4, Trust::Exact));
    rig.apply(in_group(3, SpecKind::ChunkedLocalAttention, stored(4)));
    let unsupported = Trust::Suspect(SuspectReason::UnsupportedGroup);
    assert_eq!((rig.held(&prompt(4)), rig.applier.trust()), (0, unsupported));
}

/// A state behind every two blocks, as a group of twice the block size tells of it.
fn states(blocks: u32, hashes: &[u64]) -> BlockStored {
    BlockStored {
        block_hashes: hashes.iter().map(|hash| kvasir_inventory::EngineHash(*hash)).collect(),
        block_size: 2 * SIZE,
        ..in_group(1, SpecKind::Mamba, stored(blocks))
    }
}

#[test]
fn states_behind_several_blocks_are_followed() {
    let mut rig = Rig::new(Limits::default());
    rig.apply(in_group(0, SpecKind::FullAttention, stored(5)));
    assert_eq!(rig.held(&prompt(5)), 5);
    // All states, or the last one only: either is known by its last block's hash.
    rig.apply(states(4, &[2, 4]));
    assert_eq!((rig.held(&prompt(5)), rig.held(&prompt(3)), rig.held(&prompt(1))), (4, 2, 0));
    let removed = |group, hash| BlockRemoved {
        block_hashes: vec![kvasir_inventory::EngineHash(hash)],
        medium: Medium::Known(Tier::Device),
        group: Some(group),
    };
    let remove = |rig: &mut Rig, group, hash| {
        let update = test_events::batch(vec![Event::Removed(removed(group, hash))]);
        rig.applier.apply(&update, &EngineCard::default());
    };
    remove(&mut rig, 1, 4);
    assert_eq!(rig.held(&prompt(5)), 2);
    rig.apply(states(4, &[4]));
    assert_eq!(rig.held(&prompt(5)), 4);
    // A hole in the other group ends what is held before the state.
    remove(&mut rig, 0, 3);
    assert_eq!((rig.held(&prompt(5)), rig.applier.trust()), (2, Trust::Exact));
    // One of the size of the other blocks goes by its handle, too.
    rig.apply(in_group(0, SpecKind::FullAttention, stored(5)));
    let parent = Some(kvasir_inventory::EngineHash(2));
    let five = BlockStored { block_size: SIZE, parent, ..states(1, &[5]) };
    rig.apply(five);
    assert_eq!((rig.held(&prompt(5)), rig.applier.trust()), (5, Trust::Exact));
}

#[test]
fn states_that_come_before_their_blocks_wait_for_them() {
    for told in [None, Some(SIZE)] {
        let mut rig = Rig::new(Limits::default());
        let card = EngineCard { block_size: told, ..EngineCard::default() };
        let group = |number, stored| BlockStored { group: Some(number), ..stored };
        for event in [
            group(0, states(4, &[2, 4])),
            group(1, in_group(1, SpecKind::FullAttention, stored(5))),
            group(0, states(4, &[4])),
        ] {
            rig.applier.apply(&update(event), &card);
        }
        assert_eq!(rig.applier.block_size(), Some(SIZE));
        assert_eq!((rig.held(&prompt(5)), rig.applier.trust()), (4, Trust::Exact), "{told:?}");
        // Where the size was not told, the state before its blocks was taken for something else.
        let first = if told.is_some() { 2 } else { 0 };
        assert_eq!(rig.held(&prompt(3)), first);
    }
}

#[test]
fn groups_of_a_size_that_does_not_fit_are_not_followed() {
    let unsupported = Trust::Suspect(SuspectReason::UnsupportedGroup);
    for (kind, size) in [(SpecKind::Mamba, 3), (SpecKind::Mamba, 1), (SpecKind::FullAttention, 4)] {
        let mut rig = Rig::new(Limits::default());
        rig.apply(in_group(0, SpecKind::FullAttention, stored(6)));
        let hashes = stored(12 / size).block_hashes;
        rig.apply(BlockStored {
            block_hashes: hashes,
            block_size: size,
            ..in_group(1, kind, stored(6))
        });
        assert_eq!((rig.held(&prompt(6)), rig.applier.trust()), (0, unsupported), "{size}");
    }
}

#[test]
fn a_window_of_unknown_size_is_not_followed() {
    let mut rig = Rig::new(Limits::default());
    rig.apply(in_group(0, SpecKind::SlidingWindow, stored(4)));
    assert_eq!(rig.applier.trust(), Trust::Suspect(SuspectReason::UnsupportedGroup));
}

#[test]
fn lookahead_is_learned_and_a_change_of_it_is_a_new_life() {
    let mut rig = Rig::new(Limits::default());
    let ahead = |tokens: &[u32]| {
        let lists = tokens.iter().map(|token| vec![*token]).collect();
        BlockStored { lookahead_token_ids: Some(lists), ..stored(tokens.len() as u32) }
    };
    rig.apply(ahead(&[2, 3]));
    assert_eq!((rig.applier.lookahead(), rig.applier.trust()), (1, Trust::Exact));
    // The second block's hash needs the token behind it.
    assert_eq!((rig.held(&prompt(3)), rig.held(&prompt(2))), (2, 1));
    let other = [prompt(2), vec![9]].concat();
    assert_eq!(rig.held(&other), 1);
    rig.apply(stored(1));
    assert_eq!((rig.applier.lookahead(), rig.held(&prompt(3))), (0, 1));
    assert_eq!(rig.applier.trust(), Trust::Partial(PartialReason::BlocksLeftOut));
}

#[test]
fn blocks_that_look_ahead_differently_are_not_understood() {
    let mut rig = Rig::new(Limits::default());
    let lists = Some(vec![vec![2], vec![3, 3]]);
    rig.apply(BlockStored { lookahead_token_ids: lists, ..stored(2) });
    assert_eq!(rig.applier.trust(), Trust::Suspect(SuspectReason::LookaheadHashing));
    assert_eq!(rig.applier.refused_blocks(), 2);
    let forget = Update::Forget { trust: Trust::Exact, why: Why::Restart };
    rig.applier.apply(&forget, &EngineCard::default());
    assert_eq!(rig.applier.trust(), Trust::Exact);
}

#[test]
fn a_clear_empties_every_tier_however_often_it_comes_and_costs_no_trust() {
    let mut rig = Rig::new(Limits::default());
    let clear = |rig: &mut Rig| {
        let update = test_events::batch(vec![Event::Cleared]);
        rig.applier.apply(&update, &EngineCard::default());
    };
    for _ in 0..2 {
        rig.apply(stored(2));
        rig.apply(offload());
        assert_eq!(rig.inventory.stats(rig.slot).blocks, [2, 2, 0, 0]);
        // It names no tier: the copy in host memory may be gone as well.
        clear(&mut rig);
        clear(&mut rig);
        assert_eq!(rig.inventory.stats(rig.slot).blocks, [0; 4]);
        assert_eq!((rig.held(&prompt(2)), rig.applier.trust()), (0, Trust::Exact));
    }
}

#[test]
fn what_does_not_fit_makes_the_picture_partial() {
    let mut rig = Rig::new(Limits { endpoint_bytes: 1_500, ..Limits::default() });
    rig.apply(stored(200));
    assert_eq!(rig.applier.trust(), Trust::Partial(PartialReason::ByteBudget));
    assert!(rig.held(&prompt(200)) < 200);
    rig.applier.forget();
    assert_eq!(rig.applier.trust(), Trust::Exact);
}

/// The same tokens under two handles, both resident.
fn alias(rig: &mut Rig, extra_keys: Option<&[Vec<kvasir_kv_events::ExtraKey>]>) {
    for first in [0, 10] {
        let hashes = (1..=2).map(|n| kvasir_inventory::EngineHash(first + n)).collect();
        let extra_keys = extra_keys.map(<[_]>::to_vec);
        rig.apply(BlockStored { block_hashes: hashes, extra_keys, ..stored(2) });
    }
}

fn update(stored: BlockStored) -> Update {
    test_events::batch(vec![Event::Stored(stored)])
}

fn offload() -> BlockStored {
    let medium = Medium::Known(Tier::Host);
    BlockStored { token_ids: Vec::new(), medium, block_size: 0, extra_keys: None, ..stored(2) }
}

#[test]
fn events_without_tokens_cast_no_doubt_on_an_engine_that_carries_salts() {
    let mut credit = Credit::new();
    credit.trust = Trust::Exact;
    credit.carried_extras = true;
    let published = BlockStored { extra_keys: Some(vec![Vec::new(), Vec::new()]), ..stored(2) };
    for (event, trust) in [
        (published, Trust::Exact),
        (offload(), Trust::Exact),
        (stored(2), Trust::Suspect(SuspectReason::ExtraKeysUnpublished)),
    ] {
        credit.before(&update(event));
        assert_eq!(credit.now().trust, trust);
    }
}

#[test]
fn events_without_tokens_do_not_say_that_extra_keys_are_unpublished() {
    let mut rig = Rig::new(Limits::default());
    alias(&mut rig, Some(&[Vec::new(), Vec::new()]));
    assert_eq!(rig.applier.trust(), Trust::Exact);
    rig.apply(offload());
    assert_eq!((rig.held(&prompt(2)), rig.applier.trust()), (2, Trust::Exact));
    // Nor do they take back what events with tokens showed.
    let mut rig = Rig::new(Limits::default());
    alias(&mut rig, None);
    let unpublished = Trust::Suspect(SuspectReason::ExtraKeysUnpublished);
    assert_eq!(rig.applier.trust(), unpublished);
    rig.apply(BlockStored { extra_keys: Some(vec![Vec::new(), Vec::new()]), ..offload() });
    assert_eq!(rig.applier.trust(), unpublished);
}

#[test]
fn blocks_can_be_known_by_the_engines_hashes() {
    let mut rig = Rig::new(Limits::default());
    rig.applier = rig.applier.known_by(BlockIdentity::Engine(crate::EngineHashing {
        algorithm: crate::HashAlgorithm::Vllm(kvasir_kv_hash::vllm::Algorithm::Sha256),
        seed: Some("0".to_owned()),
        version: None,
    }));
    rig.apply(BlockStored { token_ids: Vec::new(), ..stored(3) });
    let root = rig.inventory.space().root(&Scope::default());
    let keys = rig.inventory.engine_keys(root, &stored(4).block_hashes);
    assert_eq!(rig.inventory.overlap_of(rig.slot, &keys, SIZE).resident(), 3 * SIZE);
    assert_eq!(rig.applier.trust(), Trust::Exact);
}
