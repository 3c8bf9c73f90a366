//! A simulation that logs its decisions, in the form of a gateway's decision log.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvasir_balance::record::{DecisionRecord, Line, Made, OutcomeRecord, Start};
use kvasir_balance::{Decision, Members, Needs, Outcome, Pairing, Prefix, Query};

use crate::compare::Progress;
use crate::options::{Options, OptionsError};
use crate::policies::SimPolicy;
use crate::prepared::Prepared;
use crate::report::{Comparison, PolicyReport};
use crate::workload::Workload;
use crate::world::World;

/// Why a simulation's decisions cannot be logged.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Options that cannot be.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The policy is another router's, and cannot be replayed.
    #[error("`{0}` is not a policy of Kvasir's own: its decisions cannot be logged")]
    Peer(String),
    /// A log is that of one gateway.
    #[error("a decision log is of one gateway, and there are {0}")]
    Gateways(usize),
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// As [`crate::simulate`] under one policy of Kvasir's own and with one gateway; each decision is
/// written to what `open` opens, to be replayed.
///
/// # Errors
/// Options that cannot be, more than one gateway, another router's policy, or a log that cannot be
/// written.
pub fn simulate_logged(
    workload: &Workload,
    options: &Options,
    policy: &SimPolicy,
    open: impl FnOnce() -> io::Result<Box<dyn Write + Send>>,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Comparison, LogError> {
    if let SimPolicy::Peer(_) = policy {
        return Err(LogError::Peer(policy.name()));
    }
    if options.gateways != 1 {
        return Err(LogError::Gateways(options.gateways));
    }
    options.validate(workload.longest())?;
    let prepared = Prepared::new(workload, options.engine.block_size);
    let (requests, fleet) = (workload.requests.len(), options.fleet());
    let mut note = |ended| progress(Progress { policy, fleet, place: 0, ended, requests });
    let mut world = World::new(options, &prepared, policy)?;
    let sink = Sink(Arc::new(Mutex::new(State { log: open()?, failed: None })));
    world.log_to(&sink);
    let outcome = world.run(&mut note);
    sink.end()?;
    let reports = vec![PolicyReport::new(policy, fleet, &prepared, &outcome)];
    Ok(Comparison::new(workload, options, prepared.ideal_hit_rate, reports))
}

/// Where lines go; after a failure, nowhere.
#[derive(Clone)]
pub(crate) struct Sink(Arc<Mutex<State>>);

struct State {
    log: Box<dyn Write + Send>,
    failed: Option<io::Error>,
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Sink {
    fn write(&self, line: &Line) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_some() {
            return;
        }
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            state.log.write_all(&text)
        });
        state.failed = written.err();
    }

    fn end(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.failed.take() {
            Some(error) => Err(error),
            None => state.log.flush(),
        }
    }
}

/// One gateway's log.
#[derive(Debug)]
pub(crate) struct DecisionLog {
    sink: Sink,
    /// The engines' names, in order.
    names: Vec<String>,
    needs: Needs,
}

impl DecisionLog {
    pub(crate) fn begin(sink: &Sink, start: Start, names: Vec<String>, needs: Needs) -> Self {
        sink.write(&Line::Start(start));
        Self { sink: sink.clone(), names, needs }
    }

    pub(crate) fn decision(
        &self,
        (id, now, seed): (u64, Duration, u64),
        query: &Query<'_>,
        members: &Members<'_>,
        pairing: Option<&Pairing>,
        decision: Option<&Decision>,
    ) {
        let made = Made { id, request_id: None, at_us: micros(now), waited_ms: None, seed };
        // As in the gateway: there may be thousands.
        let keys = if self.needs.keys { query.prefix.keys } else { &[] };
        let query = Query { prefix: Prefix { keys, ..query.prefix }, ..*query };
        let record = DecisionRecord::new(made, &query, members, &self.names, decision)
            .split_by(pairing.copied());
        self.sink.write(&Line::Decision(record));
    }

    pub(crate) fn outcome(&self, of: u64, outcome: &Outcome<'_>) {
        let (answered, at_us) = (outcome.answered, micros(outcome.now));
        self.sink.write(&Line::Outcome(OutcomeRecord { of, answered, at_us }));
    }

    pub(crate) fn forget(&self, place: usize) {
        if let Some(endpoint) = self.names.get(place).cloned() {
            self.sink.write(&Line::Forget { endpoint });
        }
    }
}

fn micros(now: Duration) -> u64 {
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}
