//! The rules on disk: one JSON file, replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};

use kvasir_files::read_small_file;

use crate::table::Table;

/// The largest file that is read, in bytes.
const MOST_BYTES: usize = 16 << 20;

/// Why rules cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be read or written.
    #[error("loxilb.store: {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// It is none of ours.
    #[error("loxilb.store: {}: {}", .0.display(), .1)]
    Content(PathBuf, String),
}

/// The rules that were kept; none where there is no file yet.
pub(crate) fn load(path: &Path) -> Result<Table, StoreError> {
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Table::default()),
        Err(error) => return Err(StoreError::File(path.to_owned(), error)),
        Ok(_) => {}
    }
    let content = |why: String| StoreError::Content(path.to_owned(), why);
    let text = read_small_file(path, MOST_BYTES).map_err(content)?;
    serde_json::from_slice(&text).map_err(|error| content(error.to_string()))
}

/// Keeps the rules: all of them or, where that fails, those that were kept before.
pub(crate) fn keep(path: &Path, table: &Table) -> Result<(), StoreError> {
    let file = |error| StoreError::File(path.to_owned(), error);
    let text = serde_json::to_vec_pretty(table)
        .map_err(|error| StoreError::Content(path.to_owned(), error.to_string()))?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let write = || {
        let mut written = std::fs::File::create(&beside)?;
        io::Write::write_all(&mut written, &text)?;
        written.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().map_err(file)
}
