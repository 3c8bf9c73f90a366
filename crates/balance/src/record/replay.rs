//! Logged decisions, made again.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::{DecisionRecord, EndpointRecord, Line, OutcomeRecord, QueryRecord, exclusion_of};
use crate::exclusion::Exclusion;
use crate::policy::{Moment, Outcome};
use crate::rng::Rng;
use crate::select::{Members, Selection};
use crate::view::{Candidate, EndpointId};

/// Makes logged decisions again, in their order, and compares.
#[derive(Debug, Default)]
pub struct Replay {
    selection: Option<Selection>,
    /// Decisions whose outcome has not come yet, bounded.
    open: HashMap<u64, (QueryRecord, EndpointId)>,
    decisions: u64,
}

/// A decision that came out otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    /// Its number.
    pub id: u64,
    /// The endpoint of the log; `None` where none could be chosen.
    pub logged: Option<String>,
    /// The endpoint now.
    pub now: Option<String>,
}

/// A line that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// A log begins with `start`.
    NotStarted,
    /// It is of another form.
    Format(u32),
    /// There is no such exclusion.
    Exclusion(String),
}

/// Outcomes are waited for this many decisions at most.
const MAX_OPEN: usize = 100_000;

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("the log does not begin with a line `start`"),
            Self::Format(format) => write!(f, "a log of format {format}; format 1 is known"),
            Self::Exclusion(word) => write!(f, "unknown exclusion `{word}`"),
        }
    }
}

impl std::error::Error for ReplayError {}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".to_owned());
        let (logged, now) = (name(&self.logged), name(&self.now));
        write!(f, "decision {}: {logged} in the log, {now} now", self.id)
    }
}

impl Replay {
    /// Takes the next line; what differs, if it is a decision that comes out otherwise.
    ///
    /// # Errors
    ///
    /// When the line cannot be replayed.
    pub fn line(&mut self, line: &Line) -> Result<Option<Differs>, ReplayError> {
        if let Line::Start(start) = line {
            if start.format != 1 {
                return Err(ReplayError::Format(start.format));
            }
            self.selection = Some(start.selection.build(start.seed));
            self.open.clear();
            return Ok(None);
        }
        let selection = self.selection.as_mut().ok_or(ReplayError::NotStarted)?;
        match line {
            Line::Start(_) => Ok(None),
            Line::Decision(record) => {
                self.decisions += 1;
                let now = again(selection, record)?;
                let logged = record.choice.as_ref().map(|choice| choice.endpoint.clone());
                if let Some(name) = &logged
                    && self.open.len() < MAX_OPEN
                {
                    let endpoint = EndpointId::of(name);
                    self.open.insert(record.id, (record.query.clone(), endpoint));
                }
                Ok((logged != now).then_some(Differs { id: record.id, logged, now }))
            }
            Line::Outcome(OutcomeRecord { of, answered, at_us }) => {
                if let Some((query, endpoint)) = self.open.remove(of) {
                    let keys = query.keys();
                    let query = &query.query(&keys);
                    let (answered, now) = (*answered, Duration::from_micros(*at_us));
                    selection.observe(&Outcome { query, endpoint, answered, now });
                }
                Ok(None)
            }
            Line::Forget { endpoint } => {
                selection.forget(EndpointId::of(endpoint));
                Ok(None)
            }
        }
    }

    /// Decisions made again so far.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions
    }
}

fn again(
    selection: &mut Selection,
    record: &DecisionRecord,
) -> Result<Option<String>, ReplayError> {
    let candidates: Vec<Candidate> =
        record.endpoints.iter().map(EndpointRecord::candidate).collect();
    let exclusions: Vec<Option<Exclusion>> = record
        .endpoints
        .iter()
        .map(|endpoint| match &endpoint.exclusion {
            None => Ok(None),
            Some(word) => {
                let known = exclusion_of(word);
                known.map(Some).ok_or_else(|| ReplayError::Exclusion(word.clone()))
            }
        })
        .collect::<Result<_, _>>()?;
    let keys = record.query.keys();
    let members = Members {
        candidates: &candidates,
        exclusions: &exclusions,
        first_attempt: record.first_attempt,
    };
    let mut rng = Rng::new(record.seed);
    let mut moment = Moment { now: Duration::from_micros(record.at_us), rng: &mut rng };
    let decision = selection.select(&record.query.query(&keys), &members, &mut moment);
    Ok(decision.and_then(|d| record.endpoints.get(d.index)).map(|chosen| chosen.name.clone()))
}
