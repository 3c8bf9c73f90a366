//! The API keys that clients must show.

use crate::bounds::Wrong;
use crate::model::Config;
use crate::secret::{Secret, SecretSource, Sources, check_keys};

/// The key of the first of their sources.
const KEY: &str = "api_keys";

/// Where the keys of clients are: in a variable with commas or white space between, in a file one a
/// line.
pub type ClientKeySource<'a> = SecretSource<'a, [Secret]>;

impl Config {
    /// Where the keys of clients are; `None` lets everybody in.
    #[must_use]
    pub fn client_keys(&self) -> Option<ClientKeySource<'_>> {
        self.client_key_sources().source()
    }

    fn client_key_sources(&self) -> Sources<'_, [Secret]> {
        Sources {
            key: KEY,
            given: self.api_keys.as_deref(),
            env: self.api_keys_env.as_deref(),
            file: self.api_keys_file.as_deref(),
        }
    }

    /// What can be checked of them without reading anything; if not, the key and what is wrong.
    pub(crate) fn check_client_keys(&self) -> Result<(), Wrong> {
        self.client_key_sources().check()?;
        let Some(listed) = &self.api_keys else { return Ok(()) };
        check_keys(listed.iter().map(Secret::expose)).map_err(|(place, why)| match place {
            Some(place) => (format!("{KEY}[{place}]"), why),
            None => (KEY.to_owned(), why),
        })
    }
}

impl ClientKeySource<'_> {
    /// The keys, from where they are.
    ///
    /// # Errors
    /// When the variable is not set, the file cannot be read, there is no key, or one is none: the key
    /// of the configuration, and what is wrong with it. The message shows no key.
    pub fn read_all(&self) -> Result<Vec<Secret>, (String, String)> {
        if let Self::Given(keys) = self {
            return Ok(keys.to_vec());
        }
        let text = self.read_text(KEY)?;
        let found = match self {
            Self::File(_) => of_lines(&text),
            Self::Given(_) | Self::Env(_) => of_words(&text),
        };
        check_keys(found.iter().map(|(_, key)| *key)).map_err(|(bad, why)| {
            match (self, bad.and_then(|bad| found.get(bad))) {
                (Self::File(path), Some((line, _))) => {
                    (format!("{KEY}_file"), format!("{}:{line}: {why}", path.display()))
                }
                (_, Some((number, _))) => self.wrong(KEY, &format!("key {number}: {why}")),
                (_, None) => self.wrong(KEY, &why),
            }
        })?;
        Ok(found.into_iter().map(|(_, key)| Secret::new(key.to_owned())).collect())
    }
}

/// One a line, with the line's number; `#` begins a comment line.
fn of_lines(text: &str) -> Vec<(usize, &str)> {
    let lines = text.lines().map(str::trim).enumerate();
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    keys.map(|(place, line)| (place + 1, line)).collect()
}

/// With commas or white space between, with the key's number.
fn of_words(text: &str) -> Vec<(usize, &str)> {
    let split = |c: char| c == ',' || c.is_whitespace();
    let keys = text.split(split).filter(|key| !key.is_empty()).enumerate();
    keys.map(|(place, key)| (place + 1, key)).collect()
}
