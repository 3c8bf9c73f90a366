//! `precise_pipeline`: rolter's precise mode, a weighted sum of prefix and load.
//!
//! `1.0 * cached / prompt + 0.25 * least_load`, the highest wins, ties by chance; least load is
//! `1 - load / max(1, the largest load)`. A quarter of the prompt outweighs any queue: for comparison,
//! and for those who come from there.

use super::{highest, least_load_scores};
use crate::choice::{Choice, Reason};
use crate::policy::{Moment, Policy};
use crate::query::Query;
use crate::view::FleetView;

/// Takes the candidate with the best sum of prefix held and least load.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrecisePipeline;

const LOAD_WEIGHT: f64 = 0.25;

impl Policy for PrecisePipeline {
    fn name(&self) -> &'static str {
        "precise_pipeline"
    }

    fn fork(&self, _: &Query<'_>) -> Box<dyn Policy> {
        Box::new(*self)
    }

    #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
    fn choose(
        &mut self,
        query: &Query<'_>,
        view: &FleetView<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Choice> {
        let all = view.candidates;
        let prompt = query.prompt_tokens.max(1) as f64;
        let held = all.iter().map(|c| (c.cached() as f64 / prompt).min(1.0));
        let load = least_load_scores(all);
        let scores: Vec<f64> =
            held.zip(load).map(|(held, load)| held + LOAD_WEIGHT * load).collect();
        let index = highest(&scores, moment.rng)?;
        let warm = all[index].cached() > 0;
        let reason = if warm { Reason::BestScore } else { Reason::LeastLoad };
        let scores = scores.into_iter().map(|score| -score).collect();
        Some(Choice { index, reason, scores, detail: "" })
    }
}
