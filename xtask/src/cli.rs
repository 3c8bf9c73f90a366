//! `cargo xtask cli`: writes docs/cli.md, by the test of the gateway that compares the page with what all binaries say.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

pub(crate) fn cli(root: &Path) -> Result<ExitCode, (String, ExitCode)> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let run = |args: &[&str]| {
        let mut command = Command::new(&cargo);
        command.current_dir(root).args(args).env("KVASIR_WRITE_PAGES", "1");
        let status = command.status();
        let failed = |why: String| (why, ExitCode::FAILURE);
        let status = status.map_err(|error| failed(format!("cargo: {error}")))?;
        if status.success() {
            Ok(())
        } else {
            Err(failed(format!("cargo {}: {status}", args.join(" "))))
        }
    };
    run(&["build", "--quiet", "--locked", "-p", "kvasirctl", "-p", "kvasir-controller"])?;
    run(&[
        "test",
        "--quiet",
        "--locked",
        "-p",
        "kvasir-gateway",
        "--test",
        "e2e",
        "ctl::reference",
    ])?;
    Ok(crate::say(&["docs/cli.md: as the binaries say".to_owned()], ExitCode::SUCCESS))
}
