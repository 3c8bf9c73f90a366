//! A tar archive, compressed, that only its owner can read, and that has no token in it.

use std::fs::{File, remove_file};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::output::create_private;

/// The directory that all files are in.
const FOLDER: &str = "kvasir-bundle";
/// What stands where the token was.
const MASK: &[u8] = b"***";

/// An archive that is being written; one that is not finished is removed.
pub(super) struct Archive {
    path: PathBuf,
    tar: tar::Builder<GzEncoder<File>>,
    secret: Option<Vec<u8>>,
    unix_s: u64,
    finished: bool,
}

impl Archive {
    /// A new file; `secret` is kept out of it.
    pub(super) fn create(path: &Path, secret: Option<&str>) -> Result<Self> {
        let file = create_private(path)?;
        let tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let secret = secret.map(|secret| secret.as_bytes().to_owned());
        Ok(Self { path: path.to_owned(), tar, secret, unix_s: now.as_secs(), finished: false })
    }

    /// When it was begun.
    pub(super) fn unix_s(&self) -> u64 {
        self.unix_s
    }

    /// A further file.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        // The API shows its secrets nowhere; this is for what others may have repeated.
        let content = match &self.secret {
            Some(secret) => masked(content, secret),
            None => content.to_owned(),
        };
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.unix_s);
        let place = format!("{FOLDER}/{name}");
        let added = self.tar.append_data(&mut header, place, content.as_slice());
        added.with_context(|| self.path.display().to_string())
    }

    /// Ends it: its size in bytes.
    pub(super) fn finish(mut self) -> Result<u64> {
        let place = self.path.display().to_string();
        self.tar.finish().context(place.clone())?;
        let gzip = self.tar.get_mut();
        gzip.try_finish().context(place.clone())?;
        let mut file: &File = gzip.get_ref();
        file.flush().context(place.clone())?;
        let bytes = file.metadata().context(place)?.len();
        self.finished = true;
        Ok(bytes)
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if !self.finished {
            let _ = remove_file(&self.path);
        }
    }
}

/// Without what must not be in it.
fn masked(content: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content;
    while !rest.is_empty() {
        if !secret.is_empty() && rest.starts_with(secret) {
            out.extend_from_slice(MASK);
            rest = &rest[secret.len()..];
        } else {
            out.push(rest[0]);
            rest = &rest[1..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn a_token_is_blotted_out_wherever_it_is() {
        assert_eq!(masked(b"a hush b hushhush", b"hush"), b"a *** b ******");
        assert_eq!(masked(b"plain", b""), b"plain");
    }
}
