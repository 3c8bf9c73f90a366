//! From a block's content to its key.

use kvasir_kv_hash::{BlockExtra, BlockKey, KeySpace};

use crate::stored::{Content, Tokens};
use crate::terms::EngineHash;

/// Marks an extra as lookahead tokens: items of a prompt begin at offsets that fit into a prompt.
const LOOKAHEAD: i64 = i64::MIN;

/// Keys blocks one after another.
#[derive(Debug)]
pub(crate) struct Keyer<'a> {
    space: &'a KeySpace,
    scratch: Vec<u8>,
}

impl<'a> Keyer<'a> {
    pub(crate) fn new(space: &'a KeySpace) -> Self {
        Self::with(space, Vec::new())
    }

    /// With a buffer, whose content is overwritten.
    pub(crate) fn with(space: &'a KeySpace, scratch: Vec<u8>) -> Self {
        Self { space, scratch }
    }

    pub(crate) fn into_scratch(self) -> Vec<u8> {
        self.scratch
    }

    /// The key of a block with this content behind `parent`.
    pub(crate) fn next(&mut self, parent: BlockKey, block: &Content<'_>) -> BlockKey {
        match block.tokens {
            Tokens::Read(tokens) => self.key(parent, tokens, block.extras, block.lookahead),
            Tokens::Engine => self.space.next_by_hash(parent, block.hash.0),
        }
    }

    /// The key of a block that is known by the engine's own hash.
    pub(crate) fn by_hash(&self, parent: BlockKey, hash: EngineHash) -> BlockKey {
        self.space.next_by_hash(parent, hash.0)
    }

    pub(crate) fn key(
        &mut self,
        parent: BlockKey,
        tokens: &[u32],
        extras: &[BlockExtra<'_>],
        lookahead: &[u32],
    ) -> BlockKey {
        if lookahead.is_empty() {
            return self.space.next_with(&mut self.scratch, parent, tokens, extras);
        }
        let ahead: Vec<u8> = lookahead.iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut extras = extras.to_vec();
        extras.push(BlockExtra { identity: &ahead, offset: LOOKAHEAD });
        self.space.next_with(&mut self.scratch, parent, tokens, &extras)
    }
}

/// The keys of a prompt's blocks where the `lookahead` tokens after a block enter its identity:
/// a block that has fewer tokens behind it has no key yet.
pub(crate) fn chain_ahead(
    space: &KeySpace,
    root: BlockKey,
    tokens: &[u32],
    block_size: usize,
    lookahead: usize,
) -> Vec<BlockKey> {
    if lookahead == 0 || block_size == 0 {
        return space.chain(root, tokens, block_size);
    }
    let mut keyer = Keyer::new(space);
    let mut parent = root;
    let mut keys = Vec::with_capacity(tokens.len() / block_size);
    let ends = (block_size..=tokens.len()).step_by(block_size);
    for end in ends.take_while(|end| tokens.len() - end >= lookahead) {
        let (block, ahead) = (&tokens[end - block_size..end], &tokens[end..end + lookahead]);
        parent = keyer.key(parent, block, &[], ahead);
        keys.push(parent);
    }
    keys
}

/// The keys of blocks that are known by the engine's own hashes.
pub(crate) fn engine_chain(
    space: &KeySpace,
    root: BlockKey,
    hashes: &[EngineHash],
) -> Vec<BlockKey> {
    let keyer = Keyer::new(space);
    let mut parent = root;
    let next = |hash: &EngineHash| {
        parent = keyer.by_hash(parent, *hash);
        parent
    };
    hashes.iter().map(next).collect()
}
