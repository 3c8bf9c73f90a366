//! What is to happen, in the order of simulated time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use kvasir_engine_sim::RequestId;

use crate::gateway::Signals;

/// Nanoseconds since the beginning.
pub(crate) type Time = u64;

/// A duration in nanoseconds.
pub(crate) fn nanos(duration: Duration) -> Time {
    Time::try_from(duration.as_nanos()).unwrap_or(Time::MAX / 4)
}

/// Seconds in nanoseconds; at most some centuries.
pub(crate) fn from_seconds(seconds: f64) -> Time {
    nanos(Duration::try_from_secs_f64(seconds.clamp(0.0, 4e9)).unwrap_or_default())
}

/// One gateway's link to one replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) gateway: u16,
    pub(crate) replica: u16,
}

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request reaches its gateway.
    Arrive { request: u32 },
    /// A request reaches the engine it was sent to.
    Submit { request: u32 },
    /// A decode engine has the prompt of a request, in this attempt.
    Fetched { request: u32, attempt: u8 },
    /// The time is over for which an engine keeps the prompt of a request.
    LeaseEnd { replica: u16, life: u32, id: RequestId },
    /// A step of an engine ends.
    StepEnd { replica: u16, life: u32 },
    /// A batch of KV events reaches a gateway.
    Batch { pair: Pair, seq: u64, payload: Arc<Vec<u8>> },
    /// The connection to an engine's events was made or lost.
    Link { pair: Pair, up: bool },
    /// An engine's replay socket has answered.
    Replay { pair: Pair, question: u32 },
    /// A stream wants to be told that time passed.
    Tick { pair: Pair },
    /// A gateway reads an engine's metrics.
    Scrape { pair: Pair },
    /// It has read them.
    Scraped { pair: Pair, signals: Signals },
    /// An engine is killed.
    Kill { restart: u16 },
    /// It is back.
    Up { replica: u16 },
}

#[derive(Debug)]
struct Entry {
    at: Time,
    /// Keeps the order of what happens at one moment.
    number: u64,
    event: Event,
}

/// Events by time; of one moment, first in, first out.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    pushed: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Time, event: Event) {
        self.pushed += 1;
        self.heap.push(Entry { at, number: self.pushed, event });
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl Ord for Entry {
    /// The greatest is the next one.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_first_and_of_one_moment_the_one_that_was_there_first() {
        let mut queue = Queue::default();
        for (at, request) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            queue.push(at, Event::Arrive { request });
        }
        let order = std::iter::from_fn(|| queue.pop()).map(|(at, event)| match event {
            Event::Arrive { request } => (at, request),
            other => panic!("{other:?}"),
        });
        assert_eq!(order.collect::<Vec<_>>(), [(3, 1), (3, 3), (4, 4), (5, 0), (5, 2)]);
    }
}
