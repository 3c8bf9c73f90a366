//! What is foreseen is what is chosen, and foreseeing changes nothing.

use kvasir_balance::{PolicySpec, StickyOptions};

use super::*;
use crate::admission::NoRoom;
use crate::asked::Asked;

/// What was foreseen of a choice, and the choice.
fn both(pool: &Pool, tokens: &PromptTokens<'_>, session: u64) -> (Explained, Chosen) {
    let asked = Asked { session: Some(session), head: b"x", ..Asked::default() };
    let evidence = pool.evidence_of(tokens, &asked);
    let explained = pool.explain("m", &evidence, None);
    (explained, pool.choose("m", &evidence, &[]).unwrap())
}

/// Requests of a few conversations; the last ones are kept in hand.
fn drive(selection: &SelectionSpec, times: usize) -> Vec<(String, &'static str)> {
    let scene = Scene::new(3, Some(true));
    let pool = scene.pool_of(selection);
    let (prompts, mut kept, mut seen) = (burst(40), Vec::new(), Vec::new());
    for (n, prompt) in prompts.iter().enumerate() {
        let prompt = vec![prompt.iter().copied().skip(1_700).collect::<Vec<u32>>()];
        let session = n as u64 % 5;
        let tokens = plain(&prompt);
        for _ in 0..times {
            let asked = Asked { session: Some(session), head: b"x", ..Asked::default() };
            let _ = pool.explain("m", &pool.evidence_of(&tokens, &asked), None);
        }
        let (explained, chosen) = both(&pool, &tokens, session);
        let (record, decision) = (&explained.record, &chosen.decision);
        let choice = record.choice.as_ref().unwrap();
        let name = chosen.reservation.endpoint().name();
        assert_eq!(choice.endpoint, name);
        assert_eq!(
            (choice.policy.as_str(), choice.detail.as_str()),
            (decision.policy, decision.detail)
        );
        assert_eq!(choice.reason, decision.reason.as_str());
        let of_chosen = record.endpoints.iter().find(|endpoint| endpoint.name == name).unwrap();
        assert_eq!(of_chosen.pending, decision.pending);
        assert_eq!(of_chosen.overlap.resident(), u64::from(decision.overlap.resident()));
        let stages: Vec<_> = choice.stages.iter().map(|s| (s.stage.as_str(), s.left)).collect();
        let noted: Vec<_> = decision.stages.iter().map(|note| (note.stage, note.left)).collect();
        assert_eq!(stages, noted);
        seen.push((name, decision.policy));
        kept.push(chosen);
        if n % 3 == 0 {
            // Some are answered, some left: policies learn of both.
            let mut done = kept.remove(0);
            if n % 2 == 0 {
                done.reservation.first_data(true);
            }
        }
    }
    seen
}

#[test]
fn what_is_foreseen_is_chosen_and_a_thousand_looks_change_no_choice() {
    for kind in PolicyKind::ALL {
        let mut selection = SelectionSpec::of(kind);
        selection.sticky = Some(StickyOptions::default());
        selection.shadow = Some(PolicySpec::RoundRobin);
        let without = SelectionSpec { sticky: None, ..selection.clone() };
        for selection in [selection, without] {
            assert_eq!(drive(&selection, 0), drive(&selection, 25), "{kind:?}");
        }
    }
}

#[test]
fn what_speaks_against_endpoints_is_told_and_no_trial_is_taken() {
    let scene = Scene::new(2, None);
    let pool = scene.pool(PolicyKind::RoundRobin);
    scene.endpoint(0).mark_unreachable("connection refused");
    let prompts = burst(1);
    let evidence = pool.evidence(&plain(&prompts));
    let explained = pool.explain("m", &evidence, None);
    let why = explained.exclusions[0].clone();
    assert_eq!(why, Some(Exclusion::Unreachable("connection refused".to_owned())));
    assert_eq!(explained.record.endpoints[0].exclusion.as_deref(), Some("unreachable"));
    scene.endpoint(1).set_state(AdminState::Disabled);
    scene.endpoint(0).set_state(AdminState::Disabled);
    let explained = pool.explain("m", &pool.evidence(&plain(&prompts)), None);
    assert_eq!((explained.no_room, explained.record.choice), (Some(NoRoom::Nobody), None));
    assert_eq!(scene.endpoint(1).in_flight(), 0);
}
