//! One workload under several policies.

use crate::options::{Fleet, Options, OptionsError};
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
    /// The fleet it chooses in.
    pub fleet: Fleet,
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
    let fleets = [options.fleet()];
    simulate_fleets(workload, options, &fleets, policies, progress)
}

/// Plays a workload in each of the fleets under each of the policies and compares them. The options
/// say everything but how many replicas of each role there are.
///
/// # Errors
/// Options that cannot be, by themselves or for this workload; another router's policy in a fleet that
/// splits requests.
pub fn simulate_fleets(
    workload: &Workload,
    options: &Options,
    fleets: &[Fleet],
    policies: &[SimPolicy],
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Comparison, OptionsError> {
    let all: Vec<Options> = fleets.iter().map(|fleet| options.with_fleet(*fleet)).collect();
    all.iter().try_for_each(|options| options.validate(workload.longest()))?;
    let prepared = Prepared::new(workload, options.engine.block_size);
    let mut reports = Vec::with_capacity(all.len() * policies.len());
    for options in &all {
        for policy in policies {
            let (requests, fleet, place) =
                (workload.requests.len(), options.fleet(), reports.len());
            let mut note = |ended| progress(Progress { policy, fleet, place, ended, requests });
            let outcome = play(&prepared, options, policy, &mut note)?;
            reports.push(PolicyReport::new(policy, fleet, &prepared, &outcome));
        }
    }
    let by_fleet = fleets.len() > 1 || fleets.iter().any(|fleet| fleet.splits());
    let comparison = Comparison::new(workload, options, prepared.ideal_hit_rate, reports);
    Ok(Comparison { by_fleet, ..comparison })
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
