//! Values that may hold secrets: messages say what is wrong with them, and do not repeat them.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

/// Reads a value with this function, and never shows it.
#[derive(Clone, Debug)]
pub(super) struct Unshown<T>(pub(super) fn(&str) -> Result<T, String>);

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Unshown<T> {
    type Value = T;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let text = value.to_str().ok_or_else(|| "not UTF-8".to_owned());
        text.and_then(self.0).map_err(|why| {
            let place = arg.map_or_else(String::new, |arg| format!(" for '{arg}'"));
            let message = format!("invalid value{place}: {why}\n");
            Error::raw(ErrorKind::ValueValidation, message).with_cmd(cmd)
        })
    }
}
