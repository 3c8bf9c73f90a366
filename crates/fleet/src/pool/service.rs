//! Which of a pool's members are in service.

use std::sync::Arc;

use kvasir_balance::Role;

use super::Pool;
use crate::endpoint::Endpoint;
use crate::exclusion::Exclusion;
use crate::spec::AdminState;

impl Pool {
    /// Whether any member is known to take a request for the pool's model now. One that is busy for
    /// a moment, or is being tried, does; one that takes no new conversations does not. One that only
    /// fetches takes nothing unless a prefill endpoint is there too.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let takes = |member: &Endpoint| {
            let why = member.exclusion_in(AdminState::Active, &self.model);
            self.is_in_service(member)
                && member.has_answered()
                && why.is_none_or(|why| why.takes_some())
        };
        let members = self.members.load();
        let protocol = self.pool_protocol(&members);
        let computes = |member: &Arc<Endpoint>| {
            self.role(member) == Role::Prefill && self.transfers(member, protocol) && takes(member)
        };
        let is_fed = |member: &Endpoint| {
            !self.only_fetches(member)
                || self.transfers(member, protocol) && members.iter().any(computes)
        };
        members.iter().any(|member| self.answers(member) && takes(member) && is_fed(member))
    }

    /// Whether an operator lets new requests go to one of its members.
    #[must_use]
    pub fn is_in_service(&self, member: &Endpoint) -> bool {
        self.state_of(member) == AdminState::Active
    }

    /// Whether a request for `model` may go to one of its members; the reason if not.
    #[must_use]
    pub fn exclusion(&self, member: &Endpoint, model: &str) -> Option<Exclusion> {
        member.exclusion_in(self.state_of(member), model)
    }

    /// The same of one request; whether the engines are `owners` of what it goes on from.
    pub(super) fn exclusion_of(
        &self,
        member: &Endpoint,
        model: &str,
        owners: bool,
    ) -> Option<Exclusion> {
        match self.state_of(member) {
            // What it has stored, no other has.
            AdminState::Drain if owners => member.exclusion_in(AdminState::Active, model),
            // Conversations that are pinned there go on only while nothing else is wrong.
            AdminState::Drain => match member.exclusion_in(AdminState::Active, model) {
                None | Some(Exclusion::AdvisedDraining) => Some(Exclusion::Draining),
                Some(_) => Some(Exclusion::Disabled),
            },
            state => member.exclusion_in(state, model),
        }
    }

    fn state_of(&self, member: &Endpoint) -> AdminState {
        let told = self.states.iter().find(|(engine, _)| engine == member.authority());
        member.state_in(told.map_or(AdminState::Active, |(_, state)| *state))
    }

    /// What speaks against the members that were not `tried`, for people: how many, and for what.
    /// Empty where there is no such member.
    #[must_use]
    pub fn why_not_tried(&self, model: &str, tried: &[Arc<Endpoint>]) -> String {
        let members = self.members();
        let untried = members.iter().filter(|member| {
            self.answers(member) && !tried.iter().any(|known| known.same_engine(member))
        });
        listed(&counted(untried.filter_map(|member| self.exclusion(member, model))))
    }

    /// Why no member can be chosen for a request for `model`, for people: how many are excluded, and
    /// for what.
    #[must_use]
    pub fn why_none(&self, model: &str) -> String {
        let members = self.members();
        let answering = || members.iter().filter(|member| self.answers(member));
        let reasons = counted(answering().filter_map(|member| self.exclusion(member, model)));
        let told: usize = reasons.iter().map(|(_, count)| count).sum();
        let by_hand = reasons.iter().all(|(reason, _)| matches!(*reason, "draining" | "disabled"));
        let none = if self.has_sides() { "no decode or unified endpoint" } else { "none" };
        match listed(&reasons) {
            _ if self.has_sides() && answering().next().is_none() => {
                "it has no decode or unified endpoint to answer".to_owned()
            }
            list if list.is_empty() => format!("{none} is in service"),
            list if by_hand && told == answering().count() => {
                format!("all of them were taken out of service ({list})")
            }
            list => format!("{none} is in service ({list})"),
        }
    }
}

/// How often each reason is there, in the order they came.
fn counted(exclusions: impl Iterator<Item = Exclusion>) -> Vec<(&'static str, usize)> {
    let mut reasons: Vec<(&'static str, usize)> = Vec::new();
    for reason in exclusions {
        match reasons.iter_mut().find(|(known, _)| *known == reason.as_str()) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason.as_str(), 1)),
        }
    }
    reasons
}

/// Such as `2 unreachable, 1 draining`.
fn listed(reasons: &[(&'static str, usize)]) -> String {
    let list: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    list.join(", ")
}
