//! Endpoints that are too slow, for pools with a limit for the time to first token.

use std::collections::HashSet;

use crate::view::{Candidate, EndpointId};

/// Which endpoints breach a pool's limit for the time to first token, with hysteresis: an endpoint
/// breaches from the moment it is above the limit until it is below 80 % of it, or nothing was seen
/// of it lately, so that it is tried again.
#[derive(Clone, Debug)]
pub struct Slo {
    ttft_ms: f64,
    breaching: HashSet<EndpointId>,
}

/// Share of the limit below which an endpoint is trusted again.
const RECOVERED: f64 = 0.8;
/// Where all breach: those within this much of the least bad count as equally bad.
const LEAST_BAD: f64 = 1.1;

/// How the limit narrowed the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Narrowed {
    /// All are within it.
    No,
    /// Those that breach it were left out.
    Within,
    /// All breach it: the least bad remain.
    LeastBad,
}

impl Narrowed {
    /// The word used in decision records.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::No => "all_within",
            Self::Within => "some_breach",
            Self::LeastBad => "all_breach",
        }
    }
}

impl Slo {
    /// A limit in milliseconds; equal is within.
    #[must_use]
    pub fn new(ttft_ms: f64) -> Self {
        Self { ttft_ms, breaching: HashSet::new() }
    }

    /// Leaves those of `places` that are within the limit; where there is none, the least bad.
    pub(crate) fn narrow(&mut self, candidates: &[Candidate], places: &mut Vec<usize>) -> Narrowed {
        let before = places.len();
        let within: Vec<usize> =
            places.iter().copied().filter(|place| !self.breaches(&candidates[*place])).collect();
        if within.len() == before {
            return Narrowed::No;
        }
        if !within.is_empty() {
            *places = within;
            return Narrowed::Within;
        }
        let ttft = |place: &usize| candidates[*place].ttft_ms.unwrap_or(0.0);
        let least = places.iter().map(ttft).fold(f64::INFINITY, f64::min);
        places.retain(|place| ttft(place) <= least * LEAST_BAD);
        Narrowed::LeastBad
    }

    /// An endpoint is gone.
    pub fn forget(&mut self, endpoint: EndpointId) {
        self.breaching.remove(&endpoint);
    }

    fn breaches(&mut self, candidate: &Candidate) -> bool {
        let Some(ttft) = candidate.ttft_ms else {
            self.breaching.remove(&candidate.id);
            return false;
        };
        let limit = if self.breaching.contains(&candidate.id) {
            self.ttft_ms * RECOVERED
        } else {
            self.ttft_ms
        };
        if ttft > limit {
            self.breaching.insert(candidate.id);
            return true;
        }
        self.breaching.remove(&candidate.id);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(ttfts: &[Option<f64>]) -> Vec<Candidate> {
        let id = |place: usize| EndpointId(place as u64);
        ttfts
            .iter()
            .enumerate()
            .map(|(place, ttft_ms)| Candidate {
                id: id(place),
                ttft_ms: *ttft_ms,
                ..Candidate::default()
            })
            .collect()
    }

    fn narrowed(slo: &mut Slo, ttfts: &[Option<f64>]) -> (Vec<usize>, Narrowed) {
        let mut places: Vec<usize> = (0..ttfts.len()).collect();
        let how = slo.narrow(&fleet(ttfts), &mut places);
        (places, how)
    }

    #[test]
    fn equal_is_within_and_unknown_too() {
        let mut slo = Slo::new(500.0);
        assert_eq!(narrowed(&mut slo, &[Some(500.0), None]), (vec![0, 1], Narrowed::No));
        assert_eq!(narrowed(&mut slo, &[Some(500.1), None]), (vec![1], Narrowed::Within));
    }

    #[test]
    fn who_breached_has_to_be_well_below_to_be_trusted_again() {
        let mut slo = Slo::new(500.0);
        let other = Some(100.0);
        assert_eq!(narrowed(&mut slo, &[Some(600.0), other]).0, [1]);
        assert_eq!(narrowed(&mut slo, &[Some(450.0), other]).0, [1]);
        assert_eq!(narrowed(&mut slo, &[Some(400.0), other]).0, [0, 1]);
        assert_eq!(narrowed(&mut slo, &[Some(450.0), other]).0, [0, 1]);
        assert_eq!(narrowed(&mut slo, &[Some(600.0), other]).0, [1]);
        assert_eq!(narrowed(&mut slo, &[None, other]).0, [0, 1]);
        // Who is gone and comes back has breached nothing.
        assert_eq!(narrowed(&mut slo, &[Some(600.0), other]).0, [1]);
        slo.forget(EndpointId(1));
        assert_eq!(narrowed(&mut slo, &[Some(450.0), other]).0, [1]);
        slo.forget(EndpointId(0));
        assert_eq!(narrowed(&mut slo, &[Some(450.0), other]).0, [0, 1]);
    }

    #[test]
    fn with_nobody_within_the_least_bad_remain() {
        let mut slo = Slo::new(500.0);
        let (places, how) = narrowed(&mut slo, &[Some(900.0), Some(610.0), Some(600.0)]);
        assert_eq!((places, how), (vec![1, 2], Narrowed::LeastBad));
    }
}
