//! What must be alike across the engines of one pool.

use serde::Serialize;

use crate::report::{Leg, Report, Verdict};

/// The reports of several engines, and what was found looking across them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// The worst of all legs.
    pub verdict: Verdict,
    /// One report per engine, in the order given.
    pub endpoints: Vec<Report>,
    /// Legs across the engines; none for a single one.
    pub across: Vec<Leg>,
}

/// Looks across the reports of one pool's engines.
#[must_use]
pub fn compare(endpoints: Vec<Report>) -> Examination {
    let verdict = Verdict::worst(endpoints.iter().map(|report| report.verdict));
    Examination { verdict, endpoints, across: Vec::new() }
}
