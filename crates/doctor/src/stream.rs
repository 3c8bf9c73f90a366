//! Listening to an engine's events the way the gateway does: the same subscriber, the same apply
//! loop, an inventory of its own.

mod collected;
mod legs;
mod place;
mod reach;
mod wire_form;

use std::sync::Arc;
use std::time::Duration;

use kvasir_fleet::{EngineCard, Picture, PromptTokens};
use kvasir_inventory::{AbsentReason, Inventory, Limits, Trust};
use kvasir_kv_events::{StreamStats, Subscriber, SubscriberConfig, Update};
use kvasir_kv_hash::KeySpace;
use tokio::time::{Instant, timeout, timeout_at};

pub(crate) use self::collected::{Collected, Shapes};
use self::place::{Place, Replay};
use crate::facts::Facts;
use crate::report::{Leg, LegName, Verdict};
use crate::target::Target;

/// Silence after which nothing more is expected of a publisher.
const QUIET: Duration = Duration::from_millis(300);

/// The longest that a busy publisher is listened to before what was heard is judged.
const MAX_SETTLE: Duration = Duration::from_secs(2);

/// So many prompts' batches do not all win a race against their live copies.
const MANY_PROMPTS: usize = 3;

/// Updates taken in before it is looked whether that was enough.
const TURN: usize = 256;

/// The longest that a history may take that keeps coming.
const MAX_HISTORY: Duration = Duration::from_secs(60);

/// Follows an engine's publisher and keeps what it says, bounded.
#[derive(Debug)]
pub(crate) struct Listener {
    subscriber: Subscriber,
    picture: Picture,
    card: EngineCard,
    rank: Option<u32>,
    collected: Collected,
}

// === impl Listener ===

impl Listener {
    /// Takes in what has arrived, until nothing new comes.
    pub(crate) async fn settle(&mut self) {
        let end = Instant::now() + MAX_SETTLE;
        while Instant::now() < end
            && let Ok(Some(update)) = timeout(QUIET, self.subscriber.recv()).await
        {
            self.take(&update);
        }
        self.collected.stats = self.stats();
        self.collected.schema_error = self.subscriber.stats().first_schema_error();
        self.collected.contract = self.picture.hash_contract().clone();
    }

    /// Takes in updates until `done`, at the latest until `deadline`. Returns whether it is done.
    pub(crate) async fn until(
        &mut self,
        deadline: Instant,
        mut done: impl FnMut(&Self) -> bool,
    ) -> bool {
        loop {
            self.drain();
            if done(self) {
                return true;
            }
            // A publisher that is never silent must not outlast the deadline.
            if Instant::now() >= deadline {
                return false;
            }
            match timeout_at(deadline, self.subscriber.recv()).await {
                Ok(Some(update)) => self.take(&update),
                Ok(None) | Err(_) => return done(self),
            }
        }
    }

    /// Takes in what waits, without waiting for more.
    pub(crate) fn drain(&mut self) {
        for _ in 0..TURN {
            let Some(update) = self.subscriber.try_recv() else { return };
            self.take(&update);
        }
    }

    pub(crate) fn collected(&self) -> &Collected {
        &self.collected
    }

    /// The rank it listens to, where there are several and it is known.
    pub(crate) fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Tokens per block: as the events have it, else as the engine says.
    pub(crate) fn block_size(&self) -> Option<u32> {
        self.picture.block_size().or(self.card.block_size)
    }

    /// What the gateway would predict: how many tokens of this prompt the engine takes from its
    /// cache. A stream that is not believed, or not joined yet, is worth nothing.
    pub(crate) fn predict(&self, tokens: &[u32], adapter: Option<&str>, salt: Option<&str>) -> u32 {
        let prompt = PromptTokens {
            prompts: Some(&[tokens.to_vec()]),
            count: tokens.len() as u64,
            exact: true,
            adapter,
            salt,
        };
        self.picture.predict(&prompt, &self.card).resident()
    }

    fn take(&mut self, update: &Update) {
        self.collected.take(update);
        self.picture.apply(update, &self.card);
        self.collected.trust = self.picture.trust();
    }

    fn stats(&self) -> StreamStats {
        self.subscriber.stats().snapshot()
    }

    /// Waits for a connection, then for the history; both only so long.
    async fn join(&mut self, patience: Duration) {
        let begun = Instant::now();
        let connected = |listener: &Self| !matches!(listener.stream_trust(), Trust::Absent(_));
        if !self.until(begun + patience, connected).await {
            return;
        }
        let joined = |listener: &Self| listener.stream_trust() != Trust::CatchingUp;
        loop {
            let heard = self.collected.batches;
            // A long history may take longer than one answer may; silence ends it.
            let deadline = Instant::now() + patience + QUIET;
            if self.until(deadline, joined).await
                || self.collected.batches == heard
                || begun.elapsed() > MAX_HISTORY
            {
                return;
            }
        }
    }

    fn stream_trust(&self) -> Trust {
        self.collected.stream_trust
    }
}

/// Adds the legs `events` and `replay`. `None` where there is nothing to listen to.
pub(crate) async fn listen(
    target: &Target,
    facts: &Facts,
    legs: &mut Vec<Leg>,
) -> Option<Listener> {
    let here = reach::is_loopback(facts.origin.authority().host(), target.patience).await;
    let mut place = match place::choose(target, facts, here) {
        Ok(place) => place,
        Err(found) => {
            legs.extend(found);
            return None;
        }
    };
    if let Err(why) = reach::reach(&place.publisher, target.patience).await {
        legs.push(legs::unreached(&place, facts, &why));
        legs.push(legs::replay_unasked(&place, "events cannot be followed"));
        return None;
    }
    let mut unreached = None;
    if let Replay::At(address) = &place.replay
        && let Err(why) = reach::reach(address, target.patience).await
    {
        unreached = Some(legs::replay_unreached(address, &why));
        place.replay = Replay::None;
    }
    let mut listener = match start(target, facts, &place) {
        Ok(listener) => listener,
        Err(why) => {
            legs.push(Leg::unknown(LegName::Events, why, "run again when there is room"));
            legs.push(legs::replay_unasked(&place, "events cannot be followed"));
            return None;
        }
    };
    listener.join(target.patience).await;
    listener.settle().await;
    let stats = listener.stats();
    if let Trust::Absent(reason) = listener.stream_trust() {
        let lost = reason == AbsentReason::Disconnected;
        legs.push(legs::no_publisher(&place, facts, target.patience, lost));
        legs.push(legs::replay_unasked(&place, "events cannot be followed"));
        return None;
    }
    legs.push(legs::connected(&place, facts, &listener.collected));
    legs.push(
        unreached
            .unwrap_or_else(|| legs::replay(&place, &stats, &listener.collected, target.patience)),
    );
    Some(listener)
}

/// Says of the leg `events` what only came out while prompts were sent: `answered` of them, from
/// `before` batches on.
pub(crate) fn look_back(heard: &Collected, before: u64, answered: usize, legs: &mut [Leg]) {
    let Some(leg) = legs.iter_mut().find(|leg| leg.leg == LegName::Events) else { return };
    if leg.verdict == Verdict::Off {
        return;
    }
    if let Trust::Absent(_) = heard.stream_trust {
        *leg = legs::lost(&leg.finding);
    } else if answered >= MANY_PROMPTS && heard.batches > before && heard.live() == 0 {
        *leg = legs::only_replayed(&leg.finding);
    } else if heard.batches > before {
        let more = heard.batches - before;
        leg.finding = format!("{}; {more} more while prompts were sent", leg.finding);
        // It waited for just that; where other ranks are left to be looked at, the remedy says so.
        if heard.live() > 0 && leg.remedy.as_deref() == Some(legs::SEND_A_REQUEST) {
            *leg = Leg::ok(LegName::Events, leg.finding.clone());
        }
    }
}

fn start(target: &Target, facts: &Facts, place: &Place) -> Result<Listener, String> {
    let mut secret = [0; KeySpace::SECRET_LEN];
    getrandom::fill(&mut secret).map_err(|error| format!("no randomness to be had: {error}"))?;
    let inventory = Arc::new(Inventory::new(KeySpace::new(secret), Limits::default()));
    let picture =
        Picture::new(inventory, target.identity.clone()).ok_or("no place in the inventory")?;
    let mut config = SubscriberConfig::new(place.publisher.clone());
    config.name = target.base_url();
    config.topic.clone_from(&place.topic);
    config.replay = match &place.replay {
        Replay::At(address) => Some(address.clone()),
        _ => None,
    };
    // One answer in time is what is asked for; the gateway tries again and again.
    config.replay_timeout = target.patience;
    config.replay_attempts = 1;
    let subscriber = Subscriber::spawn(config).map_err(|error| error.to_string())?;
    let card = facts.card.clone();
    let (rank, collected) = (place.rank, Collected::default());
    Ok(Listener { subscriber, picture, card, rank, collected })
}
