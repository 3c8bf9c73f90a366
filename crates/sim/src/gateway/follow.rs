//! One gateway's view of one engine's event stream: the real stream state and the real picture,
//! driven in simulated time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_fleet::pending::{Found, PendingClaim, PendingSlot, PromptKeys};
use kvasir_fleet::{EngineCard, Picture};
use kvasir_kv_events::stream::{Output, Stream, StreamConfig};

use crate::queue::{Time, nanos};

/// Simulated time as the instants that streams are told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Any instant will do: only differences count.
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn instant(self, time: Time) -> Instant {
        self.0 + Duration::from_nanos(time)
    }

    fn time(self, instant: Instant) -> Time {
        nanos(instant.saturating_duration_since(self.0))
    }
}

/// What has to be scheduled after something was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// The replay socket was asked this question.
    pub(crate) ask: Option<u32>,
    /// Time has to be told at this moment.
    pub(crate) tick: Option<Time>,
}

/// A stream and the picture it paints.
#[derive(Debug)]
pub(crate) struct Following {
    /// `None` where engines publish nothing.
    stream: Option<Stream>,
    pub(crate) picture: Picture,
    pending: PendingSlot,
    /// The open question's number, and from which batch on it asks.
    question: u32,
    asked_from: Option<u64>,
    /// The moment for which a tick is scheduled.
    tick_at: Option<Time>,
}

impl Following {
    /// `events` says whether there are any, and whether with a replay socket.
    pub(crate) fn new(
        picture: Picture,
        pending: PendingSlot,
        events: Option<bool>,
        seed: u64,
    ) -> Self {
        let stream = events
            .map(|replay| Stream::new(StreamConfig { replay, ..StreamConfig::default() }, seed));
        Self { stream, picture, pending, question: 0, asked_from: None, tick_at: None }
    }

    /// Tells the stream something and carries out what it wants.
    pub(crate) fn tell(
        &mut self,
        clock: Clock,
        now: Time,
        card: &EngineCard,
        what: impl FnOnce(&mut Stream, Instant),
    ) -> Wants {
        let Some(stream) = &mut self.stream else { return Wants::default() };
        what(stream, clock.instant(now));
        let mut wants = Wants::default();
        while let Some(output) = stream.next_output() {
            match output {
                Output::Update(update) => {
                    self.pending.before(&update);
                    self.picture.apply(&update, card);
                }
                Output::Ask(from) => {
                    self.question = self.question.wrapping_add(1);
                    self.asked_from = Some(from);
                    wants.ask = Some(self.question);
                }
                Output::Abandon => {
                    self.asked_from = None;
                    wants.ask = None;
                }
            }
        }
        if let Some(deadline) = stream.deadline() {
            // Due or not, time does not stand still.
            let at = clock.time(deadline).max(now + 1_000);
            if self.tick_at.is_none_or(|scheduled| scheduled <= now || at < scheduled) {
                self.tick_at = Some(at);
                wants.tick = Some(at);
            }
        }
        wants
    }

    /// Tokens of a prompt that are pending there beyond the resident ones. Without events too: as
    /// vLLM's, the engines' metrics say that they cache prefixes.
    pub(crate) fn pending(&self, found: &[Found], block_size: u32, resident: u32) -> u32 {
        let Some(found) = found.first() else { return 0 };
        let keys = u32::try_from(found.keys(&self.pending)).unwrap_or(u32::MAX);
        keys.saturating_mul(block_size).saturating_sub(resident)
    }

    /// A prompt is on its way there.
    pub(crate) fn claim(&self, keys: &Arc<PromptKeys>) -> Option<PendingClaim> {
        self.pending.begin(keys)
    }

    /// The engine is gone, and what it was computing.
    pub(crate) fn gone(&self) {
        self.pending.end_all();
    }

    /// Whether the tick of this moment is the one that is waited for.
    pub(crate) fn take_tick(&mut self, now: Time) -> bool {
        let due = self.tick_at == Some(now);
        if due {
            self.tick_at = None;
        }
        due
    }

    /// From which batch on an answer is wanted to this question; `None` if it is an old one.
    pub(crate) fn take_question(&mut self, question: u32) -> Option<u64> {
        if question == self.question { self.asked_from.take() } else { None }
    }
}
