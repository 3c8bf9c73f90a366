//! What is wrong with a configuration, and where.

use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not valid YAML, or a value is not what its key allows. The message carries line
    /// and column.
    #[error("{file}:{line}:{column}: {message}")]
    Syntax {
        /// The name the text was given, usually its path.
        file: String,
        /// Line, from 1; 0 where the parser knows none.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong and what would be allowed.
        message: String,
    },
    /// An environment variable has a value that its key does not allow.
    #[error("{name}: {message}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// What is wrong.
        message: String,
    },
    /// Values that are fine one by one do not fit together.
    #[error("{file}: {key}: {message}")]
    Meaning {
        /// The name the text was given.
        file: String,
        /// The key, as a path such as `pools[0].endpoints[1].url`.
        key: String,
        /// What is wrong.
        message: String,
    },
}
