//! One endpoint's cache as its events describe it, as plainly as possible: blocks are known by
//! everything that precedes them, written out, and every question is answered by searching.

use std::collections::{BTreeMap, BTreeSet};

use kvasir_inventory::Tier;

/// What one block is made of: tokens, and other inputs with their offsets.
pub(crate) type Content = (Vec<u32>, Vec<(Vec<u8>, i64)>);

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
    pub(crate) group: u8,
    pub(crate) supported: bool,
}

/// A block kept aside until the handle of its parent stands for something.
#[derive(Clone, Debug)]
struct Waiting {
    handle: u64,
    parent: u64,
    content: Content,
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
    groups: BTreeSet<u8>,
    pub(crate) unsupported: bool,
    /// Whether one block was resident under two live handles.
    pub(crate) aliased: bool,
    /// Blocks that waited and joined: to see that a test made some.
    pub(crate) joined: usize,
}

impl Model {
    pub(crate) fn store(&mut self, event: &Store) {
        if !event.supported {
            self.unsupported = true;
            return;
        }
        self.groups.insert(event.group);
        let copies = BTreeSet::from([(event.group, event.tier)]);
        if event.tokens.is_empty() {
            for handle in &event.hashes {
                if let Some(prefix) = self.known.get(handle).cloned() {
                    self.learn(*handle, &prefix, &copies);
                }
            }
            return;
        }
        let Some(contents) = contents(event) else { return };
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

    /// The handle stands for the prefix, which has these copies (none: it is only known), and all
    /// that waited for the handle can be told now.
    fn learn(&mut self, handle: u64, prefix: &Prefix, copies: &BTreeSet<(u8, Tier)>) {
        self.waiting.retain(|waiting| waiting.handle != handle);
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
            self.copies.insert((prefix.clone(), *group, *tier));
        }
        while let Some(at) = self.waiting.iter().position(|waiting| waiting.parent == handle) {
            let child = self.waiting.remove(at);
            self.joined += 1;
            self.learn(child.handle, &prefix.then(&child.content), &child.copies);
        }
    }

    /// Keeps the blocks of an event aside. What their handles stood for is in doubt.
    fn wait(&mut self, mut parent: u64, event: &Store, contents: Vec<Content>) {
        let copy = (event.group, event.tier);
        for (handle, content) in event.hashes.iter().copied().zip(contents) {
            if let Some(old) = self.known.remove(&handle) {
                self.copies.retain(|(of, _, _)| *of != old);
                self.live.remove(&handle);
            }
            let same =
                |w: &&mut Waiting| w.handle == handle && w.parent == parent && w.content == content;
            if let Some(waiting) = self.waiting.iter_mut().find(same) {
                waiting.copies.insert(copy);
            } else {
                self.waiting.retain(|waiting| waiting.handle != handle);
                let copies = BTreeSet::from([copy]);
                self.waiting.push(Waiting { handle, parent, content, copies });
            }
            parent = handle;
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
        }
        removed
    }

    /// Tokens per tier of the longest prefix of `blocks` that is held.
    pub(crate) fn overlap(&self, root: u8, blocks: &[Content], block_size: u32) -> [u32; 4] {
        let mut tokens = [0; 4];
        for end in 1..=blocks.len() {
            let prefix = Prefix { root, blocks: blocks[..end].to_vec() };
            let Some(tier) = self.tier(&prefix) else { break };
            tokens[tier as usize] += block_size;
        }
        tokens
    }

    /// In every group the fastest tier, of these the slowest.
    fn tier(&self, prefix: &Prefix) -> Option<Tier> {
        if self.unsupported {
            return None;
        }
        let mut slowest = None;
        for group in &self.groups {
            let copies = self.copies.iter().filter(|(of, g, _)| of == prefix && g == group);
            let fastest = copies.map(|(_, _, tier)| *tier).min()?;
            slowest = slowest.max(Some(fastest));
        }
        slowest
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

/// The event's blocks, if its parts line up.
fn contents(event: &Store) -> Option<Vec<Content>> {
    let size = event.block_size as usize;
    let blocks = event.hashes.len();
    let lists = event.extras.len();
    if size == 0 || blocks * size != event.tokens.len() || (lists != 0 && lists != blocks) {
        return None;
    }
    let extras = |at: usize| event.extras.get(at).cloned().unwrap_or_default();
    let cut = |at: usize| event.tokens[at * size..][..size].to_vec();
    Some((0..blocks).map(|at| (cut(at), extras(at))).collect())
}
