//! The block hashes of one request, grown as tokens arrive.

use std::fmt;
use std::mem;

use super::contract::{Algorithm, Contract, Manager};
use super::request::{MmItem, Request};
use super::v1::{MmKey, V1Block, v1_block_key};
use super::v2::{self, KeyToken};
use crate::buffer::Buffer;
use crate::digest::first_eight;
use crate::hex;
use crate::windows::Windows;

/// The hash of one block. Prints as events carry it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHash {
    value: u64,
    digest: Option<[u8; 32]>,
}

impl BlockHash {
    fn of_digest(digest: [u8; 32]) -> Self {
        Self { value: first_eight(&digest), digest: Some(digest) }
    }

    /// The hash as events carry it as a number; of `v2_sha256`, its first 8 bytes.
    #[must_use]
    pub fn to_u64(&self) -> u64 {
        self.value
    }

    /// The full digest, which only `v2_sha256` publishes.
    #[must_use]
    pub fn digest(&self) -> Option<&[u8; 32]> {
        self.digest.as_ref()
    }
}

impl fmt::Display for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.digest {
            Some(digest) => hex::write(f, digest),
            None => write!(f, "{}", self.value),
        }
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockHash({self})")
    }
}

/// What of a request the first block hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeds {
    pub(super) salt_id: Option<u64>,
    /// The root of the second manager's tree.
    pub(super) root: [u8; 32],
}

/// The block hashes of one request under one [`Contract`].
///
/// [`append`](Self::append) takes tokens in pieces of any size; each block is hashed once, and
/// buffers are reused. The engine hashes the last, partial block too: see
/// [`partial`](Self::partial).
#[derive(Clone, Debug)]
pub struct Chain {
    contract: Contract,
    block_size: usize,
    request: Request,
    /// The first item that may reach into the next block.
    next_item: usize,
    seeds: Seeds,
    state: State,
    blocks: Vec<BlockHash>,
    windows: Windows<u32>,
    scratch: Scratch,
}

/// Where the chain stands.
#[derive(Clone, Copy, Debug)]
struct State {
    parent: u64,
    /// The second manager's tree key, kept only where it is hashed.
    key: [u8; 32],
    /// A content hash has come: from there on `v1_block_key` of the second manager publishes tree
    /// keys.
    fell_back: bool,
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    buffer: Buffer,
    keys: Vec<KeyToken>,
    mm_keys: Vec<MmKey>,
}

impl Chain {
    pub(super) fn new(
        contract: Contract,
        block_size: usize,
        request: Request,
        seeds: Seeds,
    ) -> Self {
        Self {
            contract,
            block_size,
            request,
            next_item: 0,
            state: State { parent: 0, key: seeds.root, fell_back: false },
            seeds,
            blocks: Vec::new(),
            windows: Windows::new(block_size, 0),
            scratch: Scratch::default(),
        }
    }

    /// Adds tokens and returns the hashes of the blocks they complete.
    pub fn append(&mut self, tokens: &[u32]) -> &[BlockHash] {
        let first_new = self.blocks.len();
        let mut windows = mem::take(&mut self.windows);
        let mut rest = windows.fill(tokens, |window| self.push_block(window));
        while let Some(window) = windows.first_of(rest) {
            self.push_block(window);
            rest = &rest[self.block_size..];
        }
        windows.keep(rest);
        self.windows = windows;
        &self.blocks[first_new..]
    }

    /// The hashes of all full blocks so far.
    #[must_use]
    pub fn blocks(&self) -> &[BlockHash] {
        &self.blocks
    }

    /// The hash of the block that is not yet full, if it holds anything: it too is in events.
    #[must_use]
    pub fn partial(&self) -> Option<BlockHash> {
        let tail = self.windows.tail();
        (!tail.is_empty()).then(|| self.block_hash(&mut Scratch::default(), tail).0)
    }

    /// How many tokens have been appended, hashed or not.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.blocks.len() * self.block_size + self.windows.tail().len()
    }

    /// The exact bytes that were hashed for the newest block: the parent's tree key, and the
    /// tokens. None before the first block, and none where the hash is `v1_block_key`, which mixes
    /// integers.
    #[must_use]
    pub fn preimage(&self) -> Option<&[u8]> {
        let of_tree_key = !self.contract.algorithm().is_v1() || self.state.fell_back;
        (of_tree_key && !self.blocks.is_empty()).then(|| self.scratch.buffer.as_slice())
    }

    /// Tokens per block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    fn push_block(&mut self, window: &[u32]) {
        let mut scratch = mem::take(&mut self.scratch);
        let (block, state) = self.block_hash(&mut scratch, window);
        self.scratch = scratch;
        self.state = state;
        self.blocks.push(block);
        let end = self.blocks.len() * self.block_size;
        let items = &self.request.items;
        while items.get(self.next_item).is_some_and(|item| item.end() <= end) {
            self.next_item += 1;
        }
    }

    /// The hash of the next block, and the state after it.
    #[inline]
    fn block_hash(&self, scratch: &mut Scratch, window: &[u32]) -> (BlockHash, State) {
        let state = self.state;
        match (self.contract.manager(), self.contract.algorithm()) {
            (Manager::V1, _) => {
                let value = self.v1(scratch, window);
                (BlockHash { value, digest: None }, State { parent: value, ..state })
            }
            (Manager::V2, Algorithm::V2Sha256 | Algorithm::V2Sha256First64) => {
                let (key, _) = self.tree_key(scratch, window);
                let whole = BlockHash::of_digest(key);
                let digest =
                    whole.digest.filter(|_| self.contract.algorithm() == Algorithm::V2Sha256);
                (BlockHash { digest, ..whole }, State { key, ..state })
            }
            (Manager::V2, Algorithm::Auto | Algorithm::V1BlockKey) => {
                // Tree keys are needed only where a content hash can come.
                let has_items = !self.request.items.is_empty();
                let (key, holds_digest) =
                    if has_items { self.tree_key(scratch, window) } else { (state.key, false) };
                let fell_back = state.fell_back || holds_digest;
                let value = if fell_back {
                    first_eight(&key)
                } else if has_items {
                    // Without content hashes these are all ids.
                    let ids = scratch.keys.iter().filter_map(|token| match token {
                        KeyToken::Id(id) => Some(*id),
                        KeyToken::Digest(_) => None,
                    });
                    self.v1_text(&ids.collect::<Vec<_>>())
                } else {
                    self.v1_text(window)
                };
                (BlockHash { value, digest: None }, State { parent: value, key, fell_back })
            }
        }
    }

    fn v1_text(&self, tokens: &[u32]) -> u64 {
        let block = V1Block {
            tokens,
            lora_task_id: self.request.lora_task_id,
            salt_id: self.seeds.salt_id,
            ..V1Block::default()
        };
        v1_block_key(self.state.parent, &block)
    }

    /// The first manager's hash: items enter as keys, and tokens stay as they are.
    fn v1(&self, scratch: &mut Scratch, window: &[u32]) -> u64 {
        let start = self.blocks.len() * self.block_size;
        scratch.mm_keys.clear();
        scratch.mm_keys.extend(self.overlapping(start, window.len()).map(|item| MmKey {
            hash: item.hash,
            start_offset: (item.skipped + start.saturating_sub(item.start)) as u64,
        }));
        let block = V1Block {
            tokens: window,
            extra_ids: None,
            lora_task_id: self.request.lora_task_id,
            salt_id: self.seeds.salt_id,
            mm_keys: &scratch.mm_keys,
        };
        v1_block_key(self.state.parent, &block)
    }

    /// The tree key of the block, and whether it holds a content hash. Leaves the block's key
    /// tokens in `scratch` if the request has items.
    fn tree_key(&self, scratch: &mut Scratch, window: &[u32]) -> ([u8; 32], bool) {
        let parent = &self.state.key;
        if self.request.items.is_empty() {
            return (v2::block(&mut scratch.buffer, parent, window), false);
        }
        let start = self.blocks.len() * self.block_size;
        let keys = &mut scratch.keys;
        keys.clear();
        keys.extend(window.iter().map(|&token| KeyToken::Id(token)));
        let vocab_size = self.request.vocab_size.unwrap_or_default();
        let mut holds_digest = false;
        for item in self.overlapping(start, window.len()) {
            let from = item.start.max(start);
            let to = item.end().min(start + window.len());
            for position in from..to {
                let within = item.skipped.saturating_add(position - item.start);
                let Some(key) = keys.get_mut(position - start) else { continue };
                *key = if within == 0 {
                    holds_digest = true;
                    KeyToken::Digest(item.hash)
                } else {
                    KeyToken::Id(vocab_size.wrapping_add(within as u32))
                };
            }
        }
        (v2::block_of_keys(&mut scratch.buffer, parent, keys), holds_digest)
    }

    /// The items that overlap the block.
    fn overlapping(&self, start: usize, len: usize) -> impl Iterator<Item = &MmItem> {
        let items = self.request.items.get(self.next_item..).unwrap_or_default();
        items.iter().take_while(move |item| item.start < start + len)
    }
}
