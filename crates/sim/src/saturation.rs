//! The load at which a fleet no longer keeps up.

use crate::compare::{Progress, play};
use crate::options::{Options, OptionsError};
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

/// Where a policy saturates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saturation {
    /// The policy.
    pub policy: SimPolicy,
    /// The greatest time scale at which answers follow arrivals.
    pub time_scale: f64,
    /// Arrivals a second there.
    pub requests_per_second: f64,
    /// Simulations that were played.
    pub runs: u32,
}

/// Looks for the greatest time scale at which a policy's answers still follow the arrivals: in the
/// last three quarters of the time in which requests come by themselves, at least 95 % as many
/// requests are answered as arrive. `options.time_scale` is where the search begins.
///
/// # Errors
/// Options that cannot be.
pub fn find_saturation(
    workload: &Workload,
    options: &Options,
    policy: SimPolicy,
    progress: &mut dyn FnMut(f64, Progress),
) -> Result<Saturation, OptionsError> {
    options.validate(workload.longest())?;
    let prepared = Prepared::new(workload, options.engine.block_size);
    let (span, requests) = (workload.span(), workload.requests.len());
    let mut runs = 0;
    let mut keeps_up = |time_scale: f64| {
        let options = Options { time_scale, ..options.clone() };
        let place = runs as usize;
        runs += 1;
        let mut note = |ended| progress(time_scale, Progress { policy, place, ended, requests });
        let outcome = play(&prepared, &options, policy, &mut note)?;
        Ok::<_, OptionsError>(follows(&outcome, span / time_scale))
    };
    let mut good = options.time_scale.clamp(RANGE.0, RANGE.1);
    let mut bad = good;
    if keeps_up(good)? {
        while bad <= good && good < RANGE.1 {
            bad = good * 2.0;
            if keeps_up(bad)? {
                good = bad;
            }
        }
    } else {
        while bad >= good && good > RANGE.0 {
            bad = good;
            good /= 2.0;
            if !keeps_up(good)? {
                bad = good;
            }
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
    let rate = if span > 0.0 { requests as f64 * good / span } else { 0.0 };
    Ok(Saturation { policy, time_scale: good, requests_per_second: rate, runs })
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
