//! One run of a pool's selection, as far as it was read, and whether its memory is that of the log.

use super::again::Again;
use super::{Line, Memory, Start};
use crate::spec::SelectionSpec;

/// One run of a pool, as far as it was read.
#[derive(Debug)]
pub(super) struct Run {
    start: Start,
    pub(super) again: Again,
    /// Lines that drove the selection, as [`Start::continues`] counts them.
    lines: u64,
    remembers: bool,
    memory: Memory,
}

impl Run {
    /// A run that begins here, with this selection.
    pub(super) fn begin(start: &Start, spec: &SelectionSpec) -> Self {
        let remembers = spec.remembers();
        let later = start.continues > 0 && remembers;
        Self {
            start: start.clone(),
            again: Again::new(spec.build(start.seed)),
            lines: start.continues,
            remembers,
            memory: if later { Memory::BeganLater } else { Memory::Known },
        }
    }

    /// Whether a file that begins so goes on from here.
    pub(super) fn goes_on(&self, start: &Start) -> bool {
        let known = &self.start;
        start.continues > 0
            && start.continues == self.lines
            && (start.seed, &start.model) == (known.seed, &known.model)
            && start.selection == known.selection
    }

    /// Counts a line, and takes what became of a decision, what is forgotten and what is missing.
    pub(super) fn take(&mut self, line: &Line) {
        self.lines = self.lines.saturating_add(line.entries());
        match line {
            Line::Start(_) | Line::Decision(_) => {}
            Line::Outcome(outcome) => {
                if !self.again.outcome(outcome) {
                    self.departs(Memory::OutcomesUnknown);
                }
            }
            Line::Forget { endpoint } => self.again.forget(endpoint),
            Line::Missing { .. } => self.departs(Memory::LinesMissing),
        }
    }

    pub(super) fn memory(&self) -> Memory {
        self.memory
    }

    /// Of several reasons the gravest is told, which the others follow from.
    fn departs(&mut self, memory: Memory) {
        let follows = memory == Memory::OutcomesUnknown && self.memory != Memory::Known;
        if self.remembers && !follows {
            self.memory = memory;
        }
    }
}
