//! `cargo xtask check-external [DIR]`: prompts of real models against recorded ones.
//!
//! The models' files must not be redistributed; where they come from is said beside the recorded
//! cases.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::run::status;

const VARIABLE: &str = "KVASIR_TOKENIZERS";
const README: &str = "testdata/chat-golden/external/README.md";
/// One file a directory of models has.
const SAMPLE: &str = "qwen3/tokenizer.json";

pub(crate) fn check_external(root: &Path, args: &[&str]) -> Result<ExitCode, (String, ExitCode)> {
    let dir = match args {
        [dir] => PathBuf::from(dir),
        [] => env::var_os(VARIABLE).map(PathBuf::from).unwrap_or_default(),
        _ => return Err(("expected one directory".to_owned(), ExitCode::from(2))),
    };
    let refused =
        |why: String| (format!("{why}; {README} says what it must hold"), ExitCode::from(2));
    if dir.as_os_str().is_empty() {
        return Err(refused(format!("no directory of models, as an argument or in {VARIABLE}")));
    }
    // The tests run in another directory.
    let dir = dir.canonicalize().map_err(|e| refused(format!("{}: {e}", dir.display())))?;
    if !dir.join(SAMPLE).is_file() {
        return Err(refused(format!("{} has no {SAMPLE}", dir.display())));
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).env(VARIABLE, dir).args([
        "test",
        "--package",
        "kvasir-prompt",
        "--lib",
        "--test",
        "vectors",
        "external",
        "--",
        "--ignored",
        "--nocapture",
    ]);
    status(cargo)
}
