//! Version numbers of Python packages, as far as engines use them.

use std::fmt;

/// A release, or a build before one: numbers and a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Release {
    pub(crate) numbers: [u16; 4],
    // After the numbers: a pre-release sorts before its release.
    pub(crate) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Stage {
    Dev,
    Pre,
    Release,
}

impl Release {
    pub(crate) const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { numbers: [major, minor, patch, 0], stage: Stage::Release }
    }

    /// Reads two to four numbers below 65,536 and what may surround them: a leading `v`, a
    /// pre-release, development or post-release suffix, a local label.
    pub(crate) fn parse(text: &str) -> Option<Self> {
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

impl fmt::Display for Release {
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
