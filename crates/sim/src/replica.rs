//! One engine in the simulation: its steps, what it shows in its metrics, and what it publishes.

use std::collections::VecDeque;
use std::sync::Arc;

use kvasir_engine_sim::{
    ConfigError, Engine, EngineConfig, EngineStats, Event, EventFormat, HashForm, Request,
    RequestId, StepOutcome, SubmitError,
};

use crate::queue::{Time, nanos};
use crate::workload::Answers;

/// An engine and its publisher.
#[derive(Debug)]
pub(crate) struct Replica {
    engine: Engine,
    format: EventFormat,
    /// The step that goes on.
    step: Option<StepOutcome>,
    /// What its metrics show: engines bring them up to date at the end of a step.
    shown: EngineStats,
    pub(crate) life: u32,
    pub(crate) up: bool,
    next_seq: u64,
    history: VecDeque<(u64, Arc<Vec<u8>>)>,
    replay_batches: usize,
    pub(crate) totals: ReplicaTotals,
}

/// What a replica did in all its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReplicaTotals {
    /// Prompt tokens computed: those found in the cache are not among them, those computed again
    /// after a preemption are.
    pub(crate) work_tokens: u64,
    /// Requests that got their first token here, and prefill legs.
    pub(crate) requests: u64,
    /// Requests put back for want of cache.
    pub(crate) preemptions: u64,
    /// Steps.
    pub(crate) steps: u64,
    /// Seconds in which it computed.
    pub(crate) busy_seconds: f64,
}

impl Replica {
    pub(crate) fn new(config: EngineConfig, replay_batches: usize) -> Result<Self, ConfigError> {
        let format = EventFormat::new(config.version, HashForm::Int);
        let engine = Engine::with_source(config, Box::new(Answers))?;
        Ok(Self {
            shown: *engine.stats(),
            engine,
            format,
            step: None,
            life: 0,
            up: true,
            next_seq: 0,
            history: VecDeque::new(),
            replay_batches,
            totals: ReplicaTotals::default(),
        })
    }

    pub(crate) fn shown(&self) -> &EngineStats {
        &self.shown
    }

    /// Blocks that hold tokens.
    pub(crate) fn blocks(&self) -> u64 {
        self.engine.config().usable_blocks() as u64
    }

    pub(crate) fn submit(&mut self, request: Request) -> Result<(), SubmitError> {
        self.engine.submit(request)
    }

    /// How many tokens of a request's prompt are found in the cache now.
    pub(crate) fn resident(&self, request: Request) -> usize {
        let block = self.engine.config().block_size;
        let most = request.prompt.len().saturating_sub(1).checked_div(block).unwrap_or(0);
        let hashes = self.engine.block_hashes(request).unwrap_or_default();
        self.engine.resident_prefix(&hashes).min(most) * block
    }

    /// Lets go of a prompt that is kept for another engine; false if there is none.
    pub(crate) fn let_go(&mut self, id: RequestId) -> bool {
        self.engine.release_held(id)
    }

    /// Prompts that are kept for other engines.
    pub(crate) fn kept(&self) -> u64 {
        self.engine.stats().held_requests as u64
    }

    /// Begins a step, unless one goes on or there is nothing to do; when it will end.
    pub(crate) fn begin(&mut self, now: Time) -> Option<Time> {
        if self.step.is_some() || !self.up {
            return None;
        }
        let step = self.engine.step()?;
        let end = now.saturating_add(nanos(step.duration).max(1));
        self.totals.steps += 1;
        self.totals.work_tokens += step.load.prefill_tokens as u64;
        self.totals.preemptions += step.preempted.len() as u64;
        self.totals.busy_seconds += step.duration.as_secs_f64();
        self.step = Some(step);
        Some(end)
    }

    /// Ends the step that goes on.
    pub(crate) fn end(&mut self) -> Option<StepOutcome> {
        self.shown = *self.engine.stats();
        self.step.take()
    }

    /// Publishes what a step changed; its number and bytes.
    pub(crate) fn publish(&mut self, now: Time, events: &[Event]) -> Option<(u64, Arc<Vec<u8>>)> {
        if events.is_empty() {
            return None;
        }
        let payload = Arc::new(self.format.encode(now as f64 / 1e9, events, Some(0)));
        let seq = self.next_seq;
        self.next_seq += 1;
        if self.history.len() == self.replay_batches {
            self.history.pop_front();
        }
        self.history.push_back((seq, Arc::clone(&payload)));
        Some((seq, payload))
    }

    /// What its replay socket holds from a number on.
    pub(crate) fn history(&self, start: u64) -> impl Iterator<Item = (u64, &Arc<Vec<u8>>)> {
        let batches = self.history.iter().filter(move |(seq, _)| *seq >= start);
        batches.map(|(seq, payload)| (*seq, payload))
    }

    /// Dies: all its requests are lost, and so is the cache.
    pub(crate) fn kill(&mut self) {
        self.engine.restart();
        self.shown = *self.engine.stats();
        self.step = None;
        self.life += 1;
        self.up = false;
        self.next_seq = 0;
        self.history.clear();
    }
}
