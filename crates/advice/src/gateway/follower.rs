//! Which advice is in effect at a moment. It has no clock and no sockets: times, chance and what is known
//! of the fleet are handed in.
//!
//! A snapshot is followed as a whole or not at all ([`Refusal`]). It is when its controller's process is
//! another than before or its epoch higher, its deadline lies ahead by at most ten decay windows, and all
//! it names is known here. It takes effect after a random delay of up to a tenth (`apply_jitter`) of its
//! period, a third of the time to its deadline, so that gateways do not all turn at once.
//!
//! ```text
//! alpha     = 1 until the deadline, then falls to 0 over the decay window
//! effective = round(100 + alpha * (weight - 100))
//! ```
//!
//! States hold until alpha is 0, and change at most once in `hysteresis` for each endpoint. An endpoint
//! this gateway finds something wrong with goes by that alone: its advice waits, and that is counted.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kvasir_fleet::{Advice, AdvisedState};

use super::judge::{Refusal, Services, advised, refuse, short};
use super::status::Status;
use crate::wire::aictrl::Snapshot;

/// Deadlines may be so many decay windows ahead.
const MOST_WINDOWS: u32 = 10;
/// Processes whose epochs are remembered, so that what one of them said is not taken up again.
const BOOTS: usize = 16;

/// How advice is followed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FollowerSettings {
    /// How long advice takes to fade after its deadline.
    pub decay: Duration,
    /// How long a state holds at least.
    pub hysteresis: Duration,
    /// The longest random delay, in percent of a period.
    pub jitter_percent: u32,
}

impl Default for FollowerSettings {
    fn default() -> Self {
        let (decay, hysteresis) = (Duration::from_secs(30), Duration::from_secs(5));
        Self { decay, hysteresis, jitter_percent: 10 }
    }
}

/// A moment, by two clocks: one that never jumps, and the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Since any fixed moment.
    pub now: Duration,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

/// What became of advice at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    /// What counts of each engine that is advised on, by address; of others nothing does.
    pub advice: BTreeMap<String, Advice>,
    /// The snapshot that came into effect just now: epoch and nonce.
    pub applied: Option<(u64, String)>,
}

/// A snapshot that is followed.
#[derive(Clone, Debug)]
struct Followed {
    epoch: u64,
    nonce: String,
    boot_id: String,
    deadline: Duration,
    advice: BTreeMap<String, Advice>,
}

#[derive(Clone, Copy, Debug)]
struct StateSince {
    state: AdvisedState,
    since: Duration,
}

/// The advice a gateway follows.
#[derive(Debug)]
pub struct Follower {
    settings: FollowerSettings,
    /// The last process, and its highest epoch, at the end.
    boots: VecDeque<(String, u64)>,
    waiting: Option<(Duration, Followed)>,
    current: Option<Followed>,
    states: BTreeMap<String, StateSince>,
    /// Engines whose advice waits for their health.
    overridden: BTreeMap<String, bool>,
    status: Status,
}

impl Follower {
    /// Without any advice.
    #[must_use]
    pub fn new(settings: FollowerSettings) -> Self {
        Self {
            settings,
            boots: VecDeque::new(),
            waiting: None,
            current: None,
            states: BTreeMap::new(),
            overridden: BTreeMap::new(),
            status: Status::default(),
        }
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    pub(super) fn status_mut(&mut self) -> &mut Status {
        &mut self.status
    }

    /// Takes up a snapshot; after how long it comes into effect. `chance` is a random number from 0 to 1.
    ///
    /// # Errors
    /// Why it changes nothing.
    pub fn offer(
        &mut self,
        snapshot: &Snapshot,
        services: &Services,
        clock: Clock,
        chance: f64,
    ) -> Result<Duration, Refusal> {
        let judged = self.judge(snapshot, services, clock);
        match judged {
            Ok((followed, left)) => {
                self.remember(&followed);
                let most = left / 3 * self.settings.jitter_percent.min(100) / 100;
                let delay = most.mul_f64(chance.clamp(0.0, 1.0));
                self.waiting = Some((clock.now + delay, followed));
                self.status.accepted += 1;
                Ok(delay)
            }
            Err(refusal) => {
                *self.status.rejected.entry(refusal.reason).or_default() += 1;
                self.status.last_rejection = Some(refusal.to_string());
                Err(refusal)
            }
        }
    }

    fn judge(
        &self,
        snapshot: &Snapshot,
        services: &Services,
        clock: Clock,
    ) -> Result<(Followed, Duration), Refusal> {
        let advice = advised(snapshot, services)?;
        let (epoch, boot_id) = (snapshot.epoch, &snapshot.boot_id);
        let known = self.boots.iter().find(|(known, _)| known == boot_id);
        if let Some((_, highest)) = known
            && epoch <= *highest
        {
            return refuse("old_epoch", format!("{epoch} after {highest}"));
        }
        let deadline = snapshot.staleness_deadline_unix_ms;
        let left = deadline.checked_sub(clock.unix_ms).filter(|left| *left > 0);
        let Some(left) = left.map(Duration::from_millis) else {
            return refuse("expired", format!("its deadline {deadline} is over"));
        };
        let most = self.settings.decay.saturating_mul(MOST_WINDOWS);
        if left > most {
            let (left, most) = (left.as_secs(), most.as_secs());
            return refuse("far_deadline", format!("in {left} s, at most {most} s are taken"));
        }
        let followed = Followed {
            epoch,
            nonce: short(&snapshot.nonce),
            boot_id: boot_id.clone(),
            deadline: clock.now + left,
            advice,
        };
        Ok((followed, left))
    }

    fn remember(&mut self, followed: &Followed) {
        self.boots.retain(|(known, _)| *known != followed.boot_id);
        if self.boots.len() >= BOOTS {
            self.boots.pop_front();
        }
        self.boots.push_back((followed.boot_id.clone(), followed.epoch));
    }

    /// When something changes next by itself, beyond what fades: a snapshot comes into effect.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        self.waiting.as_ref().map(|(at, _)| *at)
    }

    /// What is in effect `now`. `is_well` says whether the gateway finds nothing wrong with an engine.
    pub fn tick(&mut self, now: Duration, is_well: impl Fn(&str) -> bool) -> Effect {
        let mut effect = Effect::default();
        if let Some((_, followed)) = self.waiting.take_if(|(at, _)| *at <= now) {
            effect.applied = Some((followed.epoch, followed.nonce.clone()));
            self.current = Some(followed);
            self.status.applied += 1;
        }
        let alpha = self.current.as_ref().map_or(0.0, |current| self.alpha(current, now));
        if alpha <= 0.0 {
            self.end();
            return effect;
        }
        let Some(current) = &self.current else { return effect };
        self.states.retain(|address, _| current.advice.contains_key(address));
        self.overridden.retain(|address, _| current.advice.contains_key(address));
        for (address, wanted) in &current.advice {
            let state =
                held(&mut self.states, address, wanted.state, now, self.settings.hysteresis);
            let well = is_well(address);
            let was_overridden = self.overridden.insert(address.clone(), !well).unwrap_or(false);
            let advice = Advice { percent: faded(wanted.percent, alpha), state };
            if !well && !was_overridden && *wanted != Advice::NEUTRAL {
                self.status.overrides += 1;
            }
            let counts = if well { advice } else { Advice::NEUTRAL };
            effect.advice.insert(address.clone(), counts);
        }
        self.status.alpha = alpha;
        self.status.epoch = current.epoch;
        self.status.boot_id.clone_from(&current.boot_id);
        self.status.advised = effect.advice.len();
        effect
    }

    fn alpha(&self, current: &Followed, now: Duration) -> f64 {
        let over = now.saturating_sub(current.deadline);
        let window = self.settings.decay.as_secs_f64();
        if over.is_zero() { 1.0 } else { (1.0 - over.as_secs_f64() / window).max(0.0) }
    }

    /// Nothing is advised any more.
    fn end(&mut self) {
        if self.current.take().is_some() {
            tracing::warn!(state = "neutral", "the controller's advice has run out");
        }
        self.states.clear();
        self.overridden.clear();
        self.status.alpha = 0.0;
        self.status.advised = 0;
    }
}

/// The state that holds: what is wanted, unless the last change was just now.
fn held(
    states: &mut BTreeMap<String, StateSince>,
    address: &str,
    wanted: AdvisedState,
    now: Duration,
    hysteresis: Duration,
) -> AdvisedState {
    let Some(known) = states.get_mut(address) else {
        states.insert(address.to_owned(), StateSince { state: wanted, since: now });
        return wanted;
    };
    if known.state != wanted && now.saturating_sub(known.since) >= hysteresis {
        *known = StateSince { state: wanted, since: now };
    }
    known.state
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 1 to 100")]
fn faded(percent: u8, alpha: f64) -> u8 {
    (100.0 + alpha * (f64::from(percent) - 100.0)).round().clamp(1.0, 100.0) as u8
}
