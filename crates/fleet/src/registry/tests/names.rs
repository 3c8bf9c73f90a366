//! Other names of pools' models.

use super::*;

fn called(model: &str, aliases: &[&str]) -> PoolSpec {
    let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
    PoolSpec { aliases, ..pool(model, [1]) }
}

fn found(fleet: &Fleet, name: &str) -> Option<String> {
    let resolved = fleet.resolve(name)?;
    assert_eq!(resolved.adapter, None);
    Some(resolved.pool.model().to_owned())
}

#[tokio::test]
async fn a_pool_is_found_by_all_its_names_and_they_may_move() {
    let first = start(vec![called("m", &["x", "y"]), called("n", &[])]);
    for (name, pool) in [("m", Some("m")), ("x", Some("m")), ("n", Some("n")), ("z", None)] {
        assert_eq!(found(&first, name).as_deref(), pool, "{name}");
    }
    let (second, changes) = reload(&first, vec![called("m", &["y"]), called("n", &["x"])]);
    assert_eq!(changes.pools_changed, ["m", "n"]);
    assert!(changes.selections_begun_anew.is_empty());
    for (name, pool) in [("y", Some("m")), ("x", Some("n"))] {
        assert_eq!(found(&second, name).as_deref(), pool, "{name}");
    }
    let (third, _) = reload(&second, vec![called("m", &[]), called("n", &[])]);
    assert_eq!(found(&third, "x"), None);
}

#[tokio::test]
async fn an_engine_that_has_said_nothing_yet_is_asked_for_the_pools_names_and_no_others() {
    let fleet = start(vec![called("m", &["x"])]);
    let pool = &fleet.pools()[0];
    let prompt = PromptTokens { prompts: None, count: 1, exact: false, adapter: None, salt: None };
    for (name, wanted) in [("m", true), ("x", true), ("z", false)] {
        let chosen = pool.choose(name, &pool.evidence(&prompt), &[]);
        assert_eq!(chosen.is_ok(), wanted, "{name}");
    }
}
