//! The inventory against a naive model of each endpoint, under random interleavings of events.
//!
//! `KVASIR_PROPTEST_CASES` multiplies the number of cases, for a long run.

mod model;
mod script;

use std::cell::RefCell;

use kvasir_inventory::{
    Applied, EngineHash, Group, GroupKind, Identity, Inventory, Limits, Overlap, Slot,
    StoredBlocks, Tier,
};
use kvasir_kv_hash::{BlockExtra, BlockKey, KeySpace, Scope};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

use self::model::{Content, Model, Store};
use self::script::{Doc, ENDPOINTS, Engine, Names, Script, Step};

/// What the cases of a run have exercised, so that a run that tests nothing fails.
#[derive(Debug, Default)]
struct Seen {
    queries: usize,
    nonzero: usize,
    mixed_tiers: usize,
    joined: usize,
    aliased: usize,
    less_than_model: usize,
    /// Prefixes of endpoints with several groups, or with one that needs not every block.
    by_groups: usize,
    by_engine: usize,
    given_up: usize,
}

/// The inventory and its models, side by side.
struct Pair {
    inventory: Inventory,
    endpoints: Vec<(Slot, Model)>,
    engines: Vec<Engine>,
    names: Names,
}

impl Pair {
    fn new(limits: Limits, engines: &[Engine]) -> Self {
        let inventory = Inventory::new(KeySpace::fixed(), limits);
        let endpoint = |_| (register(&inventory), Model::default());
        let endpoints = (0..ENDPOINTS).map(endpoint).collect();
        Self { inventory, endpoints, engines: engines.to_vec(), names: Names::default() }
    }

    fn root(&self, root: u8) -> BlockKey {
        let salt = ["", "salt"][usize::from(root)];
        self.inventory.space().root(&Scope { model: "m", lora: None, salt: Some(salt) })
    }

    /// Applies one step to both; whether what both returned has to be the same is the caller's.
    fn apply(&mut self, endpoint: usize, step: &Step) -> (usize, usize) {
        let slot = self.endpoints[endpoint].0;
        match step {
            Step::Store { doc, from, tier, group, twist } => {
                let engine = &self.engines[endpoint];
                let group = group % engine.groups;
                let event = self.names.store(doc, *from, *tier, group, engine, twist);
                self.endpoints[endpoint].1.store(&event);
                self.store(slot, &event);
                (0, 0)
            }
            Step::Remove { doc, from, tier, group } => {
                let (_, handles) = self.names.run(doc, *from);
                self.remove(endpoint, &handles, *tier, group % self.engines[endpoint].groups)
            }
            Step::RemoveAny { handle, tier, group } => {
                let handle = self.names.any(*handle);
                self.remove(endpoint, &[handle], *tier, *group)
            }
            Step::Clear => {
                self.inventory.clear(slot);
                self.endpoints[endpoint].1 = Model::default();
                (0, 0)
            }
            Step::Renew => {
                self.inventory.unregister(slot);
                let slot = register(&self.inventory);
                self.endpoints[endpoint] = (slot, Model::default());
                (0, 0)
            }
        }
    }

    fn store(&self, slot: Slot, event: &Store) {
        let hashes: Vec<EngineHash> = event.hashes.iter().copied().map(EngineHash).collect();
        let extra = |(identity, offset): &(Vec<u8>, i64)| (identity.clone(), *offset);
        let owned: Vec<Vec<(Vec<u8>, i64)>> =
            event.extras.iter().map(|list| list.iter().map(extra).collect()).collect();
        let extras: Vec<Vec<BlockExtra<'_>>> = owned.iter().map(|list| borrow(list)).collect();
        let applied = self.inventory.store(
            slot,
            &StoredBlocks {
                parent: event.parent.map(EngineHash),
                root: self.root(event.root),
                hashes: &hashes,
                tokens: &event.tokens,
                block_size: event.block_size,
                extras: &extras,
                lookahead: &event.lookahead,
                identity: if event.by_engine { Identity::Engine } else { Identity::Tokens },
                tier: event.tier,
                group: Group { index: event.group, kind: event.kind },
            },
        );
        // Every block became something; joined orphans come on top.
        let Applied { stored, orphaned, refused, given_up } = applied;
        assert!(stored + orphaned + refused + given_up >= hashes.len());
    }

    fn remove(
        &mut self,
        endpoint: usize,
        handles: &[u64],
        tier: Tier,
        group: u8,
    ) -> (usize, usize) {
        let (slot, model) = &mut self.endpoints[endpoint];
        let hashes: Vec<EngineHash> = handles.iter().copied().map(EngineHash).collect();
        let removed = self.inventory.remove(*slot, &hashes, tier, group);
        (removed, model.remove(handles, tier, group))
    }

    /// The overlap of every endpoint with a prompt, from the inventory and from the model.
    fn overlaps(&mut self, doc: &Doc) -> Vec<([u32; 4], [u32; 4])> {
        let hashes = self.names.all(doc);
        let by_engine = |hash: &u64| Content { engine: Some(*hash), ..Content::default() };
        let engine_contents: Vec<Content> = hashes.iter().map(by_engine).collect();
        let hashes: Vec<EngineHash> = hashes.into_iter().map(EngineHash).collect();
        let contents = doc.contents();
        let keys = self.keys(doc, &contents);
        let engine_keys = self.inventory.engine_keys(self.root(doc.root), &hashes);
        let size = doc.block_size;
        let all = self.inventory.overlaps(&keys, size);
        let all_by_engine = self.inventory.overlaps(&engine_keys, size);
        let compare = |((slot, model), engine): (&(Slot, Model), &Engine)| {
            let (keys, contents, all) = if engine.by_engine {
                (&engine_keys, &engine_contents, &all_by_engine)
            } else {
                (&keys, &contents, &all)
            };
            let one = self.inventory.overlap_of(*slot, keys, size);
            assert_eq!(all.get(*slot), one, "both queries say the same");
            (by_tier(one), model.overlap(doc.root, contents, size))
        };
        self.endpoints.iter().zip(&self.engines).map(compare).collect()
    }

    fn keys(&self, doc: &Doc, contents: &[Content]) -> Vec<BlockKey> {
        let mut parent = self.root(doc.root);
        let mut keys = Vec::new();
        for Content { tokens, extras, lookahead, .. } in contents {
            // The public way to a block with lookahead: a prompt that ends with it.
            parent = if lookahead.is_empty() {
                self.inventory.space().next(parent, tokens, &borrow(extras))
            } else {
                let all = [&tokens[..], lookahead].concat();
                self.inventory.keys(parent, &all, tokens.len(), lookahead.len())[0]
            };
            keys.push(parent);
        }
        keys
    }
}

fn register(inventory: &Inventory) -> Slot {
    inventory.register().unwrap_or_else(|| panic!("a slot is free"))
}

fn borrow(extras: &[(Vec<u8>, i64)]) -> Vec<BlockExtra<'_>> {
    extras.iter().map(|(identity, offset)| BlockExtra { identity, offset: *offset }).collect()
}

fn by_tier(overlap: Overlap) -> [u32; 4] {
    Tier::ALL.map(|tier| overlap.in_tier(tier))
}

/// Prompts to ask about after a step: the step's own, one that goes on, one that branches off.
fn questions(doc: &Doc) -> [Doc; 3] {
    let (mut longer, mut other) = (doc.clone(), doc.clone());
    longer.letters.extend([0, 0]);
    other.letters.fill(0);
    other.letters.push(1);
    [doc.clone(), longer, other]
}

fn check_equal(script: &Script, seen: &RefCell<Seen>) -> TestCaseResult {
    let mut pair = Pair::new(Limits::default(), &script.engines);
    let mut seen = seen.borrow_mut();
    for (at, (endpoint, step)) in script.steps.iter().enumerate() {
        let (removed, expected) = pair.apply(*endpoint, step);
        prop_assert_eq!(removed, expected, "copies removed by step {}", at);
        let (slot, model) = &pair.endpoints[*endpoint];
        let stats = pair.inventory.stats(*slot);
        prop_assert_eq!(stats.blocks, model.blocks(), "blocks after step {}", at);
        prop_assert_eq!(stats.orphans, model.waiting(), "orphans after step {}", at);
        prop_assert_eq!(stats.unsupported_group, model.unsupported);
        prop_assert_eq!(stats.aliased_keys > 0, model.aliased, "alias after step {}", at);
        let Some(doc) = step.doc().filter(|_| at % 2 == 0) else { continue };
        for doc in questions(doc) {
            for ((found, expected), engine) in pair.overlaps(&doc).iter().zip(&script.engines) {
                prop_assert_eq!(found, expected, "after step {}, {:?}", at, doc);
                seen.queries += 1;
                let nonzero = usize::from(*found != [0; 4]);
                seen.nonzero += nonzero;
                let simple = engine.groups == 1 && engine.kinds[0] == GroupKind::FullAttention;
                seen.by_groups += if simple { 0 } else { nonzero };
                seen.by_engine += if engine.by_engine { nonzero } else { 0 };
                let tiers = found.iter().filter(|tokens| **tokens > 0).count();
                seen.mixed_tiers += usize::from(tiers > 1);
            }
        }
    }
    seen.joined += pair.endpoints.iter().map(|(_, model)| model.joined).sum::<usize>();
    seen.aliased += pair.endpoints.iter().filter(|(_, model)| model.aliased).count();
    Ok(())
}

/// So little that engines are cut short all the time: bytes for a few dozen blocks.
fn limits() -> Limits {
    let empty = Inventory::new(KeySpace::fixed(), Limits::default()).bytes();
    Limits {
        bytes: empty + empty / 60 + 14_000,
        endpoint_bytes: 6_500,
        retired_handles: 1,
        orphans: 1,
    }
}

fn check_never_more(script: &Script, seen: &RefCell<Seen>) -> TestCaseResult {
    let limits = limits();
    let mut pair = Pair::new(limits, &script.engines);
    let mut seen = seen.borrow_mut();
    for (at, (endpoint, step)) in script.steps.iter().enumerate() {
        pair.apply(*endpoint, step);
        prop_assert!(pair.inventory.bytes() <= limits.bytes, "bytes after step {}", at);
        let stats = pair.inventory.stats(pair.endpoints[*endpoint].0);
        prop_assert!(stats.bytes <= limits.endpoint_bytes, "its bytes after step {}", at);
        seen.given_up += usize::from(stats.given_up > 0);
        let Some(doc) = step.doc().filter(|_| at % 2 == 0) else { continue };
        for doc in questions(doc) {
            for (found, model) in pair.overlaps(&doc) {
                let (found, model) = (found.iter().sum::<u32>(), model.iter().sum());
                prop_assert!(found <= model, "{} > {} after step {}, {:?}", found, model, at, doc);
                seen.queries += 1;
                seen.nonzero += usize::from(found > 0);
                seen.less_than_model += usize::from(found < model);
            }
        }
    }
    Ok(())
}

/// 64 scripts of 160 steps, times `KVASIR_PROPTEST_CASES`.
fn run(honest: bool, check: fn(&Script, &RefCell<Seen>) -> TestCaseResult) -> Seen {
    let times = std::env::var("KVASIR_PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let config = Config {
        cases: 64_u32.saturating_mul(times.unwrap_or(1)),
        failure_persistence: None,
        ..Config::default()
    };
    let seen = RefCell::default();
    let done = TestRunner::new(config).run(&script::scripts(honest), |s| check(&s, &seen));
    if let Err(failure) = done {
        panic!("{failure}");
    }
    seen.into_inner()
}

#[test]
fn overlaps_equal_the_naive_model() {
    let seen = run(false, check_equal);
    println!("{seen:?}");
    assert!(seen.nonzero * 10 > seen.queries, "{seen:?}");
    assert!(seen.mixed_tiers > 100 && seen.joined > 100 && seen.aliased > 10, "{seen:?}");
    assert!(seen.by_groups > 100 && seen.by_engine > 100, "{seen:?}");
}

#[test]
fn under_pressure_overlaps_never_exceed_the_naive_model() {
    let seen = run(true, check_never_more);
    println!("{seen:?}");
    assert!(seen.nonzero * 20 > seen.queries && seen.less_than_model > 0, "{seen:?}");
    assert!(seen.given_up > 100, "{seen:?}");
}
