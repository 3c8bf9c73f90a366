//! What is wrong with a configuration, and where.

use std::path::PathBuf;

use crate::places::Places;

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
    /// The text is not valid YAML.
    #[error("{file}{}: {message}", at(.place))]
    Syntax {
        /// The name the text was given, usually its path.
        file: String,
        /// Line and column, from 1, where the parser knows them.
        place: Option<(u64, u64)>,
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
    /// A value is not what its key allows, or does not fit the others.
    #[error("{file}{}: {key}: {message}", at(.place))]
    Meaning {
        /// The name the text was given.
        file: String,
        /// Line and column, from 1; of what the text does not say, those of the section it would be in.
        /// `None` where that is all of it.
        place: Option<(u64, u64)>,
        /// The key, as a path such as `pools[0].endpoints[1].url`.
        key: String,
        /// What is wrong.
        message: String,
    },
}

impl ConfigError {
    /// What is wrong with a key of a text that could be parsed, at its place. `key` is a path such as
    /// `pools[0].endpoints[1].url`.
    #[must_use]
    pub fn of_key(file: &str, text: &str, key: String, message: String) -> Self {
        let place = Places::of(text).and_then(|places| places.place(&key));
        Self::Meaning { file: file.to_owned(), place, key, message }
    }
}

fn at(place: &Option<(u64, u64)>) -> String {
    place.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default()
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
