//! What of a log was not read: lines that are missing, files before it, cut ends.

use std::fmt::Write as _;
use std::path::PathBuf;

use kvasir_balance::record::{Line, Memory};
use serde_json::{Value, json};

use super::count;
use super::read::Place;

/// Places of missing lines that are shown.
const MAX_GAPS: usize = 10;

/// What was not read.
#[derive(Default)]
pub(super) struct Incomplete {
    missing: u64,
    gaps: Vec<(String, u64)>,
    /// Files that go on from one that was not read.
    began_later: Vec<String>,
    pub(super) cut_off: Vec<PathBuf>,
}

impl Incomplete {
    /// Notes what a line says is missing; `memory` is what it is after the line.
    pub(super) fn note(&mut self, place: Place<'_>, line: &Line, memory: Memory) {
        match line {
            Line::Missing { lines } => {
                self.missing = self.missing.saturating_add(*lines);
                if self.gaps.len() < MAX_GAPS {
                    self.gaps.push((place.shown(), *lines));
                }
            }
            Line::Start(start) if start.continues > 0 && memory == Memory::BeganLater => {
                self.began_later.push(place.shown());
            }
            _ => {}
        }
    }

    /// A line of text for each.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for file in &self.cut_off {
            let _ = writeln!(text, "{}: the last line is cut off and left out", file.display());
        }
        for place in &self.began_later {
            let _ = writeln!(
                text,
                "{place}: goes on from a file that was not read before it: what policies remember \
                 begins anew here, and choices may differ"
            );
        }
        for (place, lines) in &self.gaps {
            let lines = count(*lines, "line");
            let _ = writeln!(text, "{place}: {lines} could not be written here");
        }
        text
    }

    /// Adds it to an object.
    pub(super) fn add_to(&self, object: &mut Value) {
        let gaps = self.gaps.iter().map(|(place, lines)| json!({"at": place, "lines": lines}));
        object["missing_lines"] = self.missing.into();
        object["missing"] = gaps.collect();
        object["began_later"] = json!(self.began_later);
        object["cut_off"] = json!(self.cut_off);
    }
}
