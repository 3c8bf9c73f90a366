//! What vLLM hashes for a block, and the interface of the two serialisers that give it bytes.

use super::error::ContractError;
use super::extras::Lora;
use super::generation::Generation;

/// Whether a string can be the same Python object as an equal one in the same block.
///
/// Pickle writes an object once and refers to it afterwards; CBOR does not care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// A constant of the engine's source, such as `"mm"`.
    Constant,
    /// Came with the request: an object of its own, unless `CPython` keeps one for all.
    Own,
    /// Came with the request, and equal ones are known to be one object.
    Shared,
}

/// A serialiser of Python objects.
pub(super) trait Encode {
    /// Starts a tuple of `len` items; the items follow, then [`end_tuple`](Self::end_tuple).
    fn begin_tuple(&mut self, len: usize);
    /// Ends a tuple of `len` items.
    fn end_tuple(&mut self, len: usize);
    /// A non-negative integer.
    fn uint(&mut self, value: u64);
    /// An integer of either sign.
    fn int(&mut self, value: i64);
    /// A non-negative integer of any size.
    fn big_uint(&mut self, big_endian: &[u8]);
    /// Integers one after the other, the items of a tuple.
    fn tokens(&mut self, tokens: &[u32]);
    /// A `bytes` object.
    fn bytes(&mut self, value: &[u8]);
    /// A `str` object.
    fn text(&mut self, value: &str, sharing: Sharing);
    /// `None`.
    fn none(&mut self);
    /// Ends the object.
    fn finish(self);
}

/// One extra key of a block: what enters its hash besides tokens and parent.
///
/// The keys of a block come in this order: adapter, multimodal items in prompt order, salt,
/// embeddings. The contract's generation decides in which shape each is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraKey<'a> {
    /// The LoRA adapter; on every block.
    Lora(&'a Lora),
    /// A multimodal item that overlaps the block.
    Item {
        /// vLLM's identifier of the item.
        identifier: &'a str,
        /// Where the item starts, relative to the block's first token; may be negative.
        offset: i64,
    },
    /// The request's `cache_salt`; on the first block only.
    CacheSalt(&'a str),
    /// The block's prompt embeddings as the engine hashes them: raw bytes up to 0.16, and from
    /// 0.17 their SHA-256 (32 bytes).
    PromptEmbeds(&'a [u8]),
}

/// What of a contract shapes the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) generation: Generation,
    pub(super) shared_identifiers: bool,
}

impl Shape {
    fn tagged(self) -> bool {
        self.generation >= Generation::G
    }

    /// Whether a parent takes the same bytes whatever its value.
    pub(super) fn fixed_parents(self) -> bool {
        self.generation > Generation::A
    }

    /// Whether this generation can hash the key.
    pub(super) fn check(self, key: &ExtraKey<'_>) -> Result<(), ContractError> {
        let ExtraKey::Lora(lora) = key else { return Ok(()) };
        let generation = self.generation;
        let missing = |part| Err(ContractError::LoraPartMissing { generation, part });
        if generation <= Generation::B && lora.int_id.is_none() {
            return missing("int_id");
        }
        if generation >= Generation::G && lora.path.is_none() {
            return missing("path");
        }
        Ok(())
    }

    /// Writes a checked key.
    pub(super) fn write_key<E: Encode>(self, out: &mut E, key: ExtraKey<'_>) {
        match key {
            ExtraKey::Lora(lora) => self.write_lora(out, lora),
            ExtraKey::Item { identifier, offset } => self.write_item(out, identifier, offset),
            ExtraKey::CacheSalt(salt) => self.write_tagged(out, "cache_salt", |out| {
                out.text(salt, Sharing::Own);
            }),
            ExtraKey::PromptEmbeds(bytes) => {
                self.write_tagged(out, "prompt_embeds", |out| out.bytes(bytes));
            }
        }
    }

    fn write_tagged<E: Encode>(self, out: &mut E, tag: &str, value: impl FnOnce(&mut E)) {
        if !self.tagged() {
            return value(out);
        }
        out.begin_tuple(2);
        out.text(tag, Sharing::Constant);
        value(out);
        out.end_tuple(2);
    }

    fn write_lora<E: Encode>(self, out: &mut E, lora: &Lora) {
        if self.tagged() {
            out.begin_tuple(3);
            out.text("lora", Sharing::Constant);
            out.text(&lora.name, Sharing::Own);
            out.text(lora.path.as_deref().unwrap_or_default(), Sharing::Own);
            out.end_tuple(3);
        } else if self.generation >= Generation::C {
            out.text(&lora.name, Sharing::Own);
        } else {
            out.uint(lora.int_id.unwrap_or_default());
        }
    }

    fn write_item<E: Encode>(self, out: &mut E, identifier: &str, offset: i64) {
        let sharing = if self.shared_identifiers { Sharing::Shared } else { Sharing::Own };
        if self.generation < Generation::E {
            return out.text(identifier, sharing);
        }
        let len = if self.tagged() { 3 } else { 2 };
        out.begin_tuple(len);
        if self.tagged() {
            out.text("mm", Sharing::Constant);
        }
        out.text(identifier, sharing);
        out.int(offset);
        out.end_tuple(len);
    }

    /// Writes `(parent, tokens, extra)`; `keys` writes the block's `key_count` extra keys.
    #[inline]
    pub(super) fn write_block<E: Encode>(
        self,
        mut out: E,
        parent: &[u8],
        (tokens, ahead): (&[u32], &[u32]),
        key_count: usize,
        keys: impl FnOnce(&mut E),
    ) {
        out.begin_tuple(3);
        if self.generation == Generation::A {
            out.big_uint(parent);
        } else {
            out.bytes(parent);
        }
        out.begin_tuple(tokens.len());
        out.tokens(tokens);
        out.end_tuple(tokens.len());
        if !ahead.is_empty() {
            out.begin_tuple(1 + ahead.len());
        }
        if key_count == 0 {
            out.none();
        } else {
            out.begin_tuple(key_count);
            keys(&mut out);
            out.end_tuple(key_count);
        }
        if !ahead.is_empty() {
            out.tokens(ahead);
            out.end_tuple(1 + ahead.len());
        }
        out.end_tuple(3);
        out.finish();
    }
}
