//! Parts in disaggregated serving, from one fleet to the next.

use kvasir_balance::Role;

use super::*;
use crate::spec::Part;
use crate::split::{SplitSettings, SplitState};

fn with_roles(roles: &[Role], split: Option<SplitSettings>) -> PoolSpec {
    let mut spec = PoolSpec { split, ..pool("m", []) };
    for (number, role) in (1..).zip(roles) {
        let part = Part { role: *role, ..Part::default() };
        spec.endpoints.push(EndpointSpec { part, ..endpoint(number) });
    }
    spec
}

#[tokio::test]
async fn roles_and_the_switch_change_while_it_runs() {
    let (on, roles) = (Some(SplitSettings::default()), [Role::Prefill, Role::Unified]);
    let first = start(vec![with_roles(&roles, on.clone())]);
    assert_eq!(first.pools()[0].split_state(), SplitState::NoDecode);
    let roles = [Role::Prefill, Role::Decode];
    let (second, changes) = reload(&first, vec![with_roles(&roles, on.clone())]);
    assert_eq!(changes.roles_changed, urls(&[2]));
    assert_eq!(changes.engines_changed, urls(&[2]));
    assert!(changes.to_string().contains("roles changed: http://127.0.0.2:2"), "{changes}");
    assert_eq!(changes.pools_changed, ["m"]);
    assert!(changes.selections_begun_anew.is_empty());
    // Who chooses by the pool of before goes on by its roles.
    let old = &first.pools()[0];
    assert_eq!(old.role(&old.members()[1]), Role::Unified);
    let pool = Arc::clone(&second.pools()[0]);
    assert_eq!(pool.split_state(), SplitState::Splits);
    assert_eq!(pool.members()[1].role(), Role::Decode);
    assert_eq!(pool.role(&pool.members()[1]), Role::Decode);
    let mut page = String::new();
    second.render_metrics(&mut page);
    for line in [
        "kvasir_endpoint_role{endpoint=\"http://127.0.0.2:1\",role=\"prefill\"} 1\n",
        "kvasir_pd_leases{endpoint=\"http://127.0.0.2:1\"} 0\n",
        "kvasir_pd_leases_expired_total{endpoint=\"http://127.0.0.2:1\"} 0\n",
        "kvasir_pd_leases_abandoned_total{endpoint=\"http://127.0.0.2:1\"} 0\n",
        "kvasir_pool_split{model=\"m\",state=\"splits\"} 1\n",
    ] {
        assert!(page.contains(line), "{line}");
    }

    let (third, changes) = reload(&second, vec![with_roles(&roles, None)]);
    assert_eq!(changes.pools_changed, ["m"]);
    assert!(changes.roles_changed.is_empty() && changes.selections_begun_anew.is_empty());
    let now = &third.pools()[0];
    assert_eq!((now.split().is_none(), now.split_state()), (true, SplitState::Off));
    assert!(Arc::ptr_eq(&pool.state().selecting, &now.state().selecting));
    let (_, changes) = reload(&third, vec![with_roles(&roles, None)]);
    assert!(changes.is_empty(), "{changes}");
}

#[tokio::test]
async fn bootstrap_servers_are_the_url_s_host_unless_told() {
    let mut spec = with_roles(&[Role::Prefill, Role::Prefill], Some(SplitSettings::default()));
    spec.endpoints[1].part.bootstrap_host = Some("kv.example".to_owned());
    spec.endpoints[1].part.bootstrap_port = Some(9_000);
    let fleet = start(vec![spec]);
    let told = |place: usize| {
        let members = fleet.pools()[0].members();
        (members[place].bootstrap_host(), members[place].bootstrap_port())
    };
    assert_eq!(told(0), ("127.0.0.2".to_owned(), None));
    assert_eq!(told(1), ("kv.example".to_owned(), Some(9_000)));
}

#[tokio::test]
async fn one_engine_has_one_part() {
    let split = Some(SplitSettings::default());
    let other = PoolSpec { model: "n".to_owned(), ..with_roles(&[Role::Decode], split.clone()) };
    let inventory = Arc::new(Inventory::new(KeySpace::fixed(), Limits::default()));
    let both = fleet(vec![with_roles(&[Role::Prefill], split), other]);
    assert!(matches!(Fleet::start(both, inventory), Err(FleetError::Settings(_))));
}
