//! How a pool splits requests, and what it says of that.

use std::sync::Arc;

use kvasir_balance::{Cut, Legs, Pairing, Role};

use super::Pool;
use crate::endpoint::Endpoint;
use crate::split::{Protocol, SplitState};

impl Pool {
    /// The part of one of its members in requests that are split.
    #[must_use]
    pub fn role(&self, member: &Endpoint) -> Role {
        self.roles.get(member.authority()).copied().unwrap_or_default()
    }

    /// How the KV of a prompt computed at `endpoint` is handed over; `None` where that is not known,
    /// or the pool does not split requests.
    #[must_use]
    pub fn protocol(&self, endpoint: &Endpoint) -> Option<Protocol> {
        match self.split()?.protocol {
            Protocol::Auto => Protocol::of_kind(endpoint.card()?.kind),
            protocol => Some(protocol),
        }
    }

    /// Whether it can split requests.
    #[must_use]
    pub fn split_state(&self) -> SplitState {
        let members = self.members();
        let has = |role| members.iter().any(|member| self.role(member) == role);
        SplitState::of(has(Role::Prefill), has(Role::Decode), self.split.is_some())
    }

    /// The code of the error where nobody can serve a request.
    #[must_use]
    pub fn unavailable_code(&self) -> &'static str {
        if self.has_sides() { "pd_pool_unavailable" } else { "no_endpoint" }
    }

    /// Whether it splits requests, and an endpoint has a role.
    pub(super) fn has_sides(&self) -> bool {
        self.split.is_some() && !self.roles.is_empty()
    }

    /// Whether a request may be answered there.
    pub(super) fn answers(&self, member: &Endpoint) -> bool {
        self.split.is_none() || self.role(member) != Role::Prefill
    }

    /// How a request is split, with KV handed over so; `None` where the pool does not, or nobody has a role.
    pub(super) fn pairing(&self, legs: Legs, protocol: Option<Protocol>) -> Option<Pairing> {
        let split = self.split.as_ref()?;
        let transfer_s = split.transfer_time.as_secs_f64();
        let fetch_only = protocol == Some(Protocol::Sglang);
        let pairing = Pairing { select: split.select, transfer_s, legs, fetch_only };
        (!self.roles.is_empty()).then_some(pairing)
    }

    /// Who hands over nothing now, of a request that may be split.
    pub(super) fn cuts(&self, members: &[Arc<Endpoint>], pairing: Option<&Pairing>) -> Vec<Cut> {
        if pairing.is_none_or(|pairing| pairing.legs != Legs::Any) {
            return Vec::new();
        }
        self.shared.hand_overs.cuts(members, |member| self.role(member))
    }

    /// What prefill endpoints speak: the first that says.
    pub(super) fn pool_protocol(&self, members: &[Arc<Endpoint>]) -> Option<Protocol> {
        self.split()?;
        let mut prefill = members.iter().filter(|member| self.role(member) == Role::Prefill);
        prefill.find_map(|member| self.protocol(member))
    }

    /// How the KV of prompts is handed over: as the pool is told, else as the first of its prefill
    /// endpoints that has said what it is, else of its decode endpoints; `None` where that is not known,
    /// or the pool does not split requests.
    #[must_use]
    pub fn transfer_protocol(&self) -> Option<Protocol> {
        let told = self.split()?.protocol;
        if told != Protocol::Auto {
            return Some(told);
        }
        let members = self.members();
        let mut decode = members.iter().filter(|member| self.role(member) == Role::Decode);
        let said = self.pool_protocol(&members);
        said.or_else(|| decode.find_map(|member| self.protocol(member)))
    }

    /// Whether a member answers only prompts that were computed elsewhere: `SGLang`'s decode engines do.
    #[must_use]
    pub fn only_fetches(&self, member: &Endpoint) -> bool {
        self.role(member) == Role::Decode && self.protocol(member) == Some(Protocol::Sglang)
    }

    /// Whether no member could ever serve a whole request, whatever state they are in: those that may
    /// answer only fetch.
    #[must_use]
    pub fn serves_only_split(&self) -> bool {
        let members = self.members();
        let mut answering = members.iter().filter(|member| self.answers(member)).peekable();
        answering.peek().is_some() && answering.all(|member| self.only_fetches(member))
    }

    /// Whether an endpoint can take part in handing over KV so: of a prefill endpoint that has to be
    /// known, of a decode endpoint nothing else.
    pub(super) fn transfers(&self, member: &Endpoint, protocol: Option<Protocol>) -> bool {
        match (self.role(member), self.protocol(member)) {
            (Role::Unified, _) | (Role::Decode, None) => true,
            (Role::Prefill, own) => own.is_some() && own == protocol,
            (Role::Decode, own) => protocol.is_none() || own == protocol,
        }
    }
}
