//! `v2_sha256`: the keys of the second cache manager's radix tree.

use sha2::{Digest as _, Sha256};

use crate::buffer::Buffer;

/// The key of the root: the request's namespace.
pub(super) fn root(lora_task_id: Option<u64>, salt_id: Option<u64>) -> [u8; 32] {
    let mask = u8::from(lora_task_id.is_some()) | u8::from(salt_id.is_some()) << 1;
    let mut hasher = Sha256::new_with_prefix([mask]);
    for id in [lora_task_id, salt_id].into_iter().flatten() {
        hasher.update(id.to_le_bytes());
    }
    hasher.finalize().into()
}

/// A token of a cache key: an id, or the content hash that stands for an item's first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyToken {
    Id(u32),
    Digest([u8; 32]),
}

/// The key of a block of plain tokens.
#[inline]
pub(super) fn block(buffer: &mut Buffer, parent: &[u8; 32], tokens: &[u32]) -> [u8; 32] {
    buffer.clear();
    buffer.put(parent);
    buffer.put_words(tokens);
    buffer.sha256()
}

/// The key of a block that may hold content hashes.
pub(super) fn block_of_keys(
    buffer: &mut Buffer,
    parent: &[u8; 32],
    tokens: &[KeyToken],
) -> [u8; 32] {
    buffer.clear();
    buffer.put(parent);
    for token in tokens {
        match token {
            KeyToken::Id(id) => buffer.put(&id.to_le_bytes()),
            KeyToken::Digest(digest) => buffer.put(digest),
        }
    }
    buffer.sha256()
}
