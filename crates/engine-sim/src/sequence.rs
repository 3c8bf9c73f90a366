//! An unfinished request inside the engine.

use std::sync::Arc;

use kvasir_kv_hash::vllm::{ContractError, Lora, MmItem, Version};

use crate::block_hash::BlockHash;
use crate::cache::{BlockId, BlockPool};
use crate::config::EngineConfig;
use crate::events::{BlockStored, Event, ExtraKey, FULL_ATTENTION, GPU};
use crate::hashes::{BlockHashes, overlapping};
use crate::hashing::Hasher;
use crate::request::{Request, RequestId};
use crate::tokens::seed_of;

/// An unfinished request: its tokens, their hashes and its table of blocks.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: RequestId,
    /// Prompt, then output.
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_len: usize,
    pub(crate) max_tokens: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) skip_cache_read: bool,
    /// The prompt's keys and values come from elsewhere, once.
    pub(crate) remote_prefill: bool,
    pub(crate) hold: bool,
    pub(crate) seed: u64,
    /// The blocks of the tokens, in order.
    pub(crate) table: Vec<BlockId>,
    /// Tokens whose keys and values are in the blocks.
    pub(crate) computed: usize,
    /// Tokens the current step computes.
    pub(crate) scheduled: usize,
    /// Prompt tokens that were found in the cache when the request was first admitted.
    pub(crate) cached_tokens: Option<usize>,
    pub(crate) preemptions: u32,
    hashes: BlockHashes,
    /// Blocks of the table that are known to the cache.
    cached_blocks: usize,
    lora: Option<Lora>,
    lora_name: Option<Arc<str>>,
    salt: Option<Arc<str>>,
    session: Option<Arc<str>>,
    items: Vec<MmItem>,
    /// Whether the offsets of items are published with their identifiers.
    publishes_offsets: bool,
}

impl Sequence {
    pub(crate) fn new(
        request: Request,
        hasher: &Hasher,
        config: &EngineConfig,
    ) -> Result<Self, ContractError> {
        let hashes = BlockHashes::new(hasher, &request, config.block_size)?;
        Ok(Self {
            id: request.id,
            prompt_len: request.prompt.len(),
            max_tokens: request.max_tokens,
            ignore_eos: request.ignore_eos,
            skip_cache_read: request.skip_cache_read,
            remote_prefill: request.remote_prefill,
            hold: request.hold,
            seed: seed_of(&request.prompt),
            table: Vec::new(),
            computed: 0,
            scheduled: 0,
            cached_tokens: None,
            preemptions: 0,
            hashes,
            cached_blocks: 0,
            lora_name: request.lora.as_ref().map(|lora| lora.name.as_str().into()),
            lora: request.lora,
            salt: request.cache_salt.filter(|salt| !salt.is_empty()).map(Into::into),
            session: request.session_id.map(Into::into),
            items: request.items,
            publishes_offsets: config.version >= Version::release(0, 19, 0),
            tokens: request.prompt,
        })
    }

    pub(crate) fn output(&self) -> &[u32] {
        self.tokens.get(self.prompt_len..).unwrap_or_default()
    }

    /// The hashes of all full blocks.
    pub(crate) fn hash_blocks(&mut self, hasher: &Hasher, block_size: usize) -> &[BlockHash] {
        self.hashes.extend(hasher, &self.tokens, &self.items, block_size);
        self.hashes.as_slice()
    }

    /// Takes the blocks that were hit as the start of its table.
    pub(crate) fn adopt(&mut self, pool: &mut BlockPool, hits: &[BlockId], block_size: usize) {
        hits.iter().for_each(|&block| pool.touch(block));
        self.table.extend_from_slice(hits);
        self.cached_blocks = hits.len();
        self.computed = hits.len() * block_size;
    }

    /// Gives all its blocks back; it has to start over.
    pub(crate) fn release(&mut self, pool: &mut BlockPool) {
        pool.release(&self.table);
        self.table.clear();
        self.cached_blocks = 0;
        self.computed = 0;
        self.scheduled = 0;
    }

    /// Takes in the prompt's keys and values from elsewhere, for which its table has blocks. Its
    /// last token is computed again: its logits are needed.
    pub(crate) fn receive(
        &mut self,
        pool: &mut BlockPool,
        hasher: &Hasher,
        block_size: usize,
        caching: bool,
    ) {
        self.remote_prefill = false;
        self.computed = self.prompt_len;
        self.scheduled = 0;
        if caching {
            self.cache_full_blocks(pool, hasher, block_size);
        }
        self.computed = self.prompt_len.saturating_sub(1);
        self.scheduled = 1;
    }

    /// Makes the blocks that this step fills known to the cache, and publishes them.
    ///
    /// vLLM does so when it schedules the step, so that a later request of the same step hits.
    pub(crate) fn cache_full_blocks(
        &mut self,
        pool: &mut BlockPool,
        hasher: &Hasher,
        block_size: usize,
    ) {
        let full = (self.computed + self.scheduled) / block_size;
        let first = self.cached_blocks;
        if first >= full {
            return;
        }
        self.hash_blocks(hasher, block_size);
        let hashes = &self.hashes.as_slice()[first..full];
        for (hash, &block) in hashes.iter().zip(&self.table[first..full]) {
            pool.insert(*hash, block);
        }
        self.cached_blocks = full;
        pool.publish(|| Event::Stored(Box::new(self.stored(first, full, block_size))));
    }

    /// The event of blocks `first..end`.
    fn stored(&self, first: usize, end: usize, block_size: usize) -> BlockStored {
        let hashes = self.hashes.as_slice();
        BlockStored {
            block_hashes: hashes[first..end].to_vec(),
            parent_block_hash: first.checked_sub(1).map(|parent| hashes[parent]),
            token_ids: self.tokens[first * block_size..end * block_size].to_vec(),
            block_size: block_size as u32,
            lora_id: self.lora.as_ref().and_then(|lora| lora.int_id),
            medium: Some(GPU),
            lora_name: self.lora_name.clone(),
            extra_keys: Some((first..end).map(|i| self.extra_keys(i, block_size)).collect()),
            group_idx: Some(0),
            kv_cache_spec_kind: Some(FULL_ATTENTION),
            session_id: self.session.clone(),
            ..BlockStored::default()
        }
    }

    /// What is published as hashed besides the tokens of a block: adapter, items, salt.
    fn extra_keys(&self, block: usize, block_size: usize) -> Vec<ExtraKey> {
        let mut keys = Vec::new();
        keys.extend(self.lora_name.clone().map(ExtraKey::Text));
        for (item, offset) in overlapping(&self.items, block * block_size, block_size) {
            let identifier = item.identifier.as_str().into();
            keys.push(match self.publishes_offsets {
                true => ExtraKey::Item { identifier, offset },
                false => ExtraKey::Text(identifier),
            });
        }
        keys.extend(self.salt.clone().filter(|_| block == 0).map(ExtraKey::Text));
        keys
    }
}
