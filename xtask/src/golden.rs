//! `cargo xtask golden`: makes the golden vectors again from the engines' published packages.
//!
//! The engines are Python, so the work is a Python script beside the data.

use std::path::Path;
use std::process::ExitCode;

use crate::run::run;

const SCRIPT: &str = "testdata/golden/generate/regenerate.py";

pub(crate) fn golden(root: &Path, args: &[&str]) -> Result<ExitCode, (String, ExitCode)> {
    let script = root.join(SCRIPT);
    let words = std::iter::once(script.as_os_str()).chain(args.iter().map(AsRef::as_ref));
    run("python3", words)
        .map_err(|(why, code)| (format!("{why} (Python 3.10 or newer makes the vectors)"), code))
}
