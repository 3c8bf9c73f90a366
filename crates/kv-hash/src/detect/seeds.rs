//! The seeds to try.

use std::fmt;
use std::str::FromStr;

use crate::shown::shown;

/// One value of `PYTHONHASHSEED`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Seed {
    /// The variable is not set.
    Unset,
    /// The variable's text.
    Text(String),
}

impl Seed {
    /// As [`Contract::new`](crate::vllm::Contract::new) takes it.
    #[must_use]
    pub fn as_option(&self) -> Option<&str> {
        match self {
            Self::Unset => None,
            Self::Text(text) => Some(text),
        }
    }
}

impl From<Option<&str>> for Seed {
    fn from(seed: Option<&str>) -> Self {
        seed.map_or(Self::Unset, |text| Self::Text(text.to_owned()))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("unset"),
            Self::Text(text) => write!(f, "{:?}", shown(text)),
        }
    }
}

/// A list of seeds to try, in order and without repetitions.
///
/// Parses from a list such as `unset,0..1024,random`: parts are separated by commas, `unset` is no
/// seed, `a..b` is a range of integers with both ends, and anything else is a seed's text.
/// The default is `unset,0..1024,random` and the empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(Vec<Seed>);

impl Seeds {
    /// The most seeds a list holds.
    pub const MAX: usize = 65_536;

    /// An empty list.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    /// Puts a seed first, as the one to be expected most. A full list loses its last.
    pub fn put_first(&mut self, seed: Seed) {
        self.0.retain(|known| *known != seed);
        self.0.truncate(Self::MAX - 1);
        self.0.insert(0, seed);
    }

    /// The seeds, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Seed> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Seeds {
    fn default() -> Self {
        let numbers = (0..=1024).map(|n| Seed::Text(n.to_string()));
        let texts = ["random", ""].map(|text| Seed::Text(text.to_owned()));
        Self([Seed::Unset].into_iter().chain(numbers).chain(texts).collect())
    }
}

/// The text is no list of seeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a list of seeds to try: {why} (expected something like \
     \"unset,0..1024,random\", at most 65536 seeds)"
)]
pub struct BadSeeds {
    /// The part of the text that is wrong, shortened.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl FromStr for Seeds {
    type Err = BadSeeds;

    /// # Errors
    /// [`BadSeeds`] for ranges that are empty or not of integers, and for more than
    /// [`MAX`](Seeds::MAX) seeds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut seen = std::collections::HashSet::new();
        let mut list = Vec::new();
        for part in text.split(',') {
            let bad = |why| BadSeeds { text: shown(part), why };
            let mut add = |seed: Seed| {
                if list.len() < Self::MAX && seen.insert(seed.clone()) {
                    list.push(seed);
                }
            };
            match part.split_once("..") {
                None if part == "unset" => add(Seed::Unset),
                None => add(Seed::Text(part.to_owned())),
                Some((first, last)) => {
                    let number = |text: &str| text.parse::<u32>().ok();
                    let (Some(first), Some(last)) = (number(first), number(last)) else {
                        return Err(bad("a range is between integers below 2^32"));
                    };
                    let count = last.checked_sub(first).ok_or_else(|| bad("an empty range"))?;
                    if count as usize >= Self::MAX {
                        return Err(bad("too many"));
                    }
                    (first..=last).for_each(|n| add(Seed::Text(n.to_string())));
                }
            }
            if list.len() >= Self::MAX {
                return Err(bad("too many"));
            }
        }
        Ok(Self(list))
    }
}
