//! Continuous batching with chunked prefill: which tokens the next step computes.
//!
//! Running requests come first, in the order they were admitted; then waiting ones, first come
//! first served, until the token budget, the batch or the free blocks are used up. A running
//! request that finds no free block puts the newest running request back at the front of the
//! queue, to start over; in such a step no waiting request is admitted.

use std::collections::VecDeque;

use kvasir_kv_hash::vllm::Version;

use crate::cache::{BlockId, BlockPool};
use crate::config::EngineConfig;
use crate::hashing::Hasher;
use crate::request::RequestId;
use crate::sequence::Sequence;
use crate::timing::StepLoad;

/// The unfinished requests of an engine.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) running: Vec<Sequence>,
    pub(crate) waiting: VecDeque<Sequence>,
    pub(crate) counts: Counts,
    block_size: usize,
    token_budget: usize,
    max_num_seqs: usize,
    caching: bool,
    reserve_full_prompt: bool,
    watermark_blocks: usize,
    count_failed_lookups: bool,
    hits: Vec<BlockId>,
}

/// What the scheduler counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) prefix_queries: u64,
    pub(crate) prefix_hits: u64,
    pub(crate) preemptions: u64,
    pub(crate) external_queries: u64,
    pub(crate) external_hits: u64,
}

/// What one call of [`Scheduler::schedule`] decided.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) load: StepLoad,
    pub(crate) preempted: Vec<RequestId>,
    budget: usize,
}

impl Plan {
    /// Enters a request with `scheduled` tokens into the step.
    fn add(&mut self, sequence: &Sequence) {
        let n = sequence.scheduled;
        self.budget -= n;
        let decodes = n == 1 && sequence.computed >= sequence.prompt_len;
        self.load.add(n, sequence.computed, decodes);
    }
}

impl Scheduler {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self {
            running: Vec::new(),
            waiting: VecDeque::new(),
            counts: Counts::default(),
            block_size: config.block_size,
            token_budget: config.max_num_batched_tokens,
            max_num_seqs: config.max_num_seqs,
            caching: config.enable_prefix_caching,
            reserve_full_prompt: config.reserve_full_prompt,
            watermark_blocks: (config.watermark * config.num_blocks as f64) as usize,
            // 0.26 counts when it looks, 0.27 when the request is admitted.
            count_failed_lookups: config.version < Version::release(0, 27, 0),
            hits: Vec::new(),
        }
    }

    /// Decides what the next step computes, and allocates the blocks for it.
    pub(crate) fn schedule(&mut self, pool: &mut BlockPool, hasher: &Hasher) -> Plan {
        let mut plan = Plan { budget: self.token_budget, ..Plan::default() };
        let mut index = 0;
        while index < self.running.len() && plan.budget > 0 {
            if !self.continue_running(index, pool, hasher, &mut plan) {
                break;
            }
            index += 1;
        }
        if plan.preempted.is_empty() {
            while plan.budget > 0
                && self.running.len() < self.max_num_seqs
                && self.admit_next(pool, hasher, &mut plan)
            {}
        }
        plan
    }

    /// Schedules one running request; false if there is no room for it.
    fn continue_running(
        &mut self,
        index: usize,
        pool: &mut BlockPool,
        hasher: &Hasher,
        plan: &mut Plan,
    ) -> bool {
        loop {
            let Some(sequence) = self.running.get_mut(index) else { return false };
            let new = (sequence.tokens.len() - sequence.computed).min(plan.budget);
            let blocks = (sequence.computed + new).div_ceil(self.block_size);
            let missing = blocks.saturating_sub(sequence.table.len());
            if missing <= pool.free_blocks() {
                pool.allocate(missing, &mut sequence.table);
                sequence.scheduled = new;
                if self.caching {
                    sequence.cache_full_blocks(pool, hasher, self.block_size);
                }
                plan.add(sequence);
                return true;
            }
            // The newest may be this one: then the next turn of the loop finds nobody here.
            plan.preempted.extend(self.preempt_newest(pool));
        }
    }

    /// Puts the newest running request back to the front of the queue.
    pub(crate) fn preempt_newest(&mut self, pool: &mut BlockPool) -> Option<RequestId> {
        let mut sequence = self.running.pop()?;
        let id = sequence.id;
        sequence.release(pool);
        sequence.preemptions += 1;
        self.counts.preemptions += 1;
        self.waiting.push_front(sequence);
        Some(id)
    }

    /// Admits the first waiting request; false if there is none or no room for it.
    fn admit_next(&mut self, pool: &mut BlockPool, hasher: &Hasher, plan: &mut Plan) -> bool {
        let Some(first) = self.look_up(pool, hasher) else { return false };
        if self.count_failed_lookups {
            self.count_lookup(&first);
        }
        let Some(Share { new, missing }) = self.share(&first, pool, plan.budget) else {
            return false;
        };
        if !self.count_failed_lookups {
            self.count_lookup(&first);
        }
        if first.is_new {
            let uncached = (first.length - first.hit_tokens) as u64;
            self.counts.external_queries += uncached;
            self.counts.external_hits += if first.remote { uncached } else { 0 };
        }
        let Some(mut sequence) = self.waiting.pop_front() else { return false };
        sequence.adopt(pool, &self.hits, self.block_size);
        sequence.cached_tokens.get_or_insert(first.hit_tokens);
        pool.allocate(missing, &mut sequence.table);
        if first.remote {
            sequence.receive(pool, hasher, self.block_size, self.caching);
        } else {
            sequence.scheduled = new;
            if self.caching {
                sequence.cache_full_blocks(pool, hasher, self.block_size);
            }
        }
        plan.add(&sequence);
        self.running.push(sequence);
        true
    }

    /// The first waiting request; `hits` are then its blocks that are in the cache.
    fn look_up(&mut self, pool: &BlockPool, hasher: &Hasher) -> Option<First> {
        let sequence = self.waiting.front_mut()?;
        let length = sequence.tokens.len();
        let looked_up = self.caching && !sequence.skip_cache_read;
        self.hits.clear();
        if looked_up {
            // The last token is always computed: its logits are needed.
            let most = (length - 1) / self.block_size;
            let hashes = sequence.hash_blocks(hasher, self.block_size).iter().take(most);
            self.hits.extend(hashes.map_while(|hash| pool.lookup(hash)));
        }
        Some(First {
            length,
            hit_tokens: self.hits.len() * self.block_size,
            looked_up,
            is_new: sequence.preemptions == 0,
            remote: sequence.remote_prefill,
        })
    }

    fn count_lookup(&mut self, first: &First) {
        if first.looked_up && first.is_new {
            self.counts.prefix_queries += first.length as u64;
            self.counts.prefix_hits += first.hit_tokens as u64;
        }
    }

    /// What the first waiting request gets of this step; `None` where there is no room for it.
    fn share(&self, first: &First, pool: &BlockPool, budget: usize) -> Option<Share> {
        let First { length, hit_tokens, remote, .. } = *first;
        let wanted = if remote { 1 } else { length - hit_tokens };
        let new = wanted.min(budget);
        // Free blocks that are hit leave the queue: they are no room for others.
        let reclaimed = self.hits.iter().filter(|&&block| pool.is_free(block)).count();
        let watermark = if self.running.is_empty() { 0 } else { self.watermark_blocks };
        let to_allocate = |tokens: usize| tokens.div_ceil(self.block_size) - self.hits.len();
        let to_compute = if remote { length } else { hit_tokens + new };
        let to_fit = if self.reserve_full_prompt { length } else { to_compute };
        let fits = to_allocate(to_fit) + reclaimed + watermark <= pool.free_blocks();
        fits.then(|| Share { new, missing: to_allocate(to_compute) })
    }
}

/// The first waiting request, as a step finds it.
struct First {
    /// Its tokens, and those of them that are in the cache.
    length: usize,
    hit_tokens: usize,
    /// Whether the cache was asked.
    looked_up: bool,
    /// Whether it never ran before.
    is_new: bool,
    /// Whether its prompt is computed elsewhere.
    remote: bool,
}

/// What a request gets of a step.
struct Share {
    /// Tokens to compute.
    new: usize,
    /// Blocks that it needs beside those it hits.
    missing: usize,
}

#[cfg(test)]
mod tests;
