//! Arguments that cannot be, where that shows only when they are seen together, or beside the files they
//! name. The exit status is the one of arguments that do not parse.

use std::fmt;

/// Arguments that cannot be. The text names them.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of arguments.
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(text.into()))
}

/// Whether it is one.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Usage>().is_some()
}
