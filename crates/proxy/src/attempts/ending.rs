//! No further engine is asked: the answer as a whole, or why there is none.

use super::held::Held;
use super::whole::{self, Incomplete};
use super::{Answered, Tries};
use crate::fault::Fault;
use crate::refusal::{ENGINE_BROKE, Refusal};
use crate::split::PAIR_TIMEOUT;

impl Tries<'_> {
    /// The answer, complete where it is not streamed. Where the rest does not come no other engine is
    /// asked: this one has done the work, and may break off because of it.
    pub(super) async fn whole(&mut self, mut answered: Answered) -> Result<Answered, Refusal> {
        let idle = answered.pool.timeouts().idle;
        let Err(incomplete) = whole::complete(&mut answered, idle, self.deadline).await else {
            answered.merge_whole(&self.app.permits.readers).await;
            return Ok(answered);
        };
        if let Some(reservation) = &mut answered.reservation {
            reservation.uncounted();
        }
        let (model, kind) = (self.plan.model.clone(), incomplete.kind());
        tracing::warn!(
            endpoint = answered.endpoint.url(),
            why = incomplete.why(),
            "an answer that had begun does not come to its end"
        );
        self.note_failure(&answered.endpoint, kind.as_str(), incomplete.why());
        Err(match incomplete {
            Incomplete::Broke(why) => Refusal::EngineBroke { model, code: ENGINE_BROKE, why },
            Incomplete::Idle | Incomplete::Deadline => {
                Refusal::EngineLate { model, phase: kind.code(), why: incomplete.why().to_owned() }
            }
        })
    }

    /// The last error an engine answered with, else why there is none. An engine that took the
    /// request weighs more than one that was not there.
    pub(super) fn give_up(mut self) -> Result<Answered, Refusal> {
        let model = self.plan.model.clone();
        if let Some(why) = self.invalid {
            return Err(Refusal::BadHead(why));
        }
        if let Some((phase, why)) = self.late {
            return Err(Refusal::EngineLate { model, phase, why });
        }
        if let Some(Held { answered, .. }) = self.held.take() {
            self.tell_where(&answered.endpoint, &answered.decision);
            return Ok(answered);
        }
        if let (Some(refusal), None) = (self.no_room(), &self.last_break) {
            return Err(refusal);
        }
        let code = self.pool.unavailable_code();
        let not_tried = self.pool.why_not_tried(&self.plan.model, &self.tried);
        Err(match (self.last_break, self.last_refusal) {
            (Some((phase @ PAIR_TIMEOUT, why)), _) => Refusal::EngineLate { model, phase, why },
            (Some((code, why)), _) => Refusal::EngineBroke { model, code, why },
            (None, Some((why, fault))) if not_tried.is_empty() => {
                Refusal::NoEndpoint { model, code, why, fault }
            }
            (None, Some((why, fault))) => {
                let why = format!("{why}; not tried: {not_tried}");
                Refusal::NoEndpoint { model, code, why, fault }
            }
            (None, None) => Refusal::NoEndpoint {
                model,
                fault: Fault::Engine,
                code,
                why: self
                    .plan
                    .why_nobody(&self.pool)
                    .unwrap_or_else(|| self.plan.resolved.pool.why_none(&self.plan.model)),
            },
        })
    }
}
