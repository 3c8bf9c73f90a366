//! Which sockets to listen to: the operator's, else those the engine names.

use kvasir_fleet::{EngineKind, EventSource};
use kvasir_kv_events::{Address, EndpointError};

use super::legs::{EVENTS_FLAG, REPLAY_COST, REPLAY_FLAG};
use super::reach::is_loopback_text;
use crate::facts::Facts;
use crate::report::{Leg, LegName};
use crate::shown::{list, shown};
use crate::target::Target;

/// Where a publisher is, and what it was said to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The publisher's address as it was written.
    pub(super) told: String,
    /// Where that is from here.
    pub(super) publisher: Address,
    pub(super) replay: Replay,
    /// They are bound to the engine's loopback, which is this machine's, too.
    pub(super) publisher_is_local: bool,
    pub(super) replay_is_local: bool,
    /// The topic listened to.
    pub(super) topic: String,
    /// The topic published under, where the engine tells.
    pub(super) published_topic: Option<String>,
    /// vLLM connects to such an address instead of binding it.
    pub(super) connects: bool,
    /// The rank it publishes for, where there are several and it is known.
    pub(super) rank: Option<u32>,
    /// Which rank this is and which it is not, in words, where nobody chose.
    pub(super) ranks: Option<String>,
}

/// Where the replay socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Replay {
    At(Address),
    /// The publisher has none.
    None,
    /// Nobody says whether there is one.
    NotTold,
    /// It is bound to the engine's loopback, and this is another host.
    Loopback(String),
    Unusable(EndpointError),
}

/// Chooses. `here` is whether the engine's URL is this machine's loopback.
///
/// # Errors
/// The legs that say why there is nothing to listen to.
pub(super) fn choose(target: &Target, facts: &Facts, here: bool) -> Result<Place, Vec<Leg>> {
    if target.bind {
        return Err(both(
            "the engine connects to our address: it cannot be listened to beside a running gateway",
            "look at the endpoint's trust in the gateway's /metrics",
        ));
    }
    match (&target.events, facts.sources.as_deref()) {
        (Some(told), sources) => given(target, facts, told, sources.unwrap_or_default()),
        (None, Some([first, rest @ ..])) => {
            if facts.kind == EngineKind::TrtLlm {
                return Err(nothing_told(facts));
            }
            named(target, facts, first, rest, here)
        }
        (None, Some([])) => Err(switched_off()),
        (None, None) if facts.says_no_events => Err(switched_off()),
        (None, None) => Err(nothing_told(facts)),
    }
}

/// The operator's addresses. A replay address the engine names belongs to them only if its
/// publisher is the same one.
fn given(
    target: &Target,
    facts: &Facts,
    told: &str,
    sources: &[EventSource],
) -> Result<Place, Vec<Leg>> {
    let host = facts.origin.authority().host();
    let publisher = Address::resolve(told, host).map_err(|error| unusable(&error))?;
    let same = sources
        .iter()
        .find(|source| Address::resolve(&source.publisher, host).as_ref() == Ok(&publisher));
    let replay = match (&target.replay, same) {
        (Some(told), _) => resolve_replay(told, host),
        (None, Some(source)) => {
            source.replay.as_deref().map_or(Replay::None, |told| resolve_replay(told, host))
        }
        (None, None) => Replay::NotTold,
    };
    let topic = target.topic.clone();
    let told = told.to_owned();
    let rank = same.filter(|_| sources.len() > 1).map(|source| source.rank);
    let published_topic = same.map(|source| source.topic.clone());
    Ok(Place {
        told,
        publisher,
        replay,
        publisher_is_local: false,
        replay_is_local: false,
        topic,
        published_topic,
        connects: false,
        rank,
        ranks: None,
    })
}

/// The first publisher that the engine names.
fn named(
    target: &Target,
    facts: &Facts,
    source: &EventSource,
    rest: &[EventSource],
    here: bool,
) -> Result<Place, Vec<Leg>> {
    let host = facts.origin.authority().host();
    let told = source.publisher.clone();
    let connects = facts.kind == EngineKind::Vllm && connects(&told);
    let publisher = Address::resolve(&told, host).map_err(|error| unusable(&error))?;
    if !here && is_loopback(&publisher.to_string()) {
        let how = if connects { "vLLM connects to it instead of binding" } else { "bound there" };
        let finding = format!(
            "{} is the engine's own loopback ({how}): not reachable from here",
            shown(&told)
        );
        return Err(vec![
            Leg::off(LegName::Events, finding, format!("start the engine with {EVENTS_FLAG}")),
            Leg::unknown(LegName::Replay, "events cannot be followed", "see the leg events"),
        ]);
    }
    let replay = match (&target.replay, source.replay.as_deref()) {
        (Some(told), _) => resolve_replay(told, host),
        (None, None) => Replay::None,
        (None, Some(told)) => match resolve_replay(told, host) {
            Replay::At(address) if !here && is_loopback(&address.to_string()) => {
                Replay::Loopback(told.to_owned())
            }
            replay => replay,
        },
    };
    let topic = if target.topic.is_empty() { &source.topic } else { &target.topic };
    let ranks = (!rest.is_empty()).then(|| {
        let others = rest.iter().map(|other| format!("{} at {}", other.rank, other.publisher));
        format!("rank {} looked at, not ranks {}", source.rank, list(others))
    });
    let told_replay = source.replay.as_deref().filter(|_| target.replay.is_none());
    let publisher_is_local = here && is_loopback(&source.publisher);
    let replay_is_local = here && told_replay.is_some_and(is_loopback);
    let topic = topic.clone();
    let rank = ranks.as_ref().map(|_| source.rank);
    let published_topic = Some(source.topic.clone());
    Ok(Place {
        told,
        publisher,
        replay,
        publisher_is_local,
        replay_is_local,
        topic,
        published_topic,
        connects,
        rank,
        ranks,
    })
}

impl Place {
    /// The topic published under, if it is not among those listened to: all that begin alike.
    pub(super) fn other_topic(&self) -> Option<&str> {
        self.published_topic.as_deref().filter(|topic| !topic.starts_with(&self.topic))
    }
}

/// Whether vLLM's publisher connects to this endpoint: it binds wildcards and local sockets only.
pub(super) fn connects(endpoint: &str) -> bool {
    endpoint.starts_with("tcp://") && !endpoint.contains('*') && !endpoint.contains("::")
}

fn is_loopback(endpoint: &str) -> bool {
    let host = endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':'));
    host.is_some_and(|(host, _)| is_loopback_text(host))
}

fn resolve_replay(told: &str, host: &str) -> Replay {
    Address::resolve(told, host).map_or_else(Replay::Unusable, Replay::At)
}

fn unusable(error: &EndpointError) -> Vec<Leg> {
    vec![
        Leg::off(
            LegName::Events,
            error.to_string(),
            "give a fixed address with --events tcp://HOST:PORT",
        ),
        Leg::unknown(LegName::Replay, "events cannot be followed", "see the leg events"),
    ]
}

fn switched_off() -> Vec<Leg> {
    vec![
        Leg::off(
            LegName::Events,
            "the engine says that it publishes no events: what it holds is not known, requests are \
             routed without it",
            format!("start it with {EVENTS_FLAG}"),
        ),
        Leg::off(
            LegName::Replay,
            format!("no publisher, so no replay socket: {REPLAY_COST}"),
            format!("with the events, set {REPLAY_FLAG}"),
        ),
    ]
}

/// The engine does not say where its events are.
fn nothing_told(facts: &Facts) -> Vec<Leg> {
    match facts.kind {
        EngineKind::TrtLlm => both(
            "TensorRT-LLM's event queue is emptied by whoever reads it: never polled from here",
            "look at the endpoint's trust in the gateway, its only reader",
        ),
        EngineKind::LlamaCpp => both(
            "llama.cpp publishes no events: routing to it is approximate",
            "nothing to be done",
        ),
        EngineKind::Vllm => both(
            "the engine does not tell whether it publishes events (vLLM before 0.32 never does)",
            format!(
                "give --events tcp://HOST:5557 and --replay tcp://HOST:5558, as set in its {EVENTS_FLAG}"
            ),
        ),
        EngineKind::Sglang | EngineKind::Other => both(
            "the engine does not tell whether it publishes events",
            "give --events tcp://HOST:PORT and --replay tcp://HOST:PORT, as set in its \
             --kv-events-config",
        ),
    }
}

fn both(finding: &str, remedy: impl Into<String>) -> Vec<Leg> {
    let remedy = remedy.into();
    vec![
        Leg::unknown(LegName::Events, finding, remedy.clone()),
        Leg::unknown(LegName::Replay, finding, remedy),
    ]
}

#[cfg(test)]
mod tests;
