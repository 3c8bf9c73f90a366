//! One publisher's recorded traffic, played through the code that follows live ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_fleet::{BlockIdentity, EngineCard, Picture, PromptTokens};
use kvasir_inventory::{Inventory, Limits};
use kvasir_kv_events::stream::{Output, Stream, StreamConfig};
use kvasir_kv_events::{Event, Update};
use kvasir_kv_hash::KeySpace;

use super::history::History;
use super::report::{BlocksByTier, ReplayFound, ResidencyError, SourceState, TrustChange};
use crate::capture::{Capture, Item, Line, Link, Live, Replay, Source};

/// Longer silences are played as this long: a stream does the same over and over in them.
const LONGEST_SILENCE: f64 = 60.0;
/// How long a line without a time takes.
const STEP: Duration = Duration::from_millis(1);
/// Changes of trust kept per step.
const MAX_CHANGES: usize = 100;

/// One publisher.
pub(super) struct Playback {
    source: Source,
    stream: Stream,
    identity: BlockIdentity,
    picture: Picture,
    history: History,
    /// Virtual time.
    now: Instant,
    /// The recorder's clock at `now`.
    clock: Option<f64>,
    idle_check: Duration,
    /// A reset of the cache is known that no event has told yet.
    awaits_clear: bool,
    changes: Vec<TrustChange>,
}

impl Playback {
    pub(super) fn new(
        capture: &Capture,
        source: &Source,
        identity: &BlockIdentity,
        card: &EngineCard,
    ) -> Result<Self, ResidencyError> {
        let history = History::of(capture, &source.name);
        let mut playback = Self::with(source.clone(), identity, history)?;
        // Recorders that do not say when they were connected were so from the beginning.
        let tells =
            |line: &Line| line.source.name == source.name && matches!(line.item, Item::Link(_));
        if !capture.lines.iter().any(tells) {
            playback.stream.connected(playback.now);
        }
        playback.carry_out(card);
        playback.changes.clear();
        Ok(playback)
    }

    fn with(
        source: Source,
        identity: &BlockIdentity,
        history: History,
    ) -> Result<Self, ResidencyError> {
        let config = StreamConfig { replay: history.has_socket(), ..StreamConfig::default() };
        // Nobody else's blocks are here that could collide.
        let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
        Ok(Self {
            source,
            idle_check: config.idle_check,
            stream: Stream::new(config, 1),
            picture: Picture::new(inventory, identity.clone()).ok_or(ResidencyError::NoRoom)?,
            identity: identity.clone(),
            history,
            now: Instant::now(),
            clock: None,
            awaits_clear: false,
            changes: Vec::new(),
        })
    }

    pub(super) fn rank(&self) -> Option<u32> {
        self.source.rank
    }

    pub(super) fn live(&mut self, at: Option<f64>, live: Option<&Live>, card: &EngineCard) {
        self.pass(at, card);
        match live {
            Some(live) => {
                self.history.heard(live);
                self.stream.live(self.now, live.seq, live.payload.to_vec());
            }
            None => self.stream.malformed(),
        }
        self.carry_out(card);
    }

    pub(super) fn link(&mut self, at: Option<f64>, link: Link, card: &EngineCard) {
        self.pass(at, card);
        match link {
            Link::Connected => self.stream.connected(self.now),
            Link::Disconnected => self.stream.disconnected(),
        }
        self.carry_out(card);
    }

    /// What a recorded replay shows. The stream hears of it only by asking itself, as it does when
    /// nothing comes: so time passes until it does.
    pub(super) fn replay(
        &mut self,
        at: Option<f64>,
        replay: &Replay,
        card: &EngineCard,
    ) -> ReplayFound {
        self.pass(at, card);
        let compared = self.history.replayed(replay);
        self.let_pass(self.idle_check.saturating_mul(2), card);
        let rebuilt = (replay.from == 0).then(|| {
            let history = History::of_replay(replay);
            let mut alone = Self::with(self.source.clone(), &self.identity, history).ok()?;
            alone.stream.connected(alone.now);
            alone.carry_out(card);
            Some(alone.state())
        });
        ReplayFound {
            from: replay.from,
            batches: replay.batches().count(),
            ended: replay.ended,
            as_live: compared.as_live,
            differing: compared.differing,
            not_live: compared.not_live,
            rebuilt: rebuilt.flatten(),
        }
    }

    pub(super) fn reset_asked(&mut self) {
        self.awaits_clear = true;
    }

    pub(super) fn awaits_clear(&self) -> bool {
        self.awaits_clear
    }

    pub(super) fn carried_extras(&mut self) {
        self.picture.carried_extras();
    }

    /// Tokens of a prompt that the engine is expected to hit.
    pub(super) fn predict(&self, tokens: &PromptTokens<'_>, card: &EngineCard) -> u32 {
        self.picture.predict(tokens, card).resident()
    }

    /// What the hashes in its events say of the contract that made them.
    pub(super) fn hash_contract(&self) -> String {
        self.picture.hash_contract().to_string()
    }

    pub(super) fn state(&self) -> SourceState {
        let believed = self.picture.trust();
        SourceState {
            source: self.source.name.clone(),
            trust: believed.to_string(),
            resident_blocks: BlocksByTier::of(self.picture.blocks()),
            believed,
        }
    }

    /// Changes of trust since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<TrustChange> {
        std::mem::take(&mut self.changes)
    }

    /// Lets the recorded time pass up to `at`.
    pub(super) fn pass(&mut self, at: Option<f64>, card: &EngineCard) {
        let passed = match (self.clock, at) {
            (Some(before), Some(at)) => {
                Duration::from_secs_f64((at - before).clamp(0.0, LONGEST_SILENCE))
            }
            _ => STEP,
        };
        self.clock = at.or(self.clock);
        self.let_pass(passed, card);
    }

    fn let_pass(&mut self, passed: Duration, card: &EngineCard) {
        let until = self.now + passed;
        while let Some(due) = self.stream.deadline().filter(|due| *due <= until) {
            // Due or not, time does not stand still: a stream that asks for the same moment again
            // is not asked forever.
            self.now = due.max(self.now + Duration::from_micros(1));
            self.stream.tick(self.now);
            self.carry_out(card);
            if self.now >= until {
                break;
            }
        }
        self.now = self.now.max(until);
    }

    /// Does what the stream wants done, as a subscriber does.
    fn carry_out(&mut self, card: &EngineCard) {
        let mut answers: Option<VecDeque<(u64, Arc<Vec<u8>>)>> = None;
        loop {
            while let Some(output) = self.stream.next_output() {
                match output {
                    Output::Update(update) => self.apply(&update, card),
                    Output::Ask(start) => answers = Some(self.history.answers(start)),
                    Output::Abandon => answers = None,
                }
            }
            let Some(open) = &mut answers else { return };
            match open.pop_front() {
                Some((seq, payload)) => {
                    self.stream.replay_batch(self.now, seq, payload.to_vec());
                }
                None => {
                    answers = None;
                    self.stream.replay_end(self.now);
                }
            }
        }
    }

    fn apply(&mut self, update: &Update, card: &EngineCard) {
        let before = self.picture.trust();
        self.picture.apply(update, card);
        let (why, forgot) = match update {
            Update::Forget { why, .. } => (why.as_str(), true),
            Update::Trust { why, .. } => (why.as_str(), false),
            Update::Batch { batch, .. } => {
                let cleared = batch.events.iter().any(|event| matches!(event, Event::Cleared));
                self.awaits_clear &= !cleared;
                ("events", false)
            }
        };
        let trust = self.picture.trust();
        if (trust != before || forgot) && self.changes.len() < MAX_CHANGES {
            let source = self.source.name.clone();
            self.changes.push(TrustChange { source, trust: trust.to_string(), why, forgot });
        }
    }
}
