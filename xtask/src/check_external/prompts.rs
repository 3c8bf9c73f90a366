//! Prompts of real models against recorded ones. The models' files must not be redistributed; where
//! they come from is said beside the recorded cases.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Outcome;
use super::tools::cargo;

const VARIABLE: &str = "KVASIR_TOKENIZERS";
const README: &str = "testdata/chat-golden/external/README.md";
/// One file a directory of models has.
const SAMPLE: &str = "qwen3/tokenizer.json";

/// Runs the tests that need the models' files, which `dir` or the variable names.
pub(super) fn check(root: &Path, dir: Option<PathBuf>) -> Outcome {
    let Some(dir) = dir.or_else(|| env::var_os(VARIABLE).map(PathBuf::from)) else {
        return missing(&format!("no directory of models, as an argument or in {VARIABLE}"));
    };
    // The tests run in another directory.
    let dir = match dir.canonicalize() {
        Ok(dir) => dir,
        Err(error) => return missing(&format!("{}: {error}", dir.display())),
    };
    if !dir.join(SAMPLE).is_file() {
        return missing(&format!("{} has no {SAMPLE}", dir.display()));
    }
    let mut tests = Command::new(cargo());
    tests.current_dir(root).env(VARIABLE, dir).args(["test", "--package", "kvasir-prompt"]);
    tests.args(["--lib", "--test", "vectors", "external", "--", "--ignored", "--nocapture"]);
    match tests.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(format!("the tests ended with {status}")),
        Err(error) => Outcome::Missing(format!("cargo: {error}")),
    }
}

fn missing(why: &str) -> Outcome {
    Outcome::Missing(format!("{why}; {README} says what it must hold"))
}
