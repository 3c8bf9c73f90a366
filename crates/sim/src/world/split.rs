//! Requests in two legs: a prompt computed at one engine, fetched and answered by another.
//!
//! What becomes of a request whose decode engine fails before it answers is simpler than in the
//! gateway: it begins anew, and the prompt that was kept for it is kept until its time is over.

use kvasir_engine_sim::RequestId;

use super::{Kept, Leg, World};
use crate::queue::{Event, nanos};

impl World<'_> {
    /// The prompt is computed and kept: the decode leg is sent.
    pub(super) fn prefilled(&mut self, request: u32, id: RequestId) {
        let Some(flight) = self.flights.get_mut(request as usize).and_then(Option::as_mut) else {
            return;
        };
        let Leg::Prefill(prefill) = &mut flight.leg else { return };
        let number = prefill.replica;
        if let Some(gateway) = self.gateways.get_mut(usize::from(flight.gateway)) {
            gateway.first_data(prefill, self.now);
            gateway.release(prefill, self.now);
            gateway.decode_begins(&mut flight.reservation, self.now);
        }
        let Some(life) = self.replicas.get(usize::from(number)).map(|replica| replica.life) else {
            return;
        };
        flight.leg = Leg::Fetch(Kept { replica: number, life, id });
        flight.submitted = false;
        let lease = self.now + nanos(self.options.split.lease);
        self.queue.push(lease, Event::LeaseEnd { replica: number, life, id });
        let at = self.now + nanos(self.options.news.dispatch_delay);
        self.queue.push(at, Event::Submit { request });
    }

    /// The decode engine has the request, and fetches what it lacks of the prompt.
    pub(super) fn fetch(&mut self, request: u32) {
        let Some(ask) = self.ask(request) else { return };
        let Some(flight) = self.flights.get(request as usize).and_then(Option::as_ref) else {
            return;
        };
        let Some(replica) = self.replicas.get(usize::from(flight.at())) else { return };
        let prompt = ask.prompt.len();
        let moved = prompt.saturating_sub(replica.resident(ask)) as u64;
        self.hand_overs.tokens += moved;
        let attempt = self.records[request as usize].attempts;
        let at = self.now + nanos(self.options.split.takes(moved));
        self.queue.push(at, Event::Fetched { request, attempt });
    }

    /// The prompt is there, unless the engine that kept it is gone or has let go of it.
    pub(super) fn fetched(&mut self, request: u32, attempt: u8) {
        let place = request as usize;
        if self.records.get(place).is_none_or(|record| record.attempts != attempt) {
            return;
        }
        let Some(flight) = self.flights.get_mut(place).and_then(Option::as_mut) else { return };
        let Leg::Fetch(kept) = flight.leg else { return };
        let number = flight.reservation.replica;
        if !self.let_go(kept) {
            return self.retry(request);
        }
        if let Some(flight) = self.flights.get_mut(place).and_then(Option::as_mut) {
            flight.leg = Leg::Decode;
        }
        self.give(request, number);
    }

    /// An engine keeps a prompt no longer that nobody came for.
    pub(super) fn lease_end(&mut self, replica: u16, life: u32, id: RequestId) {
        if self.let_go(Kept { replica, life, id }) {
            self.hand_overs.expired += 1;
        }
    }

    fn let_go(&mut self, kept: Kept) -> bool {
        let keeper = self.replicas.get_mut(usize::from(kept.replica));
        keeper
            .filter(|keeper| keeper.life == kept.life)
            .is_some_and(|keeper| keeper.let_go(kept.id))
    }
}
