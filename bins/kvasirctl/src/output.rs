//! What commands print on standard output, and the files they make.

use std::fs::{File, OpenOptions};
use std::io::{Write as _, stdout};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;

use crate::args::Output;

/// A document, or its table.
pub(crate) fn print(form: Output, document: &Value, table: impl FnOnce() -> String) -> Result<()> {
    match form {
        Output::Table => write(&table()),
        Output::Json => write(&format!("{document:#}\n")),
        Output::Yaml => write(&yaml(document)?),
    }
}

/// A document as YAML, with a line end.
pub(crate) fn yaml(document: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(document).map_err(|error| anyhow!("as YAML: {error}"))?;
    Ok(format!("{}\n", text.trim_end_matches('\n')))
}

/// A text as it is.
pub(crate) fn write(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The new file of `--out`, which nobody else can read.
pub(crate) fn create_private(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).with_context(|| format!("--out {}", path.display()))
}
