//! `cargo xtask parity-check`: builds `kvasirctl` and hands over. The check itself needs an HTTP
//! client, sockets and tokenizers, and this crate has no dependencies
//! (docs/decisions/0003-parity-check-lives-in-kvasirctl.md).

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use crate::run;

/// Runs `kvasirctl parity-check` with these arguments and gives its exit status.
pub(crate) fn parity_check(args: &[&str]) -> Result<ExitCode, (String, ExitCode)> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    run::run(cargo, command(args))
}

/// What cargo is told.
fn command<'a>(args: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    ["run", "--quiet", "--locked", "-p", "kvasirctl", "--", "parity-check"]
        .into_iter()
        .chain(args.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_handed_over_as_they_are() {
        let given = ["--base-url", "http://h:1", "--", "--help"];
        let told: Vec<&str> = command(&given).collect();
        let (own, handed) = told.split_at(told.len() - given.len());
        assert_eq!(handed, given);
        assert_eq!(own.last(), Some(&"parity-check"));
        assert!(own.contains(&"--locked"));
    }
}
