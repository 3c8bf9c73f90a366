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

/// What a message has of its beginning, and at most of its end, where it is too long to be read.
const SHOWN_BYTES: usize = 2_048;

/// A message that quotes a value of any length, without the middle of it.
pub(crate) fn bounded(message: String) -> String {
    if message.len() <= 2 * SHOWN_BYTES {
        return message;
    }
    let boundary = |from: usize| (from..message.len()).find(|at| message.is_char_boundary(*at));
    let (Some(head), Some(tail)) = (boundary(SHOWN_BYTES), boundary(message.len() - SHOWN_BYTES))
    else {
        return message;
    };
    let (head, tail) = (&message[..head], &message[tail..]);
    let left_out = message.len() - head.len() - tail.len();
    format!("{head} [{left_out} bytes left out] {tail}")
}
