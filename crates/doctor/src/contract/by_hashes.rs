//! What the leg `hash_contract` says of an engine whose pool knows blocks by the engine's own hashes:
//! what the gateway's own check finds, and what prompts prove where events have no tokens to check.

use kvasir_fleet::{HashContract, HashState};

use super::hash::Remark;
use crate::probe::{Probed, Step};
use crate::shown::shown;
use crate::stream::Collected;

/// What to do where the pool's identity is not the engine's.
const CORRECT: &str = "give identity.engine what the engine hashes by, or let it publish tokens and take \
                       `identity: tokens`";

/// What prompts say of hashes that no tokens in events can be held against.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Prompts were found by their hashes, and the engine reported the same.
    Ok(String),
    /// Prompts that the engine had were not found.
    Off(Remark),
    /// Nothing was sent that could show it.
    Unknown(Remark),
}

/// What the gateway holds against the pool's identity, from the tokens in events.
pub(super) fn contradiction(contract: &HashContract) -> Option<Remark> {
    let why = match contract.state {
        HashState::Mismatch => "the gateway would credit nothing",
        HashState::Unreproducible => "no prompt can be hashed so",
        HashState::Unchecked | HashState::Verified => return None,
    };
    let detail = shown(&contract.detail);
    Some(Remark::new(
        format!("not as the pool's identity says, {why}: {contract} ({detail})"),
        CORRECT,
    ))
}

/// What the prompts sent say, where stored blocks came without tokens.
pub(super) fn proof(probed: &Probed) -> Proof {
    let known = |step: &Step| Some((step.predicted?, step.outcome.cached()?));
    let pairs: Vec<(u64, u64)> = probed.steps.iter().filter_map(known).collect();
    let found =
        pairs.iter().filter(|(predicted, reported)| *predicted > 0 && predicted == reported);
    let found = found.count();
    if pairs.iter().any(|(_, reported)| *reported > 0) && pairs.iter().all(|(found, _)| *found == 0)
    {
        return Proof::Off(Remark::new(
            "events have no tokens, and no prompt that the engine had cached is found by the pool's \
             identity: its algorithm, seed or version is another",
            CORRECT,
        ));
    }
    if found > 0 {
        let prompts = if found == 1 { "prompt was" } else { "prompts were" };
        return Proof::Ok(format!(
            "events have no tokens; {found} cached {prompts} found by the pool's identity"
        ));
    }
    Proof::Unknown(Remark::new(
        "events have no tokens, so their hashes cannot be computed again",
        if probed.leave {
            "see the leg prediction"
        } else {
            "run with --probe: prompts that are cached are found by their hashes, or are not"
        },
    ))
}

/// Blocks without tokens, in a pool that goes by tokens.
pub(super) fn no_tokens() -> Remark {
    Remark::new(
        "stored blocks come without tokens, by which the gateway knows them: nothing is credited",
        "give the pool `identity: {engine: {algorithm: ..., seed: ...}}`, or let the engine publish tokens",
    )
}

/// Whether stored blocks came, and none of them with tokens.
pub(super) fn come_without_tokens(events: Option<&Collected>) -> bool {
    events.is_some_and(|heard| heard.shapes.without_tokens && !heard.shapes.with_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Outcome;

    fn probed(pairs: &[(u64, u64)]) -> Probed {
        let step = |(predicted, reported): &(u64, u64)| Step {
            what: "a prompt".to_owned(),
            prompt_tokens: 64,
            predicted: Some(*predicted),
            outcome: Outcome::Reported(*reported),
        };
        Probed { leave: true, steps: pairs.iter().map(step).collect() }
    }

    #[test]
    fn only_prompts_that_were_cached_prove_anything() {
        assert!(matches!(proof(&probed(&[(0, 0), (48, 48)])), Proof::Ok(_)));
        assert!(matches!(proof(&probed(&[(0, 0), (0, 48)])), Proof::Off(_)));
        assert!(matches!(proof(&probed(&[(0, 0)])), Proof::Unknown(_)));
        assert!(matches!(proof(&Probed::default()), Proof::Unknown(_)));
    }

    #[test]
    fn a_contract_that_is_not_contradicted_is_none_of_its_faults() {
        let contract = |state| HashContract { state, ..HashContract::default() };
        assert_eq!(contradiction(&contract(HashState::Verified)), None);
        assert_eq!(contradiction(&contract(HashState::Unchecked)), None);
        assert!(contradiction(&contract(HashState::Mismatch)).is_some());
        assert!(contradiction(&contract(HashState::Unreproducible)).is_some());
    }
}
