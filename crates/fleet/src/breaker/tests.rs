use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn settings(failures: u32, trials: u32) -> BreakerSettings {
    BreakerSettings {
        failures,
        trials,
        open: Duration::from_secs(5),
        longest_open: Duration::from_secs(15),
    }
}

struct Scene {
    breaker: Breaker,
    now: Instant,
}

impl Scene {
    fn new(failures: u32, trials: u32) -> Self {
        Self { breaker: Breaker::new(settings(failures, trials)), now: Instant::now() }
    }

    fn send(&mut self) -> Ticket {
        self.breaker.send(self.now)
    }

    fn settle(&mut self, ticket: Ticket, verdict: Verdict) {
        self.breaker.settle(ticket, verdict, self.now);
    }

    fn fault(&mut self) {
        let ticket = self.send();
        self.settle(ticket, Verdict::Fault);
    }

    fn state(&self) -> BreakerState {
        self.breaker.state(self.now)
    }

    fn after(&mut self, seconds: u64) -> BreakerState {
        self.now += Duration::from_secs(seconds);
        self.state()
    }
}

#[test]
fn a_streak_opens_it_and_a_success_ends_the_streak() {
    let mut scene = Scene::new(3, 1);
    for verdict in [Verdict::Answered, Verdict::Nothing] {
        scene.fault();
        scene.fault();
        let ticket = scene.send();
        scene.settle(ticket, verdict);
        let expected =
            if verdict == Verdict::Answered { BreakerState::Closed } else { BreakerState::Open };
        scene.fault();
        assert_eq!(scene.state(), expected, "{verdict:?} in between");
    }
}

#[test]
fn the_rest_doubles_while_trials_fail_up_to_its_limit_and_begins_anew() {
    let mut scene = Scene::new(1, 1);
    scene.fault();
    for rest in [5, 10, 15, 15] {
        assert_eq!(scene.after(rest - 1), BreakerState::Open);
        assert_eq!(scene.after(1), BreakerState::HalfOpen);
        scene.fault();
        assert_eq!(scene.state(), BreakerState::Open);
    }
    scene.after(15);
    let ticket = scene.send();
    scene.settle(ticket, Verdict::Answered);
    scene.fault();
    assert_eq!((scene.after(4), scene.after(1)), (BreakerState::Open, BreakerState::HalfOpen));
}

#[test]
fn only_so_many_trials_run_at_once_and_one_that_is_cancelled_frees_its_place() {
    let mut scene = Scene::new(1, 2);
    scene.fault();
    scene.after(5);
    assert_eq!(scene.breaker.bars(scene.now), None);
    let (one, two, third) = (scene.send(), scene.send(), scene.send());
    assert_eq!([&one, &two, &third].map(Ticket::is_trial), [true, true, false]);
    assert_eq!(scene.breaker.bars(scene.now), Some(BreakerState::HalfOpen));
    scene.settle(one, Verdict::Nothing);
    assert_eq!(scene.breaker.bars(scene.now), None);
    scene.settle(third, Verdict::Fault);
    assert_eq!(scene.state(), BreakerState::HalfOpen, "that was no trial");
    scene.settle(two, Verdict::Answered);
    assert_eq!(scene.state(), BreakerState::Closed);
}

#[test]
fn what_was_sent_before_it_opened_says_nothing() {
    let mut scene = Scene::new(1, 1);
    let old = [scene.send(), scene.send()];
    scene.fault();
    for (ticket, verdict) in old.into_iter().zip([Verdict::Answered, Verdict::Fault]) {
        scene.settle(ticket, verdict);
        assert_eq!(scene.state(), BreakerState::Open);
    }
    assert_eq!(scene.after(5), BreakerState::HalfOpen, "the rest is no longer for it");
}

#[test]
fn a_request_sent_for_want_of_another_engine_closes_it_and_never_prolongs_the_rest() {
    let mut scene = Scene::new(1, 1);
    scene.fault();
    scene.after(1);
    scene.fault();
    assert_eq!(scene.after(4), BreakerState::HalfOpen);
    let mut scene = Scene::new(1, 1);
    scene.fault();
    let ticket = scene.send();
    scene.settle(ticket, Verdict::Answered);
    assert_eq!(scene.state(), BreakerState::Closed);
}

#[test]
fn an_engine_that_is_back_is_tried_at_once() {
    let mut scene = Scene::new(1, 1);
    assert!(!scene.breaker.reappeared(), "it was never away");
    scene.fault();
    assert!(scene.breaker.reappeared());
    assert_eq!((scene.state(), scene.breaker.reappeared()), (BreakerState::HalfOpen, false));
    scene.fault();
    assert_eq!((scene.after(9), scene.after(1)), (BreakerState::Open, BreakerState::HalfOpen));
}

#[test]
fn a_trial_that_hangs_makes_room_for_another_and_its_end_still_counts() {
    for (late, then) in [
        (Verdict::Answered, BreakerState::Closed),
        (Verdict::Fault, BreakerState::Open),
        (Verdict::Nothing, BreakerState::HalfOpen),
    ] {
        let mut scene = Scene::new(1, 1);
        scene.fault();
        scene.after(5);
        let hangs = scene.send();
        scene.after(4);
        assert_eq!(scene.breaker.bars(scene.now), Some(BreakerState::HalfOpen));
        scene.after(1);
        assert_eq!(scene.breaker.bars(scene.now), None);
        let other = scene.send();
        assert!(other.is_trial());
        assert_eq!(scene.breaker.bars(scene.now), Some(BreakerState::HalfOpen));
        scene.settle(hangs, late);
        assert_eq!(scene.state(), then);
        if late == Verdict::Nothing {
            assert_eq!(scene.breaker.bars(scene.now), Some(then), "the other's place is its own");
            scene.settle(other, Verdict::Answered);
            assert_eq!(scene.state(), BreakerState::Closed);
        }
    }
}

/// The same in the plainest way: requests by number, in sets, and no arithmetic on counters.
struct Naive {
    settings: BreakerSettings,
    /// Everything that was settled since the breaker closed last, oldest first.
    since_closed: Vec<Verdict>,
    /// When it opened and for how long, each time.
    opened: Vec<(Instant, Duration)>,
    closed: bool,
    trying: bool,
    /// Those that were not settled, with the moment they were sent.
    trials: HashMap<usize, Instant>,
    sent_after: HashMap<usize, usize>,
}

impl Naive {
    fn state(&self, now: Instant) -> BreakerState {
        if self.closed {
            return BreakerState::Closed;
        }
        let (at, rest) = *self.opened.last().unwrap();
        if !self.trying && now < at + rest { BreakerState::Open } else { BreakerState::HalfOpen }
    }

    fn bars(&self, now: Instant) -> Option<BreakerState> {
        let young = |since: &&Instant| now < **since + self.settings.open;
        let full = self.trials.values().filter(young).count() >= self.settings.trials as usize;
        match self.state(now) {
            BreakerState::Open => Some(BreakerState::Open),
            BreakerState::HalfOpen if full => Some(BreakerState::HalfOpen),
            _ => None,
        }
    }

    fn send(&mut self, id: usize, now: Instant) {
        self.sent_after.insert(id, self.opened.len());
        if self.state(now) == BreakerState::HalfOpen && self.bars(now).is_none() {
            self.trying = true;
            self.trials.insert(id, now);
        }
    }

    fn settle(&mut self, id: usize, verdict: Verdict, now: Instant) {
        let was_trial = self.trials.remove(&id).is_some();
        if self.sent_after[&id] != self.opened.len() {
            return;
        }
        if verdict == Verdict::Answered {
            (self.closed, self.trying) = (true, false);
            self.trials.clear();
            self.since_closed.clear();
        } else if verdict == Verdict::Fault && self.closed {
            self.since_closed.push(verdict);
            if self.since_closed.len() >= self.settings.failures as usize {
                self.open(self.settings.open, now);
            }
        } else if verdict == Verdict::Fault && was_trial {
            let rest = self.opened.last().unwrap().1 * 2;
            self.open(rest.min(self.settings.longest_open), now);
        }
    }

    fn open(&mut self, rest: Duration, now: Instant) {
        self.opened.push((now, rest));
        (self.closed, self.trying) = (false, false);
        self.trials.clear();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send,
    /// One of those under way, by its place among them.
    Settle(prop::sample::Index, Verdict),
    Wait(u64),
    Reappear,
}

fn step() -> impl Strategy<Value = Step> {
    let verdict = prop_oneof![
        2 => Just(Verdict::Answered),
        4 => Just(Verdict::Fault),
        1 => Just(Verdict::Nothing)
    ];
    prop_oneof![
        5 => Just(Step::Send),
        5 => (any::<prop::sample::Index>(), verdict).prop_map(|(at, v)| Step::Settle(at, v)),
        2 => (0u64..12).prop_map(Step::Wait),
        1 => Just(Step::Reappear),
    ]
}

proptest! {
    #[test]
    fn it_does_what_the_plain_model_does(
        failures in 1u32..4,
        trials in 1u32..4,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let settings = settings(failures, trials);
        let mut breaker = Breaker::new(settings);
        let mut naive = Naive {
            settings, since_closed: Vec::new(), opened: Vec::new(), closed: true, trying: false,
            trials: HashMap::new(), sent_after: HashMap::new(),
        };
        let mut now = Instant::now();
        let mut under_way: Vec<(usize, Ticket)> = Vec::new();
        for (id, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send => {
                    let ticket = breaker.send(now);
                    naive.send(id, now);
                    prop_assert_eq!(ticket.is_trial(), naive.trials.contains_key(&id));
                    under_way.push((id, ticket));
                }
                Step::Settle(at, verdict) if !under_way.is_empty() => {
                    let (id, ticket) = under_way.swap_remove(at.index(under_way.len()));
                    breaker.settle(ticket, verdict, now);
                    naive.settle(id, verdict, now);
                }
                Step::Settle(..) => {}
                Step::Wait(seconds) => now += Duration::from_secs(seconds),
                Step::Reappear => {
                    let news = breaker.reappeared();
                    prop_assert!(!news || !naive.closed);
                    if !naive.closed {
                        naive.trying = true;
                    }
                }
            }
            prop_assert_eq!(breaker.state(now), naive.state(now));
            prop_assert_eq!(breaker.bars(now), naive.bars(now));
        }
        // No place of a trial is ever lost.
        for (id, ticket) in under_way {
            breaker.settle(ticket, Verdict::Nothing, now);
            naive.settle(id, Verdict::Nothing, now);
        }
        prop_assert_ne!(breaker.bars(now), Some(BreakerState::HalfOpen));
    }
}
