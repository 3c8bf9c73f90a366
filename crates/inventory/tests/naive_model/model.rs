//! One endpoint's cache as its events describe it, as plainly as possible: blocks are known by
//! everything that precedes them, written out, and every question is answered by searching.

use std::collections::{BTreeMap, BTreeSet};

use kvasir_inventory::{GroupKind, Tier};

/// What one block is made of. Where blocks are known by the engine's hash, that is all there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Content {
    pub(crate) tokens: Vec<u32>,
    /// Other inputs with their offsets.
    pub(crate) extras: Vec<(Vec<u8>, i64)>,
    /// The tokens behind it that are part of its identity.
    pub(crate) lookahead: Vec<u32>,
    pub(crate) engine: Option<u64>,
}

/// A block: its chain's root and the content of all blocks up to and including it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix {
    pub(crate) root: u8,
    pub(crate) blocks: Vec<Content>,
}

impl Prefix {
    fn then(&self, content: &Content) -> Self {
        let mut longer = self.clone();
        longer.blocks.push(content.clone());
        longer
    }
}

/// One store event.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) parent: Option<u64>,
    pub(crate) root: u8,
    pub(crate) hashes: Vec<u64>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) block_size: u32,
    pub(crate) extras: Vec<Vec<(Vec<u8>, i64)>>,
    pub(crate) tier: Tier,
    pub(crate) lookahead: Vec<Vec<u32>>,
    pub(crate) group: u8,
    pub(crate) kind: GroupKind,
    pub(crate) by_engine: bool,
}

/// A block kept aside until the handle of its parent stands for something, or, where its content
/// is not known, its own handle does.
#[derive(Clone, Debug)]
struct Waiting {
    handle: u64,
    place: Option<(u64, Content)>,
    copies: BTreeSet<(u8, Tier)>,
}

/// One endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// What each handle was last said to stand for; removals do not change that.
    known: BTreeMap<u64, Prefix>,
    /// Handles under which a block was stored, until they are removed from the last tier.
    live: BTreeSet<u64>,
    copies: BTreeSet<(Prefix, u8, Tier)>,
    waiting: Vec<Waiting>,
    groups: BTreeMap<u8, GroupKind>,
    pub(crate) unsupported: bool,
    /// Whether one block was resident under two live handles.
    pub(crate) aliased: bool,
    /// Blocks that waited and joined: to see that a test made some.
    pub(crate) joined: usize,
}

impl Model {
    pub(crate) fn store(&mut self, event: &Store) {
        let known = *self.groups.entry(event.group).or_insert(event.kind);
        self.unsupported |= event.kind == GroupKind::Unsupported || known != event.kind;
        let copies = BTreeSet::from([(event.group, event.tier)]);
        match read(event) {
            Reading::Nothing => {}
            Reading::Handles => {
                for handle in &event.hashes {
                    match self.known.get(handle).cloned() {
                        Some(prefix) => self.learn(*handle, &prefix, &copies),
                        None => self.wait_bare(*handle, &copies),
                    }
                }
            }
            Reading::Chain(contents) => {
                let mut before = match event.parent {
                    None => Prefix { root: event.root, blocks: Vec::new() },
                    Some(parent) => match self.known.get(&parent) {
                        Some(prefix) => prefix.clone(),
                        None => return self.wait(parent, event, contents),
                    },
                };
                for (handle, content) in event.hashes.iter().zip(&contents) {
                    before = before.then(content);
                    self.learn(*handle, &before, &copies);
                }
            }
        }
    }

    /// The handle stands for the prefix, which has these copies (none: it is only known), and all
    /// that waited for the handle can be told now.
    fn learn(&mut self, handle: u64, prefix: &Prefix, copies: &BTreeSet<(u8, Tier)>) {
        let mut copies = copies.clone();
        self.waiting.retain(|waiting| {
            if waiting.handle == handle && waiting.place.is_none() {
                copies.extend(&waiting.copies);
            }
            waiting.handle != handle
        });
        let old = self.known.insert(handle, prefix.clone());
        let is_new = old.as_ref() != Some(prefix);
        if let Some(old) = old.filter(|_| is_new) {
            self.copies.retain(|(of, _, _)| *of != old);
        }
        if !copies.is_empty() {
            let resident = self.copies.iter().any(|(of, _, _)| of == prefix);
            let second = is_new || !self.live.contains(&handle);
            self.aliased |= resident && second;
            self.live.insert(handle);
        }
        for (group, tier) in copies {
            self.copies.insert((prefix.clone(), group, tier));
        }
        let waits = |w: &Waiting| w.place.as_ref().is_some_and(|(parent, _)| *parent == handle);
        while let Some(at) = self.waiting.iter().position(waits) {
            let child = self.waiting.remove(at);
            self.joined += 1;
            let Some((_, content)) = child.place else { continue };
            self.learn(child.handle, &prefix.then(&content), &child.copies);
        }
    }

    /// Keeps the blocks of an event aside. What their handles stood for is in doubt.
    fn wait(&mut self, mut parent: u64, event: &Store, contents: Vec<Content>) {
        for (handle, content) in event.hashes.iter().copied().zip(contents) {
            if let Some(old) = self.known.remove(&handle) {
                self.copies.retain(|(of, _, _)| *of != old);
                self.live.remove(&handle);
            }
            let place = Some((parent, content));
            let mut copies = BTreeSet::from([(event.group, event.tier)]);
            self.waiting.retain(|waiting| {
                if waiting.handle == handle && (waiting.place.is_none() || waiting.place == place) {
                    copies.extend(&waiting.copies);
                }
                waiting.handle != handle
            });
            self.waiting.push(Waiting { handle, place, copies });
            parent = handle;
        }
    }

    fn wait_bare(&mut self, handle: u64, copies: &BTreeSet<(u8, Tier)>) {
        match self.waiting.iter_mut().find(|waiting| waiting.handle == handle) {
            Some(waiting) => waiting.copies.extend(copies),
            None => self.waiting.push(Waiting { handle, place: None, copies: copies.clone() }),
        }
    }

    /// Returns how many copies were there.
    pub(crate) fn remove(&mut self, handles: &[u64], tier: Tier, group: u8) -> usize {
        let mut removed = 0;
        for handle in handles {
            if let Some(prefix) = self.known.get(handle) {
                removed += usize::from(self.copies.remove(&(prefix.clone(), group, tier)));
                if !self.copies.iter().any(|(of, _, _)| of == prefix) {
                    self.live.remove(handle);
                }
            }
            for waiting in &mut self.waiting {
                if waiting.handle == *handle {
                    removed += usize::from(waiting.copies.remove(&(group, tier)));
                }
            }
            self.waiting.retain(|waiting| waiting.place.is_some() || !waiting.copies.is_empty());
        }
        removed
    }

    /// Tokens per tier of the longest prefix of `blocks` that every group holds.
    pub(crate) fn overlap(&self, root: u8, blocks: &[Content], block_size: u32) -> [u32; 4] {
        let mut tokens = [0; 4];
        if self.unsupported || self.groups.is_empty() {
            return tokens;
        }
        let prefix = |blocks: &[Content]| Prefix { root, blocks: blocks.to_vec() };
        let fastest = |group: u8, at: usize| {
            let of = prefix(&blocks[..=at]);
            let copies = self.copies.iter().filter(|(p, g, _)| *p == of && *g == group);
            copies.map(|(_, _, tier)| *tier).min()
        };
        // Which blocks a group needs before a prefix of `end` blocks counts.
        let needs = |kind: GroupKind, end: usize| match kind {
            GroupKind::FullAttention => 0,
            GroupKind::SlidingWindow { tokens } => {
                // From the block of the first token that the next one looks back to.
                let first = (end * block_size as usize).saturating_sub(tokens as usize - 1);
                first / block_size as usize
            }
            GroupKind::State => end.saturating_sub(1),
            GroupKind::Unsupported => unreachable!("no credit at all"),
        };
        let held = |end: usize| {
            let holds = |(group, kind): (&u8, &GroupKind)| {
                (needs(*kind, end)..end).all(|at| fastest(*group, at).is_some())
            };
            self.groups.iter().all(holds)
        };
        let end = (0..=blocks.len()).rev().find(|end| held(*end)).unwrap_or(0);
        for at in 0..end {
            let needing = self.groups.iter().filter(|(_, kind)| needs(**kind, end) <= at);
            let slowest = needing.filter_map(|(group, _)| fastest(*group, at)).max();
            tokens[slowest.unwrap_or(Tier::Device) as usize] += block_size;
        }
        tokens
    }

    /// Blocks per tier, in any group.
    pub(crate) fn blocks(&self) -> [usize; 4] {
        Tier::ALL.map(|tier| {
            let held = self.copies.iter().filter(|(_, _, of)| *of == tier);
            held.map(|(prefix, _, _)| prefix).collect::<BTreeSet<_>>().len()
        })
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// How an event is to be read.
enum Reading {
    /// Not at all.
    Nothing,
    /// Its handles alone.
    Handles,
    /// As blocks that follow each other.
    Chain(Vec<Content>),
}

fn read(event: &Store) -> Reading {
    let size = event.block_size as usize;
    let blocks = event.hashes.len();
    let skips = matches!(event.kind, GroupKind::SlidingWindow { .. } | GroupKind::State);
    let lines_up = size > 0 && blocks * size == event.tokens.len();
    if event.kind == GroupKind::Unsupported {
        return Reading::Nothing;
    }
    if event.by_engine {
        let content = |hash: &u64| Content { engine: Some(*hash), ..Content::default() };
        return if (event.parent.is_some() || event.tier == Tier::Device) && (lines_up || !skips) {
            Reading::Chain(event.hashes.iter().map(content).collect())
        } else {
            Reading::Handles
        };
    }
    if event.tokens.is_empty() || (skips && size > 0 && event.tokens.len() > blocks * size) {
        return Reading::Handles;
    }
    let lists = [event.extras.len(), event.lookahead.len()];
    if !lines_up || lists.iter().any(|n| *n != 0 && *n != blocks) {
        return Reading::Nothing;
    }
    let content = |at: usize| Content {
        tokens: event.tokens[at * size..][..size].to_vec(),
        extras: event.extras.get(at).cloned().unwrap_or_default(),
        lookahead: event.lookahead.get(at).cloned().unwrap_or_default(),
        engine: None,
    };
    Reading::Chain((0..blocks).map(content).collect())
}
