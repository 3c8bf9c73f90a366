//! Prompts fit the context, fill blocks and are new.

use kvasir_fleet::Adapter;

use super::*;
use crate::facts::plain;

fn all(plan: &Plan, facts: &Facts, extras: bool) -> Vec<Prompt> {
    (0..).map_while(|number| plan.prompt(number, facts, extras)).collect()
}

#[test]
fn prompts_fit_and_fill_blocks() {
    for size in [1, 4, 16, 128, 1056] {
        for longest in [2, 5, 20, 100, 300, 2048, 40_960, u64::MAX] {
            let Some(plan) = Plan::new(size, longest, Ids::Small) else {
                assert!(longest < (size + TAIL + 1) as u64, "{size} {longest}");
                continue;
            };
            assert!(plan.short.len() > size && plan.long.len() >= plan.short.len());
            // One token of answer has to fit.
            assert!((plan.long.len() as u64) < longest, "{size} {longest}");
            assert_eq!(plan.short[..], plan.long[..plan.short.len()]);
            assert!(plan.long.iter().all(|id| (10..=200).contains(id)));
        }
    }
    assert!(Plan::new(1 << 20, u64::MAX, Ids::Small).is_none());
    let tiny = Plan::new(16, 2048, Ids::Tiny).unwrap();
    assert!(tiny.long.iter().all(|id| (4..=30).contains(id)));
}

#[test]
fn no_two_runs_send_the_same() {
    let plan = || Plan::new(16, 2048, Ids::Tiny).unwrap();
    let (one, two) = (plan(), plan());
    assert_ne!(one.short[..16], two.short[..16]);
    assert_ne!(one.salt, two.salt);
}

#[test]
fn salts_and_two_adapters_at_most() {
    let mut facts = plain();
    let adapter = |name: &str| Adapter { name: name.to_owned(), path: None };
    facts.card.adapters = ["a", "b", "c"].map(adapter).to_vec();
    let plan = Plan::new(16, 2048, Ids::Small).unwrap();
    assert_eq!(all(&plan, &facts, false).len(), 3);
    let prompts = all(&plan, &facts, true);
    let kinds: Vec<(Option<&str>, bool)> =
        prompts.iter().map(|p| (p.adapter.as_deref(), p.salt.is_some())).collect();
    let of = |name| [(Some(name), false), (Some(name), false), (Some(name), true)];
    let expected = [&[(None, false); 3][..], &[(None, true); 2], &of("a"), &of("b")].concat();
    assert_eq!(kinds, expected);
}
