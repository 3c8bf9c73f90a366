//! The pool's door from the request's side: it is let in at once, or waits for its turn. Who is next is
//! decided in `fleet::admission`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName};
use kvasir_balance::digest;
use kvasir_fleet::{
    Asker, Chosen, Door, Endpoint, Exclusion, NoRoom, Pool, Turn, TurnedAway, Unread,
};

use super::{Cause, Tries};
use crate::refusal::Refusal;

/// Priorities beyond are taken for these.
const MAX_PRIORITY: i32 = 1_000_000;

impl Tries<'_> {
    /// An endpoint, once there is room. A request that was let in before, and has to go to another
    /// engine, waits before all others.
    pub(super) async fn be_let_in(&mut self, door: &Door) -> Option<Chosen> {
        let asker = self.asker(door);
        let tries: &Self = self;
        let (asked, waits) = (Instant::now(), AtomicBool::new(false));
        let attempt = || {
            // With the times before, where it was let in and failed.
            let now = waits.load(Ordering::Relaxed).then(|| asked.elapsed());
            let waited = tries.log.waited.into_iter().chain(now).reduce(|one, two| one + two);
            let pool = tries.pool_now();
            // Those that are known to be gone are worth a try only where nobody is held.
            if !asker.hold.is_zero() && !pool.is_ready() {
                return Err(NoRoom::Nobody);
            }
            let found = match tries.choose_in(&pool, &tries.tried, waited) {
                // Who could not be connected to may be there again.
                Err(NoRoom::Nobody) if !asker.hold.is_zero() => {
                    tries.choose_in(&pool, &tries.still_gone(&pool), waited)
                }
                found => found,
            };
            found.map(|chosen| (pool, chosen))
        };
        let Turn { result, waited } = {
            let mut turn = pin!(door.admit(|| tries.pool_now().members(), asker, attempt));
            let poll = |cx: &mut Context<'_>| {
                let turn = turn.as_mut().poll(cx);
                waits.store(true, Ordering::Relaxed);
                turn
            };
            poll_fn(poll).await
        };
        if let Some(waited) = waited {
            *self.log.waited.get_or_insert_default() += waited;
        }
        match result {
            Ok((pool, chosen)) => {
                self.turned_away = None;
                self.go_by(pool);
                Some(chosen)
            }
            // Held for long enough: whatever is there now is tried, as without holding.
            Err(TurnedAway::Nobody) if !asker.hold.is_zero() => {
                self.go_by(self.pool_now());
                self.choose_in(&self.pool, &self.tried, self.log.waited).ok()
            }
            Err(why) => {
                self.turned_away = Some(why);
                None
            }
        }
    }

    /// The pool, or the one that has taken its place in a reload while the request waited: engines
    /// that left get no more requests, and those that came are to be found.
    fn pool_now(&self) -> Arc<Pool> {
        let pool = &self.plan.resolved.pool;
        let now = self.app.fleet().resolve(pool.model()).filter(|now| now.adapter.is_none());
        now.map_or_else(|| Arc::clone(pool), |now| now.pool)
    }

    /// From now on this pool's key and timeouts hold.
    fn go_by(&mut self, pool: Arc<Pool>) {
        self.deadline = self.log.started().checked_add(pool.timeouts().request);
        self.pool = pool;
    }

    /// Those of the tried that nobody knows to be there again.
    fn still_gone(&self, pool: &Pool) -> Vec<Arc<Endpoint>> {
        let is_there = |endpoint: &Endpoint| {
            let why = pool.exclusion(endpoint, &self.plan.model);
            matches!(why, None | Some(Exclusion::BackPressure | Exclusion::HalfOpen))
        };
        self.tried.iter().filter(|endpoint| !is_there(endpoint)).cloned().collect()
    }

    /// Why there is no room for it, where that is so.
    pub(super) fn no_room(&self) -> Option<Refusal> {
        let (code, retry_after) = match self.turned_away? {
            TurnedAway::Overloaded { retry_after } => ("overloaded", retry_after),
            TurnedAway::QueueFull { retry_after } => ("queue_full", retry_after),
            TurnedAway::WaitedTooLong { retry_after } => ("queue_timeout", retry_after),
            TurnedAway::Nobody => return None,
        };
        Some(Refusal::Overloaded { model: self.plan.model.clone(), code, retry_after })
    }

    fn asker(&self, door: &Door) -> Asker {
        let (spec, headers) = (door.spec(), &self.parts.headers);
        let since = self.log.started().elapsed();
        // No engine got it, and so it can wait for one to come.
        let may_be_held = self.sent == 0 && matches!(self.cause, None | Some(Cause::Connect));
        let hold = if may_be_held { spec.hold.saturating_sub(since) } else { Duration::ZERO };
        let tenant = spec.tenant_header.as_ref().and_then(|name| headers.get(name));
        let left = self.left();
        let timeout = number(headers, spec.timeout_header.as_ref(), door, Unread::Timeout, seconds);
        let patience = timeout.map(|timeout| timeout.saturating_sub(since));
        let priority =
            number(headers, spec.priority_header.as_ref(), door, Unread::Priority, priority);
        Asker {
            priority: priority.unwrap_or(0),
            tenant: tenant.map_or(0, |name| digest(name.as_bytes())),
            patience: left.into_iter().chain(patience).min(),
            hold,
            cost: self.plan.prompt_tokens(),
            goes_ahead: self.cause.is_some() || self.waited,
        }
    }
}

fn number<T>(
    headers: &HeaderMap,
    name: Option<&HeaderName>,
    door: &Door,
    which: Unread,
    read: fn(&str) -> Option<T>,
) -> Option<T> {
    let value = headers.get(name?)?;
    let number = value.to_str().ok().and_then(|text| read(text.trim()));
    if number.is_none() {
        door.unread(which, &String::from_utf8_lossy(value.as_bytes()));
    }
    number
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

fn priority(text: &str) -> Option<i32> {
    let number: i32 = text.parse().ok()?;
    Some(number.clamp(-MAX_PRIORITY, MAX_PRIORITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_headers() {
        assert_eq!(seconds("0.25"), Some(Duration::from_millis(250)));
        assert_eq!(seconds("600"), Some(Duration::from_secs(600)));
        assert_eq!(priority("-7"), Some(-7));
        assert_eq!(priority("2147483647"), Some(MAX_PRIORITY));
        for text in ["", "-1", "NaN", "inf", "1e400", "soon"] {
            assert_eq!(seconds(text), None, "{text}");
        }
        for text in ["", "1.5", "high", "99999999999"] {
            assert_eq!(priority(text), None, "{text}");
        }
    }
}
