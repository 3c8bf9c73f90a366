//! The files of one pool: their names, the next one, and which are too many.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file being written.
pub(super) trait LogFile: Write + Send {
    /// Cuts it to its first `bytes`: what follows was not written whole.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

impl LogFile for File {
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }
}

/// How files are made; tests have disks that fail.
pub(super) type Create = fn(&Path) -> io::Result<Box<dyn LogFile>>;

/// Makes a file that must not be there yet. What is cached where is not for everybody.
pub(super) fn create(path: &Path) -> io::Result<Box<dyn LogFile>> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    Ok(Box::new(options.open(path)?))
}

/// A file's number is written with so many digits, that names sort by it.
const DIGITS: usize = 8;
const ENDING: &str = ".jsonl";
/// Longer names are cut: file systems take 255 bytes.
const MAX_STEM: usize = 180;

/// The files of one pool in a directory.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    /// What their names begin with.
    stem: String,
}

impl Files {
    pub(super) fn of(directory: &Path, model: &str) -> Self {
        Self { directory: directory.to_owned(), stem: stem(model) }
    }

    /// Makes the next file; its path too.
    pub(super) fn next(&self, create: Create) -> io::Result<(Box<dyn LogFile>, PathBuf)> {
        std::fs::create_dir_all(&self.directory)?;
        let last = self.numbers()?.into_iter().max().unwrap_or(0);
        let path = self.path(last.saturating_add(1));
        Ok((create(&path)?, path))
    }

    /// Removes the oldest, so that `keep` are left. One that cannot be removed keeps no other; the
    /// first error is told.
    pub(super) fn prune(&self, keep: usize) -> io::Result<()> {
        let mut numbers = match self.numbers() {
            // It is made with the first file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            numbers => numbers?,
        };
        numbers.sort_unstable();
        let too_many = numbers.len().saturating_sub(keep);
        let remove = |number| match std::fs::remove_file(self.path(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        numbers.into_iter().take(too_many).map(remove).fold(Ok(()), Result::and)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{}.{number:0DIGITS$}{ENDING}", self.stem))
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| {
                let rest = name.strip_prefix(&self.stem)?.strip_prefix('.')?;
                let digits = rest.strip_suffix(ENDING)?;
                let is_number =
                    digits.len() >= DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
                is_number.then(|| digits.parse::<u64>().ok()).flatten()
            });
            numbers.extend(number);
        }
        Ok(numbers)
    }
}

/// A model's name as part of a file's name: other characters than letters, digits, `.`, `_` and `-`
/// are written as in URLs.
fn stem(model: &str) -> String {
    let mut stem = String::new();
    for (place, byte) in model.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if plain || (byte == b'.' && place > 0) {
            stem.push(char::from(byte));
        } else {
            let _ = write!(stem, "%{byte:02X}");
        }
    }
    if stem.len() > MAX_STEM {
        let digest = kvasir_balance::digest(model.as_bytes());
        stem.truncate(MAX_STEM);
        let _ = write!(stem, "-{digest:016x}");
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_tell_models_apart() {
        assert_eq!(stem("meta-llama/Llama-3.1"), "meta-llama%2FLlama-3.1");
        assert_eq!(stem("../x"), "%2E.%2Fx");
        assert_eq!(stem(".."), "%2E.");
        let long = |end: &str| stem(&("m".repeat(300) + end));
        assert_ne!(long("a"), long("b"));
        assert!(long("a").len() < 220);
        let path = Files::of(Path::new("/d"), "a b").path(7);
        assert_eq!(path, Path::new("/d/a%20b.00000007.jsonl"));
    }
}
