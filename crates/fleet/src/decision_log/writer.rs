//! The thread that writes.

use std::sync::Arc;
use std::time::Instant;

use super::files::{Create, create};
use super::queue::{Queue, Taken};
use super::series::Series;
use super::{DecisionLogSpec, Entry, What};

pub(super) struct Writer {
    queue: Arc<Queue>,
    spec: DecisionLogSpec,
    create: Create,
    /// One for each pool that had something to say.
    series: Vec<Series>,
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, spec: DecisionLogSpec) -> Self {
        Self { queue, spec, create, series: Vec::new() }
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let mut next = None;
        loop {
            match self.queue.take(next) {
                Taken::Entries(entries) => entries.iter().for_each(|entry| self.entry(entry)),
                Taken::Nothing => {}
                Taken::Closed => break,
            }
            let now = Instant::now();
            next = self.series.iter_mut().filter_map(|series| series.tick(now)).min();
        }
        let now = Instant::now();
        self.series.iter_mut().for_each(|series| series.end(now));
        self.queue.end();
    }

    fn entry(&mut self, entry: &Entry) {
        let now = Instant::now();
        let known = self.series.iter().position(|series| series.is_of(&entry.account));
        let place = known.unwrap_or_else(|| {
            let account = Arc::clone(&entry.account);
            self.series.push(Series::new(account, &self.spec, self.create));
            self.series.len() - 1
        });
        self.series[place].entry(entry, now);
        if matches!(entry.what, What::End) {
            self.series.swap_remove(place).end(now);
        }
    }
}
