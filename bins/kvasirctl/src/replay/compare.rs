//! Whether every decision comes out as it is in the log.

use std::fmt::Write as _;

use kvasir_balance::record::{Differs, Memory, Replay};
use serde_json::{Value, json};

use super::incomplete::Incomplete;
use super::read::each_line;
use super::{Found, count};
use crate::Ended;
use crate::args::ReplayArgs;

#[derive(Default)]
struct Compared {
    differing: u64,
    /// Those of them where policies' memory was not that of the log, and why.
    unsure: u64,
    why_unsure: Memory,
    /// The first differences, with their places.
    shown: Vec<(String, Differs)>,
    incomplete: Incomplete,
}

/// Makes all decisions again.
pub(super) fn run(args: &ReplayArgs) -> Found {
    let mut replay = Replay::default();
    let mut found = Compared::default();
    found.incomplete.cut_off = each_line(&args.files, |place, line| {
        let differs = replay.line(line).map_err(|error| error.to_string())?;
        found.incomplete.note(place, line, replay.memory());
        let Some(differs) = differs else { return Ok(()) };
        found.differing += 1;
        if replay.memory() != Memory::Known {
            found.unsure += 1;
            found.why_unsure = replay.memory();
        }
        if found.shown.len() < args.differences {
            found.shown.push((place.shown(), differs));
        }
        Ok(())
    })?;
    let (decisions, files) = (replay.decisions(), args.files.len());
    let text = if args.json {
        format!("{:#}\n", found.to_json(decisions, files))
    } else {
        found.to_text(decisions, files)
    };
    let ended = if found.differing == 0 { Ended::Done } else { Ended::Status(1) };
    Ok((text, ended))
}

impl Compared {
    fn to_text(&self, decisions: u64, files: usize) -> String {
        let mut text = self.incomplete.to_text();
        let (all, files) = (count(decisions, "decision"), count(files as u64, "file"));
        if self.differing == 0 {
            let _ = writeln!(text, "{all} in {files}: all come out as in the log");
            return text;
        }
        let equal = decisions.saturating_sub(self.differing);
        let _ =
            writeln!(text, "{all} in {files}: {equal} as in the log, {} differ", self.differing);
        for (place, differs) in &self.shown {
            let _ = writeln!(text, "  {place}: {differs}");
        }
        let more = self.differing.saturating_sub(self.shown.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "  and {more} more");
        }
        if self.unsure > 0 {
            let why = self.why_unsure.why_unknown();
            let _ = writeln!(
                text,
                "{} of them where what policies remember is not that of the log: {why}",
                self.unsure
            );
        }
        text
    }

    fn to_json(&self, decisions: u64, files: usize) -> Value {
        let differences = self.shown.iter().map(|(place, differs)| {
            json!({"at": place, "id": differs.id, "logged": differs.logged, "now": differs.now})
        });
        let mut object = json!({
            "files": files,
            "decisions": decisions,
            "equal": decisions.saturating_sub(self.differing),
            "differing": self.differing,
            "differing_without_memory": self.unsure,
            "differences": differences.collect::<Vec<_>>(),
        });
        self.incomplete.add_to(&mut object);
        object
    }
}
