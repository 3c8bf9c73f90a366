//! The simulation: requests, gateways and engines, event by event in virtual time.

mod breakdown;
mod decisions;
mod news;
mod split;

use kvasir_engine_sim::{Request, RequestId, StepOutcome};

use crate::gaps::Gaps;
use crate::gateway::{Chosen, Clock, Gateway, Reservation, Seat};
use crate::options::{Options, OptionsError};
use crate::policies::SimPolicy;
use crate::prepared::Prepared;
use crate::queue::{Event, Pair, Queue, Time, from_seconds, nanos};
use crate::record::{Ended, HandOvers, Outcome, Record};
use crate::replica::Replica;
use crate::workload::Release;

/// Engines that may take one request and break off, as in the gateway.
const MAX_BROKEN_OFF: u8 = 2;
/// Requests between two reports of progress.
const PROGRESS: usize = 256;

/// A request on its way.
#[derive(Debug)]
struct Flight {
    gateway: u16,
    /// The claim on who answers.
    reservation: Reservation,
    leg: Leg,
    /// Whether an engine has it.
    submitted: bool,
    /// When its last token came.
    last: Time,
    tried: Vec<u16>,
    broken_off: u8,
}

/// What of a request goes on.
#[derive(Debug)]
enum Leg {
    /// All of it, at one engine.
    Whole,
    /// Another engine computes its prompt.
    Prefill(Reservation),
    /// Who answers fetches it from there.
    Fetch(Kept),
    /// Who answers has it.
    Decode,
}

/// A prompt that an engine keeps for another one.
#[derive(Clone, Copy, Debug)]
struct Kept {
    replica: u16,
    life: u32,
    id: RequestId,
}

/// Everything there is.
pub(crate) struct World<'a> {
    options: &'a Options,
    prepared: &'a Prepared<'a>,
    clock: Clock,
    now: Time,
    queue: Queue,
    gateways: Vec<Gateway>,
    replicas: Vec<Replica>,
    flights: Vec<Option<Box<Flight>>>,
    records: Vec<Record>,
    /// For every request those that wait for its answer.
    followers: Vec<Vec<(u32, Time)>>,
    ended: usize,
    gaps: Gaps,
    hand_overs: HandOvers,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        options: &'a Options,
        prepared: &'a Prepared<'a>,
        policy: &SimPolicy,
    ) -> Result<Self, OptionsError> {
        let fleet = options.fleet();
        if fleet.splits() && matches!(policy, SimPolicy::Peer(_)) {
            return Err(OptionsError::NoPairs { policy: policy.name(), fleet });
        }
        let replicas = (0..fleet.replicas())
            .map(|place| {
                let config = options.config(place, prepared.longest);
                Replica::new(config, options.news.replay_batches)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let seat = |(place, (replica, weight)): (usize, (&Replica, u32))| Seat {
            blocks: replica.blocks(),
            weight,
            advice: options.advice(place),
            role: options.role(place),
        };
        let engines: Vec<Seat> =
            replicas.iter().zip(options.weights()).enumerate().map(seat).collect();
        let events = options.news.events.then_some(options.news.replay);
        let gateways = (0..options.gateways)
            .filter_map(|place| {
                let seed = mix(options.seed ^ (place as u64) << 32);
                Gateway::new(policy, prepared, &engines, options.split, events, seed)
            })
            .collect();
        let requests = prepared.workload.requests.len();
        let mut world = Self {
            options,
            prepared,
            clock: Clock::new(),
            now: 0,
            queue: Queue::default(),
            gateways,
            replicas,
            flights: (0..requests).map(|_| None).collect(),
            records: vec![Record::default(); requests],
            followers: vec![Vec::new(); requests],
            ended: 0,
            gaps: Gaps::default(),
            hand_overs: HandOvers::default(),
        };
        world.schedule_arrivals();
        world.schedule_news();
        Ok(world)
    }

    /// Runs until every request has ended.
    pub(crate) fn run(mut self, progress: &mut dyn FnMut(usize)) -> Outcome {
        let mut reported = 0;
        while self.ended < self.records.len() {
            // There is always something to come: gateways read metrics forever.
            let Some((at, event)) = self.queue.pop() else { break };
            self.now = at;
            self.happen(event);
            if self.ended >= reported + PROGRESS {
                reported = self.ended;
                progress(reported);
            }
        }
        let kept = self.replicas.iter().map(Replica::kept).sum();
        let hand_overs = HandOvers { kept, ..self.hand_overs };
        let replicas = self.replicas.iter().map(|replica| replica.totals).collect();
        Outcome { records: self.records, replicas, gaps: self.gaps, hand_overs }
    }

    fn schedule_arrivals(&mut self) {
        let scale = self.options.time_scale;
        for (place, asked) in self.prepared.workload.requests.iter().enumerate() {
            let request = place as u32;
            match asked.release {
                Release::At(seconds) => {
                    self.queue.push(from_seconds(seconds / scale), Event::Arrive { request });
                }
                Release::After { request: before, pause } => {
                    let pause = from_seconds(pause / scale);
                    match self.followers.get_mut(before) {
                        Some(followers) => followers.push((request, pause)),
                        None => self.queue.push(0, Event::Arrive { request }),
                    }
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { request } => self.arrive(request),
            Event::Submit { request } => self.submit(request),
            Event::Fetched { request, attempt } => self.fetched(request, attempt),
            Event::LeaseEnd { replica, life, id } => self.lease_end(replica, life, id),
            Event::StepEnd { replica, life } => self.step_end(replica, life),
            Event::Batch { pair, seq, payload } => self.batch(pair, seq, &payload),
            Event::Link { pair, up } => self.link(pair, up),
            Event::Replay { pair, question } => self.replay(pair, question),
            Event::Tick { pair } => self.tick(pair),
            Event::Scrape { pair } => self.scrape(pair),
            Event::Scraped { pair, signals } => {
                if let Some(gateway) = self.gateways.get_mut(usize::from(pair.gateway)) {
                    gateway.scraped(pair.replica, Some(signals), self.now);
                }
            }
            Event::Kill { restart } => self.kill(restart),
            Event::Up { replica } => self.up(replica),
        }
    }

    fn arrive(&mut self, request: u32) {
        let place = request as usize;
        self.records[place].arrived = self.now;
        let number = mix(self.options.seed.wrapping_add(1) ^ mix(u64::from(request)));
        let gateway = (number % self.gateways.len().max(1) as u64) as u16;
        self.dispatch(request, gateway, Vec::new(), 0);
    }

    /// Chooses an engine and sends the request there; it fails if there is none left.
    fn dispatch(&mut self, request: u32, gateway: u16, tried: Vec<u16>, broken_off: u8) {
        let place = request as usize;
        let chosen = self.gateways.get_mut(usize::from(gateway)).and_then(|chooser| {
            chooser.choose(self.prepared, place, (&tried, broken_off == 0), self.now)
        });
        let Some(chosen) = chosen else { return self.end(request, Ended::Failed) };
        let Chosen { answers: reservation, prefill, plan, predicted, spilled } = chosen;
        let record = &mut self.records[place];
        record.replica = Some(reservation.replica);
        (record.plan, record.predicted, record.spilled) = (plan, predicted, spilled);
        record.attempts = record.attempts.saturating_add(1);
        let leg = prefill.map_or(Leg::Whole, Leg::Prefill);
        let (submitted, last) = (false, self.now);
        let flight = Flight { gateway, reservation, leg, submitted, last, tried, broken_off };
        self.flights[place] = Some(Box::new(flight));
        let at = self.now + nanos(self.options.news.dispatch_delay);
        self.queue.push(at, Event::Submit { request });
    }

    fn submit(&mut self, request: u32) {
        let place = request as usize;
        let Some(flight) = &mut self.flights[place] else { return };
        let number = flight.at();
        let Some(replica) = self.replicas.get_mut(usize::from(number)) else { return };
        if !replica.up {
            if let Some(gateway) = self.gateways.get_mut(usize::from(flight.gateway)) {
                gateway.unreachable(number);
            }
            return self.retry(request);
        }
        flight.submitted = true;
        match flight.leg {
            Leg::Fetch(_) => self.fetch(request),
            _ => self.give(request, number),
        }
    }

    /// Gives a request, or the leg of it that goes on, to its engine.
    fn give(&mut self, request: u32, number: u16) {
        let Some(ask) = self.ask(request) else { return };
        let Some(replica) = self.replicas.get_mut(usize::from(number)) else { return };
        if replica.submit(ask).is_err() {
            self.release(request);
            return self.end(request, Ended::Refused);
        }
        self.begin_step(number);
    }

    /// What the engine is asked in the leg that goes on.
    fn ask(&self, request: u32) -> Option<Request> {
        let place = request as usize;
        let flight = self.flights.get(place)?.as_ref()?;
        let asked = self.prepared.workload.requests.get(place)?;
        // An engine may still keep the prompt of an attempt before.
        let attempt = u64::from(self.records.get(place)?.attempts);
        let id = RequestId(attempt << 32 | u64::from(request));
        let mut ask = Request::new(id, asked.tokens(), asked.output_tokens as usize);
        ask.ignore_eos = true;
        ask.cache_salt = self.prepared.salt(place).map(str::to_owned);
        match flight.leg {
            Leg::Prefill(_) => (ask.max_tokens, ask.hold) = (1, true),
            Leg::Decode => ask.remote_prefill = true,
            Leg::Whole | Leg::Fetch(_) => {}
        }
        Some(ask)
    }

    fn begin_step(&mut self, number: u16) {
        let Some(replica) = self.replicas.get_mut(usize::from(number)) else { return };
        if let Some(end) = replica.begin(self.now) {
            let life = replica.life;
            self.queue.push(end, Event::StepEnd { replica: number, life });
        }
    }

    fn step_end(&mut self, number: u16, life: u32) {
        let Some(replica) = self.replicas.get_mut(usize::from(number)) else { return };
        if replica.life != life {
            return;
        }
        let Some(step) = replica.end() else { return };
        self.publish(number, &step);
        self.hand_out(number, &step);
        self.begin_step(number);
    }

    /// Hands the tokens of a step to whoever waits for them.
    fn hand_out(&mut self, number: u16, step: &StepOutcome) {
        for output in &step.outputs {
            let request = output.id.0 as u32;
            let place = request as usize;
            let Some(flight) = self.flights.get_mut(place).and_then(Option::as_mut) else {
                continue;
            };
            let record = &mut self.records[place];
            let computed = !matches!(flight.leg, Leg::Decode);
            if output.index == 0 {
                if computed {
                    record.cached = output.cached_tokens as u32;
                }
                self.replicas[usize::from(number)].totals.requests += 1;
            }
            if let Leg::Prefill(_) = flight.leg {
                self.prefilled(request, output.id);
                continue;
            }
            if output.index == 0 {
                record.first = Some(self.now);
                if let Some(gateway) = self.gateways.get_mut(usize::from(flight.gateway)) {
                    gateway.first_data(&mut flight.reservation, self.now);
                }
            } else {
                self.gaps.add(self.now.saturating_sub(flight.last));
            }
            flight.last = self.now;
            if output.finished.is_some() {
                record.outputs = output.index as u32 + 1;
                self.release(request);
                self.end(request, Ended::Answered);
            }
        }
    }

    /// Gives a request's claims back; where it was and what had been tried.
    fn release(&mut self, request: u32) -> Option<Box<Flight>> {
        let mut flight = self.flights.get_mut(request as usize)?.take()?;
        if let Some(gateway) = self.gateways.get_mut(usize::from(flight.gateway)) {
            gateway.release(&mut flight.reservation, self.now);
            if let Leg::Prefill(prefill) = &mut flight.leg {
                gateway.release(prefill, self.now);
            }
        }
        Some(flight)
    }

    /// Another engine, for a request whose engine failed before it answered.
    fn retry(&mut self, request: u32) {
        let Some(mut flight) = self.release(request) else { return };
        flight.tried.push(flight.at());
        flight.broken_off += u8::from(flight.submitted);
        if flight.broken_off >= MAX_BROKEN_OFF {
            return self.end(request, Ended::Failed);
        }
        self.dispatch(request, flight.gateway, flight.tried, flight.broken_off);
    }

    fn end(&mut self, request: u32, ended: Ended) {
        let record = &mut self.records[request as usize];
        debug_assert_eq!(record.ended, Ended::Open, "request {request} ends twice");
        record.ended = ended;
        record.ended_at = self.now;
        self.ended += 1;
        for (follower, pause) in std::mem::take(&mut self.followers[request as usize]) {
            self.queue.push(self.now + pause, Event::Arrive { request: follower });
        }
    }

    fn pairs_of(&self, replica: u16) -> impl Iterator<Item = Pair> + use<> {
        let gateways = self.gateways.len() as u16;
        (0..gateways).map(move |gateway| Pair { gateway, replica })
    }
}

impl Flight {
    /// The engine that works on it, or gets it next.
    fn at(&self) -> u16 {
        match &self.leg {
            Leg::Prefill(prefill) => prefill.replica,
            Leg::Whole | Leg::Fetch(_) | Leg::Decode => self.reservation.replica,
        }
    }
}

/// Mixes a number; what is random in the world depends on the seed and what it is about, not on
/// what happened before.
fn mix(value: u64) -> u64 {
    kvasir_balance::Rng::new(value).next_u64()
}
