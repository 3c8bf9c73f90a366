//! Environment variables on top of the file: what each sets, in one table that the documentation is
//! held against.

use crate::error::ConfigError;
use crate::model::Config;

mod loxilb;
mod own;

/// The variable that names the file itself; it is read where the file is looked for.
pub const CONFIG_VARIABLE: &str = "KVASIR_CONFIG";

/// A variable that sets a key.
#[derive(Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The key it sets, as a path.
    pub key: &'static str,
    set: Set,
}

/// Sets the key, or says what is wrong with the value.
type Set = fn(&mut Config, &str) -> Result<Effect, String>;

/// What became of a value.
enum Effect {
    /// It is in the configuration now.
    Set,
    /// It changes nothing here, and why.
    Nothing(&'static str),
}

/// Every variable, in the order they are taken in.
pub const VARIABLES: &[Variable] = &{
    let mut all = [own::VARIABLES[0]; own::VARIABLES.len() + loxilb::VARIABLES.len()];
    let mut at = 0;
    while at < loxilb::VARIABLES.len() {
        all[at] = loxilb::VARIABLES[at];
        at += 1;
    }
    while at < all.len() {
        all[at] = own::VARIABLES[at - loxilb::VARIABLES.len()];
        at += 1;
    }
    all
};

/// A variable that was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The variable.
    pub name: &'static str,
    /// The key it sets.
    pub key: &'static str,
    /// Why it changes nothing, where it does not.
    pub without_effect: Option<&'static str>,
}

impl std::fmt::Debug for Variable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} -> {}", self.name, self.key)
    }
}

impl Config {
    /// Takes in the process's environment. An empty variable counts as not set.
    ///
    /// # Errors
    /// The first variable whose value its key does not allow.
    pub fn take_environment(&mut self) -> Result<Vec<Taken>, ConfigError> {
        self.take_variables(|name| match std::env::var(name) {
            Ok(text) => Ok(Some(text)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err("is not UTF-8".to_owned()),
        })
    }

    /// The same from anywhere.
    ///
    /// # Errors
    /// As [`take_environment`](Self::take_environment).
    pub fn take_variables(
        &mut self,
        read: impl Fn(&'static str) -> Result<Option<String>, String>,
    ) -> Result<Vec<Taken>, ConfigError> {
        let mut taken = Vec::new();
        for &Variable { name, key, set } in VARIABLES {
            let wrong = |message| ConfigError::Variable { name, message };
            let Some(text) = read(name).map_err(wrong)? else { continue };
            let text = text.trim();
            if text.is_empty() {
                continue;
            }
            let without_effect = match set(self, text).map_err(wrong)? {
                Effect::Set => {
                    let located = |(key, why)| wrong(format!("{key}: {why}"));
                    self.check_template().map_err(located)?;
                    None
                }
                Effect::Nothing(why) => Some(why),
            };
            taken.push(Taken { name, key, without_effect });
        }
        Ok(taken)
    }
}

/// A whole number.
fn parsed<T: Whole>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 to {}", T::MOST))
}

/// A type of whole numbers.
trait Whole: std::str::FromStr {
    /// The largest one.
    const MOST: u64;
}

impl Whole for u32 {
    const MOST: u64 = u32::MAX as u64;
}

impl Whole for u64 {
    const MOST: u64 = u64::MAX;
}

impl Whole for usize {
    const MOST: u64 = usize::MAX as u64;
}

/// One of these words.
fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("`{text}` is none of {}", words.join(", "))
    })
}

/// Yes or no.
fn flag(text: &str) -> Result<bool, String> {
    word(text, &[("true", true), ("false", false), ("1", true), ("0", false)])
}

#[cfg(test)]
mod tests;
