//! Version numbers of Python packages, as far as engines use them, and where a contract changed.

use std::fmt;
use std::str::FromStr;

use crate::shown::shown;

/// An engine's version, as `GET /version` and `vllm --version`, or SGLang's `GET /get_server_info`
/// print it.
///
/// Accepts a leading `v`, pre-releases (`0.19.0rc1`), development builds
/// (`0.33.1.dev5+gabcdef`), post-releases and local labels (`0.32.0+cpu`). Versions are ordered as
/// Python orders them, except that post-releases and local labels equal their release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    numbers: [u16; 4],
    // After the numbers: a pre-release sorts before its release.
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stage {
    Dev,
    Pre,
    Release,
}

/// The text is no version number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a version number (expected something like \"0.32.0\")")]
pub struct BadVersion {
    /// The text, shortened.
    pub text: String,
}

/// Where an engine's contract changed: what tells a version its generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History<G: 'static> {
    /// The generations with their first releases, oldest first.
    pub(crate) generations: &'static [(G, Version)],
    /// Releases that changed something else.
    pub(crate) other_changes: &'static [Version],
    /// The newest release whose hashes were compared with the engine's own code.
    pub(crate) newest: Version,
    /// What to say of versions after the newest one.
    pub(crate) too_new: &'static str,
    /// What to say of versions before the first generation.
    pub(crate) too_old: &'static str,
}

impl<G: Copy> History<G> {
    /// The generation of a version, or why there is none.
    pub(crate) fn place(&self, version: Version) -> Result<G, &'static str> {
        match version.stage {
            Stage::Dev => return Err("a development build may hold any later change"),
            Stage::Pre => {
                let release = Version { stage: Stage::Release, ..version };
                let mut firsts = self.generations.iter().map(|(_, first)| first);
                if firsts.any(|first| *first == release) || self.other_changes.contains(&release) {
                    return Err("a pre-release of a release that changed the contract");
                }
            }
            Stage::Release => {}
        }
        if version > self.newest {
            return Err(self.too_new);
        }
        let found = self.generations.iter().rev().find(|(_, first)| version >= *first);
        found.map(|(generation, _)| *generation).ok_or(self.too_old)
    }
}

impl Version {
    /// The release `major.minor.patch`.
    #[must_use]
    pub const fn release(major: u16, minor: u16, patch: u16) -> Self {
        Self { numbers: [major, minor, patch, 0], stage: Stage::Release }
    }

    /// Reads two to four numbers below 65,536 and what may surround them: a leading `v`, a
    /// pre-release, development or post-release suffix, a local label.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let (public, local) = text.split_once('+').map_or((text, None), |(p, l)| (p, Some(l)));
        if local.is_some_and(|l| l.is_empty() || !l.bytes().all(is_local)) {
            return None;
        }
        let mut numbers = [0u16; 4];
        let mut stage = Stage::Release;
        let mut count = 0;
        for part in public.split('.') {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, suffix) = part.split_at(digits);
            if !number.is_empty() {
                // Once a suffix has been read, no further release number may follow.
                if stage != Stage::Release {
                    return None;
                }
                *numbers.get_mut(count)? = number.parse().ok()?;
                count += 1;
            } else if count < 2 {
                return None;
            }
            if !suffix.is_empty() {
                stage = stage.min(stage_of(suffix)?);
            } else if number.is_empty() {
                return None;
            }
        }
        (count >= 2).then_some(Self { numbers, stage })
    }
}

impl FromStr for Version {
    type Err = BadVersion;

    /// # Errors
    /// [`BadVersion`] unless the text has two to four numbers below 65,536, followed by nothing
    /// but what the type's documentation names.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or_else(|| BadVersion { text: shown(text) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch, fourth] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if fourth > 0 {
            write!(f, ".{fourth}")?;
        }
        f.write_str(match self.stage {
            Stage::Dev => ".dev",
            Stage::Pre => "rc",
            Stage::Release => "",
        })
    }
}

fn is_local(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

/// The stage that a suffix such as `rc1`, `dev12` or `post1` names.
fn stage_of(suffix: &str) -> Option<Stage> {
    let letters = suffix.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (name, number) = suffix.split_at(letters);
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match name {
        "dev" => Some(Stage::Dev),
        "a" | "b" | "rc" => Some(Stage::Pre),
        "post" => Some(Stage::Release),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
