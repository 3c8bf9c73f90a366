//! How news of the engines reaches the gateways: events with delay and loss, replays, metrics.

use std::sync::Arc;
use std::time::Instant;

use kvasir_engine_sim::StepOutcome;
use kvasir_kv_events::stream::Stream;

use super::{World, mix};
use crate::gateway::{Signals, Wants};
use crate::queue::{Event, Pair, nanos};

impl World<'_> {
    /// Connects every gateway to every engine, and lets it read metrics at a moment of its own.
    pub(super) fn schedule_news(&mut self) {
        let interval = nanos(self.options.news.scrape_interval).max(1);
        for replica in 0..self.replicas.len() as u16 {
            for pair in self.pairs_of(replica) {
                self.queue.push(0, Event::Link { pair, up: true });
                let number = u64::from(pair.gateway) << 32 | u64::from(replica);
                let offset = mix(self.options.seed ^ mix(number)) % interval;
                self.queue.push(offset, Event::Scrape { pair });
            }
        }
        for (place, restart) in self.options.restarts.iter().enumerate() {
            let at = crate::queue::from_seconds(restart.at);
            self.queue.push(at, Event::Kill { restart: place as u16 });
        }
    }

    /// Sends what a step changed to all gateways, as far as it is not lost.
    pub(super) fn publish(&mut self, replica: u16, step: &StepOutcome) {
        let Some(publisher) = self.replicas.get_mut(usize::from(replica)) else { return };
        let life = u64::from(publisher.life);
        let Some((seq, payload)) = publisher.publish(self.now, &step.events) else { return };
        let at = self.now + nanos(self.options.news.event_delay);
        for pair in self.pairs_of(replica) {
            if !self.is_lost(pair, life, seq) {
                self.queue.push(at, Event::Batch { pair, seq, payload: Arc::clone(&payload) });
            }
        }
    }

    fn is_lost(&self, pair: Pair, life: u64, seq: u64) -> bool {
        let loss = self.options.news.event_loss;
        if loss <= 0.0 {
            return false;
        }
        let link = u64::from(pair.gateway) << 16 | u64::from(pair.replica);
        let number = mix(self.options.seed ^ mix(link << 32 ^ life) ^ mix(!seq));
        ((number >> 11) as f64 / (1_u64 << 53) as f64) < loss
    }

    pub(super) fn batch(&mut self, pair: Pair, seq: u64, payload: &Arc<Vec<u8>>) {
        self.tell(pair, |stream, now| stream.live(now, seq, payload.to_vec()));
    }

    pub(super) fn link(&mut self, pair: Pair, up: bool) {
        self.tell(pair, |stream, now| {
            if up {
                stream.connected(now);
            } else {
                stream.disconnected();
            }
        });
    }

    pub(super) fn tick(&mut self, pair: Pair) {
        let now = self.now;
        let due = self.follow(pair, |following, _| following.take_tick(now));
        if due == Some(true) {
            self.tell(pair, Stream::tick);
        }
    }

    /// The replay socket answers, unless the engine is gone or the question is an old one.
    pub(super) fn replay(&mut self, pair: Pair, question: u32) {
        let from = self.follow(pair, |following, _| following.take_question(question)).flatten();
        let Some(replica) = self.replicas.get(usize::from(pair.replica)).filter(|r| r.up) else {
            return;
        };
        let Some(from) = from else { return };
        let batches: Vec<(u64, Arc<Vec<u8>>)> =
            replica.history(from).map(|(seq, payload)| (seq, Arc::clone(payload))).collect();
        self.tell(pair, |stream, now| {
            for (seq, payload) in &batches {
                stream.replay_batch(now, *seq, payload.to_vec());
            }
            stream.replay_end(now);
        });
    }

    /// Tells a gateway's stream something, and schedules what it wants.
    fn tell(&mut self, pair: Pair, what: impl FnOnce(&mut Stream, Instant)) {
        let (clock, now) = (self.clock, self.now);
        let wants = self.follow(pair, |following, card| following.tell(clock, now, card, what));
        let Some(Wants { ask, tick }) = wants else { return };
        if let Some(question) = ask {
            let at = now + 2 * nanos(self.options.news.event_delay);
            self.queue.push(at, Event::Replay { pair, question });
        }
        if let Some(at) = tick {
            self.queue.push(at, Event::Tick { pair });
        }
    }

    fn follow<T>(
        &mut self,
        pair: Pair,
        what: impl FnOnce(&mut crate::gateway::Following, &kvasir_fleet::EngineCard) -> T,
    ) -> Option<T> {
        let gateway = self.gateways.get_mut(usize::from(pair.gateway))?;
        let (following, card) = gateway.follow(pair.replica)?;
        Some(what(following, card))
    }

    pub(super) fn scrape(&mut self, pair: Pair) {
        let news = &self.options.news;
        self.queue.push(self.now + nanos(news.scrape_interval).max(1), Event::Scrape { pair });
        let Some(gateway) = self.gateways.get_mut(usize::from(pair.gateway)) else { return };
        let Some(replica) = self.replicas.get(usize::from(pair.replica)) else { return };
        if !replica.up {
            gateway.scraped(pair.replica, None, self.now);
            return;
        }
        let shown = replica.shown();
        let signals = Signals {
            running: Some(shown.running as f64),
            waiting: Some(shown.waiting as f64),
            kv_usage: Some(shown.kv_usage()),
            own_in_flight: gateway.in_flight(pair.replica),
        };
        self.queue.push(self.now + nanos(news.scrape_delay), Event::Scraped { pair, signals });
    }
}
