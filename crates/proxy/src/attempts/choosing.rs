//! Who comes next: an engine that has not failed the request, or the last one once more.

use std::sync::Arc;
use std::time::Duration;

use kvasir_fleet::{Chosen, Endpoint, Evidence, NoRoom, Pool};

use super::{CONNECT_TIMEOUTS, Cause, Tries};
use crate::plan::Plan;

impl Tries<'_> {
    /// An engine that has not failed it yet, once the pool lets it in.
    pub(super) async fn find(&mut self) -> Option<Chosen> {
        match self.plan.resolved.pool.door() {
            // An engine's own error is an answer: nobody waits for a better one.
            Some(door) if self.held.is_none() => self.be_let_in(door).await,
            _ => self.choose(&self.tried).ok(),
        }
    }

    fn choose(&self, tried: &[Arc<Endpoint>]) -> Result<Chosen, NoRoom> {
        self.choose_in(&self.pool, tried, self.log.waited)
    }

    pub(super) fn choose_in(
        &self,
        pool: &Pool,
        tried: &[Arc<Endpoint>],
        waited: Option<Duration>,
    ) -> Result<Chosen, NoRoom> {
        let evidence = self.plan.evidence_in(pool, waited);
        let evidence = if self.split.whole.is_some() { evidence.not_split() } else { evidence };
        let evidence = if self.may_try_the_gone() { evidence.sent_nowhere() } else { evidence };
        let model = &self.plan.model;
        let from = self.split.live_hand();
        match (owner(self.plan, pool, &evidence, tried), from) {
            (None | Some(Err(NoRoom::Nobody)), Some(from)) => {
                match pool.choose_decode(model, &evidence, tried, from) {
                    // Somebody may be there who can do all of it.
                    Err(NoRoom::Nobody) => pool.choose(model, &evidence.not_split(), tried),
                    found => found,
                }
            }
            (None | Some(Err(NoRoom::Nobody)), None) => pool.choose(model, &evidence, tried),
            (Some(found), _) => found,
        }
    }

    /// Whether those are worth a connection that are known to be unreachable: one may just have come
    /// back. Each is tried once, but the client does not wait for long.
    fn may_try_the_gone(&self) -> bool {
        self.sent == 0 && self.connecting < self.pool.timeouts().connect * CONNECT_TIMEOUTS
    }

    /// All engines are busy, and said for how long: waits for the one that was chosen, where that
    /// takes a moment. Else it is asked all the same, and says itself what it thinks of it: it may
    /// have meant another client.
    pub(super) async fn when_not_busy(&mut self, chosen: Chosen) -> Option<Chosen> {
        let claims = chosen.prefill.iter().chain([&chosen.reservation]);
        let busy = claims.filter_map(|claim| claim.endpoint().back_pressure()).max();
        let Some(time) = busy.filter(|time| self.is_worth_waiting(*time)) else {
            return Some(chosen);
        };
        drop(chosen);
        self.wait(time).await;
        self.find().await
    }

    /// No engine is left. The last one gets a second chance where it is busy for a moment only, or
    /// broke off so soon that it may just have closed an idle connection.
    pub(super) async fn once_more(&mut self) -> Option<Chosen> {
        let busy = self.held.as_ref().and_then(|held| held.retry_after);
        if let Some(time) = busy.filter(|time| self.is_worth_waiting(*time)) {
            self.wait(time).await;
            return self.choose(&[]).ok();
        }
        if self.split.recompute_here() {
            // The others were tried.
            let others = self.tried.split_last().map(|(_, others)| others.to_vec());
            return self.choose(&others.unwrap_or_default()).ok();
        }
        let broke_once = self.cause == Some(Cause::Broke) && self.faults == 1 && self.broke_soon;
        if broke_once { self.choose(&[]).ok() } else { None }
    }

    /// It is waited once, not for long, and not beyond the time for the whole request.
    fn is_worth_waiting(&self, time: Duration) -> bool {
        let is_in_time = self.left().is_none_or(|left| time < left);
        !self.waited && time <= self.settings.longest_wait && is_in_time
    }

    async fn wait(&mut self, time: Duration) {
        self.waited = true;
        tokio::time::sleep(time).await;
    }

    /// Whether anybody may do better than the engine that has just answered: only then its answer
    /// is held.
    pub(super) fn has_others(
        &mut self,
        endpoint: &Endpoint,
        retry_after: Option<Duration>,
    ) -> bool {
        let pool = &self.pool;
        let is_other = |member: &Arc<Endpoint>| {
            !member.same_engine(endpoint)
                && !self.tried.iter().any(|t| t.same_engine(member))
                && pool.is_in_service(member)
        };
        let others = pool.members().iter().any(is_other)
            // Others do not have what it goes on from.
            && self.plan.owner.is_none();
        let has = others
            || self.split.may_recompute_here()
            || retry_after.is_some_and(|time| self.is_worth_waiting(time));
        if !has {
            self.log.no_retry = Some("no_endpoint");
        }
        has
    }
}

/// The engine that keeps what the request goes on from, if it can be chosen.
fn owner(
    plan: &Plan,
    pool: &Pool,
    evidence: &Evidence,
    tried: &[Arc<Endpoint>],
) -> Option<Result<Chosen, NoRoom>> {
    let owner = plan.owner.as_ref()?;
    // Responses are stored by the server, whichever of its ranks computed them.
    Some(pool.choose_owner(&plan.model, evidence, tried, owner))
}
