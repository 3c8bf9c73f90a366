//! Files that hold secrets: read within bounds, and only where nobody else can read them.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use kvasir_files::SmallFile;

/// No file of settings and no token is larger.
const MOST_BYTES: usize = 64 << 10;

/// A text, and the permissions of its file.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) text: String,
    mode: u32,
}

impl Read {
    /// The text of a file.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let place = path.display();
        let SmallFile { bytes, mode } =
            SmallFile::read(path, MOST_BYTES).map_err(|why| anyhow!("{place}: {why}"))?;
        // The error of the conversion would hold the text.
        let text = String::from_utf8(bytes).map_err(|_| anyhow!("{place}: is no text in UTF-8"))?;
        Ok(Self { text, mode })
    }

    /// Refuses a file that others than its owner may read or write.
    pub(super) fn check_private(&self, path: &Path) -> Result<()> {
        let (mode, path) = (self.mode, path.display());
        if mode & 0o077 != 0 {
            bail!(
                "{path} holds a token, and others than its owner may open it (mode {mode:04o}): \
                 chmod 600 {path}"
            );
        }
        Ok(())
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
