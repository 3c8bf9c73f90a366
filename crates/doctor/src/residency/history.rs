//! What a publisher's replay socket held, as far as a recording shows.
//!
//! A recorder asks the replay socket when it likes, not when the stream would. But what a socket
//! answers is fixed by what was published: everything from the number asked for to the last batch.
//! So the batches that were heard live and those that came with recorded replays answer the
//! stream's own questions, each at a moment at which they had been published for certain.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::capture::{Capture, Item, Live, Replay};

/// The batches of one run of a publisher.
#[derive(Debug, Default)]
struct Life {
    batches: BTreeMap<u64, Arc<Vec<u8>>>,
    /// The numbers of those that were heard live.
    live: BTreeSet<u64>,
}

/// One publisher's batches, life by life.
#[derive(Debug, Default)]
pub(super) struct History {
    lives: Vec<Life>,
    /// The life of every live batch and every replay to come, in recorded order.
    lives_ahead: VecDeque<usize>,
    /// The life that goes on.
    life: usize,
    /// The last batch published for certain.
    published: Option<u64>,
    /// What was heard live of the run that goes on: a replay that differs from it begins no other run
    /// for what is live.
    heard: BTreeMap<u64, Arc<Vec<u8>>>,
    /// Whether the replay socket was asked at all.
    was_asked: bool,
}

impl History {
    /// Reads ahead what the recording holds of the publisher `name`.
    pub(super) fn of(capture: &Capture, name: &str) -> Self {
        let mut history = Self { lives: vec![Life::default()], ..Self::default() };
        for line in capture.lines.iter().filter(|line| line.source.name == name) {
            let goes_on = |life: &Life| match &line.item {
                Item::Live(Some(live)) => life.continues_with(live),
                Item::Replay(replay) => replay.batches().all(|batch| life.agrees(batch)),
                _ => true,
            };
            if !history.lives.last().is_some_and(goes_on) {
                history.lives.push(Life::default());
            }
            let newest = history.lives.len() - 1;
            let life = &mut history.lives[newest];
            match &line.item {
                Item::Live(Some(live)) => {
                    life.live.insert(live.seq);
                    life.take(live);
                }
                Item::Replay(replay) => {
                    history.was_asked = true;
                    replay.batches().for_each(|batch| life.take(batch));
                }
                _ => continue,
            }
            history.lives_ahead.push_back(newest);
        }
        history.published = history.before_live();
        history
    }

    /// What one replay brought, and nothing else.
    pub(super) fn of_replay(replay: &Replay) -> Self {
        let mut life = Life::default();
        replay.batches().for_each(|batch| life.take(batch));
        let published = life.batches.keys().next_back().copied();
        Self { lives: vec![life], published, was_asked: true, ..Self::default() }
    }

    /// Whether the publisher is known to have a replay socket.
    pub(super) fn has_socket(&self) -> bool {
        self.was_asked
    }

    /// A live batch was heard: it has been published.
    pub(super) fn heard(&mut self, live: &Live) {
        if self.enter_life() {
            self.heard.clear();
        }
        self.heard.entry(live.seq).or_insert_with(|| Arc::clone(&live.payload));
        self.published = self.published.max(Some(live.seq));
    }

    /// A recorded replay is over: what it brought has been published. Compares it with what came
    /// live until then.
    pub(super) fn replayed(&mut self, replay: &Replay) -> Compared {
        let mut compared = Compared::default();
        let life = self.lives.get(self.life);
        for batch in replay.batches() {
            let known = life.and_then(|life| life.batches.get(&batch.seq));
            match (self.heard.get(&batch.seq), known) {
                (Some(live), _) if *live == batch.payload => compared.as_live += 1,
                (Some(_), _) => compared.differing += 1,
                (None, Some(known)) if *known != batch.payload => compared.differing += 1,
                (None, _) => compared.not_live += 1,
            }
        }
        self.enter_life();
        self.published = self.published.max(replay.batches().map(|batch| batch.seq).max());
        compared
    }

    /// Goes on to the life of the next line; whether that is another one.
    fn enter_life(&mut self) -> bool {
        let life = self.lives_ahead.pop_front().unwrap_or(self.life);
        let is_other = life != self.life;
        if is_other {
            self.life = life;
            self.published = self.before_live();
        }
        is_other
    }

    /// What the socket answers to a question from `start` on.
    pub(super) fn answers(&self, start: u64) -> VecDeque<(u64, Arc<Vec<u8>>)> {
        let (Some(life), Some(end)) = (self.lives.get(self.life), self.published) else {
            return VecDeque::new();
        };
        if start > end {
            return VecDeque::new();
        }
        let range = life.batches.range(start..=end);
        range.map(|(seq, payload)| (*seq, Arc::clone(payload))).collect()
    }

    /// What was published before anything was heard live; all that is known, if nothing was.
    fn before_live(&self) -> Option<u64> {
        let life = self.lives.get(self.life)?;
        match life.live.first() {
            Some(first) => first.checked_sub(1),
            None => life.batches.keys().next_back().copied(),
        }
    }
}

/// A replay beside what came live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) as_live: usize,
    pub(super) differing: usize,
    pub(super) not_live: usize,
}

impl Life {
    /// Whether this batch can be one of this life: only its last ones are repeated.
    fn continues_with(&self, live: &Live) -> bool {
        let known = self.batches.contains_key(&live.seq);
        let goes_back = self.live.last().is_some_and(|last| live.seq < *last);
        self.agrees(live) && (known || !goes_back)
    }

    fn agrees(&self, batch: &Live) -> bool {
        self.batches.get(&batch.seq).is_none_or(|known| *known == batch.payload)
    }

    fn take(&mut self, batch: &Live) {
        self.batches.entry(batch.seq).or_insert_with(|| Arc::clone(&batch.payload));
    }
}
