//! How it stands with the controller, for people and metrics.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Whether the controller is watched now.
    pub connected: bool,
    /// Why it is not.
    pub last_error: Option<String>,
    /// The snapshot in effect, or the last that was.
    pub epoch: u64,
    /// Whose it is.
    pub boot_id: String,
    /// How far it counts, 0 to 1.
    pub alpha: f64,
    /// Engines it is about.
    pub advised: usize,
    /// Snapshots taken up.
    pub accepted: u64,
    /// Those that came into effect.
    pub applied: u64,
    /// Those refused, by the reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// The last of these, in words.
    pub last_rejection: Option<String>,
    /// Times an engine's own trouble came before its advice.
    pub overrides: u64,
    /// Acknowledgements that did not get through.
    pub acks_failed: u64,
}

impl Status {
    /// One word: `off_line` without a controller and advice, `following`, `fading`, or `neutral` where the
    /// controller is there and gave none.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.alpha, self.connected) {
            (alpha, _) if alpha >= 1.0 => "following",
            (alpha, _) if alpha > 0.0 => "fading",
            (_, true) => "neutral",
            (_, false) => "off_line",
        }
    }

    /// As JSON.
    #[must_use]
    pub fn shown(&self) -> Value {
        self.shown_as(self.state())
    }

    /// The same of a gateway that follows no controller.
    #[must_use]
    pub fn off() -> Value {
        Self::default().shown_as("off")
    }

    fn shown_as(&self, state: &str) -> Value {
        json!({
            "state": state,
            "connected": self.connected,
            "last_error": self.last_error,
            "epoch": self.epoch,
            "boot_id": self.boot_id,
            "alpha": self.alpha,
            "advised_endpoints": self.advised,
            "accepted": self.accepted,
            "applied": self.applied,
            "rejected": self.rejected,
            "last_rejection": self.last_rejection,
            "overrides": self.overrides,
            "acks_failed": self.acks_failed,
        })
    }
}
