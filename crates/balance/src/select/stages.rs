//! What each stage does to a request, and how it is noted: alike, whether one endpoint is looked for or
//! two of them.

use super::{Run, STICKY, Stage};
use crate::choice::Reason;
use crate::policy::{Moment, Policy};
use crate::slo::Slo;
use crate::sticky::Pins;

/// What stages narrow, until one of them finds somebody.
pub(super) trait Narrowing<'a> {
    /// Who was found.
    type Found;

    /// The request, its places those that are left.
    fn run(&mut self) -> &mut Run<'a>;

    /// Leaves those nothing speaks against; says how that went.
    fn leave_eligible(&mut self) -> &'static str;

    /// Leaves those within a limit; says how that went.
    fn narrow(&mut self, slo: &mut Slo) -> &'static str;

    /// Where the conversation is pinned, and how that went.
    fn pinned(
        &mut self,
        pins: &Pins,
        moment: &mut Moment<'_>,
    ) -> (Option<Self::Found>, &'static str);

    /// Whom a policy chooses of those that are left.
    fn choose(&mut self, policy: &mut dyn Policy, moment: &mut Moment<'_>) -> Option<Self::Found>;

    /// Why.
    fn reason(found: &Self::Found) -> Reason;
}

/// Runs one stage, and notes what it did. Who was found, and by which policy, where it found somebody.
pub(super) fn apply<'a, N: Narrowing<'a>>(
    stage: &mut Stage,
    request: &mut N,
    moment: &mut Moment<'_>,
) -> Option<(&'static str, N::Found)> {
    match stage {
        Stage::Eligibility => {
            let outcome = request.leave_eligible();
            request.run().note("eligibility", outcome);
            None
        }
        Stage::Slo(slo) => {
            let outcome = request.narrow(slo);
            request.run().note("slo", outcome);
            None
        }
        Stage::Stickiness(pins) => {
            let (found, outcome) = request.pinned(pins, moment);
            request.run().note(STICKY, outcome);
            found.map(|found| (STICKY, found))
        }
        Stage::Policy(policy) => {
            let name = policy.name();
            let found = request.choose(policy.as_mut(), moment);
            let outcome = found.as_ref().map_or("no_say", |found| N::reason(found).as_str());
            request.run().note(name, outcome);
            if found.is_none() {
                request.run().note_policy_miss(policy.as_mut());
            }
            found.map(|found| (name, found))
        }
    }
}
