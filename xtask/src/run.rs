//! Tasks that other programs do: runs one with this process's standard streams.

use std::ffi::OsStr;
use std::process::{Command, ExitCode};

/// What a shell answers where there is no such program.
const NOT_FOUND: u8 = 127;

/// Runs `program` and gives its exit status, or why it could not be run.
pub(crate) fn run<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = A>,
) -> Result<ExitCode, (String, ExitCode)> {
    let mut command = Command::new(program);
    command.args(args);
    status(command)
}

/// The same for a command with more to it than arguments.
pub(crate) fn status(mut command: Command) -> Result<ExitCode, (String, ExitCode)> {
    match command.status() {
        // Ended by a signal: no status of its own.
        Ok(status) => {
            Ok(ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)))
        }
        Err(error) => {
            let program = command.get_program().to_string_lossy();
            Err((format!("{program}: {error}"), ExitCode::from(NOT_FOUND)))
        }
    }
}
