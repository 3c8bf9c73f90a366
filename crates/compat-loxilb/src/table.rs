//! The rules that are in effect: their keys, service ids, and the order of their endpoints.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::answer::Refusal;
use crate::gateway::{Scope, ScopePool};
use crate::rule::{Endpoint, Rule};
use crate::translate::{self, Defaults};
use crate::validate;

/// The most rules.
const MOST_RULES: usize = 1024;

/// All rules. A change is tried on a copy, which takes its place once it is in effect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Table {
    /// The last service id given out; none is given twice.
    last: u32,
    rules: Vec<Placed>,
}

/// A rule in its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) service: u32,
    pub(crate) rule: Rule,
    /// `ep_idx` of each of the rule's endpoints, in ascending order.
    pub(crate) indices: Vec<u32>,
    #[serde(skip, default = "Instant::now")]
    pub(crate) since: Instant,
}

/// Which rules are to go.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    All,
    Name(String),
    At { at: SocketAddr, model: Option<String> },
}

impl Placed {
    pub(crate) fn at(&self) -> SocketAddr {
        SocketAddr::new(self.rule.service.external_ip, self.rule.service.port)
    }

    /// The endpoints with their `ep_idx`.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (u32, &Endpoint)> {
        self.indices.iter().copied().zip(&self.rule.endpoints)
    }

    /// The `ep_idx` of an engine, by host and port.
    pub(crate) fn index_of(&self, engine: SocketAddr) -> Option<u32> {
        let is = |one: &Endpoint| SocketAddr::new(one.ip, one.target_port) == engine;
        self.endpoints().find(|(_, one)| is(one)).map(|(index, _)| index)
    }

    /// `ip:port:proto`, as the reference names a service in metrics.
    pub(crate) fn label(&self) -> String {
        format!("{}:tcp", self.at())
    }

    fn is_same(&self, rule: &Rule) -> bool {
        let (a, b) = (&self.rule.service, &rule.service);
        (a.external_ip, a.port, &a.model_name) == (b.external_ip, b.port, &b.model_name)
    }

    /// Takes up the endpoints of another document: those that stay keep their index, new ones get the
    /// next.
    fn take(&mut self, mut rule: Rule) {
        rule.endpoints.sort_by_key(|one| order(one.ip));
        let mut next = self.indices.last().map_or(0, |last| last + 1);
        let is_one = |a: &Endpoint, b: &Endpoint| (a.ip, a.target_port) == (b.ip, b.target_port);
        let mut placed: Vec<(u32, Endpoint)> = Vec::new();
        for endpoint in std::mem::take(&mut rule.endpoints) {
            let known = self.endpoints().find(|(_, one)| is_one(one, &endpoint));
            let index = known.map(|(index, _)| index).unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            placed.push((index, endpoint));
        }
        placed.sort_by_key(|(index, _)| *index);
        (self.indices, rule.endpoints) = placed.into_iter().unzip();
        self.rule = rule;
    }
}

/// Ascending addresses, IPv4 before IPv6.
fn order(ip: IpAddr) -> (bool, u128) {
    match ip {
        IpAddr::V4(ip) => (false, u128::from(u32::from(ip))),
        IpAddr::V6(ip) => (true, u128::from(ip)),
    }
}

impl Table {
    pub(crate) fn rules(&self) -> &[Placed] {
        &self.rules
    }

    pub(crate) fn by_service(&self, service: u32) -> Option<&Placed> {
        self.rules.iter().find(|placed| placed.service == service)
    }

    /// The rule that a model's requests at a port go by.
    pub(crate) fn serving(&self, at: SocketAddr, model: &str) -> Option<&Placed> {
        let here = || self.rules.iter().filter(move |placed| placed.at() == at);
        let named = here().find(|placed| placed.rule.service.model_name == model);
        named.or_else(|| here().find(|placed| placed.rule.service.model_name.is_empty()))
    }

    /// Takes up a rule's document; the address and port it is about.
    pub(crate) fn post(&mut self, mut rule: Rule) -> Result<SocketAddr, Refusal> {
        validate::check(&rule)?;
        let oper = std::mem::take(&mut rule.service.oper);
        let at = self.rules.iter().position(|placed| placed.is_same(&rule));
        match (oper, at) {
            (0, None) => self.create(rule)?,
            (0, Some(at)) => self.replace(at, rule)?,
            (_, None) => return Err(Refusal::missing("no such load balancer rule")),
            (1, Some(at)) => self.attach(at, rule)?,
            (_, Some(at)) => self.detach(at, &rule)?,
        }
        let found = self.rules.last().map(Placed::at);
        let at = at.map(|at| self.rules[at].at()).or(found);
        at.ok_or_else(|| Refusal::missing("no such load balancer rule"))
    }

    fn create(&mut self, rule: Rule) -> Result<(), Refusal> {
        if self.rules.len() >= MOST_RULES {
            let why = format!("capacity: there are {MOST_RULES} rules");
            return Err(Refusal::new(StatusCode::FORBIDDEN, why));
        }
        let name = &rule.service.name;
        if !name.is_empty() && self.rules.iter().any(|one| one.rule.service.name == *name) {
            return Err(Refusal::conflict(format!("lbrule-exist error: the name {name} is taken")));
        }
        self.last += 1;
        let (service, since) = (self.last, Instant::now());
        let empty = Rule { endpoints: Vec::new(), ..rule.clone() };
        let mut placed = Placed { service, rule: empty, indices: Vec::new(), since };
        placed.take(rule);
        self.rules.push(placed);
        Ok(())
    }

    fn replace(&mut self, at: usize, rule: Rule) -> Result<(), Refusal> {
        let before = self.rules[at].clone();
        if before.rule.service.engine() != rule.service.engine() {
            return Err(Refusal::conflict(
                "lbrule-exist error: cant modify rule kv engine type (delete and recreate)",
            ));
        }
        let placed = &mut self.rules[at];
        placed.take(rule);
        if placed.rule == before.rule {
            return Err(Refusal::conflict("lbrule-exists error"));
        }
        placed.since = Instant::now();
        Ok(())
    }

    fn attach(&mut self, at: usize, rule: Rule) -> Result<(), Refusal> {
        let mut whole = self.rules[at].rule.clone();
        for endpoint in rule.endpoints {
            whole
                .endpoints
                .retain(|one| (one.ip, one.target_port) != (endpoint.ip, endpoint.target_port));
            whole.endpoints.push(endpoint);
        }
        validate::check(&whole)?;
        self.replace(at, whole)
    }

    fn detach(&mut self, at: usize, rule: &Rule) -> Result<(), Refusal> {
        let mut whole = self.rules[at].rule.clone();
        let goes = |one: &Endpoint| {
            rule.endpoints
                .iter()
                .any(|gone| (gone.ip, gone.target_port) == (one.ip, one.target_port))
        };
        let before = whole.endpoints.len();
        whole.endpoints.retain(|one| !goes(one));
        if whole.endpoints.len() == before {
            return Err(Refusal::missing("no such endpoint"));
        }
        validate::check(&whole)?;
        self.replace(at, whole)
    }

    /// Takes rules away; the addresses they were at.
    pub(crate) fn delete(&mut self, which: &Which) -> Result<Vec<SocketAddr>, Refusal> {
        let goes = |placed: &Placed| match which {
            Which::All => true,
            Which::Name(name) => placed.rule.service.name == *name,
            Which::At { at, model } => {
                let is_model = |model: &String| placed.rule.service.model_name == *model;
                placed.at() == *at && model.as_ref().is_none_or(is_model)
            }
        };
        let mut gone: Vec<SocketAddr> =
            self.rules.iter().filter(|placed| goes(placed)).map(Placed::at).collect();
        if gone.is_empty() && !matches!(which, Which::All) {
            return Err(Refusal::missing("no such load balancer rule"));
        }
        self.rules.retain(|placed| !goes(placed));
        gone.sort_unstable();
        gone.dedup();
        Ok(gone)
    }

    /// Every address and port that has rules.
    pub(crate) fn places(&self) -> Vec<SocketAddr> {
        let mut places: Vec<SocketAddr> = self.rules.iter().map(Placed::at).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// What is to be served at an address and port.
    pub(crate) fn scope(
        &self,
        at: SocketAddr,
        otherwise: IpAddr,
        defaults: &Defaults,
    ) -> Result<Scope, Refusal> {
        let here = self.rules.iter().filter(|placed| placed.at() == at);
        let pool = |placed: &Placed| {
            let endpoints: Vec<&Endpoint> = placed.rule.endpoints.iter().collect();
            let pool = translate::pool(&placed.rule, &endpoints, defaults)?;
            Ok(ScopePool { service: placed.service, pool })
        };
        let pools: Result<_, Refusal> = here.map(pool).collect();
        Ok(Scope { at, otherwise, pools: pools? })
    }
}
