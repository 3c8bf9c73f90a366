//! Logged decisions under another policy.

use super::run::Run;
use super::{ChoiceRecord, DecisionRecord, EndpointRecord, Line, Memory, ReplayError};
use crate::spec::{PolicySpec, SelectionSpec};

/// Makes logged decisions under another policy and adds up what it would have chosen.
///
/// Each decision is made by what was known of the endpoints in the log: what another choice would
/// have changed for later decisions (caches, load) is not followed, and outcomes are those of the
/// log.
#[derive(Debug)]
pub struct WhatIf {
    policy: PolicySpec,
    /// The run that was read last.
    run: Option<Run>,
    found: WhatIfFound,
}

/// What was found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WhatIfFound {
    /// Decisions made again.
    pub decisions: u64,
    /// Those with another endpoint, or with none where the log has one.
    pub otherwise: u64,
    /// Decisions with an endpoint both in the log and now: the sums below are of these.
    pub compared: u64,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// The endpoints of the log.
    pub logged: Expected,
    /// The endpoints chosen now.
    pub now: Expected,
}

/// What was expected of endpoints, summed over decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Tokens of the prompts they held.
    pub cached_tokens: u64,
    /// Tokens beyond that they were computing for others.
    pub pending_tokens: u64,
    /// Seconds until they would answer.
    pub ttft_s: f64,
}

impl WhatIf {
    /// Under this policy, with the other stages of the log.
    #[must_use]
    pub fn new(policy: PolicySpec) -> Self {
        Self { policy, run: None, found: WhatIfFound::default() }
    }

    /// What was found so far.
    #[must_use]
    pub fn found(&self) -> WhatIfFound {
        self.found
    }

    /// Takes the next line.
    ///
    /// # Errors
    ///
    /// When the line cannot be replayed, or the log has not what the policy reads.
    pub fn line(&mut self, line: &Line) -> Result<(), ReplayError> {
        if let Line::Start(start) = line {
            start.check()?;
            let spec = self.spec(&start.selection, start.seed)?;
            // The policy's memory goes on from file to file.
            if !self.run.as_ref().is_some_and(|run| run.goes_on(start)) {
                self.run = Some(Run::begin(start, &spec));
            }
            return Ok(());
        }
        let run = self.run.as_mut().ok_or(ReplayError::NotStarted)?;
        run.take(line);
        if let Line::Decision(record) = line {
            let now = run.again.decide(record)?;
            self.add(record, record.choice.as_ref(), now.as_ref());
        }
        Ok(())
    }

    /// Whether the policy remembers what it would after the whole log.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.run.as_ref().map(Run::memory).unwrap_or_default()
    }

    fn spec(&self, logged: &SelectionSpec, seed: u64) -> Result<SelectionSpec, ReplayError> {
        let spec = SelectionSpec { policy: self.policy.clone(), shadow: None, ..logged.clone() };
        if spec.build(seed).needs().keys && !logged.build(seed).needs().keys {
            let (policy, logged) = (self.policy.name(), logged.policy.name());
            return Err(ReplayError::Keys { policy, logged });
        }
        Ok(spec)
    }

    fn add(
        &mut self,
        record: &DecisionRecord,
        logged: Option<&ChoiceRecord>,
        now: Option<&ChoiceRecord>,
    ) {
        let found = &mut self.found;
        found.decisions += 1;
        let legs = |choice: Option<&ChoiceRecord>| {
            choice.map(|choice| (choice.endpoint.clone(), choice.prefill.clone()))
        };
        found.otherwise += u64::from(legs(logged) != legs(now));
        // What is cached, and when an answer comes, is said by who computes the prompt.
        let (logged, now) = (logged.map(ChoiceRecord::computes), now.map(ChoiceRecord::computes));
        let endpoint = |name: Option<&str>| {
            record.endpoints.iter().find(|endpoint| Some(endpoint.name.as_str()) == name)
        };
        if let (Some(logged), Some(now)) = (endpoint(logged), endpoint(now)) {
            found.compared += 1;
            found.prompt_tokens = found.prompt_tokens.saturating_add(record.query.prompt_tokens);
            found.logged.add(logged);
            found.now.add(now);
        }
    }
}

impl Expected {
    fn add(&mut self, endpoint: &EndpointRecord) {
        self.cached_tokens = self.cached_tokens.saturating_add(endpoint.overlap.resident());
        self.pending_tokens = self.pending_tokens.saturating_add(u64::from(endpoint.pending));
        self.ttft_s += endpoint.expected_ttft_s.unwrap_or(0.0);
    }
}
