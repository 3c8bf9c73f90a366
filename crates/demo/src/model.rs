//! The tokenizer of the model that the simulated engines claim to serve.
//!
//! A small byte-level BPE of 4,096 tokens with a `ChatML` template, carried inside the program so
//! that it needs neither a network nor files of its own.

use std::fs::File;
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// The files an engine and a gateway read of a model.
const FILES: [(&str, &[u8]); 4] = [
    ("config.json", include_bytes!("../../../testdata/models/tiny/config.json")),
    (
        "generation_config.json",
        include_bytes!("../../../testdata/models/tiny/generation_config.json"),
    ),
    ("tokenizer.json", include_bytes!("../../../testdata/models/tiny/tokenizer.json")),
    (
        "tokenizer_config.json",
        include_bytes!("../../../testdata/models/tiny/tokenizer_config.json"),
    ),
];

/// A directory of staged tokenizers that holds one model. All who serve the same model on a machine,
/// as one user, share one directory: their engines report the same `root`, as replicas do. The last of
/// them removes it; what one leaves that was killed is used by the next.
#[derive(Debug)]
pub struct StagedModel {
    name: String,
    staged: PathBuf,
    dir: PathBuf,
    /// Locked while it is used; `None` where the directory is nobody else's.
    lock: Option<File>,
}

impl StagedModel {
    /// The name the model is served under unless another is asked for.
    pub const NAME: &'static str = "kvasir-demo";

    /// How many tokens the tokenizer knows.
    pub const VOCABULARY: u32 = 4_096;

    /// Writes the model's files below the system's temporary directory, as `MODEL/…` with `/` in the
    /// name as `__`, unless they are there.
    ///
    /// # Errors
    /// When the name is none of a directory, or a directory or file cannot be written.
    pub fn create(name: &str) -> io::Result<Self> {
        let folder = name.replace('/', "__");
        if folder.is_empty() || folder == "." || folder == ".." || folder.contains(['\\', '\0']) {
            let message = format!("`{name}` is no name for a model");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let (staged, lock) = match shared_directory(name) {
            Some((staged, lock)) => (staged, Some(lock)),
            None => (fresh_directory()?, None),
        };
        // From here on a failure removes what was made.
        let model = Self { name: name.to_owned(), dir: staged.join(folder), staged, lock };
        std::fs::create_dir_all(&model.dir)?;
        for (file, bytes) in FILES {
            put(&model.dir.join(file), bytes)?;
        }
        Ok(model)
    }

    /// The model's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of staged tokenizers, for a gateway.
    #[must_use]
    pub fn staged(&self) -> &Path {
        &self.staged
    }

    /// The model's own directory, for an engine.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for StagedModel {
    fn drop(&mut self) {
        // Left behind, it is some small files in the temporary directory.
        let Some(lock) = &self.lock else {
            let _ = std::fs::remove_dir_all(&self.staged);
            return;
        };
        // Whoever else uses it holds the lock, too.
        if lock.unlock().is_ok() && lock.try_lock().is_ok() && is_at(lock, &self.staged) {
            // Who comes meanwhile finds all of it, or nothing.
            let gone = unused_path();
            if std::fs::rename(&self.staged, &gone).is_ok() {
                let _ = std::fs::remove_dir_all(gone);
            }
        }
    }
}

/// The file in a shared directory that its users lock.
const LOCK: &str = ".lock";

/// Tries to come by a directory: others' are in the way, or it goes while one is about to use it.
const TRIES: u8 = 8;

/// The directory that all share who serve this model's content under this name, and its lock; `None`
/// where that cannot be had, as where other users have taken the names.
fn shared_directory(name: &str) -> Option<(PathBuf, File)> {
    let mut digest = DefaultHasher::new();
    (name, FILES).hash(&mut digest);
    let number = digest.finish();
    let path = |place| std::env::temp_dir().join(format!("kvasir-model-{number:016x}-{place}"));
    (0..TRIES).find_map(|place| {
        let path = path(place);
        let lock = (0..TRIES).find_map(|_| locked(&path).transpose())?.ok()?;
        Some((path, lock))
    })
}

/// Makes the directory unless it is there and ours, and locks it; `Ok(None)` where it went meanwhile.
fn locked(path: &Path) -> io::Result<Option<File>> {
    match create_private(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // Nothing is opened in what others may have prepared.
    let prepared = path.join(LOCK).symlink_metadata().is_ok_and(|found| !found.is_file());
    if prepared || !is_closed(path)? {
        return Err(io::Error::other("others can enter it"));
    }
    let lock = File::options().create(true).truncate(false).write(true).open(path.join(LOCK));
    let lock = match lock {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        lock => lock?,
    };
    if !is_ours(path, &lock)? {
        return Err(io::Error::other("it is another user's"));
    }
    lock.lock_shared()?;
    Ok(is_at(&lock, path).then_some(lock))
}

/// Whether it is a directory that its owner alone can enter.
#[cfg(unix)]
fn is_closed(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let found = path.symlink_metadata()?;
    Ok(found.is_dir() && found.mode() & 0o077 == 0)
}

#[cfg(not(unix))]
fn is_closed(path: &Path) -> io::Result<bool> {
    Ok(path.symlink_metadata()?.is_dir())
}

/// Whether its owner is who made `file` in it.
#[cfg(unix)]
fn is_ours(path: &Path, file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(path.symlink_metadata()?.uid() == file.metadata()?.uid())
}

#[cfg(not(unix))]
fn is_ours(_: &Path, _: &File) -> io::Result<bool> {
    Ok(true)
}

/// Whether the lock is the one in that directory now.
#[cfg(unix)]
fn is_at(lock: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let at = |found: std::fs::Metadata| (found.dev(), found.ino());
    let known = path.join(LOCK).symlink_metadata().map(at);
    known.is_ok_and(|known| lock.metadata().map(at).is_ok_and(|own| own == known))
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.join(LOCK).exists()
}

/// Writes a file as a whole, unless it is there.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if std::fs::read(path).is_ok_and(|known| known == bytes) {
        return Ok(());
    }
    let new = path.with_extension(format!("{:016x}", random()));
    std::fs::write(&new, bytes)?;
    std::fs::rename(new, path)
}

/// A directory that did not exist before and that only its owner can enter.
fn fresh_directory() -> io::Result<PathBuf> {
    let mut last = None;
    for _ in 0..TRIES {
        let path = unused_path();
        match create_private(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("no free name")))
}

fn unused_path() -> PathBuf {
    std::env::temp_dir().join(format!("kvasir-model-{:016x}", random()))
}

fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other process uses it.
    fn own(name: &str) -> String {
        format!("{name}-{}", std::process::id())
    }

    #[test]
    fn a_staged_model_is_whole_and_goes_away() {
        let name = own("org/name");
        let model = StagedModel::create(&name).unwrap();
        assert_eq!(model.dir(), model.staged().join(name.replace('/', "__")));
        let tokenizer = std::fs::read(model.dir().join("tokenizer.json")).unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&tokenizer).unwrap();
        let tokens = parsed["model"]["vocab"].as_object().unwrap().len();
        assert_eq!(tokens, StagedModel::VOCABULARY as usize);
        assert!(model.dir().join("tokenizer_config.json").is_file());
        let staged = model.staged().to_owned();
        assert!(staged.is_dir());
        drop(model);
        assert!(!staged.exists());
    }

    #[test]
    fn who_serves_the_same_model_shares_its_directory_to_the_last() {
        let name = own("shared");
        let (one, two) = (StagedModel::create(&name).unwrap(), StagedModel::create(&name).unwrap());
        assert_eq!(one.dir(), two.dir());
        let other = StagedModel::create(&own("shared-not")).unwrap();
        assert_ne!(one.dir(), other.dir());
        drop(one);
        assert!(two.dir().join("tokenizer.json").is_file());
        let staged = two.staged().to_owned();
        drop(two);
        assert!(!staged.exists());
    }

    #[test]
    fn what_a_killed_one_left_is_used_and_mended() {
        let name = own("left");
        let model = StagedModel::create(&name).unwrap();
        let (staged, dir) = (model.staged().to_owned(), model.dir().to_owned());
        drop(model);
        create_private(&staged).unwrap();
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("tokenizer.json"), b"half of").unwrap();
        let again = StagedModel::create(&name).unwrap();
        assert_eq!(again.staged(), staged);
        assert!(std::fs::metadata(dir.join("tokenizer.json")).unwrap().len() > 1000);
        drop(again);
        assert!(!staged.exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_others_can_enter_is_not_used() {
        let name = own("open");
        let model = StagedModel::create(&name).unwrap();
        let staged = model.staged().to_owned();
        drop(model);
        std::fs::create_dir(&staged).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&staged, open).unwrap();
        let other = StagedModel::create(&name).unwrap();
        assert_ne!(other.staged(), staged);
        std::fs::remove_dir_all(staged).unwrap();
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", ".", "..", "a\\b", "a\0"] {
            let error = StagedModel::create(name).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{name:?}");
        }
        assert_eq!(StagedModel::create("../up").unwrap().dir().file_name().unwrap(), "..__up");
    }
}
