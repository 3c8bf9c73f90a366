//! Files that hold secrets: read within bounds, and only where nobody else can read them.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// No file of settings and no token is larger.
const MOST_BYTES: u64 = 64 << 10;

/// A text, and the permissions of its file, where that is one on a disk.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) text: String,
    mode: Option<u32>,
}

impl Read {
    /// The text of a file.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let place = || path.display().to_string();
        let file = File::open(path).with_context(place)?;
        // Of what was opened: the name may lead elsewhere by now.
        let meta = file.metadata().with_context(place)?;
        if meta.is_dir() {
            bail!("{}: this is a directory", path.display());
        }
        let mode = meta.is_file().then(|| meta.permissions().mode() & 0o777);
        let mut text = String::new();
        file.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(place)?;
        if text.len() as u64 > MOST_BYTES {
            bail!("{}: it is longer than {MOST_BYTES} bytes", path.display());
        }
        Ok(Self { text, mode })
    }

    /// Refuses a file that others than its owner may read or write.
    pub(super) fn check_private(&self, path: &Path) -> Result<()> {
        match self.mode {
            Some(mode) if mode & 0o077 != 0 => bail!(
                "{} holds a token, and others than its owner may open it (mode {mode:04o}): \
                 chmod 600 {}",
                path.display(),
                path.display()
            ),
            _ => Ok(()),
        }
    }
}

/// The token of a file that holds nothing else.
pub(super) fn token(path: &Path) -> Result<String> {
    let read = Read::of(path)?;
    read.check_private(path)?;
    check(read.text.trim()).with_context(|| path.display().to_string())
}

/// Whether this can be a token; it is not repeated.
pub(super) fn check(token: &str) -> Result<String> {
    if token.is_empty() || token.len() > 512 || !token.bytes().all(|b| b.is_ascii_graphic()) {
        bail!("a token has 1 to 512 characters, ASCII and without blanks");
    }
    Ok(token.to_owned())
}
