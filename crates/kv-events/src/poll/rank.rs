//! The events of one rank: numbers, trust, block size, cache groups.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kvasir_inventory::{AbsentReason, EngineHash, PartialReason, SuspectReason, Trust};

use super::json::{Change, Polled, PolledBlock};
use crate::event::{Batch, BlockRemoved, BlockStored, Event, Medium, Schema, SpecKind};
use crate::stats::StreamStats;
use crate::stream::{Update, Why};
use crate::subscriber::StatsHandle;

/// Events that may wait until the block size is known.
const MAX_WAITING: usize = 4096;
/// Attention windows of one engine that are told apart.
const MAX_WINDOWS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Down(AbsentReason),
    Up,
}

/// One rank's stream.
#[derive(Debug)]
pub(super) struct RankPoll {
    link: Link,
    trust: Trust,
    last: Option<u64>,
    complete: bool,
    partial: PartialReason,
    poisoned: bool,
    /// A question failed since the last event.
    doubt: bool,
    stranger: bool,
    /// Tokens per block, once a block with a successor has shown it.
    size: Option<usize>,
    /// Events that wait for that.
    waiting: Vec<(Change, Option<u64>)>,
    /// How many tokens the last blocks of waiting chains have.
    tails: HashMap<EngineHash, usize>,
    /// Attention windows; the first one is the largest and counts as full attention.
    windows: Vec<u64>,
    /// Something was stored since all was forgotten.
    stored_any: bool,
    events: Vec<Event>,
    unknown: u32,
    updates: Vec<Update>,
    counts: StreamStats,
    heard_at: Option<Instant>,
    published: StatsHandle,
}

impl Default for RankPoll {
    fn default() -> Self {
        Self {
            link: Link::Down(AbsentReason::Connecting),
            trust: Trust::Absent(AbsentReason::Connecting),
            last: None,
            complete: false,
            partial: PartialReason::JoinedLate,
            poisoned: false,
            doubt: false,
            stranger: false,
            size: None,
            waiting: Vec::new(),
            tails: HashMap::new(),
            windows: Vec::new(),
            stored_any: false,
            events: Vec::new(),
            unknown: 0,
            updates: Vec::new(),
            counts: StreamStats::default(),
            heard_at: None,
            published: StatsHandle::default(),
        }
    }
}

impl RankPoll {
    pub(super) fn take_updates(&mut self) -> std::vec::Drain<'_, Update> {
        self.updates.drain(..)
    }

    pub(super) fn connected(&mut self) {
        self.link = Link::Up;
    }

    pub(super) fn failed(&mut self) {
        self.down(AbsentReason::Disconnected);
    }

    pub(super) fn refused(&mut self) {
        self.down(AbsentReason::NoStream);
    }

    pub(super) fn stats(&self) -> StatsHandle {
        self.published.clone()
    }

    /// Shows the counters as they are now.
    pub(super) fn publish(&self) {
        let stats = StreamStats { trust: self.trust, last_seq: self.last, ..self.counts };
        self.published.tell(stats, self.heard_at);
    }

    fn down(&mut self, reason: AbsentReason) {
        self.counts.disconnects += u64::from(self.link == Link::Up);
        self.link = Link::Down(reason);
        self.doubt = self.last.is_some();
        self.settle(Why::Disconnected);
    }

    /// An answer could not be read, and what it held is gone.
    pub(super) fn garbled(&mut self) {
        self.link = Link::Up;
        self.counts.schema_errors += 1;
        self.poison();
    }

    /// Takes in one event, in the order of the answer.
    pub(super) fn take(&mut self, event: &Polled) {
        let next = self.last.map(|last| last.saturating_add(1));
        match next {
            None => self.complete |= event.id == 0,
            Some(next) if event.id == next => {
                if std::mem::take(&mut self.doubt) {
                    self.settle(Why::SameLife);
                }
            }
            Some(next) if event.id > next => {
                self.counts.gaps += 1;
                self.start_over(PartialReason::LostBatch, Why::Gap);
            }
            Some(_) => {
                self.counts.restarts += 1;
                self.poisoned = false;
                self.start_over(PartialReason::JoinedLate, Why::Restart);
                self.complete = event.id == 0;
            }
        }
        self.last = Some(event.id);
        match &event.change {
            Change::Created => {
                self.waiting.clear();
                self.tails.clear();
                self.poisoned = false;
                self.complete = true;
                self.stored_any = false;
                self.events.push(Event::Cleared);
                self.window(event.window);
            }
            _ if self.poisoned => {}
            Change::Malformed(why) => {
                tracing::warn!(id = event.id, why, "cache event that cannot be read");
                self.counts.schema_errors += 1;
                self.poison();
            }
            Change::Other => self.unknown = self.unknown.saturating_add(1),
            change => self.wait_for_size(change.clone(), event.window),
        }
    }

    /// All events of an answer are in.
    pub(super) fn finish(&mut self, stranger: bool, now: Instant) {
        self.stranger = stranger;
        if self.flush() {
            self.heard_at = Some(now);
        }
        self.settle(if self.complete { Why::FromStart } else { Why::Connected });
    }

    fn wait_for_size(&mut self, change: Change, window: Option<u64>) {
        if self.size.is_some() {
            return self.apply(&change, window);
        }
        if let Change::Stored { parent, blocks } = &change {
            let first = blocks.first().filter(|_| blocks.len() > 1).map(|b| b.tokens.len());
            let parents = parent.and_then(|parent| self.tails.get(&parent).copied());
            self.size = parents.or(first).filter(|size| *size > 0);
            if let Some(tail) = blocks.last() {
                self.tails.insert(tail.hash, tail.tokens.len());
            }
        }
        self.waiting.push((change, window));
        if self.size.is_some() {
            self.tails.clear();
            for (change, window) in std::mem::take(&mut self.waiting) {
                self.apply(&change, window);
            }
        } else if self.waiting.len() > MAX_WAITING {
            self.start_over(PartialReason::LostBatch, Why::Gap);
        }
    }

    fn apply(&mut self, change: &Change, window: Option<u64>) {
        if self.poisoned {
            return;
        }
        let group = self.window(window);
        match change {
            Change::Stored { parent, blocks } => self.store(*parent, blocks, group),
            Change::Removed(hashes) => self.events.push(Event::Removed(BlockRemoved {
                block_hashes: hashes.clone(),
                medium: Medium::Unknown("any".to_owned()),
                group: group.map(|(number, _)| number),
            })),
            Change::Moved { hash, from, to } => {
                // Stored first: the handle stays known.
                self.events.push(Event::Stored(self.stored(None, vec![*hash], to, group)));
                self.events.push(Event::Removed(BlockRemoved {
                    block_hashes: vec![*hash],
                    medium: from.clone(),
                    group: group.map(|(number, _)| number),
                }));
            }
            Change::Created | Change::Other | Change::Malformed(_) => {}
        }
    }

    /// Stores the full blocks of a chain, as far as they are known by tokens alone.
    fn store(
        &mut self,
        mut parent: Option<EngineHash>,
        blocks: &[PolledBlock],
        group: Option<(u32, u64)>,
    ) {
        let Some(size) = self.size else { return };
        self.stored_any = true;
        let inner = blocks.split_last().map_or(&[][..], |(_, inner)| inner);
        let odd = inner.iter().any(|block| block.tokens.len() != size)
            || blocks.iter().any(|block| block.tokens.len() > size);
        if odd {
            tracing::warn!(size, "blocks of another size");
            self.counts.schema_errors += 1;
            return self.poison();
        }
        let mut open: Option<BlockStored> = None;
        for block in blocks {
            if block.special || block.tokens.len() < size {
                break;
            }
            match &mut open {
                Some(run) if run.medium == block.medium => {
                    run.block_hashes.push(block.hash);
                    run.token_ids.extend_from_slice(&block.tokens);
                }
                _ => {
                    self.events.extend(open.take().map(Event::Stored));
                    let run = self.stored(parent, vec![block.hash], &block.medium, group);
                    open = Some(BlockStored {
                        token_ids: block.tokens.clone(),
                        cache_salt: block.salt.clone(),
                        ..run
                    });
                }
            }
            parent = Some(block.hash);
        }
        self.events.extend(open.map(Event::Stored));
    }

    fn stored(
        &self,
        parent: Option<EngineHash>,
        block_hashes: Vec<EngineHash>,
        medium: &Medium,
        group: Option<(u32, u64)>,
    ) -> BlockStored {
        BlockStored {
            block_hashes,
            parent,
            token_ids: Vec::new(),
            block_size: self.size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0),
            lora_id: None,
            lora_name: None,
            medium: medium.clone(),
            // Adapters are not published, so it cannot be said that nothing else is.
            extra_keys: None,
            cache_salt: None,
            group: group.map(|(number, _)| number),
            spec_kind: group.map(|(number, _)| match number {
                0 => SpecKind::FullAttention,
                _ => SpecKind::SlidingWindow,
            }),
            sliding_window: group.filter(|(number, _)| *number > 0).map(|(_, window)| window),
            lookahead_token_ids: None,
            schema: Schema::Paired,
        }
    }

    /// The cache group of a window: the largest window is group 0. A larger one than those seen
    /// makes the groups others than they were taken for.
    fn window(&mut self, window: Option<u64>) -> Option<(u32, u64)> {
        let window = window?;
        match self.windows.first() {
            Some(largest) if *largest < window => {
                if self.stored_any {
                    self.start_over(PartialReason::LostBatch, Why::Restart);
                }
                self.windows = vec![window];
            }
            None => self.windows.push(window),
            Some(_) => {}
        }
        let known = self.windows.iter().position(|known| *known == window);
        let place = known.unwrap_or_else(|| {
            if self.windows.len() < MAX_WINDOWS {
                self.windows.push(window);
            }
            self.windows.len() - 1
        });
        Some((u32::try_from(place).unwrap_or(u32::MAX), window))
    }

    fn poison(&mut self) {
        self.poisoned = true;
        self.complete = false;
        self.drop_all(Why::Schema);
    }

    fn start_over(&mut self, partial: PartialReason, why: Why) {
        self.complete = false;
        self.partial = partial;
        self.doubt = false;
        self.drop_all(why);
    }

    fn drop_all(&mut self, why: Why) {
        self.stored_any = false;
        self.events.clear();
        self.waiting.clear();
        self.tails.clear();
        self.trust = self.current_trust();
        tracing::info!(trust = %self.trust, %why, "forgetting blocks");
        self.updates.push(Update::Forget { trust: self.trust, why });
    }

    /// Hands on what has gathered; whether that is anything.
    fn flush(&mut self) -> bool {
        if self.events.is_empty() && self.unknown == 0 {
            return false;
        }
        let events = std::mem::take(&mut self.events);
        let unknown_events = std::mem::take(&mut self.unknown);
        self.counts.batches += 1;
        self.counts.events += events.len() as u64;
        self.counts.unknown_events += u64::from(unknown_events);
        let batch = Batch { ts: 0.0, rank: None, events, unknown_events };
        let (seq, payload) = (self.last.unwrap_or(0), Arc::default());
        self.updates.push(Update::Batch { seq, replayed: false, batch, payload });
        true
    }

    fn current_trust(&self) -> Trust {
        match self.link {
            Link::Down(reason) => Trust::Absent(reason),
            Link::Up if self.stranger => Trust::Absent(AbsentReason::RankUnknown),
            Link::Up if self.poisoned => Trust::Suspect(SuspectReason::Schema),
            Link::Up if self.doubt => Trust::Suspect(SuspectReason::LifeInDoubt),
            Link::Up if !self.complete => Trust::Partial(self.partial),
            Link::Up if !self.waiting.is_empty() => Trust::Partial(PartialReason::BlocksLeftOut),
            Link::Up => Trust::Exact,
        }
    }

    fn settle(&mut self, why: Why) {
        let trust = self.current_trust();
        if trust != self.trust {
            self.trust = trust;
            self.updates.push(Update::Trust { trust, why });
        }
    }
}
