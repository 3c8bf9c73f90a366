//! The API keys that clients must show.

use std::path::PathBuf;

use crate::model::Config;
use crate::secret::Secret;

/// Every request is held against all of them.
const MOST_KEYS: usize = 1024;
/// Shorter ones can be guessed by trying.
const LEAST_BYTES: usize = 8;
const MOST_BYTES: usize = 512;

/// Where the keys of clients are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientKeySource<'a> {
    /// In the configuration.
    Listed(&'a [Secret]),
    /// In this environment variable, with commas or white space between.
    Env(&'a str),
    /// In this file, one a line.
    File(&'a PathBuf),
}

impl Config {
    /// Where the keys of clients are; `None` lets everybody in.
    #[must_use]
    pub fn client_keys(&self) -> Option<ClientKeySource<'_>> {
        let listed = self.api_keys.as_deref().map(ClientKeySource::Listed);
        let env = self.api_keys_env.as_deref().map(ClientKeySource::Env);
        listed.or(env).or(self.api_keys_file.as_ref().map(ClientKeySource::File))
    }

    /// What can be checked of them without reading anything; if not, the key and what is wrong.
    pub(crate) fn check_client_keys(&self) -> Result<(), (String, String)> {
        let given = usize::from(self.api_keys.is_some())
            + usize::from(self.api_keys_env.is_some())
            + usize::from(self.api_keys_file.is_some());
        if given > 1 {
            let message = "give one of `api_keys`, `api_keys_env`, `api_keys_file`".to_owned();
            return Err(("api_keys".to_owned(), message));
        }
        let listed = self.api_keys.iter().flatten().map(Secret::expose);
        if self.api_keys.is_some() {
            check(listed).map_err(|(place, why)| match place {
                Some(place) => (format!("api_keys[{place}]"), why),
                None => ("api_keys".to_owned(), why),
            })?;
        }
        Ok(())
    }
}

impl ClientKeySource<'_> {
    /// The keys, from where they are.
    ///
    /// # Errors
    /// When the variable is not set, the file cannot be read, there is no key, or one is none. The
    /// message says where and shows no key.
    pub fn read(&self) -> Result<Vec<Secret>, String> {
        match self {
            Self::Listed(keys) => Ok(keys.to_vec()),
            Self::Env(name) => {
                let located = |why: String| format!("api_keys_env: {name}: {why}");
                let text = std::env::var(name).map_err(|error| located(error.to_string()))?;
                let split = |c: char| c == ',' || c.is_whitespace();
                let keys: Vec<&str> = text.split(split).filter(|key| !key.is_empty()).collect();
                check(keys.iter().copied()).map_err(|(place, why)| match place {
                    Some(place) => located(format!("key {}: {why}", place + 1)),
                    None => located(why),
                })?;
                Ok(keys.into_iter().map(|key| Secret::new(key.to_owned())).collect())
            }
            Self::File(path) => {
                let located = |why: String| format!("api_keys_file: {}{why}", path.display());
                let text =
                    std::fs::read_to_string(path).map_err(|error| located(format!(": {error}")))?;
                let lines = text.lines().map(str::trim).enumerate();
                let keys: Vec<(usize, &str)> =
                    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect();
                check(keys.iter().map(|(_, key)| *key)).map_err(|(place, why)| {
                    match place.and_then(|place| keys.get(place)) {
                        Some((line, _)) => located(format!(":{}: {why}", line + 1)),
                        None => located(format!(": {why}")),
                    }
                })?;
                Ok(keys.into_iter().map(|(_, key)| Secret::new(key.to_owned())).collect())
            }
        }
    }
}

/// Whether these are keys; if not, the place of the one that is none, and why.
fn check<'a>(keys: impl Iterator<Item = &'a str>) -> Result<(), (Option<usize>, String)> {
    let mut count = 0;
    for (place, key) in keys.enumerate() {
        let fits = (LEAST_BYTES..=MOST_BYTES).contains(&key.len());
        if !fits || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why = format!(
                "a key has {LEAST_BYTES} to {MOST_BYTES} characters, ASCII and without blanks"
            );
            return Err((Some(place), why));
        }
        count += 1;
    }
    match count {
        0 => Err((None, "there is no key, so that nobody would be let in".to_owned())),
        1..=MOST_KEYS => Ok(()),
        _ => Err((None, format!("more than {MOST_KEYS} keys"))),
    }
}
