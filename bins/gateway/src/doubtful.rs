//! What of a configuration is allowed, and most likely not meant: `check` prints it, `serve` logs it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kvasir_config::{Config, misspelt};

/// Each in a sentence.
pub(crate) fn of(config: &Config) -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let variables = misspelt(names)
        .into_iter()
        .map(|(name, meant)| format!("the variable {name} has no effect, did you mean `{meant}`?"));
    let admin = config.admin.iter();
    let files = admin.filter_map(|admin| {
        let path = admin.write_token_file.as_deref()?;
        let why = "others than its owner and group can read it, and change everything then";
        is_open(path).then(|| format!("admin.write_token_file: {}: {why}", path.display()))
    });
    variables.chain(files).collect()
}

fn is_open(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o004 != 0)
}
