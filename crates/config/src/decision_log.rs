//! Where decisions are logged.

use std::path::PathBuf;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use crate::bounds::MOST_FILE_BYTES;

/// Below this a file would hold a few decisions only.
const LEAST_BYTES: u64 = 64 << 10;
/// One is written, and at least one is there to be read.
const LEAST_FILES: usize = 2;
const MOST_FILES: usize = 10_000;

/// Where decisions are logged, and how much of them is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionLogConfig {
    /// The directory, of one gateway alone. Each pool has files of its own there.
    #[serde(deserialize_with = "directory")]
    pub directory: PathBuf,
    /// A file of so many bytes is followed by the next. Default 256 MiB; 64 KiB to 1 TiB.
    #[serde(default = "max_bytes", deserialize_with = "enough_bytes")]
    pub max_bytes: u64,
    /// Files kept of each pool. Default 8; from 2 to 10,000.
    #[serde(default = "files", deserialize_with = "enough_files")]
    pub files: usize,
}

impl DecisionLogConfig {
    /// In this directory, with the defaults.
    #[must_use]
    pub fn at(directory: PathBuf) -> Self {
        Self { directory, max_bytes: max_bytes(), files: files() }
    }
}

fn max_bytes() -> u64 {
    256 << 20
}

fn files() -> usize {
    8
}

fn directory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let directory = PathBuf::deserialize(deserializer)?;
    if directory.as_os_str().is_empty() {
        return Err(de::Error::custom("the directory must not be empty"));
    }
    Ok(directory)
}

fn enough_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let bytes = u64::deserialize(deserializer)?;
    if bytes < LEAST_BYTES {
        let message = format!("{bytes} bytes are too few: at least {LEAST_BYTES}");
        return Err(de::Error::custom(message));
    }
    if bytes > MOST_FILE_BYTES {
        let message = format!("{bytes} bytes are too many: at most {MOST_FILE_BYTES}");
        return Err(de::Error::custom(message));
    }
    Ok(bytes)
}

fn enough_files<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let files = usize::deserialize(deserializer)?;
    if !(LEAST_FILES..=MOST_FILES).contains(&files) {
        let message = format!("{files} files: from {LEAST_FILES} to {MOST_FILES} can be kept");
        return Err(de::Error::custom(message));
    }
    Ok(files)
}
