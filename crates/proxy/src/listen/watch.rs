//! Files that are read again when they change.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Time between two looks. Changes are rare and none is urgent.
const PERIOD: Duration = Duration::from_secs(2);

/// What tells two states of a file apart: its time, its length, and which file it is, for files that
/// are exchanged through links.
type Stamp = Option<(SystemTime, u64, u64)>;

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let found = path.metadata().ok()?;
        #[cfg(unix)]
        let identity = std::os::unix::fs::MetadataExt::ino(&found);
        #[cfg(not(unix))]
        let identity = 0;
        Some((found.modified().ok()?, found.len(), identity))
    };
    paths.iter().map(stamp).collect()
}

/// The names of the metric families that tell of files.
#[derive(Clone, Copy, Debug)]
pub struct FileFamilies {
    /// Counts results.
    pub reloads: &'static str,
    /// 1 while the files are not what is used.
    pub stale: &'static str,
}

/// Follows `paths`, for ever. When one of them changes `reload` reads them, off the async threads;
/// when it fails what was read before stays in use, until they change again.
pub async fn watch_files<E: Display + Send + 'static>(
    families: FileFamilies,
    paths: Vec<PathBuf>,
    reload: impl Fn() -> Result<(), E> + Send + Sync + 'static,
) {
    let counter = |result: &'static str| metrics::counter!(families.reloads, "result" => result);
    let (succeeded, failed) = (counter("ok"), counter("failed"));
    succeeded.absolute(0);
    failed.absolute(0);
    let stale = metrics::gauge!(families.stale);
    stale.set(0.0);
    let reload = Arc::new(reload);
    let mut used: Option<Vec<Stamp>> = None;
    loop {
        let (watched, before, reload) = (paths.clone(), used.clone(), Arc::clone(&reload));
        let look = tokio::task::spawn_blocking(move || {
            // Before they are read: what is written meanwhile shows at the next look.
            let now = stamps(&watched);
            let changed = before.as_ref() != Some(&now);
            (now, changed.then(|| reload()))
        });
        // It panics in no case, and the runtime's end ends this task too.
        let Ok((now, read)) = look.await else { return };
        // The first time only makes sure of what was read before anybody watched.
        let first = used.replace(now).is_none();
        match read {
            None => {}
            Some(Ok(())) if first => {}
            Some(Ok(())) => {
                succeeded.increment(1);
                stale.set(0.0);
                tracing::info!(?paths, "read again");
            }
            Some(Err(error)) => {
                failed.increment(1);
                stale.set(1.0);
                tracing::error!(?paths, %error, "changed and cannot be used: what was read before stays");
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}
