//! A publisher with every fault, over real sockets, against what its engine truly holds: from the
//! next batch received, or the idle check at the latest, nothing is over-predicted, and the picture is
//! exact again in bounded time or says why it is not.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at once")]

mod engine;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvasir_fleet::{Applier, EngineCard};
use kvasir_inventory::{AbsentReason, Inventory, Limits, Slot, Trust};
use kvasir_kv_events::{Address, Subscriber, SubscriberConfig, Update};
use kvasir_kv_hash::{KeySpace, Scope};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions, ReplayFault, ReplayForm};

use crate::engine::{BLOCK, Dice, Engine};

const DEADLINE: Duration = Duration::from_secs(20);
const IDLE_CHECK: Duration = Duration::from_millis(60);

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Nothing,
    Drop(usize),
    /// Lost, and not to be had again.
    Gone,
    Duplicate,
    /// The second of two batches comes first.
    Reorder,
    /// The end of a batch is missing.
    Truncate,
    /// A batch arrives with other bytes than were sent; it is the last for a while.
    Corrupt,
    /// Disconnected, with batches meanwhile.
    Pause,
    Restart(Numbers),
    /// Without a break in the connection, as behind a proxy.
    RestartUnseen(Numbers),
    Clear,
    LoseReplayEnd,
    LoseReplayed,
}

/// Where a new life's numbers begin.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    Zero,
    Same,
    Higher,
}

const FAULTS: [Fault; 17] = [
    Fault::Nothing,
    Fault::Drop(1),
    Fault::Drop(7),
    Fault::Gone,
    Fault::Duplicate,
    Fault::Reorder,
    Fault::Truncate,
    Fault::Corrupt,
    Fault::Pause,
    Fault::Restart(Numbers::Zero),
    Fault::Restart(Numbers::Same),
    Fault::Restart(Numbers::Higher),
    Fault::RestartUnseen(Numbers::Zero),
    Fault::RestartUnseen(Numbers::Same),
    Fault::RestartUnseen(Numbers::Higher),
    Fault::LoseReplayEnd,
    Fault::LoseReplayed,
];

/// An engine, its publisher, and the way of its events into an inventory.
struct World {
    engine: Engine,
    publisher: FakePublisher,
    /// The number of the last batch.
    last: u64,
    subscriber: Subscriber,
    inventory: Arc<Inventory>,
    slot: Slot,
    applier: Applier,
    card: EngineCard,
    dice: Dice,
    /// Whether there is a replay socket.
    replays: bool,
}

impl World {
    fn new(seed: u64, replay: bool) -> Self {
        let form =
            if seed.is_multiple_of(2) { ReplayForm::WithTopic } else { ReplayForm::WithoutTopic };
        let options = PublisherOptions { replay: replay.then_some(form), ..Default::default() };
        let publisher = FakePublisher::start(options).unwrap();
        let mut config = SubscriberConfig::new(Address::parse(&publisher.endpoint()).unwrap());
        config.replay = publisher.replay_endpoint().map(|text| Address::parse(&text).unwrap());
        config.backoff_min = Duration::from_millis(5);
        config.backoff_max = Duration::from_millis(50);
        config.idle_check = IDLE_CHECK;
        config.replay_timeout = Duration::from_millis(150);
        let subscriber = Subscriber::spawn(config).unwrap();
        let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
        let slot = inventory.register().unwrap();
        let connecting = Trust::Absent(AbsentReason::Connecting);
        let applier = Applier::new(Arc::clone(&inventory), slot, connecting);
        let (engine, card) = (Engine::new(), EngineCard::default());
        let dice = Dice(seed * 2 + 1);
        let mut world = Self {
            engine,
            publisher,
            last: 0,
            subscriber,
            inventory,
            slot,
            applier,
            card,
            dice,
            replays: replay,
        };
        world.publisher.wait_for_subscribers(1, DEADLINE);
        world.publish();
        world.settle();
        world
    }

    fn publish(&mut self) {
        let batch = self.engine.step(&mut self.dice);
        self.last = self.publisher.publish(batch);
    }

    /// Whatever has arrived is applied.
    fn apply(&mut self) {
        while let Some(update) = self.subscriber.try_recv() {
            self.applier.apply(&update, &self.card);
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        loop {
            self.apply();
            if done(self) {
                return;
            }
            let (trust, stats) = (self.applier.trust(), self.subscriber.stats().snapshot());
            assert!(start.elapsed() < DEADLINE, "not in time: {what}; {trust}; {stats:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Nothing => self.publish(),
            Fault::Drop(count) => {
                for _ in 0..count {
                    let batch = self.engine.step(&mut self.dice);
                    self.last = self.publisher.publish_lost(batch);
                }
            }
            Fault::Gone => {
                self.engine.step(&mut self.dice);
                self.last = self.publisher.skip();
            }
            Fault::Duplicate => {
                self.publish();
                self.publisher.repeat_last();
                self.publisher.repeat_last();
            }
            Fault::Reorder => {
                let first = self.engine.step(&mut self.dice);
                let number = self.publisher.publish_lost(first.clone());
                self.publish();
                self.publisher.send_numbered(number, first);
            }
            Fault::Truncate => {
                let mut batch = self.engine.step(&mut self.dice);
                batch.truncate(batch.len() / 2);
                self.last = self.publisher.publish(batch);
            }
            Fault::Corrupt => {
                let batch = self.engine.step(&mut self.dice);
                self.last = self.publisher.publish_lost(batch.clone());
                let mut other = batch;
                let at = other.len() - 1 - self.dice.below(other.len() / 2);
                other[at] ^= 1 << self.dice.below(7);
                self.publisher.send_numbered(self.last, other);
            }
            Fault::Pause => {
                self.publisher.go_down();
                for _ in 0..self.dice.below(4) {
                    self.publish();
                }
                self.publisher.come_up();
            }
            Fault::Restart(numbers) => {
                self.engine.restart();
                self.publisher.restart(self.first(numbers));
                self.last = self.first(numbers).saturating_sub(1);
            }
            Fault::RestartUnseen(numbers) => {
                self.engine.restart();
                self.publisher.restart_unseen(self.first(numbers));
                self.last = self.first(numbers).saturating_sub(1);
            }
            Fault::Clear => {
                let batch = self.engine.clear();
                self.last = self.publisher.publish(batch);
            }
            Fault::LoseReplayEnd => {
                self.publisher.set_replay_fault(ReplayFault::LoseEnd);
                self.inject(Fault::Drop(2));
                self.publish();
            }
            Fault::LoseReplayed => {
                self.publisher.set_replay_fault(ReplayFault::LoseOnce(vec![self.last + 2]));
                self.inject(Fault::Drop(3));
                self.publish();
            }
        }
    }

    fn first(&self, numbers: Numbers) -> u64 {
        match numbers {
            Numbers::Zero => 0,
            Numbers::Same => self.last + 1,
            Numbers::Higher => self.last + 5,
        }
    }

    /// The next page of the engine's metrics is read.
    fn scrape(&self) {
        let seconds = self.engine.process_start();
        self.subscriber.witness().process_started(Instant::now(), seconds);
    }

    /// A batch is received, or an idle check is over: from here on nothing may be over-predicted.
    fn settle(&mut self) {
        let more = self.dice.below(2) == 0;
        self.settle_after(more);
    }

    fn settle_after(&mut self, more: bool) {
        if !self.replays {
            return self.settle_by_batches();
        }
        if more {
            self.publish();
        }
        let asked = |world: &Self| {
            let stats = world.subscriber.stats().snapshot();
            stats.replays + stats.replay_failures
        };
        let before = asked(self);
        self.until("two checks", |world| {
            world.scrape();
            match world.applier.trust() {
                Trust::CatchingUp => false,
                Trust::Absent(_) | Trust::Suspect(_) => true,
                Trust::Exact | Trust::Partial(_) => asked(world) >= before + 3,
            }
        });
    }

    /// Nobody can be asked: the next batch tells. One that is published before the subscription is
    /// in effect comes to nobody.
    fn settle_by_batches(&mut self) {
        let start = Instant::now();
        loop {
            self.publish();
            let sent = Instant::now();
            while sent.elapsed() < IDLE_CHECK {
                self.scrape();
                self.apply();
                let stats = self.subscriber.stats().snapshot();
                let followed = stats.last_seq == Some(self.last) && stats.witnessed;
                if followed && !matches!(self.applier.trust(), Trust::Absent(_)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(start.elapsed() < DEADLINE, "{:?}", self.subscriber.stats().snapshot());
        }
    }

    #[track_caller]
    fn check(&self, fault: Fault) {
        let trust = self.applier.trust();
        if !trust.credits() {
            return;
        }
        for prompt in self.engine.prompts() {
            let (known, held) = (self.known(prompt), self.engine.resident(prompt));
            assert!(known <= held, "{fault:?}: {trust}: {prompt:?}: {known} of {held}");
            if trust == Trust::Exact {
                assert_eq!(known, held, "{fault:?}: {prompt:?}");
            }
        }
    }

    fn known(&self, prompt: &[u32]) -> usize {
        let space = self.inventory.space();
        let root = space.root(&Scope { model: self.card.base(), lora: None, salt: None });
        let keys = space.chain(root, prompt, BLOCK);
        let overlaps = self.inventory.overlaps(&keys, u32::try_from(BLOCK).unwrap());
        overlaps.get(self.slot).resident() as usize
    }
}

fn play(seed: u64, replay: bool, faults: usize) {
    let mut world = World::new(seed, replay);
    for _ in 0..faults {
        let fault = FAULTS[world.dice.below(FAULTS.len())];
        if matches!(fault, Fault::Corrupt) && !replay {
            // Bytes that still make sense: nobody could tell.
            continue;
        }
        // What only a replay socket can find out.
        let needs_replay = matches!(fault, Fault::Drop(_));
        let restarts = world.subscriber.stats().snapshot().restarts;
        world.inject(fault);
        if matches!(fault, Fault::RestartUnseen(_)) && !replay {
            // By the next page of the engine's metrics it is found out.
            world.until("the restart", |world| {
                world.scrape();
                world.subscriber.stats().snapshot().restarts > restarts
            });
        }
        // What nobody has any more shows with the next batch only.
        if matches!(fault, Fault::Gone) || (needs_replay && !replay) {
            world.publish();
        }
        // Other bytes show only while they are the last ones.
        if matches!(fault, Fault::Corrupt) {
            world.settle_after(false);
        } else {
            world.settle();
        }
        world.check(fault);
        world.publisher.set_replay_fault(ReplayFault::None);
    }
    // The faults are over: whatever it was, an emptied cache is known exactly.
    world.inject(Fault::Clear);
    world.until("exact after all", |world| world.applier.trust() == Trust::Exact);
    world.publish();
    world.settle();
    world.until("exact again", |world| world.applier.trust() == Trust::Exact);
    world.check(Fault::Nothing);
}

#[test]
fn with_a_replay_socket_nothing_is_over_predicted() {
    for seed in 1..=6 {
        play(seed, true, 40);
    }
}

#[test]
fn without_a_replay_socket_nothing_is_over_predicted() {
    for seed in 1..=4 {
        play(seed, false, 40);
    }
}

#[test]
fn each_fault_is_survived_alone() {
    for (seed, fault) in (100..).zip(FAULTS) {
        let mut world = World::new(seed, true);
        for _ in 0..5 {
            world.publish();
        }
        world.settle();
        world.inject(fault);
        world.settle_after(!matches!(fault, Fault::Corrupt));
        world.check(fault);
        let trust = world.applier.trust();
        let named = !trust.reason().is_empty();
        assert!(trust == Trust::Exact || named, "{fault:?} left {trust}");
        match fault {
            // The batch is gone for good, or was never understood.
            Fault::Gone
            | Fault::Truncate
            | Fault::Restart(Numbers::Same | Numbers::Higher)
            | Fault::RestartUnseen(Numbers::Same | Numbers::Higher) => {}
            _ => world.until("exact again", |world| world.applier.trust() == Trust::Exact),
        }
        world.check(fault);
    }
}

#[test]
fn ten_thousand_batches_are_replayed_to_a_slow_reader() {
    let publisher = FakePublisher::start(PublisherOptions::default()).unwrap();
    let mut engine = Engine::new();
    let mut dice = Dice(11);
    for _ in 0..10_000 {
        publisher.publish(engine.step(&mut dice));
    }
    let mut config = SubscriberConfig::new(Address::parse(&publisher.endpoint()).unwrap());
    config.replay = publisher.replay_endpoint().map(|text| Address::parse(&text).unwrap());
    config.queue = 1;
    let mut subscriber = Subscriber::spawn(config).unwrap();
    let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
    let slot = inventory.register().unwrap();
    let connecting = Trust::Absent(AbsentReason::Connecting);
    let mut applier = Applier::new(Arc::clone(&inventory), slot, connecting);
    let (start, mut batches, mut more) = (Instant::now(), 0_u32, 0);
    while applier.trust() != Trust::Exact || batches < 10_000 + more {
        assert!(start.elapsed() < 3 * DEADLINE, "{batches} batches; {}", applier.trust());
        let Some(update) = subscriber.try_recv() else {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        };
        if let Update::Batch { seq, .. } = &update {
            assert_eq!(*seq, u64::from(batches), "once, and in order");
            batches += 1;
            // Slow, and while it reads the engine goes on.
            if batches.is_multiple_of(500) && more < 10 {
                more += 1;
                std::thread::sleep(Duration::from_millis(20));
                publisher.publish(engine.step(&mut dice));
            }
        }
        applier.apply(&update, &EngineCard::default());
    }
    let root = inventory.space().root(&Scope { model: "", lora: None, salt: None });
    for prompt in engine.prompts() {
        let keys = inventory.space().chain(root, prompt, BLOCK);
        let known = inventory.overlaps(&keys, u32::try_from(BLOCK).unwrap()).get(slot).resident();
        assert_eq!(known as usize, engine.resident(prompt), "{prompt:?}");
    }
}
