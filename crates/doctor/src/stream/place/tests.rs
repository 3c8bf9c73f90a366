//! Addresses as engines tell them, seen from their own host and from another.

use super::*;
use crate::facts::plain;
use crate::report::Verdict;

fn source(rank: u32, publisher: &str, replay: Option<&str>) -> EventSource {
    let (publisher, replay) = (publisher.to_owned(), replay.map(str::to_owned));
    EventSource { rank, publisher, replay, topic: String::new() }
}

fn telling(sources: Vec<EventSource>) -> (Target, Facts) {
    let facts = Facts { sources: Some(sources), ..plain() };
    (Target::new(facts.origin.authority().clone()), facts)
}

fn at(text: &str) -> Replay {
    Replay::At(Address::parse(text).unwrap())
}

#[test]
fn a_loopback_replay_is_another_hosts() {
    for loopback in [
        "tcp://127.0.0.1:5558",
        "tcp://localhost:5558",
        "tcp://[::1]:5558",
        "tcp://[::ffff:127.0.0.1]:5558",
        "tcp://127.8.0.9:5558",
    ] {
        let (target, facts) = telling(vec![source(0, "tcp://*:5557", Some(loopback))]);
        let place = choose(&target, &facts, false).unwrap();
        assert_eq!(place.publisher.to_string(), "tcp://engine-1:5557");
        assert_eq!(place.replay, Replay::Loopback(loopback.to_owned()));
        // From the engine's own host it can be reached.
        let place = choose(&target, &facts, true).unwrap();
        assert_eq!(place.replay, at(loopback));
        assert!(place.replay_is_local, "a gateway elsewhere does not reach it");
        assert!(!place.publisher_is_local);
        // Through a tunnel, too.
        let target = Target { replay: Some(loopback.to_owned()), ..target };
        assert_eq!(choose(&target, &facts, false).unwrap().replay, at(loopback));
    }
    let (target, facts) = telling(vec![source(0, "tcp://*:5557", Some("tcp://*:5558"))]);
    let place = choose(&target, &facts, true).unwrap();
    assert_eq!((place.replay, place.replay_is_local), (at("tcp://engine-1:5558"), false));
}

#[test]
fn the_leg_names_the_loopback() {
    let (target, facts) = telling(vec![source(0, "tcp://*:5557", Some("tcp://127.0.0.1:5558"))]);
    let place = choose(&target, &facts, false).unwrap();
    let stats = kvasir_kv_events::StreamStats::default();
    let heard = crate::stream::Collected::default();
    let patience = std::time::Duration::from_secs(1);
    for leg in [
        crate::stream::legs::replay(&place, &stats, &heard, patience),
        crate::stream::legs::replay_unasked(&place, "events cannot be followed"),
    ] {
        assert_eq!(leg.verdict, Verdict::Off);
        let text = "bound to the engine's loopback (tcp://127.0.0.1:5558): reachable only from \
                    its own host";
        assert!(leg.finding.starts_with(text), "{leg}");
        assert!(leg.remedy.unwrap().contains("tcp://*:5558"));
    }
}

#[test]
fn a_publisher_that_connects_is_named() {
    assert!(connects("tcp://127.0.0.1:5557") && connects("tcp://gateway:5557"));
    for bound in ["tcp://*:5557", "tcp://[::]:5557", "tcp://::1:5557", "ipc:///tmp/events"] {
        assert!(!connects(bound), "{bound}");
    }
    let (target, facts) = telling(vec![source(0, "tcp://127.0.0.1:5557", None)]);
    let legs = choose(&target, &facts, false).unwrap_err();
    assert_eq!(legs[0].verdict, Verdict::Off);
    assert!(legs[0].finding.contains("connects to it instead of binding"), "{}", legs[0]);
    let place = choose(&target, &facts, true).unwrap();
    assert!(place.connects);
    assert!(place.publisher_is_local, "a gateway elsewhere does not reach it");
    let heard = crate::stream::Collected::default();
    let leg = crate::stream::legs::connected(&place, &facts, &heard);
    assert!(leg.finding.contains("a gateway elsewhere cannot reach it"), "{leg}");
    assert_eq!(place.replay, Replay::None);
}

#[test]
fn given_addresses_come_first() {
    let (target, facts) = telling(vec![
        source(0, "tcp://*:5557", Some("tcp://*:5558")),
        source(1, "tcp://*:5559", Some("tcp://*:5560")),
    ]);
    // Rank 1 by its address: its own replay socket belongs to it.
    let given = Target { events: Some("tcp://engine-1:5559".to_owned()), ..target.clone() };
    let place = choose(&given, &facts, false).unwrap();
    assert_eq!((place.replay, place.ranks), (at("tcp://engine-1:5560"), None));
    assert_eq!(place.rank, Some(1), "the probe has to go to the rank that is listened to");
    // Another address says nothing of replays.
    let given = Target { events: Some("tcp://127.0.0.1:15557".to_owned()), ..target.clone() };
    assert_eq!(choose(&given, &facts, false).unwrap().replay, Replay::NotTold);
    let place = choose(&target, &facts, false).unwrap();
    assert_eq!(place.ranks.unwrap(), "rank 0 looked at, not ranks 1 at tcp://*:5559");
    let given = Target { events: Some("tcp://engine-1:0".to_owned()), ..target };
    assert_eq!(choose(&given, &facts, false).unwrap_err()[0].verdict, Verdict::Off);
}

#[test]
fn engines_that_publish_nothing_say_so() {
    for (kind, says_no_events, verdict, text) in [
        (EngineKind::TrtLlm, false, Verdict::Unknown, "never polled"),
        (EngineKind::LlamaCpp, false, Verdict::Unknown, "approximate"),
        (EngineKind::Sglang, false, Verdict::Unknown, "does not tell"),
        (EngineKind::Vllm, false, Verdict::Unknown, "before 0.32"),
        (EngineKind::Vllm, true, Verdict::Off, "publishes no events"),
    ] {
        let facts = Facts { kind, says_no_events, ..plain() };
        let legs =
            choose(&Target::new(facts.origin.authority().clone()), &facts, false).unwrap_err();
        assert_eq!(
            legs.iter().map(|leg| leg.leg).collect::<Vec<_>>(),
            [LegName::Events, LegName::Replay]
        );
        assert_eq!(legs[0].verdict, verdict, "{}", legs[0]);
        assert!(legs[0].finding.contains(text), "{}", legs[0]);
    }
}
