//! `kvasirctl replay`: logged decisions, made again by the same code, under another policy, or
//! shown.

mod compare;
mod explain;
mod incomplete;
mod pair;
mod read;
mod what_if;

use anyhow::Result;

use self::read::Unreadable;
use crate::args::ReplayArgs;
use crate::{Ended, say};

/// A file that cannot be read.
const UNREADABLE: u8 = 2;

/// Reads, decides and prints.
pub(crate) fn run(args: &ReplayArgs) -> Result<Ended> {
    let found = match (args.explain, &args.policy) {
        (Some(id), _) => explain::run(args, id),
        (None, Some(policy)) => what_if::run(args, policy),
        (None, None) => compare::run(args),
    };
    match found {
        Ok((text, ended)) => {
            crate::output::write(&text)?;
            Ok(ended)
        }
        Err(Unreadable(why)) => {
            say(&why);
            Ok(Ended::Status(UNREADABLE))
        }
    }
}

/// What to print, and how it ended.
type Found = Result<(String, Ended), Unreadable>;

/// `1 decision`, `2 decisions`.
fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A part in percent; a dash where there is nothing to be a part of.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let percent = part as f64 / whole as f64 * 100.0;
    format!("{percent:.1} %")
}
