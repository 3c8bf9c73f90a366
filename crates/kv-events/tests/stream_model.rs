//! Random faults against a naive model: a picture kept by the rules of `Update` never claims what
//! the publisher did not hold, and finds the truth again when the faults end.

#![allow(clippy::unwrap_used, reason = "a test's own helpers fail the test")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use kvasir_inventory::Trust;
use kvasir_kv_events::stream::{Output, Stream, StreamConfig};
use kvasir_kv_events::{Event, Update};
use kvasir_testkit::publisher::payload::{self, EventSpec, Form};
use proptest::prelude::*;

/// A batch as the publisher numbers it.
type Numbered = (u64, Vec<u8>);

/// A publisher, its cache after each batch of each life, and what is on the way from it.
struct Publisher {
    life: u64,
    next_seq: u64,
    next_block: u64,
    cache: BTreeSet<u64>,
    history: BTreeMap<(u64, u64), BTreeSet<u64>>,
    kept: VecDeque<Numbered>,
    buffer_steps: usize,
    connected: bool,
    live: VecDeque<Numbered>,
    request: Option<u64>,
    answers: VecDeque<Option<Numbered>>,
}

/// What becomes of a batch that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    /// Not sent; kept for replay.
    Lost,
    /// Neither sent nor kept.
    Gone,
}

impl Publisher {
    fn new(buffer_steps: usize) -> Self {
        Self {
            life: 1,
            next_seq: 0,
            next_block: 0,
            cache: BTreeSet::new(),
            history: BTreeMap::new(),
            kept: VecDeque::new(),
            buffer_steps,
            connected: false,
            live: VecDeque::new(),
            request: None,
            answers: VecDeque::new(),
        }
    }

    fn change(&mut self, kind: u8) -> EventSpec {
        let oldest = self.cache.first().copied();
        match (kind, oldest) {
            (0, _) => {
                self.cache.clear();
                payload::cleared()
            }
            (1..=4, Some(block)) => {
                self.cache.remove(&block);
                payload::removed(&[block])
            }
            _ => {
                self.next_block += 1;
                let block = self.life << 32 | self.next_block;
                self.cache.insert(block);
                payload::stored(&[block], None, &[1, 2])
            }
        }
    }

    fn publish(&mut self, kinds: &[u8], fate: Fate) {
        let events: Vec<EventSpec> = kinds.iter().map(|kind| self.change(*kind)).collect();
        // Each life's batches differ, as time stamps do.
        let ts = self.life as f64 + self.next_seq as f64 / 1e6;
        let batch = (self.next_seq, payload::batch(Form::Array, ts, &events));
        self.history.insert((self.life, self.next_seq), self.cache.clone());
        self.next_seq += 1;
        if fate == Fate::Sent && self.connected {
            self.live.push_back(batch.clone());
        }
        if fate != Fate::Gone {
            self.kept.push_back(batch);
            while self.kept.len() > self.buffer_steps {
                self.kept.pop_front();
            }
        }
    }

    fn restart(&mut self, first_seq: u64) {
        self.life += 1;
        self.next_seq = first_seq;
        self.cache.clear();
        self.kept.clear();
        self.request = None;
        self.answers.clear();
        self.live.clear();
    }

    /// Answers the request that waits; `drops` marks answers the sender loses.
    fn serve(&mut self, mut drops: u32) {
        let Some(start) = self.request.take() else { return };
        let all = self.kept.iter().filter(|(seq, _)| *seq >= start).cloned().map(Some);
        for answer in all.chain([None]) {
            if drops & 1 == 0 {
                self.answers.push_back(answer);
            }
            drops >>= 1;
        }
    }
}

/// The picture of the publisher's cache, by the rules of `Update`.
struct Picture {
    blocks: BTreeSet<u64>,
    trust: Option<Trust>,
    applied: Option<(u64, u64)>,
}

impl Picture {
    fn apply(&mut self, update: Update) {
        match update {
            Update::Forget { trust, .. } => {
                self.blocks.clear();
                self.applied = None;
                self.trust = Some(trust);
            }
            Update::Trust { trust, .. } => self.trust = Some(trust),
            Update::Batch { seq, batch, .. } => {
                self.applied = Some((batch.ts as u64, seq));
                for event in batch.events {
                    match event {
                        Event::Stored(e) => self.blocks.extend(e.block_hashes.iter().map(|h| h.0)),
                        Event::Removed(e) => {
                            for hash in e.block_hashes {
                                self.blocks.remove(&hash.0);
                            }
                        }
                        Event::Cleared => self.blocks.clear(),
                    }
                }
            }
        }
    }

    fn believed(&self) -> bool {
        matches!(self.trust, Some(Trust::Exact | Trust::Partial(_)))
    }

    /// Never more than the publisher held after the last batch applied; all of it if exact.
    fn check(&self, publisher: &Publisher) {
        if !self.believed() {
            return;
        }
        let Some(applied) = self.applied else {
            assert!(self.blocks.is_empty());
            return;
        };
        let held = &publisher.history[&applied];
        assert!(self.blocks.is_subset(held), "{applied:?}: {:?} beyond {held:?}", self.blocks);
        if self.trust == Some(Trust::Exact) {
            assert_eq!(&self.blocks, held, "exact after {applied:?}");
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Publish(Vec<u8>, Fate),
    Repeat,
    Deliver(usize),
    Serve(u32),
    Answer(usize),
    Connect,
    Disconnect,
    Restart(u64),
    RestartUnseen(u64),
    /// The engine says when its process started.
    Witness,
    Tick,
    Wait,
}

fn op(unseen: bool) -> impl Strategy<Value = Op> {
    let kinds = prop::collection::vec(0_u8..12, 0..4);
    let fate = prop_oneof![8 => Just(Fate::Sent), 2 => Just(Fate::Lost), 1 => Just(Fate::Gone)];
    let drops = prop_oneof![3 => Just(0), 1 => any::<u32>(), 1 => Just(u32::MAX)];
    prop_oneof![
        12 => (kinds, fate).prop_map(|(kinds, fate)| Op::Publish(kinds, fate)),
        1 => Just(Op::Repeat),
        8 => (1_usize..5).prop_map(Op::Deliver),
        6 => drops.prop_map(Op::Serve),
        6 => (1_usize..6).prop_map(Op::Answer),
        3 => Just(Op::Connect),
        1 => Just(Op::Disconnect),
        1 => (0_u64..6).prop_map(Op::Restart),
        1 => (0_u64..6).prop_map(move |first| if unseen { Op::RestartUnseen(first) } else { Op::Wait }),
        4 => Just(Op::Witness),
        4 => Just(Op::Tick),
        1 => Just(Op::Wait),
    ]
}

struct World {
    publisher: Publisher,
    stream: Stream,
    picture: Picture,
    now: Instant,
    replay: bool,
    /// Whether the picture must be sound at every step.
    strict: bool,
}

impl World {
    fn new(replay: bool, buffer_steps: usize, pending_batches: usize, strict: bool) -> Self {
        let config =
            StreamConfig { replay, pending_batches, replay_attempts: 2, ..StreamConfig::default() };
        let mut world = Self {
            publisher: Publisher::new(buffer_steps),
            stream: Stream::new(config, 3),
            picture: Picture { blocks: BTreeSet::new(), trust: None, applied: None },
            now: Instant::now(),
            replay,
            strict,
        };
        world.take_outputs();
        world
    }

    fn take_outputs(&mut self) {
        while let Some(output) = self.stream.next_output() {
            match output {
                Output::Update(update) => self.picture.apply(update),
                Output::Ask(start) => {
                    self.publisher.answers.clear();
                    self.publisher.request = Some(start);
                }
                Output::Abandon => {
                    self.publisher.answers.clear();
                    self.publisher.request = None;
                }
            }
            if self.strict {
                self.picture.check(&self.publisher);
            }
        }
        assert_eq!(self.picture.trust, Some(self.stream.trust()));
    }

    fn connect(&mut self) {
        if !self.publisher.connected {
            self.publisher.connected = true;
            self.stream.connected(self.now);
        }
    }

    fn disconnect(&mut self) {
        if self.publisher.connected {
            self.publisher.connected = false;
            self.publisher.live.clear();
            self.stream.disconnected();
        }
    }

    fn witness(&mut self) {
        self.stream.process_started(self.now, self.now, self.publisher.life as f64);
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let Some((seq, payload)) = self.publisher.live.pop_front() else { break };
            self.stream.live(self.now, seq, payload);
            self.take_outputs();
        }
    }

    fn answer(&mut self, count: usize) {
        for _ in 0..count {
            match self.publisher.answers.pop_front() {
                Some(Some((seq, payload))) => self.stream.replay_batch(self.now, seq, payload),
                Some(None) => self.stream.replay_end(self.now),
                None => break,
            }
            self.take_outputs();
        }
    }

    fn tick(&mut self) {
        if let Some(due) = self.stream.deadline() {
            self.now = self.now.max(due);
            self.stream.tick(self.now);
        }
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Publish(kinds, fate) => self.publisher.publish(kinds, *fate),
            Op::Repeat => {
                if let Some(last) = self.publisher.live.back().cloned() {
                    self.publisher.live.push_back(last);
                }
            }
            Op::Deliver(count) => self.deliver(*count),
            Op::Serve(drops) => self.publisher.serve(*drops),
            Op::Answer(count) => self.answer(*count),
            Op::Connect => self.connect(),
            Op::Disconnect => self.disconnect(),
            Op::Restart(first_seq) => {
                self.disconnect();
                self.publisher.restart(*first_seq);
            }
            Op::RestartUnseen(first_seq) => {
                self.publisher.restart(*first_seq);
                // Long enough for a check: a new life that is in step with the old one by then
                // would be invisible in the numbers.
                self.publisher.publish(&[11], Fate::Lost);
                self.quiet(40);
            }
            Op::Witness => self.witness(),
            Op::Tick => self.tick(),
            Op::Wait => {
                self.now += Duration::from_secs(1);
                self.stream.tick(self.now);
            }
        }
        self.take_outputs();
    }

    /// The faults end: everything is sent, answered and waited for.
    fn settle(&mut self) {
        self.connect();
        self.take_outputs();
        // The first batch of another life may be forgotten with the life before: it was taken for
        // that one's until the engine's process said otherwise.
        for _ in 0..2 {
            self.publisher.publish(&[11], Fate::Sent);
            self.quiet(400);
        }
        self.deliver(usize::MAX);
        self.publisher.serve(0);
        self.answer(usize::MAX);
    }

    /// All that is on the way arrives, and time passes.
    fn quiet(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.deliver(usize::MAX);
            self.publisher.serve(0);
            self.answer(usize::MAX);
            self.witness();
            self.tick();
            self.take_outputs();
        }
    }
}

fn run(world: &mut World, ops: &[Op]) {
    for op in ops {
        world.step(op);
    }
    world.settle();
    assert!(world.picture.believed(), "{:?}", world.picture.trust);
    let last = (world.publisher.life, world.publisher.next_seq - 1);
    // A replay socket that never holds anything looks like a publisher that restarts.
    let replay_lies = world.replay && world.publisher.buffer_steps == 0;
    if !replay_lies {
        assert_eq!(world.picture.applied, Some(last));
    }
    world.picture.check(&world.publisher);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_picture_is_sound_at_every_step_and_true_in_the_end(
        ops in prop::collection::vec(op(false), 1..120),
        replay in prop::bool::weighted(0.8),
        buffer_steps in prop_oneof![1 => Just(0_usize), 4 => 1_usize..8, 4 => Just(10_000)],
        pending in 1_usize..12,
    ) {
        run(&mut World::new(replay, buffer_steps, pending, true), &ops);
    }

    /// A life that changes without a sign of it, as behind a proxy, may go unnoticed for a while,
    /// but not for long where there is a replay socket.
    #[test]
    fn an_unseen_restart_is_found_out(
        ops in prop::collection::vec(op(true), 1..120),
        buffer_steps in prop_oneof![1_usize..8, Just(10_000)],
        pending in 1_usize..12,
    ) {
        run(&mut World::new(true, buffer_steps, pending, false), &ops);
    }
}

/// The history was empty, and the check after it misses the batch that is the first.
#[test]
fn a_check_that_misses_the_first_batch_is_not_exact() {
    let ops = [
        Op::Connect,
        Op::Serve(0),
        Op::Publish(vec![1], Fate::Sent),
        Op::Answer(1),
        Op::Tick,
        Op::Publish(vec![], Fate::Sent),
        Op::Serve(1),
        Op::Answer(1),
    ];
    run(&mut World::new(true, 2, 1, true), &ops);
}
