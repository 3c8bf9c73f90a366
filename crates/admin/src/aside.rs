//! Changes that were made once and are in effect no more, since a configuration left no place for them.
//!
//! They do not come back by themselves, not even where the configuration would let them again: nobody who
//! mends a file expects that. They are shown, with all that is needed to make them again.

use kvasir_config::Dropped;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Of more the oldest are forgotten.
const KEPT: usize = 100;

/// One change that is in effect no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// When it was dropped: RFC 3339, UTC.
    pub time: String,
    /// What it changed, and why it does not fit.
    pub change: String,
    /// What it said; `null` where it deleted something.
    pub value: Value,
}

/// The last of them, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Aside(Vec<LeftOut>);

impl LeftOut {
    /// A change that is dropped now, and what it said.
    #[must_use]
    pub fn now(dropped: &Dropped, value: Value) -> Self {
        Self { time: crate::audit::now(), change: dropped.to_string(), value }
    }
}

impl Aside {
    /// The same with further ones.
    #[must_use]
    pub fn with(&self, further: &[LeftOut]) -> Self {
        let all = self.0.len() + further.len();
        let both = self.0.iter().chain(further).skip(all.saturating_sub(KEPT));
        Self(both.cloned().collect())
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &LeftOut> {
        self.0.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let one =
            |n: usize| LeftOut { time: String::new(), change: n.to_string(), value: Value::Null };
        let all: Vec<LeftOut> = (0..KEPT + 5).map(one).collect();
        let aside = Aside::default().with(&all[..3]).with(&all[3..]);
        assert_eq!(aside.0.len(), KEPT);
        assert_eq!(aside.newest().next().unwrap().change, (KEPT + 4).to_string());
        assert_eq!(aside.0[0].change, "5");
    }
}
