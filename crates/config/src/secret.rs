//! Values that must not be printed, and where they are kept.

use std::env::VarError;
use std::fmt;
use std::path::Path;

use kvasir_files::read_small_file;
use kvasir_tokens::{BYTES, is_token};
use serde::{Deserialize, Serialize, Serializer};

use crate::bounds::Wrong;

/// What stands in the place of a secret.
pub(crate) const MASK: &str = "***";

/// Every request is held against all of them.
const MOST_KEYS: usize = 1024;
/// The largest file of secrets: as many keys as there may be, with a remark at each.
const MOST_FILE_BYTES: usize = 1 << 20;

/// A secret text: it never shows itself in logs, errors, or a configuration that is written out.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(secret: String) -> Self {
        Self(secret)
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// Writes out that there is a secret, and nothing of it.
pub(crate) fn mask<T, S: Serializer>(secret: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(|_| MASK).serialize(serializer)
}

/// Where a secret is kept, of the three keys `x`, `x_env` and `x_file`: one secret, or a list where
/// `T` is one.
#[derive(Debug, PartialEq, Eq)]
pub enum SecretSource<'a, T: ?Sized = Secret> {
    /// In the configuration: `x`.
    Given(&'a T),
    /// In this environment variable: `x_env`.
    Env(&'a str),
    /// In this file: `x_file`.
    File(&'a Path),
}

/// The three keys as they were read.
pub(crate) struct Sources<'a, T: ?Sized> {
    /// The first one's name, in its section.
    pub(crate) key: &'static str,
    pub(crate) given: Option<&'a T>,
    pub(crate) env: Option<&'a str>,
    pub(crate) file: Option<&'a Path>,
}

impl<'a, T: ?Sized> Sources<'a, T> {
    /// The one that is given, if any.
    pub(crate) fn source(&self) -> Option<SecretSource<'a, T>> {
        let env = || self.env.map(SecretSource::Env);
        let file = || self.file.map(SecretSource::File);
        self.given.map(SecretSource::Given).or_else(env).or_else(file)
    }

    /// Whether at most one is given, and names something.
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        let key = self.key;
        let empty = "must not be empty".to_owned();
        if self.env.is_some_and(str::is_empty) {
            return Err((format!("{key}_env"), empty));
        }
        if self.file.is_some_and(|path| path.as_os_str().is_empty()) {
            return Err((format!("{key}_file"), empty));
        }
        let given = [self.given.is_some(), self.env.is_some(), self.file.is_some()];
        if given.into_iter().filter(|given| *given).count() <= 1 {
            return Ok(());
        }
        Err((key.to_owned(), format!("give one of `{key}`, `{key}_env`, `{key}_file`")))
    }
}

impl Sources<'_, Secret> {
    /// Whether at most one is given and, where it is the secret itself, that can be a token.
    pub(crate) fn check_token(&self) -> Result<(), Wrong> {
        self.check()?;
        let Some(token) = self.given else { return Ok(()) };
        check_key(token.expose()).map_err(|why| (self.key.to_owned(), why))
    }
}

impl<T: ?Sized> Clone for SecretSource<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for SecretSource<'_, T> {}

impl SecretSource<'_> {
    /// The secret. `key` is the first key's whole path, for errors; white space around what stands in
    /// a variable or file is none of it.
    ///
    /// # Errors
    /// When the variable is not set or the file cannot be read: the key, and what is wrong with it.
    pub fn read(self, key: &str) -> Result<Secret, (String, String)> {
        match self {
            Self::Given(secret) => Ok(secret.clone()),
            Self::Env(_) | Self::File(_) => Ok(Secret::new(self.read_text(key)?.trim().to_owned())),
        }
    }

    /// The secret, which must be a token that a client can show in a header.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when it is too short, too long, or not plain ASCII. The message
    /// shows nothing of it.
    pub fn read_token(self, key: &str) -> Result<Secret, (String, String)> {
        let secret = self.read(key)?;
        check_key(secret.expose()).map_err(|why| self.wrong(key, &why))?;
        Ok(secret)
    }
}

impl<T: ?Sized> SecretSource<'_, T> {
    /// The key it is under, and what is wrong with what was found there.
    pub(crate) fn wrong(&self, key: &str, why: &str) -> Wrong {
        match self {
            Self::Given(_) => (key.to_owned(), why.to_owned()),
            Self::Env(name) => (format!("{key}_env"), format!("`{name}`: {why}")),
            Self::File(path) => (format!("{key}_file"), format!("{}: {why}", path.display())),
        }
    }

    /// The text of the variable or file.
    pub(crate) fn read_text(&self, key: &str) -> Result<String, Wrong> {
        match self {
            Self::Given(_) => Ok(String::new()),
            Self::Env(name) => std::env::var(name).map_err(|error| match error {
                VarError::NotPresent => self.wrong(key, "there is no such environment variable"),
                VarError::NotUnicode(_) => self.wrong(key, "the variable is not UTF-8"),
            }),
            Self::File(path) => {
                let bytes = read_small_file(path, MOST_FILE_BYTES);
                let text = |bytes| String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned());
                bytes.and_then(text).map_err(|why| self.wrong(key, &why))
            }
        }
    }
}

/// Whether it can be shown in a header, and not guessed.
fn check_key(key: &str) -> Result<(), String> {
    if is_token(key) {
        return Ok(());
    }
    let (least, most) = (BYTES.start(), BYTES.end());
    Err(format!("a key has {least} to {most} characters, ASCII and without blanks"))
}

/// Whether these are keys; if not, the place of the one that is none, and why.
pub(crate) fn check_keys<'a>(
    keys: impl Iterator<Item = &'a str>,
) -> Result<(), (Option<usize>, String)> {
    let mut count = 0;
    for (place, key) in keys.enumerate() {
        check_key(key).map_err(|why| (Some(place), why))?;
        count += 1;
    }
    match count {
        0 => Err((None, "there is no key, so that nobody would be let in".to_owned())),
        1..=MOST_KEYS => Ok(()),
        _ => Err((None, format!("more than {MOST_KEYS} keys"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_of_itself() {
        let secret = Secret::new("hush-hush".to_owned());
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
    }

    #[test]
    fn a_token_from_elsewhere_is_checked_and_not_shown() {
        let missing = SecretSource::Env("KVASIR_TEST_NOT_SET").read_token("admin.read_token");
        let wanted = "`KVASIR_TEST_NOT_SET`: there is no such environment variable";
        assert_eq!(missing.unwrap_err(), ("admin.read_token_env".to_owned(), wanted.to_owned()));
        let file = std::env::temp_dir().join(format!("kvasir-token-{}", std::process::id()));
        std::fs::write(&file, "  sound-token\n").unwrap();
        let read = SecretSource::<Secret>::File(&file).read_token("x").unwrap();
        assert_eq!(read.expose(), "sound-token");
        std::fs::write(&file, "two tokens\n").unwrap();
        let (key, why) = SecretSource::<Secret>::File(&file).read_token("x").unwrap_err();
        std::fs::remove_file(&file).unwrap();
        assert!(key == "x_file" && why.contains(": a key has 8 to 512"), "{why}");
        assert!(!why.contains("two tokens"), "{why}");
    }
}
