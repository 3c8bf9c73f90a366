//! The candidates of a pool that splits requests, by what they can do.

use std::borrow::Cow;

use super::cut::{Cut, barred};
use super::{Legs, Pairing, Role};
use crate::select::{Members, eligible_word};
use crate::slo::{Narrowed, Slo};
use crate::view::Candidate;

/// The candidates for the legs of one request: places in the pool, in its order.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// Every endpoint of the pool.
    pub candidates: &'a [Candidate],
    /// Who may compute the prompt for another. Nobody, where nobody could answer then.
    pub prefill: &'a [usize],
    /// Who may answer, or do all of it.
    pub decode: &'a [usize],
    /// Who may do all of it.
    pub unified: &'a [usize],
    /// Who hands over nothing to whom.
    pub cut: &'a [Cut],
}

impl Sides<'_> {
    /// The decode endpoints that can fetch from a prefill endpoint. All of them, where none is known
    /// to: such a prefill endpoint is here as a last resort.
    pub(super) fn fetching_from(&self, prefill: usize) -> Cow<'_, [usize]> {
        if self.cut.is_empty() {
            return Cow::Borrowed(self.decode);
        }
        let can = |decode: &usize| !barred(self.cut, prefill, *decode);
        let left: Vec<usize> = self.decode.iter().copied().filter(can).collect();
        if left.is_empty() { Cow::Borrowed(self.decode) } else { Cow::Owned(left) }
    }
}

/// The same while stages narrow it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SidesLeft {
    pub(crate) prefill: Vec<usize>,
    pub(crate) decode: Vec<usize>,
    pub(crate) unified: Vec<usize>,
}

impl SidesLeft {
    /// Every endpoint, whatever speaks against it.
    pub(crate) fn of_all(members: &Members<'_>) -> Self {
        let everybody = Members { exclusions: &[], ..*members };
        Self::eligible(&everybody, &Pairing::default(), &[]).0
    }

    /// Those nothing speaks against. Where nobody could answer, the ones with the least against them
    /// ([`crate::Exclusion::resort`]): but a prompt is computed by one that may fail only where it is to
    /// answer, too. Nor by one that can hand it over to nobody who may answer.
    pub(crate) fn eligible(
        members: &Members<'_>,
        pairing: &Pairing,
        cut: &[Cut],
    ) -> (Self, &'static str) {
        let resort = |place: usize| members.resort(place);
        let of = |role: Role| {
            let all = members.candidates.iter().enumerate();
            all.filter(move |(_, candidate)| candidate.role == role).map(|(place, _)| place)
        };
        let unified: Vec<usize> =
            if pairing.legs == Legs::Decode { Vec::new() } else { of(Role::Unified).collect() };
        let answering = || of(Role::Decode).chain(unified.iter().copied());
        let Some(best) = answering().filter_map(resort).min() else {
            return (Self::default(), "none");
        };
        let is_best = |place: &usize| resort(*place) == Some(best);
        let decode: Vec<usize> = of(Role::Decode).filter(is_best).collect();
        let splits = pairing.legs == Legs::Any && !decode.is_empty();
        let mut prefill: Vec<usize> = of(Role::Prefill)
            .filter(|place| splits && members.exclusion(*place).is_none())
            .filter(|place| decode.iter().any(|to| !barred(cut, *place, *to)))
            .collect();
        if splits && prefill.is_empty() && unified.is_empty() && !pairing.decode_computes() {
            // Nobody else can do it: one that fails is worth a try.
            let last = of(Role::Prefill).filter_map(resort).min();
            prefill = of(Role::Prefill).filter(|p| last.is_some() && resort(*p) == last).collect();
        }
        let unified: Vec<usize> = unified.into_iter().filter(is_best).collect();
        let alone = prefill.is_empty() && !pairing.decode_computes();
        let decode = if alone { Vec::new() } else { decode };
        if decode.is_empty() && unified.is_empty() {
            return (Self::default(), "none");
        }
        let left = Self { prefill, decode, unified };
        let all = left.len() == members.candidates.len();
        (left, eligible_word(best, all))
    }

    /// Leaves those within a limit for the time to first token, of each side by itself.
    pub(crate) fn narrow(&mut self, slo: &mut Slo, candidates: &[Candidate]) -> Narrowed {
        let first = slo.narrow(candidates, &mut self.prefill);
        let mut answering: Vec<usize> = self.decode.iter().chain(&self.unified).copied().collect();
        let second = slo.narrow(candidates, &mut answering);
        self.decode.retain(|place| answering.contains(place));
        self.unified.retain(|place| answering.contains(place));
        if self.decode.is_empty() {
            self.prefill.clear();
        }
        first.max(second)
    }

    pub(crate) fn len(&self) -> usize {
        self.prefill.len() + self.decode.len() + self.unified.len()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<usize> {
        let mut all = [&self.prefill[..], &self.decode, &self.unified].concat();
        all.sort_unstable();
        all
    }

    /// Whom a policy chooses among that knows nothing of pairs: those who would compute the prompt;
    /// the decode endpoints where there is nobody else.
    pub(crate) fn computing(&self) -> Vec<usize> {
        let mut first = [&self.prefill[..], &self.unified].concat();
        first.sort_unstable();
        if first.is_empty() { self.decode.clone() } else { first }
    }

    pub(crate) fn of<'a>(&'a self, candidates: &'a [Candidate], cut: &'a [Cut]) -> Sides<'a> {
        let Self { prefill, decode, unified } = self;
        Sides { candidates, prefill, decode, unified, cut }
    }
}
