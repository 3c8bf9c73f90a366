//! A subscriber under test, and what it has said so far.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kvasir_inventory::{AbsentReason, Trust};
use kvasir_kv_events::{
    Address, Batch, StreamStats, Subscriber, SubscriberConfig, Update, Witness,
};
use kvasir_testkit::publisher::payload::{self, Form};
use kvasir_testkit::publisher::{FakePublisher, PublisherOptions};

/// Generous: the machine may be busy. Nothing waits this long unless it fails.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

pub(super) fn payload_of(mark: u64) -> Vec<u8> {
    payload::batch(Form::Map, 0.5, &[payload::stored(&[mark], None, &[1, 2, 3, 4])])
}

pub(super) fn publisher() -> FakePublisher {
    FakePublisher::start(PublisherOptions::default()).unwrap()
}

pub(super) fn address(text: &str) -> Address {
    Address::resolve(text, "127.0.0.1").unwrap()
}

/// Quick retries, so that tests are; checks far apart, so that they do not help out.
pub(super) fn config(publisher: &FakePublisher) -> SubscriberConfig {
    SubscriberConfig {
        replay: publisher.replay_endpoint().as_deref().map(address),
        backoff_min: Duration::from_millis(10),
        backoff_max: Duration::from_millis(100),
        idle_check: Duration::from_secs(600),
        replay_timeout: Duration::from_millis(500),
        ..SubscriberConfig::new(address(&publisher.endpoint()))
    }
}

pub(super) struct Follower {
    subscriber: Subscriber,
    said: VecDeque<String>,
    /// Applied since the last time everything was forgotten.
    pub(super) batches: Vec<(u64, Batch)>,
    pub(super) trust: Trust,
}

impl Follower {
    pub(super) fn new(config: SubscriberConfig) -> Self {
        Self {
            subscriber: Subscriber::spawn(config).unwrap(),
            said: VecDeque::new(),
            batches: Vec::new(),
            trust: Trust::Absent(AbsentReason::NoStream),
        }
    }

    /// Applies one more update, if one waits.
    fn take(&mut self) -> Option<String> {
        let text = match self.subscriber.try_recv()? {
            Update::Forget { trust, why } => {
                self.trust = trust;
                self.batches.clear();
                format!("forget {trust} {why}")
            }
            Update::Trust { trust, why } => {
                self.trust = trust;
                format!("trust {trust} {why}")
            }
            Update::Batch { seq, replayed, batch, .. } => {
                self.batches.push((seq, batch));
                format!("{} {seq}", if replayed { "replayed" } else { "batch" })
            }
        };
        self.said.push_back(text.clone());
        Some(text)
    }

    #[track_caller]
    fn wait(&mut self, mut found: impl FnMut(&str) -> bool) -> Vec<String> {
        let start = Instant::now();
        loop {
            match self.take() {
                Some(text) if found(&text) => return self.said.drain(..).collect(),
                Some(_) => {}
                None => {
                    let late = start.elapsed() > DEADLINE;
                    assert!(!late, "only {:?}; {:?}", self.said, self.stats());
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }

    /// Waits for something to be said; returns all that was said up to it.
    #[track_caller]
    pub(super) fn until(&mut self, text: &str) -> Vec<String> {
        self.wait(|said| said == text)
    }

    /// Waits for a trust of this state, whatever the reason; returns all that was said.
    #[track_caller]
    pub(super) fn until_trust(&mut self, state: &str) -> Vec<String> {
        self.wait(|said| said.starts_with("trust") && said.contains(state))
    }

    /// Waits for a batch, live or replayed.
    #[track_caller]
    pub(super) fn until_batch(&mut self, seq: u64) {
        let (live, replayed) = (format!("batch {seq}"), format!("replayed {seq}"));
        self.wait(|said| said == live || said == replayed);
    }

    /// What is said next is exactly this.
    #[track_caller]
    pub(super) fn says(&mut self, expected: &[&str]) {
        let last = expected.last().unwrap();
        assert_eq!(self.until(last), expected);
    }

    pub(super) fn seqs(&self) -> Vec<u64> {
        self.batches.iter().map(|(seq, _)| *seq).collect()
    }

    /// Joins a publisher that has published nothing, until the subscription is in effect and the
    /// check after the join is over.
    #[track_caller]
    pub(super) fn join(&mut self, publisher: &FakePublisher) {
        self.until("trust exact joined");
        publisher.wait_for_subscribers(1, DEADLINE);
        kvasir_testkit::eventually(DEADLINE, || self.stats().replays >= 2);
    }

    pub(super) fn witness(&self) -> Witness {
        self.subscriber.witness()
    }

    pub(super) fn stats(&self) -> StreamStats {
        self.subscriber.stats().snapshot()
    }
}
