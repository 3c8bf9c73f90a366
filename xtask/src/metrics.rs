//! `cargo xtask metrics`: writes docs/metrics.md from the catalogue of `kvasir-metrics`, which is built for it,
//! since this crate has no dependencies. A test of that crate compares.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const PAGE: &str = "docs/metrics.md";

pub(crate) fn metrics(root: &Path) -> Result<ExitCode, (String, ExitCode)> {
    let failed = |why: String| (why, ExitCode::FAILURE);
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root).stderr(Stdio::inherit());
    command.args(["run", "--quiet", "--locked", "-p", "kvasir-metrics", "--example", "document"]);
    let output = command.output().map_err(|error| failed(format!("cargo: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("the catalogue does not build: {}", output.status)));
    }
    let path = root.join(PAGE);
    let is_new = fs::read(&path).ok().as_ref() != Some(&output.stdout);
    if is_new {
        fs::write(&path, &output.stdout).map_err(|error| failed(format!("{PAGE}: {error}")))?;
    }
    let said = if is_new { "written" } else { "as it was" };
    Ok(crate::say(&[format!("{PAGE}: {said}")], ExitCode::SUCCESS))
}
