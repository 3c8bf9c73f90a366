//! Who may be chosen for one request: the same where a choice is made and where it is foreseen.

use std::sync::Arc;

use kvasir_balance::{Legs, Pairing, Role};

use super::Pool;
use crate::endpoint::Endpoint;
use crate::evidence::Evidence;
use crate::exclusion::Exclusion;
use crate::split::Protocol;

/// What one request asks of a pool's members.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    pool: &'a Pool,
    model: &'a str,
    evidence: &'a Evidence,
    tried: &'a [Arc<Endpoint>],
    owner: Option<&'a Endpoint>,
    /// The prefill endpoint that has the KV to be fetched, of a decode leg alone.
    from: Option<&'a Endpoint>,
    protocol: Option<Protocol>,
    /// How it is split, if it is.
    pub(super) pairing: Option<Pairing>,
}

impl<'a> Asking<'a> {
    /// `other` is the engine that has stored what the request goes on from; of a decode leg alone, the
    /// prefill endpoint that has its KV.
    pub(super) fn new(
        pool: &'a Pool,
        model: &'a str,
        evidence: &'a Evidence,
        tried: &'a [Arc<Endpoint>],
        other: Option<&'a Endpoint>,
        legs: Legs,
    ) -> Self {
        let (owner, from) = match legs {
            Legs::Decode => (None, other),
            Legs::Any | Legs::Whole => (other, None),
        };
        // What an engine has stored, it goes on from whatever its role.
        let protocol = pool.pool_protocol(&evidence.endpoints);
        let pairing = if owner.is_some() { None } else { pool.pairing(legs, protocol) };
        Self { pool, model, evidence, tried, owner, from, protocol, pairing }
    }

    /// Why a member cannot be chosen, for policies.
    pub(super) fn excludes(&self, member: &Arc<Endpoint>) -> Option<kvasir_balance::Exclusion> {
        self.exclusion(member).as_ref().map(Into::into)
    }

    /// Why a member cannot be chosen.
    pub(super) fn exclusion(&self, member: &Arc<Endpoint>) -> Option<Exclusion> {
        let Self { pool, model, evidence, protocol, .. } = *self;
        if self.tried.iter().any(|known| known.same_engine(member)) {
            return Some(Exclusion::Tried);
        }
        if self.owner.is_some_and(|owner| !member.same_engine(owner)) {
            return Some(Exclusion::NotOwner);
        }
        let card = member.card();
        // That it serves the pool's model, the configuration says; an adapter, only the engine.
        if card.is_none() && !pool.is_called(model) {
            return Some(Exclusion::ModelNotServed);
        }
        let longest = card.and_then(|card| card.longest_prompt(model));
        if evidence.is_one_exact() && longest.is_some_and(|most| evidence.prompt_tokens > most) {
            return Some(Exclusion::ContextTooLong);
        }
        let legs = self.pairing.map(|pairing| pairing.legs);
        if legs == Some(Legs::Whole) && pool.role(member) == Role::Prefill {
            return Some(Exclusion::WrongRole);
        }
        let has_no_part = match legs {
            None => false,
            Some(Legs::Whole) => !evidence.computes_nothing && pool.only_fetches(member),
            Some(Legs::Any | Legs::Decode) => !pool.transfers(member, protocol),
        };
        let fetches_nothing = |from: &Endpoint| member.engine().hand_overs().is_cut(from, member);
        if has_no_part || self.from.is_some_and(fetches_nothing) {
            return Some(Exclusion::NoTransfer);
        }
        pool.exclusion_of(member, model, self.owner.is_some())
    }
}
