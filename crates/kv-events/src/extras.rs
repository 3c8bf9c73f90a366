//! What identifies a block besides its tokens, taken out of the published `extra_keys` by
//! position.
//!
//! vLLM publishes one list a block, in this order: the adapter's name (every block of an adapter's
//! request), images and the like, the `cache_salt` (first block of a prompt only), the digest of
//! prompt embeddings. From 0.19 an image is a pair `[identifier, offset]`; in 0.17 and 0.18 it is a
//! bare string, as the salt is.
//!
//! **The one ambiguity.** In an event of the form that 0.17, 0.18 and 0.19 share, a bare string
//! that ends the first block's list, in an event without pairs, is either a salt (any of the three)
//! or an image (0.17, 0.18). It is taken as *both*: the block is filed under the salt and with the
//! image, so that neither a request with that salt nor one with that image is ever promised a block
//! that belongs to the other. Such blocks earn no credit. Events of 0.20 and newer are longer or
//! maps, and there a bare string is a salt.

#[cfg(test)]
mod tests;

use crate::event::{BlockStored, ExtraKey, Schema};

/// What identifies the blocks of one event besides tokens and adapter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras<'a> {
    /// The request's cache salt. Published with the first block of a prompt only: events further
    /// down the chain inherit it through their parent.
    pub salt: Option<&'a str>,
    /// Images and embeddings, one list a block; empty where no block has any.
    pub items: Vec<Vec<ExtraItem<'a>>>,
}

/// An image, audio clip, video, or the digest of prompt embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraItem<'a> {
    /// The item's identifier (UTF-8) or digest.
    pub identity: &'a [u8],
    /// Where it starts, relative to the block's first token; 0 where that is not published (0.17,
    /// 0.18, embeddings).
    pub offset: i64,
}

/// Published extra keys that cannot be read: the blocks must not be credited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtrasError {
    /// There are more or fewer lists than blocks.
    #[error("{lists} lists of extra keys for {blocks} blocks")]
    Count {
        /// Lists published.
        lists: usize,
        /// Blocks published.
        blocks: usize,
    },
    /// The event names an adapter that is not the first key of this block.
    #[error("block {0} does not begin with its adapter's name")]
    Adapter(usize),
    /// A key of an unknown shape, or in a place where no such key belongs.
    #[error("unexpected extra key in block {0}")]
    Unexpected(usize),
    /// Two different salts.
    #[error("two different salts")]
    Salt,
}

impl<H> BlockStored<H> {
    /// Reads `extra_keys` and `cache_salt`.
    ///
    /// # Errors
    /// Keys that do not fit the contract of any version: what the blocks stand for is unknown.
    pub fn extras(&self) -> Result<Extras<'_>, ExtrasError> {
        let salt = self.cache_salt.as_deref().filter(|salt| !salt.is_empty());
        let mut extras = Extras { salt, items: Vec::new() };
        let Some(lists) = &self.extra_keys else { return Ok(extras) };
        if lists.len() != self.block_hashes.len() {
            return Err(ExtrasError::Count { lists: lists.len(), blocks: self.block_hashes.len() });
        }
        let early = self.schema == Schema::Early
            && !lists.iter().flatten().any(|key| matches!(key, ExtraKey::Item { .. }));
        for (block, keys) in lists.iter().enumerate() {
            let keys = self.without_adapter(keys).ok_or(ExtrasError::Adapter(block))?;
            let first = block == 0 && self.parent.is_none();
            let salt = last_text(keys).filter(|_| first);
            if let Some((_, text)) = salt {
                if extras.salt.is_some_and(|other| other != text) {
                    return Err(ExtrasError::Salt);
                }
                extras.salt = Some(text);
            }
            let mut items = Vec::new();
            for (at, key) in keys.iter().enumerate() {
                if !early && salt.is_some_and(|(salt_at, _)| salt_at == at) {
                    continue;
                }
                items.push(item(key, early).ok_or(ExtrasError::Unexpected(block))?);
            }
            if !items.is_empty() {
                extras.items.resize_with(lists.len(), Vec::new);
                if let Some(place) = extras.items.get_mut(block) {
                    *place = items;
                }
            }
        }
        Ok(extras)
    }

    /// The keys after the adapter's name, which must be there if the event names one.
    fn without_adapter<'a>(&self, keys: &'a [ExtraKey]) -> Option<&'a [ExtraKey]> {
        let Some(name) = &self.lora_name else { return Some(keys) };
        match keys {
            [ExtraKey::Text(first), rest @ ..] if first == name => Some(rest),
            _ => None,
        }
    }
}

/// The string that ends a block's keys, embeddings aside, and its place.
fn last_text(keys: &[ExtraKey]) -> Option<(usize, &str)> {
    let at = keys.iter().rposition(|key| !matches!(key, ExtraKey::Bytes(_)))?;
    match keys.get(at)? {
        ExtraKey::Text(text) => Some((at, text)),
        _ => None,
    }
}

fn item(key: &ExtraKey, bare_images: bool) -> Option<ExtraItem<'_>> {
    match key {
        ExtraKey::Item { identifier, offset } => {
            Some(ExtraItem { identity: identifier.as_bytes(), offset: *offset })
        }
        ExtraKey::Bytes(digest) => Some(ExtraItem { identity: digest, offset: 0 }),
        ExtraKey::Text(text) if bare_images => {
            Some(ExtraItem { identity: text.as_bytes(), offset: 0 })
        }
        ExtraKey::Text(_) | ExtraKey::Unknown => None,
    }
}
