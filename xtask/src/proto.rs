//! `cargo xtask proto`: the Rust code of the controller's contract, made by a workspace of its own so that
//! reading `.proto` files is no part of the project's build.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::run;

/// Runs it. A test of `kvasir-advice` says when that is due.
pub(crate) fn proto(root: &Path) -> Result<ExitCode, (String, ExitCode)> {
    let manifest = root.join("crates/advice/generate/Cargo.toml");
    let mut command = Command::new("cargo");
    command.args(["run", "--locked", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(root.join("target/generate"));
    run::status(command)
}
