//! What keeps one engine's endpoints current: asks the engine what it is, reads its metrics,
//! follows its events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::{HeaderValue, StatusCode};
use kvasir_balance::Rng;
use kvasir_inventory::{AbsentReason, Inventory};
use tokio::sync::Notify;

use crate::admission;
use crate::card::EngineCard;
use crate::engine::Engine;
use crate::engine_client::{EngineClient, ProbeError};
use crate::events::{EventFollower, Source};
use crate::health::Probe;
use crate::poll::PollFollower;
use crate::ranks::Ranks;
use crate::seat::Seat;
use crate::signals::Page;
use crate::spec::{EventSpec, HealthSpec};
use crate::stream_applier::Followed;

/// How often an engine that answers is asked again what it serves: adapters come and go.
const CARD_REFRESH: Duration = Duration::from_secs(10);

/// An engine that a request found to answer again is asked this much later, so that one that comes and
/// goes is not asked without a pause.
const FOUND_PAUSE: Duration = Duration::from_millis(100);

/// The background of one engine.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) ranks: Arc<Ranks>,
    pub(crate) duties: Arc<Duties>,
    pub(crate) inventory: Arc<Inventory>,
}

/// What a monitor goes by: a reload may change it, and the monitor goes on.
#[derive(Clone, Debug)]
pub(crate) struct Duty {
    /// The event stream of its first rank, where it is configured.
    pub(crate) events: Option<EventSpec>,
    /// Whether its events are fetched.
    pub(crate) poll: bool,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) interval: Duration,
    /// Its health page, where there is one to ask for.
    pub(crate) probe: HealthSpec,
    pub(crate) client: EngineClient,
    /// The pools it is in.
    pub(crate) pools: Vec<Arc<Seat>>,
}

/// The duty now, and a bell for a new one.
#[derive(Debug)]
pub(crate) struct Duties {
    now: ArcSwap<Duty>,
    changed: Notify,
}

impl Duties {
    pub(crate) fn new(duty: Duty) -> Self {
        Self { now: ArcSwap::from_pointee(duty), changed: Notify::new() }
    }

    pub(crate) fn now(&self) -> Arc<Duty> {
        self.now.load_full()
    }

    /// The monitor takes it up as soon as it is not waiting for the engine.
    pub(crate) fn change(&self, duty: Duty) {
        self.now.store(Arc::new(duty));
        self.changed.notify_one();
    }
}

/// What follows the streams.
#[derive(Debug, Default)]
struct Followers {
    by_rank: BTreeMap<u32, EventFollower>,
    poll: PollFollower,
}

impl Monitor {
    /// Runs until its task is aborted.
    pub(crate) async fn run(self) {
        let mut jitter = Rng::new(seed_of(self.engine().url()));
        let mut followers = Followers::default();
        let mut card_asked: Option<Instant> = None;
        let mut complained = false;
        self.look_for_tokenizers(None, false);
        loop {
            let scraped = if card_asked.is_none_or(|at| at.elapsed() >= CARD_REFRESH) {
                let (learned, scraped, ()) =
                    tokio::join!(self.ask(), self.scrape(), self.look_after());
                match learned {
                    Ok(card) => {
                        card_asked = Some(Instant::now());
                        complained = false;
                        self.learn(card, &mut followers).await;
                    }
                    Err(error) => {
                        self.do_without(&error, &mut followers, &mut complained).await;
                    }
                }
                scraped
            } else {
                tokio::join!(self.scrape(), self.look_after()).0
            };
            admission::ring_all();
            if scraped.is_err() {
                // It may come back as another engine: ask anew when it does.
                card_asked = None;
                self.ranks.endpoints().iter().for_each(|e| e.forget_pace());
            }
            let pause = jittered(self.duties.now().interval, &mut jitter);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.engine().is_found() => {
                    tokio::time::sleep(FOUND_PAUSE.min(pause)).await;
                    card_asked = None;
                }
                () = self.duties.changed.notified() => {
                    self.take_up(&mut followers).await;
                    card_asked = None;
                }
            }
        }
    }

    /// The configuration says something else: only what that concerns begins anew.
    async fn take_up(&self, followers: &mut Followers) {
        let card = self.engine().card();
        if card.is_some() {
            self.follow(card.as_deref(), followers).await;
        }
        let first = card.as_ref().and_then(|card| card.models.first());
        let root = first.and_then(|model| model.root.clone());
        self.look_for_tokenizers(root.as_deref(), card.is_some());
    }

    fn engine(&self) -> &Arc<Engine> {
        self.ranks.engine()
    }

    /// Asks the engine what it is.
    async fn ask(&self) -> Result<EngineCard, ProbeError> {
        let known = self.engine().card();
        let (origin, duty) = (self.engine().origin(), self.duties.now());
        EngineCard::ask(&duty.client, &origin, duty.authorization.as_ref(), known.as_deref()).await
    }

    /// Takes in what the engine said it is.
    async fn learn(&self, card: EngineCard, followers: &mut Followers) {
        self.engine().mark_reachable();
        let root = card.models.first().and_then(|model| model.root.clone());
        if self.engine().card().as_deref() != Some(&card) {
            tracing::info!(
                endpoint = self.engine().url(),
                kind = card.kind.as_str(),
                version = card.version.as_deref().unwrap_or("unknown"),
                models = ?card.models.iter().map(|m| &m.id).collect::<Vec<_>>(),
                adapters = card.adapters.len(),
                block_size = card.block_size,
                ranks = ?card.ranks,
                "engine answers"
            );
        }
        self.engine().set_card(card.clone());
        // Before any stream is followed: one of several would look complete and is not.
        if self.ranks.learn(&card.ranks) {
            self.duties.now().pools.iter().for_each(|seat| seat.refresh());
        }
        if let Some(size) = card.block_size {
            let endpoints = self.ranks.endpoints();
            let unknown = endpoints.iter().filter(|endpoint| endpoint.block_size().is_none());
            unknown.for_each(|endpoint| endpoint.set_block_size(size));
        }
        self.follow(Some(&card), followers).await;
        self.look_for_tokenizers(root.as_deref(), true);
    }

    /// Follows the streams of all ranks there are, and no others.
    async fn follow(&self, card: Option<&EngineCard>, followers: &mut Followers) {
        let streams = self.ranks.streams();
        let streams = streams.into_iter().map(|(endpoint, stream)| Followed { endpoint, stream });
        let streams: Vec<Followed> = streams.collect();
        let base = card.map_or("", EngineCard::base);
        let duty = self.duties.now();
        if duty.poll && card.is_some() {
            for follower in std::mem::take(&mut followers.by_rank).into_values() {
                follower.end().await;
            }
            let key = duty.authorization.as_ref();
            let poll = &mut followers.poll;
            return poll
                .follow(self.engine(), streams, &self.inventory, &duty.client, key, base)
                .await;
        }
        if !duty.poll {
            std::mem::take(&mut followers.poll).end().await;
        }
        let ranks = &mut followers.by_rank;
        ranks.retain(|rank, _| streams.iter().any(|to| to.stream.rank() == *rank));
        for to in streams {
            let source = if duty.poll {
                // What the events are of is not known yet, and they come only once.
                Source::None(AbsentReason::EngineUnknown)
            } else {
                Source::of(duty.events.as_ref(), card, &to.stream)
            };
            let follower = ranks.entry(to.stream.rank()).or_default();
            follower.follow(&to, &self.inventory, source, base).await;
        }
    }

    /// The engine did not say what it is. A configured event stream is followed all the same.
    async fn do_without(
        &self,
        error: &ProbeError,
        followers: &mut Followers,
        complained: &mut bool,
    ) {
        if let ProbeError::Connect(_) = error {
            return self.note(error);
        }
        if !std::mem::replace(complained, true) {
            tracing::warn!(endpoint = self.engine().url(), %error, "engine does not say what it is");
        }
        if self.engine().card().is_none() {
            self.follow(None, followers).await;
        }
    }

    async fn scrape(&self) -> Result<(), ProbeError> {
        self.ranks.streams().iter().for_each(|(_, stream)| stream.note_budget());
        let before = self.ranks.endpoints();
        let own = |endpoint: &Arc<crate::endpoint::Endpoint>| {
            (endpoint.load().sent(), endpoint.in_flight())
        };
        let sent_before: Vec<(u32, u32)> = before.iter().map(own).collect();
        let moves: Vec<u64> = before.iter().map(|endpoint| endpoint.parity().moves()).collect();
        let asked = Instant::now();
        let (origin, duty) = (self.engine().origin(), self.duties.now());
        let key = duty.authorization.as_ref();
        let answer = duty.client.get(&origin, "/metrics", key).await;
        let page = match answer {
            Ok((status, body)) => {
                self.engine().mark_reachable();
                self.engine().note_page(true);
                (status == StatusCode::OK).then(|| Page::parse(&String::from_utf8_lossy(&body)))
            }
            Err(error @ ProbeError::Connect(_)) => {
                self.note(&error);
                before.iter().for_each(|endpoint| endpoint.begins_anew());
                self.engine().set_asleep(false);
                before.iter().for_each(|endpoint| endpoint.unread());
                return Err(error);
            }
            // The engine may be busy, and is no worse for it.
            Err(error) => {
                tracing::debug!(endpoint = self.engine().url(), %error, "metrics not read");
                self.engine().note_page(false);
                None
            }
        };
        let Some(page) = page else {
            // Numbers that were not read are unknown; what the engine said of itself stands.
            before.iter().for_each(|endpoint| endpoint.unread());
            return Ok(());
        };
        self.note_sleep(page.asleep);
        if let Some(seconds) = page.process_start {
            if self.engine().process_started(seconds) {
                before.iter().for_each(|endpoint| endpoint.begins_anew());
            }
            let streams = self.ranks.streams();
            streams.iter().for_each(|(_, stream)| stream.process_started(asked, seconds));
        }
        for ((endpoint, sent_before), moves) in before.iter().zip(sent_before).zip(moves) {
            // Whatever we sent while the page was on its way may be on it, also what is over by now:
            // better to overlook somebody else's request than to take our own for one.
            let (sent, in_flight) = sent_before;
            let since = endpoint.load().sent().wrapping_sub(sent);
            let own_in_flight = in_flight.saturating_add(since);
            let signals = page.load(endpoint.rank(), before.len() == 1);
            endpoint.set_signals(signals, own_in_flight);
            endpoint.counters_read(moves, signals.counters());
        }
        Ok(())
    }

    /// Asks for its health page, where it is to have one.
    async fn look_after(&self) {
        let (origin, duty) = (self.engine().origin(), self.duties.now());
        let Some(path) = &duty.probe.probe_path else {
            return self.engine().note_probe(Probe::None);
        };
        let question = duty.client.get(&origin, path, duty.authorization.as_ref());
        let probe = match tokio::time::timeout(duty.probe.probe_timeout, question).await {
            Ok(Ok((status, _))) if status.is_success() => Probe::Well,
            Ok(Ok((status, _))) => Probe::Unwell(status.as_u16()),
            // The metrics page says so too.
            Ok(Err(ProbeError::Connect(_))) => return,
            Ok(Err(_)) | Err(_) => Probe::Late,
        };
        self.engine().note_probe(probe);
    }

    /// A sleeping engine's cache is gone, and the event that says so comes only after it wakes.
    /// What a replay brings back meanwhile is cleared too, up to the moment it is awake.
    fn note_sleep(&self, now: bool) {
        let before = self.engine().set_asleep(now);
        if before != now {
            tracing::info!(endpoint = self.engine().url(), asleep = now, "engine sleeps or wakes");
        }
        if before || now {
            self.ranks.streams().iter().for_each(|(_, stream)| stream.clear());
            self.ranks.endpoints().iter().for_each(|endpoint| endpoint.begins_anew());
        }
    }

    /// Only a refused connection says that the engine is not there.
    fn note(&self, error: &ProbeError) {
        if let ProbeError::Connect(_) = error {
            self.engine().mark_unreachable(&error.to_string());
        }
    }

    fn look_for_tokenizers(&self, root: Option<&str>, engine_known: bool) {
        for seat in &self.duties.now().pools {
            let (prompts, root) = (Arc::clone(seat.pool().prompts()), root.map(str::to_owned));
            tokio::spawn(async move { prompts.ensure(root, engine_known).await });
        }
    }
}

/// Spreads the monitors of a large fleet over the interval.
fn jittered(interval: Duration, rng: &mut Rng) -> Duration {
    let thousandth = u32::try_from(rng.below(200)).unwrap_or(0);
    interval * (900 + thousandth) / 1000
}

fn seed_of(url: &str) -> u64 {
    url.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
