use std::time::Duration;

use super::params::{Source, to_opaque};
use super::rooms::{Phase, Ready, Rooms, Side};
use super::uuid;
use super::wire::Pull;

const READY: Ready = Ready { tokens: 8, prompt: 9, first: 1 };

#[tokio::test]
async fn two_legs_meet_once() {
    let rooms = Rooms::default();
    let prefill = rooms.enter(7, Side::Prefill).unwrap();
    assert!(rooms.enter(7, Side::Prefill).is_err(), "the place is taken");
    let decode = rooms.enter(7, Side::Decode).unwrap();
    prefill.tell(Phase::Ready(READY));
    assert_eq!(decode.until(|phase| *phase != Phase::Open).await, Phase::Ready(READY));
    decode.tell(Phase::Done);
    drop(decode);
    assert_eq!(prefill.phase(), Phase::Done, "who leaves after the end breaks nothing");
    assert!(rooms.enter(7, Side::Decode).is_err(), "gone, and not to come again");
    assert_eq!(rooms.len(), 1);
    drop(prefill);
    assert_eq!(rooms.len(), 0);
    assert!(rooms.enter(7, Side::Prefill).is_err(), "rooms are used once");
}

#[tokio::test]
async fn who_leaves_early_breaks_the_room() {
    let rooms = Rooms::default();
    let prefill = rooms.enter(1, Side::Prefill).unwrap();
    let decode = rooms.enter(1, Side::Decode).unwrap();
    drop(prefill);
    assert_eq!(decode.until(|phase| *phase == Phase::Broken).await, Phase::Broken);
    decode.tell(Phase::Done);
    assert_eq!(decode.phase(), Phase::Broken, "and broken it stays");
    drop(decode);
    drop(rooms.enter(2, Side::Decode).unwrap());
    assert_eq!(rooms.len(), 0);
    assert!(rooms.enter(2, Side::Prefill).is_err(), "nobody waits for a partner that has left");
}

#[test]
fn past_rooms_are_forgotten_in_order() {
    let rooms = Rooms::default();
    for room in 0..5_000 {
        drop(rooms.enter(room, Side::Prefill).unwrap());
    }
    assert!(rooms.enter(4_999, Side::Prefill).is_err());
    assert!(rooms.enter(5_000 - 4_096, Side::Prefill).is_err());
    assert!(rooms.enter(5_000 - 4_097, Side::Prefill).is_ok());
}

#[test]
fn transfers_survive_the_wire() {
    let lease = Source::Lease { name: "cmpl-1".to_owned(), engine: Some("e".to_owned()) };
    for source in [lease, Source::Room((1 << 63) - 1)] {
        let fixed = Duration::from_millis(5);
        let pull = Pull { source, have: 32, prompt: u64::MAX, fixed, rate: 1e3, fails: true };
        assert_eq!(Pull::read(&pull.to_json()), Some(pull.clone()));
        assert_eq!(pull.time(132), Duration::from_millis(105));
        assert_eq!(pull.time(1), fixed, "nothing to move");
        let mut wrong = pull.to_json();
        wrong["tokens_per_s"] = 0.into();
        assert_eq!(Pull::read(&wrong), None);
    }
}

#[test]
fn identifiers_look_like_themselves() {
    let id = uuid(3);
    let lengths: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
    assert_ne!(uuid(4), uuid(5));
    assert_eq!(to_opaque("h:1"), "683a31");
}
