//! Looking at groups of engines and reporting, once or over and over.

mod print;
mod round;

use std::io::{IsTerminal as _, stderr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result};
use kvasir_doctor::{Report, Target, Verdict, check, compare};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::round::Round;
use crate::args::LookArgs;
use crate::output::write;
use crate::{Ended, say, stop};

/// Engines looked at at a time.
const AT_A_TIME: usize = 8;

/// Exit statuses.
pub(crate) const SOMETHING_OFF: u8 = 1;
const WRONG_ARGUMENTS: u8 = 2;
pub(crate) const SOMETHING_UNKNOWN: u8 = 3;

/// Engines that serve one model.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The pool's model; `None` for engines of no pool.
    pub(crate) model: Option<String>,
    pub(crate) targets: Vec<Target>,
}

/// Says what is wrong with the arguments or what they refer to.
pub(crate) fn refused(error: &Error) -> Ended {
    say(&format!("{error:#}"));
    Ended::Status(WRONG_ARGUMENTS)
}

/// Looks and prints; with `--watch` until SIGINT or SIGTERM.
pub(crate) async fn run(groups: &[Group], how: &LookArgs) -> Result<Ended> {
    let mut stopped = pin!(stop::requested()?);
    let mut before: Option<Round> = None;
    loop {
        let found = tokio::select! {
            found = look(groups, before.is_none()) => found?,
            () = &mut stopped => break,
        };
        write(&print::round(&found, before.as_ref(), how))?;
        before = Some(found);
        let Some(seconds) = how.watch else { break };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
            () = &mut stopped => break,
        }
    }
    Ok(before.map_or(Ended::Interrupted, |round| status(round.verdict())))
}

/// How that ends.
pub(crate) fn status(verdict: Verdict) -> Ended {
    match verdict {
        Verdict::Ok => Ended::Done,
        Verdict::Off => Ended::Status(SOMETHING_OFF),
        Verdict::Unknown => Ended::Status(SOMETHING_UNKNOWN),
    }
}

/// One look at every engine, a few at a time.
async fn look(groups: &[Group], first: bool) -> Result<Round> {
    let engines: usize = groups.iter().map(|group| group.targets.len()).sum();
    let aloud = first && stderr().is_terminal();
    if aloud {
        say(&format!("looking at {engines} engine{} …", if engines == 1 { "" } else { "s" }));
    }
    let permits = Arc::new(Semaphore::new(AT_A_TIME));
    let mut tasks = JoinSet::new();
    for (at, group) in groups.iter().enumerate() {
        for (place, target) in group.targets.iter().enumerate() {
            let (target, permits) = (target.clone(), Arc::clone(&permits));
            tasks.spawn(async move {
                // Nobody closes the semaphore.
                let _permit = permits.acquire_owned().await.ok();
                (at, place, check(&target).await)
            });
        }
    }
    let mut reports: Vec<(usize, usize, Report)> = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let done = done?;
        if aloud && engines > 1 {
            say(&format!(
                "{} is {} ({} of {engines})",
                done.2.base_url,
                done.2.verdict,
                reports.len() + 1
            ));
        }
        reports.push(done);
    }
    reports.sort_by_key(|(at, place, _)| (*at, *place));
    let mut pools: Vec<(Option<String>, Vec<Report>)> =
        groups.iter().map(|group| (group.model.clone(), Vec::new())).collect();
    for (at, _, report) in reports {
        if let Some((_, pool)) = pools.get_mut(at) {
            pool.push(report);
        }
    }
    Ok(Round::new(pools.into_iter().map(|(model, pool)| (model, compare(pool))).collect()))
}
