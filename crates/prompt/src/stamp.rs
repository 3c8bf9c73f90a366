//! Whether the files of a model directory are still the ones that were read.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Every file a renderer is made of.
const FILES: [&str; 7] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "additional_chat_templates",
];
/// Most additional templates that are looked at.
const MAX_TEMPLATES: usize = 64;

/// Size and time of each file; none for one that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<(OsString, Option<(u64, SystemTime)>)>);

impl Stamp {
    /// The stamp of a directory now. Links are followed: a mounted configuration changes by them.
    pub(crate) fn of(dir: &Path) -> Self {
        let mut paths: Vec<PathBuf> = FILES.iter().map(|name| dir.join(name)).collect();
        let more = std::fs::read_dir(dir.join("additional_chat_templates"));
        let mut more: Vec<PathBuf> =
            more.into_iter().flatten().flatten().map(|e| e.path()).take(MAX_TEMPLATES).collect();
        more.sort();
        paths.append(&mut more);
        let stamp = |path: PathBuf| {
            let meta = std::fs::metadata(&path).ok();
            let stamp = meta.and_then(|m| Some((m.len(), m.modified().ok()?)));
            (path.file_name().unwrap_or_default().to_owned(), stamp)
        };
        Self(paths.into_iter().map(stamp).collect())
    }
}
