//! Engines that are killed, and what becomes of their requests.

use super::World;
use crate::queue::{Event, nanos};
use crate::record::Ended;

impl World<'_> {
    /// Kills an engine: requests it has not begun to answer go to others, the others are cut off.
    pub(super) fn kill(&mut self, restart: u16) {
        let Some(restart) = self.options.restarts.get(usize::from(restart)).copied() else {
            return;
        };
        let number = restart.replica as u16;
        let Some(replica) = self.replicas.get_mut(restart.replica).filter(|r| r.up) else { return };
        replica.kill();
        let news = &self.options.news;
        let at = self.now + nanos(news.event_delay);
        for pair in self.pairs_of(number) {
            self.queue.push(at, Event::Link { pair, up: false });
        }
        self.queue.push(self.now + nanos(restart.down), Event::Up { replica: number });
        let lost: Vec<u32> = (0_u32..)
            .zip(&self.flights)
            .filter_map(|(request, flight)| Some((request, flight.as_ref()?)))
            .filter(|(_, flight)| flight.submitted && flight.at() == number)
            .map(|(request, _)| request)
            .collect();
        for request in lost {
            if self.records[request as usize].first.is_some() {
                self.release(request);
                self.end(request, Ended::CutOff);
            } else {
                self.retry(request);
            }
        }
    }

    pub(super) fn up(&mut self, number: u16) {
        let Some(replica) = self.replicas.get_mut(usize::from(number)) else { return };
        replica.up = true;
        let at = self.now + nanos(self.options.news.event_delay);
        for pair in self.pairs_of(number) {
            self.queue.push(at, Event::Link { pair, up: true });
        }
    }
}
