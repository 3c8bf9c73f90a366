//! What is wrong with a key of the configuration, where that shows only when what it names is used; and
//! where the key was said, which is added once the whole way up.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use kvasir_config::{ConfigError, Secret, SecretSource, Taken};

/// A key, as a path such as `pools[0].api_key_env`, and what is wrong with it.
#[derive(Debug)]
struct BadKey {
    key: String,
    why: String,
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

impl std::error::Error for BadKey {}

/// An error that will have the key's place.
pub(crate) fn bad_key(key: impl Into<String>, why: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(BadKey { key: key.into(), why: why.to_string() })
}

/// The same of a key and a message in one.
pub(crate) fn wrong((key, why): (String, String)) -> anyhow::Error {
    bad_key(key, why)
}

/// Its key and what is wrong with it, if it is one of a key.
pub(crate) fn parts(error: &anyhow::Error) -> Option<(&str, &str)> {
    error.downcast_ref::<BadKey>().map(|bad| (bad.key.as_str(), bad.why.as_str()))
}

/// The same of a key and what went wrong with what it names.
pub(crate) fn cannot_use(key: impl Into<String>, error: impl Into<anyhow::Error>) -> anyhow::Error {
    bad_key(key, format!("{:#}", error.into()))
}

/// The token under a key, where there is one.
pub(crate) fn read_token(source: Option<SecretSource<'_>>, key: &str) -> Result<Option<Secret>> {
    source.map(|source| source.read_token(key)).transpose().map_err(wrong)
}

/// Whether it is one.
pub(crate) fn is_bad_key(error: &anyhow::Error) -> bool {
    error.downcast_ref::<BadKey>().is_some()
}

/// Who said what: the file, and what wins over it.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) file: Option<PathBuf>,
    /// The file's text.
    pub(crate) text: String,
    /// Flags and variables with the keys they set, what wins first.
    by: Vec<(&'static str, &'static str)>,
}

impl Said {
    /// By a file, by flags (with the keys they set), and by the environment.
    pub(crate) fn by(
        file: Option<PathBuf>,
        text: String,
        flags: Vec<(&'static str, &'static str)>,
        taken: &[Taken],
    ) -> Self {
        let variables = taken.iter().filter(|taken| taken.without_effect.is_none());
        let variables = variables.map(|taken| (taken.key, taken.name));
        let by = flags.into_iter().chain(variables).collect();
        Self { file, text, by }
    }

    /// The error with the place of its key, if it is one of a key.
    pub(crate) fn locate(&self, error: anyhow::Error) -> anyhow::Error {
        let BadKey { key, why } = match error.downcast() {
            Ok(bad) => bad,
            Err(other) => return other,
        };
        let plain = without_numbers(&key);
        if let Some((_, who)) = self.by.iter().find(|(set, _)| *set == plain) {
            return anyhow::anyhow!("{who}: {why}");
        }
        match &self.file {
            Some(file) => {
                ConfigError::of_key(&file.display().to_string(), &self.text, key, why).into()
            }
            None => bad_key(key, why),
        }
    }
}

/// `pools[].policy` of `pools[3].policy`.
fn without_numbers(key: &str) -> String {
    let mut plain = String::with_capacity(key.len());
    let mut is_in_brackets = false;
    for c in key.chars() {
        is_in_brackets &= c != ']';
        if !is_in_brackets {
            plain.push(c);
        }
        is_in_brackets |= c == '[';
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_key_is_where_the_last_word_about_it_was_said() {
        let text = "log: {level: x}\npools:\n  - {policy: a}\n";
        let taken = Taken { name: "KVASIR_LOG_LEVEL", key: "log.level", without_effect: None };
        let said =
            |flags, taken: &[Taken]| Said::by(Some("f".into()), text.to_owned(), flags, taken);
        let at = |said: Said, key: &str| said.locate(bad_key(key, "no")).to_string();
        assert_eq!(at(said(vec![], &[]), "log.level"), "f:1:14: log.level: no");
        assert_eq!(
            at(said(vec![], std::slice::from_ref(&taken)), "log.level"),
            "KVASIR_LOG_LEVEL: no"
        );
        assert_eq!(at(said(vec![("log.level", "--level")], &[taken]), "log.level"), "--level: no");
        let flags = vec![("pools[].policy", "--policy")];
        assert_eq!(at(said(flags, &[]), "pools[0].policy"), "--policy: no");
        assert_eq!(at(said(vec![], &[]), "pools[0].policy"), "f:3:14: pools[0].policy: no");
        assert_eq!(at(Said::default(), "log.level"), "log.level: no");
        assert_eq!(said(vec![], &[]).locate(anyhow::anyhow!("other")).to_string(), "other");
    }
}
