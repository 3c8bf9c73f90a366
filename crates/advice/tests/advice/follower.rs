//! The gateway's rules: what is followed, what changes nothing, and how advice fades.

use std::time::Duration;

use kvasir_advice::gateway::{Clock, Follower, FollowerSettings, Services, Target};
use kvasir_advice::wire::aictrl::{EpEntry, EpState, Role, ServiceSnapshot, Snapshot};
use kvasir_fleet::{Advice, AdvisedState, Role as Own};

const UNIX_MS: u64 = 1_700_000_000_000;

fn services() -> Services {
    let target = |address: &str, role| Target { address: address.to_owned(), role };
    let unified = vec![target("a:1", Own::Unified), target("b:1", Own::Unified)];
    let split = vec![target("p:1", Own::Prefill), target("d:1", Own::Decode)];
    [("m".to_owned(), unified), ("s".to_owned(), split)].into()
}

fn entry(address: &str, weight: u32, state: EpState) -> EpEntry {
    EpEntry { ep_addr: address.to_owned(), weight, state: state as i32, ..EpEntry::default() }
}

/// Of the process `boot`, good for 30 s from the start.
fn snapshot(boot: &str, epoch: u64, eps: Vec<EpEntry>) -> Snapshot {
    Snapshot {
        epoch,
        boot_id: boot.to_owned(),
        staleness_deadline_unix_ms: UNIX_MS + 30_000,
        services: vec![ServiceSnapshot { service_key: "m".to_owned(), eps }],
        min_applier_version: 1,
        nonce: format!("{boot}-{epoch}"),
    }
}

fn at(seconds: u64) -> Clock {
    Clock { now: Duration::from_secs(seconds), unix_ms: UNIX_MS + seconds * 1000 }
}

fn follower() -> Follower {
    Follower::new(FollowerSettings::default())
}

/// Weights of `a` and `b` when all is well.
fn percents(follower: &mut Follower, seconds: u64) -> [Option<u8>; 2] {
    let effect = follower.tick(Duration::from_secs(seconds), |_| true);
    ["a:1", "b:1"].map(|address| effect.advice.get(address).map(|advice| advice.percent))
}

fn both(a: u32, b: u32) -> Vec<EpEntry> {
    vec![entry("a:1", a, EpState::Active), entry("b:1", b, EpState::Active)]
}

#[test]
fn advice_comes_into_effect_after_its_jitter() {
    let mut follower = follower();
    let delay = follower.offer(&snapshot("x", 1, both(20, 100)), &services(), at(0), 0.5).unwrap();
    // Half of a tenth of ten seconds.
    assert_eq!(delay, Duration::from_millis(500));
    assert_eq!(follower.next_at(), Some(delay));
    assert_eq!(percents(&mut follower, 0), [None, None]);
    let effect = follower.tick(delay, |_| true);
    assert_eq!(effect.applied, Some((1, "x-1".to_owned())));
    assert_eq!(effect.advice["a:1"], Advice { percent: 20, state: AdvisedState::Active });
    assert_eq!(follower.tick(delay, |_| true).applied, None, "once");
    assert_eq!((follower.status().state(), follower.status().epoch), ("following", 1));
}

#[test]
fn advice_fades_to_neutral_after_its_deadline_and_comes_back() {
    let mut follower = follower();
    follower.offer(&snapshot("x", 1, both(20, 1)), &services(), at(0), 0.0).unwrap();
    assert_eq!(percents(&mut follower, 0), [Some(20), Some(1)]);
    assert_eq!(percents(&mut follower, 30), [Some(20), Some(1)]);
    assert_eq!(percents(&mut follower, 45), [Some(60), Some(51)]);
    assert_eq!(follower.status().state(), "fading");
    assert_eq!(percents(&mut follower, 59), [Some(97), Some(97)]);
    assert_eq!(percents(&mut follower, 60), [None, None]);
    assert_eq!(follower.status().state(), "off_line");
    let again = Snapshot {
        staleness_deadline_unix_ms: UNIX_MS + 100_000,
        ..snapshot("x", 2, both(50, 50))
    };
    follower.offer(&again, &services(), at(70), 0.0).unwrap();
    assert_eq!(percents(&mut follower, 70), [Some(50), Some(50)]);
}

#[test]
fn what_is_out_of_contract_changes_nothing() {
    let good = || snapshot("x", 10, both(20, 30));
    let with = |eps: Vec<EpEntry>| snapshot("x", 11, eps);
    let of = |key: &str, eps: Vec<EpEntry>| Snapshot {
        services: vec![ServiceSnapshot { service_key: key.to_owned(), eps }],
        ..with(vec![])
    };
    let deadline = |ms| Snapshot { staleness_deadline_unix_ms: ms, ..with(both(1, 1)) };
    let twice = Snapshot {
        services: [of("m", both(1, 1)).services, of("m", both(2, 2)).services].concat(),
        ..with(vec![])
    };
    let role = |role: Role| vec![EpEntry { role: role as i32, ..entry("p:1", 9, EpState::Active) }];
    let raw = |role, state| vec![EpEntry { role, state, ..entry("a:1", 9, EpState::Active) }];
    let by_index = vec![EpEntry { ep_idx: 2, ..entry("", 9, EpState::Active) }];
    let cases = [
        ("old_epoch", Snapshot { epoch: 9, ..with(both(1, 1)) }),
        ("old_epoch", Snapshot { epoch: 10, ..with(both(1, 1)) }),
        ("expired", deadline(UNIX_MS)),
        ("expired", deadline(UNIX_MS - 1)),
        ("expired", deadline(0)),
        ("far_deadline", deadline(UNIX_MS + 301_000)),
        ("far_deadline", deadline(u64::MAX)),
        ("boot_id", Snapshot { boot_id: String::new(), ..with(both(1, 1)) }),
        ("boot_id", Snapshot { boot_id: "b".repeat(300), ..with(both(1, 1)) }),
        ("applier_version", Snapshot { min_applier_version: 2, ..with(both(1, 1)) }),
        ("unknown_service", of("nobody", both(1, 1))),
        ("unknown_service", of("", both(1, 1))),
        (
            "unknown_endpoint",
            with(vec![entry("a:1", 9, EpState::Active), entry("c:1", 9, EpState::Active)]),
        ),
        ("unknown_endpoint", with(by_index)),
        (
            "duplicate",
            with(vec![entry("a:1", 9, EpState::Active), entry("a:1", 9, EpState::Active)]),
        ),
        ("duplicate", twice),
        ("range", with(both(101, 9))),
        ("range", with(both(9, u32::MAX))),
        ("range", with(raw(0, 0))),
        ("range", with(raw(0, 4))),
        ("range", with(raw(3, 1))),
        ("role", of("s", role(Role::Decode))),
    ];
    let mut follower = follower();
    follower.offer(&good(), &services(), at(0), 0.0).unwrap();
    assert_eq!(percents(&mut follower, 0), [Some(20), Some(30)]);
    for (reason, bad) in &cases {
        let refusal = follower.offer(bad, &services(), at(0), 0.0).unwrap_err();
        assert_eq!(refusal.reason, *reason, "{refusal}");
        assert!(kvasir_advice::gateway::Refusal::REASONS.contains(reason));
        assert_eq!(percents(&mut follower, 0), [Some(20), Some(30)], "{refusal}");
    }
    assert_eq!(follower.status().rejected.values().sum::<u64>(), cases.len() as u64);
    assert_eq!((follower.status().accepted, follower.status().applied), (1, 1));
    // What was refused is not remembered, either: the next good one is taken.
    follower.offer(&with(both(40, 50)), &services(), at(1), 0.0).unwrap();
    assert_eq!(percents(&mut follower, 1), [Some(40), Some(50)]);
}

#[test]
fn a_controller_that_restarts_is_followed_and_one_that_replays_is_not() {
    let mut follower = follower();
    let mut offer = |boot: &str, epoch| {
        follower.offer(&snapshot(boot, epoch, both(9, 9)), &services(), at(0), 0.0)
    };
    assert!(offer("x", 5).is_ok());
    assert!(offer("y", 1).is_ok(), "another process begins anew");
    for (boot, epoch) in [("x", 5), ("x", 1), ("y", 1)] {
        assert_eq!(offer(boot, epoch).unwrap_err().reason, "old_epoch", "{boot} {epoch}");
    }
    assert!(offer("x", 6).is_ok());
    for n in 0..100 {
        assert!(offer(&format!("z{n}"), 1).is_ok());
    }
    assert_eq!(offer("z99", 1).unwrap_err().reason, "old_epoch");
}

#[test]
fn endpoints_are_found_by_address_else_by_index() {
    let mut follower = follower();
    let by_index = EpEntry { ep_idx: 1, ..entry("", 33, EpState::Active) };
    let eps = vec![by_index, EpEntry { ep_idx: 77, ..entry("A:1", 44, EpState::Active) }];
    follower.offer(&snapshot("x", 1, eps), &services(), at(0), 0.0).unwrap();
    assert_eq!(percents(&mut follower, 0), [Some(44), Some(33)]);
    // A weight of none is the least there is: to take one out is a state.
    follower
        .offer(&snapshot("x", 2, vec![entry("a:1", 0, EpState::Active)]), &services(), at(0), 0.0)
        .unwrap();
    assert_eq!(percents(&mut follower, 0), [Some(1), None], "who is not named is neutral");
}

#[test]
fn roles_of_a_pool_that_splits_must_fit() {
    let mut follower = follower();
    let entry = EpEntry { role: Role::Prefill as i32, ..entry("p:1", 9, EpState::Active) };
    let services_of = |eps| vec![ServiceSnapshot { service_key: "s".to_owned(), eps }];
    let fits = Snapshot { services: services_of(vec![entry]), ..snapshot("x", 1, vec![]) };
    follower.offer(&fits, &services(), at(0), 0.0).unwrap();
    assert_eq!(follower.tick(Duration::ZERO, |_| true).advice["p:1"].percent, 9);
}

#[test]
fn states_hold_for_a_while() {
    let mut follower = follower();
    let mut epoch = 0;
    let mut state_at = |seconds: u64, wanted: EpState| {
        epoch += 1;
        let snapshot = Snapshot {
            staleness_deadline_unix_ms: at(seconds).unix_ms + 30_000,
            ..snapshot("x", epoch, vec![entry("a:1", 100, wanted)])
        };
        follower.offer(&snapshot, &services(), at(seconds), 0.0).unwrap();
        follower.tick(Duration::from_secs(seconds), |_| true).advice["a:1"].state
    };
    assert_eq!(state_at(0, EpState::Draining), AdvisedState::Draining);
    assert_eq!(state_at(3, EpState::Active), AdvisedState::Draining);
    assert_eq!(state_at(4, EpState::Disabled), AdvisedState::Draining);
    assert_eq!(state_at(5, EpState::Disabled), AdvisedState::Disabled);
    assert_eq!(state_at(9, EpState::Active), AdvisedState::Disabled);
    assert_eq!(state_at(10, EpState::Active), AdvisedState::Active);
}

#[test]
fn a_state_ends_with_its_advice() {
    let mut follower = follower();
    let eps = vec![entry("a:1", 100, EpState::Disabled)];
    follower.offer(&snapshot("x", 1, eps), &services(), at(0), 0.0).unwrap();
    let state = |follower: &mut Follower, seconds| {
        follower.tick(Duration::from_secs(seconds), |_| true).advice.get("a:1").map(|a| a.state)
    };
    assert_eq!(state(&mut follower, 0), Some(AdvisedState::Disabled));
    assert_eq!(state(&mut follower, 59), Some(AdvisedState::Disabled));
    assert_eq!(state(&mut follower, 60), None);
}

#[test]
fn own_health_comes_before_advice_and_that_is_counted_once() {
    let mut follower = follower();
    follower.offer(&snapshot("x", 1, both(20, 30)), &services(), at(0), 0.0).unwrap();
    let mut counts = Vec::new();
    for well in [true, false, false, true, false] {
        let effect = follower.tick(Duration::from_secs(1), |address| well || address != "a:1");
        let wanted = if well { 20 } else { 100 };
        assert_eq!((effect.advice["a:1"].percent, effect.advice["b:1"].percent), (wanted, 30));
        counts.push(follower.status().overrides);
    }
    assert_eq!(counts, [0, 1, 1, 1, 2]);
}
