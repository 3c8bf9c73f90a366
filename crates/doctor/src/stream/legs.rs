//! The words of the legs `events` and `replay`.

use std::time::Duration;

use kvasir_fleet::EngineKind;
use kvasir_kv_events::{Address, StreamStats};

use super::collected::Collected;
use super::place::{Place, Replay};
use super::reach::Unreached;
use crate::facts::Facts;
use crate::report::{Leg, LegName};
use crate::shown::shown;

/// vLLM's flag that switches everything on.
pub(super) const EVENTS_FLAG: &str = "--kv-events-config '{\"enable_kv_cache_events\":true,\
    \"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5558\"}'";

pub(super) const REPLAY_FLAG: &str = "\"replay_endpoint\":\"tcp://*:5558\" in --kv-events-config";

/// What is lost without replays.
pub(super) const REPLAY_COST: &str =
    "a lost message or a restart of the gateway costs all that is known of the cache";

/// What a socket is that only its own host can reach.
const LOCAL: &str = "bound to the engine's loopback: a gateway elsewhere cannot reach it";

/// What tells whether a topic is the right one.
pub(super) const SEND_A_REQUEST: &str = "send a request while this runs, or run with --probe";

/// Nothing can be connected to where the publisher should be.
pub(super) fn unreached(place: &Place, facts: &Facts, why: &Unreached) -> Leg {
    let (told, publisher) = (shown(&place.told), &place.publisher);
    if place.connects {
        let finding = format!(
            "{publisher}: {why}; vLLM binds only endpoints with * or ::, and connects to {told}"
        );
        return Leg::off(LegName::Events, finding, format!("start it with {EVENTS_FLAG}"));
    }
    let remedy = match (why, facts.kind) {
        (Unreached::Name(_), _) => "correct the host of --events".to_owned(),
        (Unreached::Refused, EngineKind::Vllm) => {
            format!("start the engine with {EVENTS_FLAG}, or correct --events")
        }
        _ => "open the port to this host, or correct --events".to_owned(),
    };
    Leg::off(LegName::Events, format!("{publisher}: {why}"), remedy)
}

/// Something listens, and it is no publisher.
pub(super) fn no_publisher(place: &Place, facts: &Facts, patience: Duration, lost: bool) -> Leg {
    let (told, publisher) = (shown(&place.told), &place.publisher);
    let how = match (place.connects, lost) {
        (_, true) => "the connection is lost again and again".to_owned(),
        (true, _) => format!(
            "something else listens there; vLLM binds only endpoints with * or ::, and connects \
             to {told}"
        ),
        (false, _) => format!(
            "something listens there, but no publisher answered within {} s: the replay socket, \
             or the HTTP port?",
            patience.as_secs_f32()
        ),
    };
    let remedy = match facts.kind {
        EngineKind::Vllm if place.connects => format!("start it with {EVENTS_FLAG}"),
        _ => "give the publisher's own port with --events (not the replay socket's)".to_owned(),
    };
    Leg::off(LegName::Events, format!("{publisher}: {how}"), remedy)
}

/// A publisher is followed.
pub(super) fn connected(place: &Place, facts: &Facts, heard: &Collected) -> Leg {
    let mut finding =
        format!("{} answers; {}; trust {}", place.publisher, heard.count(), heard.trust);
    if place.publisher_is_local {
        finding = format!("{finding}; {LOCAL}");
    }
    if let Some(ranks) = &place.ranks {
        finding = format!("{finding}; {ranks}");
    }
    if !place.topic.is_empty() {
        finding = format!("{finding}; topic {:?}", place.topic);
    }
    if let Some(published) = place.other_topic() {
        let finding = format!("{finding}; the engine publishes under {:?}", shown(published));
        return Leg::off(
            LegName::Events,
            finding,
            "correct --topic (`topic` in a configuration): live messages under another one do not \
             arrive",
        );
    }
    // Replays are not told apart by topic: they prove nothing of it.
    if place.published_topic.is_none() && !place.topic.is_empty() && heard.live() == 0 {
        let finding = format!("{finding}; nothing live under this topic so far");
        return Leg::unknown(LegName::Events, finding, SEND_A_REQUEST);
    }
    if facts.card.ranks.len() > 1 {
        // The gateway follows them all.
        let remedy = "look at the other ranks, too: --events (and --replay) of each";
        return Leg::unknown(LegName::Events, finding, remedy);
    }
    Leg::ok(LegName::Events, finding)
}

/// The publisher went away while it was followed.
pub(super) fn lost(finding: &str) -> Leg {
    let finding = format!("{finding}; then the connection was lost and did not come back");
    Leg::off(LegName::Events, finding, "see the engine's log: did it end, or restart?")
}

/// What was published meanwhile did not come from the publisher.
pub(super) fn only_replayed(finding: &str) -> Leg {
    Leg::off(
        LegName::Events,
        format!("{finding}; every batch came late, from the replay socket, and none live"),
        "correct --topic (`topic` in a configuration): messages under another one do not arrive; or \
         see why the publisher's port delivers nothing",
    )
}

/// The replay socket, once the publisher was followed.
pub(super) fn replay(
    place: &Place,
    stats: &StreamStats,
    heard: &Collected,
    patience: Duration,
) -> Leg {
    let address = match &place.replay {
        Replay::At(address) => address,
        Replay::None => {
            return Leg::off(
                LegName::Replay,
                format!("the publisher has no replay socket: {REPLAY_COST}"),
                format!("set {REPLAY_FLAG}"),
            );
        }
        Replay::NotTold => {
            return Leg::unknown(
                LegName::Replay,
                "no replay address given, and the engine does not tell",
                format!("give --replay tcp://HOST:PORT; where there is none, set {REPLAY_FLAG}"),
            );
        }
        Replay::Loopback(told) => return bound_to_loopback(told),
        Replay::Unusable(error) => {
            let remedy = "give a fixed address with --replay tcp://HOST:PORT";
            return Leg::off(LegName::Replay, error.to_string(), remedy);
        }
    };
    if stats.replays == 0 {
        let swapped = if *address == place.publisher {
            "it is the publisher's own address"
        } else {
            "the publisher's port (swapped?), or another rank's"
        };
        return Leg::off(
            LegName::Replay,
            format!(
                "{address}: something listens there, but answers no replay request within {} s: \
                 {swapped}",
                patience.as_secs_f32()
            ),
            format!("give the port of {REPLAY_FLAG} with --replay"),
        );
    }
    let mut finding = format!("{address} answers; {}", history(stats, heard));
    if place.replay_is_local {
        finding = format!("{finding}; {LOCAL}");
    }
    Leg::ok(LegName::Replay, finding)
}

/// How far back the socket's history goes.
fn history(stats: &StreamStats, heard: &Collected) -> String {
    match heard.history {
        None if stats.last_seq.is_none() => "nothing was published before this check".to_owned(),
        None => "it holds no batch that could be used".to_owned(),
        Some((0, 0)) => "holds the only batch so far".to_owned(),
        Some((0, last)) => format!("holds {} batches, back to the first", last.saturating_add(1)),
        Some((first, last)) => format!(
            "holds batches {first} to {last}; what was stored before stays unknown until the cache \
             is cleared"
        ),
    }
}

pub(super) fn replay_unreached(address: &Address, why: &Unreached) -> Leg {
    let finding = format!("{address}: {why}; {REPLAY_COST}");
    Leg::off(LegName::Replay, finding, format!("set {REPLAY_FLAG} and open the port to this host"))
}

/// What can be said of a replay socket that was not asked.
pub(super) fn replay_unasked(place: &Place, why: &str) -> Leg {
    match &place.replay {
        Replay::Loopback(told) => bound_to_loopback(told),
        _ => Leg::unknown(LegName::Replay, format!("not asked: {why}"), "see the leg events"),
    }
}

fn bound_to_loopback(told: &str) -> Leg {
    Leg::off(
        LegName::Replay,
        format!(
            "bound to the engine's loopback ({}): reachable only from its own host; {REPLAY_COST}",
            shown(told)
        ),
        format!("set {REPLAY_FLAG}"),
    )
}
