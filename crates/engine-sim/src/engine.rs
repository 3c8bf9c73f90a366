//! The engine: requests in, steps out.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::block_hash::BlockHash;
use crate::cache::{BlockId, BlockPool};
use crate::config::{ConfigError, EngineConfig};
use crate::events::Event;
use crate::hashing::Hasher;
use crate::held::Held;
use crate::request::{FinishReason, Request, RequestId, SubmitError};
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::stats::EngineStats;
use crate::timing::StepLoad;
use crate::tokens::{NextToken, PseudoRandom, TokenRequest, TokenSource};

/// One engine, or one data-parallel rank of one.
pub struct Engine {
    config: EngineConfig,
    source: Box<dyn TokenSource>,
    hasher: Hasher,
    pub(crate) pool: BlockPool,
    pub(crate) scheduler: Scheduler,
    unfinished: HashSet<RequestId>,
    /// The blocks of ended requests that are kept.
    pub(crate) held: HashMap<RequestId, Vec<BlockId>>,
    stats: EngineStats,
    life: u64,
}

/// What one scheduler step did.
///
/// The step begins when it is asked for. Everything in it is there to be seen `duration` later,
/// and only then may the next step begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// How long the step takes.
    pub duration: Duration,
    /// What changed in the cache, in order; published as one batch unless it is empty.
    pub events: Vec<Event>,
    /// The tokens generated, in the order of the batch.
    pub outputs: Vec<Output>,
    /// Ended requests whose prompt's blocks are kept ([`Request::hold`]).
    pub held: Vec<Held>,
    /// Requests put back to the queue for want of blocks.
    pub preempted: Vec<RequestId>,
    /// What was computed.
    pub load: StepLoad,
}

/// One generated token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// The request.
    pub id: RequestId,
    /// The token.
    pub token: u32,
    /// How many tokens of the request came before it.
    pub index: usize,
    /// Whether and why the request ends with it.
    pub finished: Option<FinishReason>,
    /// Prompt tokens found in the cache when the request was first admitted (`cached_tokens`).
    pub cached_tokens: usize,
}

impl Engine {
    /// An engine that generates [`PseudoRandom`] tokens.
    ///
    /// # Errors
    /// What [`EngineConfig::validate`] says.
    pub fn new(config: EngineConfig) -> Result<Self, ConfigError> {
        Self::with_source(config, Box::new(PseudoRandom::default()))
    }

    /// An engine that generates what `source` says.
    ///
    /// # Errors
    /// What [`EngineConfig::validate`] says.
    pub fn with_source(
        config: EngineConfig,
        source: Box<dyn TokenSource>,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut engine = Self {
            hasher: Hasher::new(&config.hashing, 0),
            pool: new_pool(&config),
            scheduler: Scheduler::new(&config),
            config,
            source,
            unfinished: HashSet::new(),
            held: HashMap::new(),
            stats: EngineStats::default(),
            life: 0,
        };
        engine.update_gauges();
        Ok(engine)
    }

    /// What the engine was started with.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Adds a request to the end of the queue; the next step may admit it.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn submit(&mut self, mut request: Request) -> Result<(), SubmitError> {
        let max_model_len = self.config.max_model_len;
        let tokens = request.prompt.len();
        if tokens == 0 {
            return Err(SubmitError::EmptyPrompt);
        }
        if request.max_tokens == 0 {
            return Err(SubmitError::NoOutput);
        }
        if tokens >= max_model_len {
            return Err(SubmitError::PromptTooLong { tokens, max_model_len });
        }
        let waiting = self.scheduler.waiting.len();
        if waiting >= self.config.max_waiting {
            return Err(SubmitError::QueueFull { waiting });
        }
        if self.unfinished.contains(&request.id) || self.held.contains_key(&request.id) {
            return Err(SubmitError::DuplicateId(request.id));
        }
        request.max_tokens = request.max_tokens.min(max_model_len - tokens);
        let id = request.id;
        let sequence = Sequence::new(request, &self.hasher, &self.config)?;
        self.scheduler.waiting.push_back(sequence);
        self.unfinished.insert(id);
        self.update_gauges();
        Ok(())
    }

    /// Whether there is nothing to do. A cleared cache alone does not make a step.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.scheduler.running.is_empty() && self.scheduler.waiting.is_empty()
    }

    /// Runs one step; `None` if the engine is idle.
    pub fn step(&mut self) -> Option<StepOutcome> {
        if self.is_idle() {
            return None;
        }
        let plan = self.scheduler.schedule(&mut self.pool, &self.hasher);
        let (outputs, held) = self.sample();
        self.stats.steps += 1;
        self.update_gauges();
        Some(StepOutcome {
            duration: self.config.cost.step(&plan.load),
            events: self.pool.take_events(),
            outputs,
            held,
            preempted: plan.preempted,
            load: plan.load,
        })
    }

    /// Advances what the step computed, and generates a token for every request that has caught
    /// up with its tokens.
    fn sample(&mut self) -> (Vec<Output>, Vec<Held>) {
        let Self { scheduler, source, pool, stats, unfinished, held, config, .. } = self;
        let mut kept = Vec::new();
        let mut outputs = Vec::with_capacity(scheduler.running.len());
        scheduler.running.retain_mut(|sequence| {
            sequence.computed += std::mem::take(&mut sequence.scheduled);
            if sequence.computed < sequence.tokens.len() {
                return true;
            }
            let output = generate(sequence, source.as_mut());
            stats.generation_tokens += 1;
            if output.index == 0 {
                stats.prompt_tokens += sequence.prompt_len as u64;
            }
            outputs.push(output);
            if output.finished.is_none() {
                return true;
            }
            if sequence.hold {
                let blocks = sequence.hold_prompt(pool, config.block_size);
                kept.push(Held { id: sequence.id, tokens: sequence.prompt_len, blocks });
                held.extend(kept.last().map(|held| (held.id, held.blocks.clone())));
            }
            sequence.release(pool);
            unfinished.remove(&sequence.id);
            stats.finished += 1;
            false
        });
        (outputs, kept)
    }

    /// Drops a request, as when its client hangs up; false if there is none of this number.
    pub fn abort(&mut self, id: RequestId) -> bool {
        if !self.unfinished.remove(&id) {
            return false;
        }
        let Scheduler { running, waiting, .. } = &mut self.scheduler;
        if let Some(index) = running.iter().position(|sequence| sequence.id == id) {
            running.remove(index).release(&mut self.pool);
        } else {
            waiting.retain(|sequence| sequence.id != id);
        }
        self.update_gauges();
        true
    }

    /// Empties the prefix cache, if no request is running; says whether it did.
    ///
    /// The event comes with the next step.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.pool.reset()
    }

    /// Empties the prefix cache whatever is running: running requests start over, in their order
    /// (`reset_running_requests`).
    pub fn reset_prefix_cache_and_requests(&mut self) -> bool {
        while self.scheduler.preempt_newest(&mut self.pool).is_some() {}
        self.update_gauges();
        self.pool.reset()
    }

    /// Starts a new life: an empty cache, counters at zero, and new hashes where the engine draws
    /// its seed at random. No event tells of it. Returns the requests that are lost, sorted.
    pub fn restart(&mut self) -> Vec<RequestId> {
        let mut lost: Vec<_> = self.unfinished.drain().collect();
        lost.sort_unstable();
        self.life += 1;
        self.hasher = Hasher::new(&self.config.hashing, self.life);
        self.pool = new_pool(&self.config);
        self.scheduler = Scheduler::new(&self.config);
        self.held.clear();
        self.stats = EngineStats::default();
        self.update_gauges();
        lost
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> &EngineStats {
        &self.stats
    }

    /// The hashes of a prompt's full blocks, as this engine names them now.
    ///
    /// # Errors
    /// [`SubmitError::Unhashable`].
    pub fn block_hashes(&self, request: Request) -> Result<Vec<BlockHash>, SubmitError> {
        let mut sequence = Sequence::new(request, &self.hasher, &self.config)?;
        Ok(sequence.hash_blocks(&self.hasher, self.config.block_size).to_vec())
    }

    /// How many of these blocks, from the first one on, the cache holds.
    ///
    /// A prompt of N tokens hits no more than (N − 1) / `block_size` of them.
    #[must_use]
    pub fn resident_prefix(&self, hashes: &[BlockHash]) -> usize {
        hashes.iter().take_while(|hash| self.pool.lookup(hash).is_some()).count()
    }

    /// Everything the prefix cache holds and how many blocks hold it, in no particular order.
    pub fn cached_blocks(&self) -> impl Iterator<Item = (BlockHash, usize)> {
        self.pool.contents()
    }

    pub(crate) fn update_gauges(&mut self) {
        let counts = self.scheduler.counts;
        self.stats.running = self.scheduler.running.len();
        self.stats.waiting = self.scheduler.waiting.len();
        self.stats.usable_blocks = self.pool.usable_blocks();
        self.stats.used_blocks = self.pool.usable_blocks() - self.pool.free_blocks();
        self.stats.prefix_queries = counts.prefix_queries;
        self.stats.prefix_hits = counts.prefix_hits;
        self.stats.preemptions = counts.preemptions;
        self.stats.external_queries = counts.external_queries;
        self.stats.external_hits = counts.external_hits;
        self.stats.held_requests = self.held.len();
    }
}

fn new_pool(config: &EngineConfig) -> BlockPool {
    BlockPool::new(config.num_blocks, config.version, config.enable_kv_cache_events)
}

/// Appends a request's next token.
fn generate(sequence: &mut Sequence, source: &mut dyn TokenSource) -> Output {
    let index = sequence.output().len();
    let next = source.next_token(&TokenRequest {
        id: sequence.id,
        prompt: sequence.tokens.get(..sequence.prompt_len).unwrap_or_default(),
        output: sequence.output(),
        seed: sequence.seed,
    });
    let (token, stops) = match next {
        NextToken::Token(token) => (token, false),
        NextToken::Stop(token) => (token, !sequence.ignore_eos),
    };
    sequence.tokens.push(token);
    let finished = if stops {
        Some(FinishReason::Stop)
    } else {
        (index + 1 >= sequence.max_tokens).then_some(FinishReason::Length)
    };
    let cached_tokens = sequence.cached_tokens.unwrap_or_default();
    Output { id: sequence.id, token, index, finished, cached_tokens }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.config)
            .field("stats", &self.stats)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
