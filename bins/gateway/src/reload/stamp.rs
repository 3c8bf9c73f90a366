//! What tells one state of a file from another.

use std::fs::Metadata;
use std::path::Path;
use std::time::SystemTime;

/// What tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { modified: metadata.modified().ok(), bytes: metadata.len(), inode: metadata.ino() }
    }

    pub(super) async fn at(path: &Path) -> Option<Self> {
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || std::fs::metadata(path));
        Some(Self::of(&read.await.ok()?.ok()?))
    }
}
