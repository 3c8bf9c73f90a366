//! Logged decisions, made again.

use std::fmt;

use super::run::Run;
use super::{ChoiceRecord, FORMAT, Line, OLDEST_FORMAT, Start};

/// Makes logged decisions again, in their order, and compares.
#[derive(Debug, Default)]
pub struct Replay {
    run: Option<Run>,
    decisions: u64,
}

/// Whether the selection remembers now what it remembered in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// It does, or has none.
    #[default]
    Known,
    /// What came before the first file was not read.
    BeganLater,
    /// Lines are missing.
    LinesMissing,
    /// An outcome came of a decision that is not known, or not any more: the latest 65,536 are
    /// kept, and of those as many as have 16 Mi keys.
    OutcomesUnknown,
}

/// A decision that came out otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    /// Its number.
    pub id: u64,
    /// What the log has; `None` where nothing could be chosen.
    pub logged: Option<ChoiceRecord>,
    /// What comes out now.
    pub now: Option<ChoiceRecord>,
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
    /// A policy reads what is only logged where the pool's own policy reads it.
    Keys {
        /// The policy.
        policy: &'static str,
        /// The policy the log was written under.
        logged: &'static str,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("the log does not begin with a line `start`"),
            Self::Format(format) => {
                write!(f, "a log of format {format}; formats {OLDEST_FORMAT} to {FORMAT} are known")
            }
            Self::Exclusion(word) => write!(f, "unknown exclusion `{word}`"),
            Self::Keys { policy, logged } => write!(
                f,
                "`{policy}` reads the keys of prompts, which a log written under `{logged}` has not"
            ),
        }
    }
}

impl std::error::Error for ReplayError {}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, logged, now } = self;
        let name = |choice: &Option<ChoiceRecord>| {
            choice.as_ref().map_or_else(|| "none".to_owned(), |choice| choice.endpoint.clone())
        };
        write!(f, "decision {id}: {} in the log, {} now", name(logged), name(now))?;
        match (logged, now) {
            (Some(logged), Some(now)) if logged.endpoint == now.endpoint => {
                let (field, was, is) = first_difference(logged, now);
                write!(f, "; {field}: {was} in the log, {is} now")
            }
            _ => Ok(()),
        }
    }
}

/// What of two choices of one endpoint differs.
fn first_difference(logged: &ChoiceRecord, now: &ChoiceRecord) -> (&'static str, String, String) {
    let stages = |choice: &ChoiceRecord| {
        let one = |s: &super::StageRecord| {
            let why = if s.miss.is_empty() { String::new() } else { format!(":{}", s.miss) };
            format!("{}={}{why}({})", s.stage, s.outcome, s.left)
        };
        choice.stages.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let fields = |choice: &ChoiceRecord| {
        [
            ("plan", choice.plan.clone()),
            ("prefill", choice.prefill.clone().unwrap_or_else(|| "none".to_owned())),
            ("policy", choice.policy.clone()),
            ("reason", choice.reason.clone()),
            ("detail", choice.detail.clone()),
            ("runner-up", choice.runner_up.clone().unwrap_or_else(|| "none".to_owned())),
            ("stages", stages(choice)),
        ]
    };
    let pairs = fields(logged).into_iter().zip(fields(now));
    let mut differing = pairs.filter(|(was, is)| was != is);
    differing.next().map_or_else(Default::default, |((field, was), (_, is))| (field, was, is))
}

impl Memory {
    /// Why it is not known, for people; empty where it is.
    #[must_use]
    pub fn why_unknown(self) -> &'static str {
        match self {
            Self::Known => "",
            Self::BeganLater => "the log goes on from a file that was not read before it",
            Self::LinesMissing => "lines are missing in the log",
            Self::OutcomesUnknown => {
                "the log has outcomes of decisions that are not known, or so old that they were \
                 not kept"
            }
        }
    }
}

impl Replay {
    /// Takes the next line; what differs, if it is a decision that comes out otherwise. All of a
    /// choice is compared except the shadow policy's.
    ///
    /// # Errors
    ///
    /// When the line cannot be replayed.
    pub fn line(&mut self, line: &Line) -> Result<Option<Differs>, ReplayError> {
        if let Line::Start(start) = line {
            return self.start(start).map(|()| None);
        }
        let run = self.run.as_mut().ok_or(ReplayError::NotStarted)?;
        run.take(line);
        let Line::Decision(record) = line else { return Ok(None) };
        self.decisions += 1;
        let now = run.again.decide(record)?;
        let without = |choice: &Option<ChoiceRecord>| {
            choice.clone().map(|choice| ChoiceRecord { shadow: None, ..choice })
        };
        let (logged, now) = (without(&record.as_named_now().choice), without(&now));
        Ok((logged != now).then_some(Differs { id: record.id, logged, now }))
    }

    /// Decisions made again so far.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Whether decisions can be expected to come out as they are in the log.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.run.as_ref().map(Run::memory).unwrap_or_default()
    }

    fn start(&mut self, start: &Start) -> Result<(), ReplayError> {
        start.check()?;
        if !self.run.as_ref().is_some_and(|run| run.goes_on(start)) {
            self.run = Some(Run::begin(start, &start.selection));
        }
        Ok(())
    }
}
