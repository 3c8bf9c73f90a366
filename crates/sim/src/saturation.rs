//! The load at which a fleet no longer keeps up.

use crate::compare::{Progress, play};
use crate::options::{Fleet, Options, OptionsError};
use crate::policies::SimPolicy;
use crate::prepared::Prepared;
use crate::record::{Ended, Outcome};
use crate::workload::Workload;

/// Answers per arrival below which a fleet does not keep up.
const KEEPS_UP: f64 = 0.95;
/// Time scales are looked for between these.
const RANGE: (f64, f64) = (1.0 / 64.0, 1024.0);
/// How close the scale is found.
const PRECISION: f64 = 1.02;

/// Whether saturation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaturationState {
    /// Answers follow arrivals at the time scale, and no longer little above it.
    Measured,
    /// Answers still follow arrivals at the greatest time scale there is: it saturates above, or
    /// never.
    AboveRange,
    /// Answers do not follow arrivals even at the smallest time scale there is: it saturates below,
    /// or the workload cannot tell (all requests come at once, or they are too few).
    BelowRange,
}

impl SaturationState {
    /// Its name in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::AboveRange => "above_range",
            Self::BelowRange => "below_range",
        }
    }
}

/// Where a policy saturates.
#[derive(Clone, Debug, PartialEq)]
pub struct Saturation {
    /// The policy.
    pub policy: SimPolicy,
    /// The fleet.
    pub fleet: Fleet,
    /// Whether the numbers are saturation or only a bound of it.
    pub state: SaturationState,
    /// The greatest time scale at which answers follow arrivals; the end of the range where that
    /// lies outside.
    pub time_scale: f64,
    /// Arrivals a second at that time scale.
    pub requests_per_second: f64,
    /// Simulations that were played.
    pub runs: u32,
}

/// Looks for the greatest time scale at which a policy's answers still follow the arrivals: in the
/// last three quarters of the time in which requests come by themselves, at least 95 % as many
/// requests are answered as arrive. `options.time_scale` is where the search begins; it goes from
/// 1/64 to 1024, and [`Saturation::state`] says whether it found anything there.
///
/// # Errors
/// Options that cannot be.
pub fn find_saturation(
    workload: &Workload,
    options: &Options,
    policy: &SimPolicy,
    progress: &mut dyn FnMut(f64, Progress<'_>),
) -> Result<Saturation, OptionsError> {
    options.validate(workload.longest())?;
    let prepared = Prepared::new(workload, options.engine.block_size);
    let (span, requests, fleet) = (workload.span(), workload.requests.len(), options.fleet());
    let mut runs = 0;
    let mut keeps_up = |time_scale: f64| {
        let options = Options { time_scale, ..options.clone() };
        let place = runs as usize;
        runs += 1;
        let mut note =
            |ended| progress(time_scale, Progress { policy, fleet, place, ended, requests });
        let outcome = play(&prepared, &options, policy, &mut note)?;
        Ok::<_, OptionsError>(follows(&outcome, span / time_scale))
    };
    let (state, time_scale) = search(options.time_scale, &mut keeps_up)?;
    let rate = if span > 0.0 { requests as f64 * time_scale / span } else { 0.0 };
    let policy = policy.clone();
    Ok(Saturation { policy, fleet, state, time_scale, requests_per_second: rate, runs })
}

/// The greatest time scale that keeps up: from `start` by factors of two to one that does and one
/// that does not, then between them.
fn search<E>(
    start: f64,
    keeps_up: &mut dyn FnMut(f64) -> Result<bool, E>,
) -> Result<(SaturationState, f64), E> {
    let (least, most) = RANGE;
    let start = start.clamp(least, most);
    let (mut good, mut bad) = (start, start);
    if keeps_up(start)? {
        loop {
            if good >= most {
                return Ok((SaturationState::AboveRange, most));
            }
            bad = (good * 2.0).min(most);
            if !keeps_up(bad)? {
                break;
            }
            good = bad;
        }
    } else {
        loop {
            if bad <= least {
                return Ok((SaturationState::BelowRange, least));
            }
            good = (bad / 2.0).max(least);
            if keeps_up(good)? {
                break;
            }
            bad = good;
        }
    }
    while bad / good > PRECISION {
        let middle = (bad * good).sqrt();
        if keeps_up(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok((SaturationState::Measured, good))
}

/// Whether answers followed arrivals, which went on for so many seconds.
fn follows(outcome: &Outcome, span: f64) -> bool {
    let end = crate::queue::from_seconds(span);
    let window = end / 4..=end;
    let arrived = outcome.records.iter().filter(|record| window.contains(&record.arrived)).count();
    let answered = outcome
        .records
        .iter()
        .filter(|record| record.ended == Ended::Answered && window.contains(&record.ended_at))
        .count();
    answered as f64 >= KEEPS_UP * arrived as f64
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Searches where everything up to `limit` keeps up; the scales that were tried, too.
    fn searched(start: f64, limit: f64) -> (SaturationState, f64, Vec<f64>) {
        let mut tried = Vec::new();
        let mut keeps_up = |scale: f64| {
            tried.push(scale);
            Ok::<_, Infallible>(scale <= limit)
        };
        let Ok((state, scale)) = search(start, &mut keeps_up);
        (state, scale, tried)
    }

    #[test]
    fn saturation_is_found_from_below_and_from_above() {
        for limit in [0.017, 0.3, 1.0, 5.5, 1_000.0] {
            for start in [0.001, 1.0 / 64.0, 0.7, 1.0, 6.0, 700.0, 1024.0, 5_000.0] {
                let (state, scale, tried) = searched(start, limit);
                assert_eq!(state, SaturationState::Measured, "{start} {limit}");
                assert!(scale <= limit && limit / scale <= PRECISION, "{start} {limit}: {scale}");
                assert!(tried.iter().all(|scale| (RANGE.0..=RANGE.1).contains(scale)), "{tried:?}");
            }
        }
    }

    #[test]
    fn the_way_down_ends_at_the_first_scale_that_keeps_up() {
        let (_, _, tried) = searched(8.0, 1.5);
        assert_eq!(tried[..4], [8.0, 4.0, 2.0, 1.0]);
        assert!(tried[4..].iter().all(|scale| (1.0..2.0).contains(scale)), "{tried:?}");
    }

    #[test]
    fn an_end_of_the_range_is_no_measurement() {
        for start in [0.001, 1.0, 5_000.0] {
            let (state, scale, _) = searched(start, 1e9);
            assert_eq!((state, scale), (SaturationState::AboveRange, RANGE.1));
            let (state, scale, _) = searched(start, 0.001);
            assert_eq!((state, scale), (SaturationState::BelowRange, RANGE.0));
        }
    }
}
