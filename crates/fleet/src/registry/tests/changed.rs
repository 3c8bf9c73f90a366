//! What a reload says it changed.

use super::*;

/// Whatever differs between two specifications of pools, a reload names something.
#[tokio::test]
async fn no_change_goes_unnamed() {
    type Change = fn(&mut FleetSpec);
    let changes: &[(&str, Change)] = &[
        ("engines changed: http://127.0.0.2:1", |s| s.pools[0].endpoints[0].weight = 7),
        ("engines changed: http://127.0.0.2:1", |s| s.pools[0].endpoints[0].ranks = Some(2)),
        ("engines changed: http://127.0.0.2:1", |s| s.pools[0].endpoints[0].poll_events = true),
        ("engines changed: http://127.0.0.2:1", |s| {
            s.pools[0].endpoints[0].state = AdminState::Drain;
        }),
        ("pools changed: m", |s| s.pools[0].timeouts.idle = Duration::from_secs(9)),
        ("pools changed: m", |s| s.pools[0].tokens.trust_headers = true),
    ];
    for (wanted, change) in changes {
        let first = start(vec![pool("m", [1])]);
        let mut spec = fleet(vec![pool("m", [1])]);
        change(&mut spec);
        let (_second, changes) = first.reload(spec).unwrap();
        let said = changes.to_string();
        assert!(said.split("; ").any(|part| part == *wanted), "{said}, not {wanted}");
    }
}

#[tokio::test]
async fn an_engine_in_two_pools_has_one_weight_and_one_state() {
    let first = start(vec![pool("m", [1])]);
    for change in [
        (|e: &mut EndpointSpec| e.weight = 7) as fn(&mut EndpointSpec),
        |e| e.state = AdminState::Drain,
        |e| e.ranks = Some(3),
    ] {
        let mut other = pool("n", [1]);
        change(&mut other.endpoints[0]);
        let error = first.reload(fleet(vec![pool("m", [1]), other])).unwrap_err();
        assert_eq!(error, FleetError::Settings("127.0.0.2:1".to_owned()));
    }
}
