//! One workload under several policies.

use crate::options::{Options, OptionsError};
use crate::policies::SimPolicy;
use crate::prepared::Prepared;
use crate::record::Outcome;
use crate::report::{Comparison, PolicyReport};
use crate::workload::Workload;
use crate::world::World;

/// How far a simulation is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The policy that is played.
    pub policy: &'a SimPolicy,
    /// Its place among those to play, from 0.
    pub place: usize,
    /// Requests that have ended under it.
    pub ended: usize,
    /// All requests.
    pub requests: usize,
}

/// Plays a workload under each of the policies and compares them.
///
/// # Errors
/// Options that cannot be, by themselves or for this workload.
pub fn simulate(
    workload: &Workload,
    options: &Options,
    policies: &[SimPolicy],
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Comparison, OptionsError> {
    options.validate(workload.longest())?;
    let prepared = Prepared::new(workload, options.engine.block_size);
    let mut reports = Vec::with_capacity(policies.len());
    for (place, policy) in policies.iter().enumerate() {
        let requests = workload.requests.len();
        let mut note = |ended| progress(Progress { policy, place, ended, requests });
        let outcome = play(&prepared, options, policy, &mut note)?;
        reports.push(PolicyReport::new(policy, &prepared, &outcome));
    }
    Ok(Comparison::new(workload, options, prepared.ideal_hit_rate, reports))
}

/// Plays a workload under one policy.
pub(crate) fn play(
    prepared: &Prepared<'_>,
    options: &Options,
    policy: &SimPolicy,
    progress: &mut dyn FnMut(usize),
) -> Result<Outcome, OptionsError> {
    Ok(World::new(options, prepared, policy)?.run(progress))
}
