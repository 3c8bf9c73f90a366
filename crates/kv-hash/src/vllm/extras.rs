//! What a request brings besides tokens, and which of it enters which block.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::encode::{Encode, ExtraKey, Shape};
use super::error::ContractError;
use super::generation::Generation;
use crate::version::Version;

/// What a request brings besides tokens. The default is a plain text request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestExtras {
    /// The LoRA adapter; enters every block.
    pub lora: Option<Lora>,
    /// The request's `cache_salt`; enters the first block. An empty string is no salt.
    pub cache_salt: Option<String>,
    /// Images, audio and the like, in prompt order; each enters the blocks it overlaps.
    pub items: Vec<MmItem>,
    /// Embeddings sent in place of a prompt; enter every block.
    pub prompt_embeds: Option<PromptEmbeds>,
}

/// A LoRA adapter as vLLM's `LoRARequest` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lora {
    /// The adapter's name: hashed from 0.11.1.
    pub name: String,
    /// `lora_int_id`, a counter of the engine: hashed up to 0.11.0.
    ///
    /// It can be learned from events only (`lora_id`).
    pub int_id: Option<u64>,
    /// The path the engine loaded the adapter from, letter by letter: hashed from 0.31.0.
    ///
    /// `GET /v1/models` shows it as `root` of the adapter's entry; events do not carry it.
    pub path: Option<String>,
}

/// One multimodal item of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmItem {
    /// vLLM's identifier of the item: the hash of its content, or the client's own uuid.
    pub identifier: String,
    /// Index of its first placeholder token in the prompt.
    pub offset: usize,
    /// Its number of placeholder tokens, at least 1.
    pub length: usize,
}

impl MmItem {
    fn end(&self) -> usize {
        self.offset.saturating_add(self.length)
    }
}

/// The bytes of a prompt-embeddings tensor of shape `[tokens, hidden]`, row by row.
///
/// Such a request still has token ids (placeholders), and they are hashed too.
#[derive(Clone, PartialEq, Eq)]
pub struct PromptEmbeds {
    data: Arc<[u8]>,
    row_bytes: usize,
}

impl PromptEmbeds {
    /// Wraps the tensor's contiguous bytes; `row_bytes` is `hidden` × the size of an element.
    ///
    /// # Errors
    /// [`ContractError::BadPromptEmbeds`] if `data` is not a whole number of rows.
    pub fn new(data: impl Into<Arc<[u8]>>, row_bytes: usize) -> Result<Self, ContractError> {
        let data = data.into();
        match data.len().checked_rem(row_bytes) {
            Some(0) => Ok(Self { data, row_bytes }),
            _ => Err(ContractError::BadPromptEmbeds { len: data.len(), row_bytes }),
        }
    }

    /// The bytes of the rows in `window`; rows past the end are left out, as Python slices do.
    fn rows(&self, window: &Range<usize>) -> &[u8] {
        let at = |row: usize| row.saturating_mul(self.row_bytes).min(self.data.len());
        &self.data[at(window.start)..at(window.end)]
    }
}

impl fmt::Debug for PromptEmbeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromptEmbeds({} bytes, rows of {})", self.data.len(), self.row_bytes)
    }
}

/// One extra key of one block, before a serialiser gives it bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Lora,
    /// Index in the request's items.
    Item(usize),
    Salt,
    PromptEmbeds,
}

/// A request's extras, checked against one generation, with the cursor over its items.
#[derive(Clone, Debug)]
pub(super) struct Extras {
    request: RequestExtras,
    shape: Shape,
    next_item: usize,
}

impl Extras {
    pub(super) fn new(
        mut request: RequestExtras,
        version: Version,
        shape: Shape,
    ) -> Result<Self, ContractError> {
        let generation = shape.generation;
        if let Some(lora) = &request.lora {
            shape.check(&ExtraKey::Lora(lora))?;
        }
        if request.prompt_embeds.is_some() && generation < Generation::C {
            return Err(ContractError::NoPromptEmbeds { version });
        }
        let mut previous = 0;
        for (index, item) in request.items.iter().enumerate() {
            let length = item.length;
            // Offsets relative to a block must fit a signed 64-bit integer.
            let end = item.offset.checked_add(length).and_then(|end| i64::try_from(end).ok());
            if length == 0 || end.is_none() {
                return Err(ContractError::BadItemLength { index, length });
            }
            if item.offset < previous {
                return Err(ContractError::ItemsOutOfOrder { index });
            }
            previous = item.offset;
        }
        request.cache_salt = request.cache_salt.filter(|salt| !salt.is_empty());
        Ok(Self { request, shape, next_item: 0 })
    }

    /// The extra keys of the next block, in the engine's order.
    ///
    /// `window` is what its keys cover: the block and, with lookahead hashing, the tokens after
    /// it. `block_end` is where the block itself ends. Blocks must be asked for in order.
    pub(super) fn collect(&mut self, keys: &mut Vec<Key>, window: &Range<usize>, block_end: usize) {
        keys.clear();
        if self.request.lora.is_some() {
            keys.push(Key::Lora);
        }
        self.collect_items(keys, window);
        // An item that ends among the lookahead tokens is in the next block too.
        while let Some(index) = self.next_item.checked_sub(1)
            && self.request.items.get(index).is_some_and(|item| item.end() > block_end)
        {
            self.next_item = index;
        }
        if window.start == 0 && self.request.cache_salt.is_some() {
            keys.push(Key::Salt);
        }
        if self.request.prompt_embeds.is_some() {
            keys.push(Key::PromptEmbeds);
        }
    }

    /// The items of the window.
    ///
    /// For items that do not overlap each other this is "every item that overlaps the window".
    /// For those that do (the audio of a video), the engine's cursor stops at the first item that
    /// reaches past the window, and nothing counts once the last item has ended.
    fn collect_items(&mut self, keys: &mut Vec<Key>, window: &Range<usize>) {
        // Up to 0.18 an item that ends where the block starts still counts, unless an earlier
        // block has moved the cursor past it.
        let edge = usize::from(self.shape.generation <= Generation::D);
        let is_past = |item: &MmItem| item.end().saturating_add(edge) <= window.start;
        let items = &self.request.items;
        if items.last().is_none_or(is_past) {
            return;
        }
        while let Some(item) = items.get(self.next_item)
            && item.offset < window.end
        {
            if !is_past(item) {
                keys.push(Key::Item(self.next_item));
                if item.end() > window.end {
                    return;
                }
            }
            self.next_item += 1;
        }
    }

    /// Whether no block has extra keys.
    pub(super) fn is_empty(&self) -> bool {
        let RequestExtras { lora, cache_salt, items, prompt_embeds } = &self.request;
        lora.is_none() && cache_salt.is_none() && items.is_empty() && prompt_embeds.is_none()
    }

    /// Writes a key of the window.
    pub(super) fn write<E: Encode>(&self, out: &mut E, key: Key, window: &Range<usize>) {
        let mut write = |key| self.shape.write_key(out, key);
        match key {
            Key::Lora => {
                let Some(lora) = &self.request.lora else { return };
                write(ExtraKey::Lora(lora));
            }
            Key::Item(index) => {
                let Some(item) = self.request.items.get(index) else { return };
                let offset = item.offset as i64 - window.start as i64;
                write(ExtraKey::Item { identifier: &item.identifier, offset });
            }
            Key::Salt => {
                let Some(salt) = &self.request.cache_salt else { return };
                write(ExtraKey::CacheSalt(salt));
            }
            Key::PromptEmbeds => {
                let Some(embeds) = &self.request.prompt_embeds else { return };
                if self.shape.generation >= Generation::D {
                    write(ExtraKey::PromptEmbeds(&Sha256::digest(embeds.rows(window))));
                } else {
                    write(ExtraKey::PromptEmbeds(embeds.rows(window)));
                }
            }
        }
    }
}
