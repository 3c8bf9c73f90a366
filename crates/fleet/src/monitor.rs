//! What keeps one endpoint current: asks the engine what it is, reads its metrics, follows its
//! events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode};
use kvasir_balance::Rng;
use kvasir_inventory::Inventory;

use crate::card::EngineCard;
use crate::endpoint::Endpoint;
use crate::engine_client::{EngineClient, ProbeError};
use crate::events::{EventFollower, Source};
use crate::signals::Signals;
use crate::spec::EventSpec;
use crate::tokenizer::ModelPrompts;

/// How often an engine that answers is asked again what it serves: adapters come and go.
const CARD_REFRESH: Duration = Duration::from_secs(10);

/// The background of one endpoint.
#[derive(Debug)]
pub(crate) struct Monitor {
    pub(crate) endpoint: Arc<Endpoint>,
    /// The event stream, where it is configured.
    pub(crate) configured: Option<EventSpec>,
    pub(crate) authorization: Option<HeaderValue>,
    /// The tokenizers of the pools this endpoint is in.
    pub(crate) prompts: Vec<Arc<ModelPrompts>>,
    pub(crate) inventory: Arc<Inventory>,
    pub(crate) client: EngineClient,
    pub(crate) interval: Duration,
}

impl Monitor {
    /// Runs until its task is aborted.
    pub(crate) async fn run(self) {
        let mut jitter = Rng::new(seed_of(self.endpoint.url()));
        let mut follower = EventFollower::default();
        let mut card_asked: Option<Instant> = None;
        let mut complained = false;
        self.look_for_tokenizers(None, false);
        loop {
            let scraped = if card_asked.is_none_or(|at| at.elapsed() >= CARD_REFRESH) {
                let (learned, scraped) = tokio::join!(self.ask(), self.scrape());
                match learned {
                    Ok(card) => {
                        card_asked = Some(Instant::now());
                        complained = false;
                        self.learn(card, &mut follower).await;
                    }
                    Err(error) => {
                        self.do_without(&error, &mut follower, &mut complained).await;
                    }
                }
                scraped
            } else {
                self.scrape().await
            };
            if scraped.is_err() {
                // It may come back as another engine: ask anew when it does.
                card_asked = None;
                self.endpoint.prefill_rate().reset();
            }
            tokio::time::sleep(jittered(self.interval, &mut jitter)).await;
        }
    }

    /// Asks the engine what it is.
    async fn ask(&self) -> Result<EngineCard, ProbeError> {
        let known = self.endpoint.card();
        let authority = self.endpoint.authority();
        EngineCard::ask(&self.client, authority, self.authorization.as_ref(), known.as_deref())
            .await
    }

    /// Takes in what the engine said it is.
    async fn learn(&self, card: EngineCard, follower: &mut EventFollower) {
        self.endpoint.mark_reachable();
        let source = Source::of(self.configured.as_ref(), Some(&card));
        let root = card.models.first().and_then(|model| model.root.clone());
        let base = card.base().to_owned();
        if self.endpoint.card().as_deref() != Some(&card) {
            tracing::info!(
                endpoint = self.endpoint.url(),
                version = card.version.as_deref().unwrap_or("unknown"),
                models = ?card.models.iter().map(|m| &m.id).collect::<Vec<_>>(),
                adapters = card.adapters.len(),
                block_size = card.block_size,
                "engine answers"
            );
        }
        self.endpoint.set_card(card);
        follower.follow(&self.endpoint, &self.inventory, source, &base).await;
        self.look_for_tokenizers(root.as_deref(), true);
    }

    /// The engine did not say what it is. A configured event stream is followed all the same.
    async fn do_without(
        &self,
        error: &ProbeError,
        follower: &mut EventFollower,
        complained: &mut bool,
    ) {
        if let ProbeError::Connect(_) = error {
            return self.note(error);
        }
        if !std::mem::replace(complained, true) {
            tracing::warn!(endpoint = self.endpoint.url(), %error, "engine does not say what it is");
        }
        if self.endpoint.card().is_none() {
            let source = Source::of(self.configured.as_ref(), None);
            follower.follow(&self.endpoint, &self.inventory, source, "").await;
        }
    }

    async fn scrape(&self) -> Result<(), ProbeError> {
        let sent_before = self.endpoint.in_flight();
        let before = self.endpoint.signals();
        // Numbers that were not read are unknown; what the engine said of itself stands.
        let unread = Signals { asleep: before.asleep, ..Signals::default() };
        let key = self.authorization.as_ref();
        let answer = self.client.get(self.endpoint.authority(), "/metrics", key).await;
        match answer {
            Ok((status, body)) => {
                self.endpoint.mark_reachable();
                self.endpoint.note_page(true);
                if status == StatusCode::OK {
                    let signals = Signals::parse(&String::from_utf8_lossy(&body));
                    self.note_sleep(before.asleep, signals.asleep);
                    // Whatever we sent while the page was on its way may be on it: better to
                    // overlook somebody else's request than to take our own for one.
                    let own_in_flight = sent_before.max(self.endpoint.in_flight());
                    self.endpoint.set_signals(signals, own_in_flight);
                } else {
                    self.endpoint.set_signals(unread, 0);
                }
                Ok(())
            }
            Err(error @ ProbeError::Connect(_)) => {
                self.note(&error);
                self.endpoint.set_signals(Signals::default(), 0);
                Err(error)
            }
            // The engine may be busy, and is no worse for it.
            Err(error) => {
                tracing::debug!(endpoint = self.endpoint.url(), %error, "metrics not read");
                self.endpoint.note_page(false);
                self.endpoint.set_signals(unread, 0);
                Ok(())
            }
        }
    }

    /// A sleeping engine's cache is gone, and the event that says so comes only after it wakes.
    /// What a replay brings back meanwhile is cleared too, up to the moment it is awake.
    fn note_sleep(&self, before: bool, now: bool) {
        if before != now {
            tracing::info!(endpoint = self.endpoint.url(), asleep = now, "engine sleeps or wakes");
        }
        if before || now {
            self.inventory.clear(self.endpoint.slot());
        }
    }

    /// Only a refused connection says that the engine is not there.
    fn note(&self, error: &ProbeError) {
        if let ProbeError::Connect(_) = error {
            self.endpoint.mark_unreachable(&error.to_string());
        }
    }

    fn look_for_tokenizers(&self, root: Option<&str>, engine_known: bool) {
        for prompts in &self.prompts {
            let (prompts, root) = (Arc::clone(prompts), root.map(str::to_owned));
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
