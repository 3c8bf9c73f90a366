//! What a reload did to a fleet.

use std::fmt;

/// What is another than before, by the names of pools' models and engines' URLs. All empty where
/// nothing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Pools that are new.
    pub pools_added: Vec<String>,
    /// Pools that are gone.
    pub pools_removed: Vec<String>,
    /// Pools that go on with other settings or other engines.
    pub pools_changed: Vec<String>,
    /// Those of them whose selection is another: what its policy remembered is gone.
    pub selections_begun_anew: Vec<String>,
    /// Engines that are new.
    pub engines_added: Vec<String>,
    /// Engines that are in no pool any more: their requests finish.
    pub engines_left: Vec<String>,
    /// Engines that had left, and came back before their last request ended.
    pub engines_returned: Vec<String>,
    /// Engines that go on with other settings of their own: how they are connected to, weighed,
    /// followed, in service.
    pub engines_changed: Vec<String>,
    /// Engines with another part in pools that split requests.
    pub roles_changed: Vec<String>,
    /// Engines whose blocks or ranks are known in another way, or whose scheme is another: of what
    /// was known only their health and requests in flight are, by the URL.
    pub engines_begun_anew: Vec<String>,
    /// Settings besides pools and engines that are others, by their keys: whoever read the configuration
    /// fills them in, a fleet knows none of them by name.
    pub settings: Vec<String>,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pools_added,
            pools_removed,
            pools_changed,
            selections_begun_anew,
            engines_added,
            engines_left,
            engines_returned,
            engines_changed,
            roles_changed,
            engines_begun_anew,
            settings,
        } = self;
        let parts = [
            ("pools added", pools_added),
            ("pools removed", pools_removed),
            ("pools changed", pools_changed),
            ("selections begun anew", selections_begun_anew),
            ("engines added", engines_added),
            ("engines left", engines_left),
            ("engines returned", engines_returned),
            ("engines changed", engines_changed),
            ("roles changed", roles_changed),
            ("engines begun anew", engines_begun_anew),
            ("settings changed", settings),
        ];
        let mut first = true;
        for (what, names) in parts.into_iter().filter(|(_, names)| !names.is_empty()) {
            let comma = if std::mem::take(&mut first) { "" } else { "; " };
            write!(f, "{comma}{what}: {}", names.join(", "))?;
        }
        if first { f.write_str("nothing") } else { Ok(()) }
    }
}
