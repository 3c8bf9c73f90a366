//! Whether a snapshot is one that can be followed: all of it, or nothing of it.

use std::collections::{BTreeMap, HashSet};

use kvasir_fleet::{Advice, AdvisedState};

use crate::wire::APPLIER_VERSION;
use crate::wire::aictrl::{EpEntry, EpState, Role, ServiceSnapshot, Snapshot};

/// Bytes of the controller's words that are kept or repeated.
const MOST_WORD: usize = 256;

/// An engine that advice may be about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port`.
    pub address: String,
    /// Its part.
    pub role: kvasir_fleet::Role,
}

/// The engines of every service, by its key; in the order of `ep_idx`.
pub type Services = BTreeMap<String, Vec<Target>>;

/// Why a snapshot is not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {detail}")]
pub struct Refusal {
    /// The word in metrics.
    pub reason: &'static str,
    /// What about it.
    pub detail: String,
}

impl Refusal {
    /// The reasons there are.
    pub const REASONS: [&'static str; 10] = [
        "applier_version",
        "boot_id",
        "old_epoch",
        "expired",
        "far_deadline",
        "unknown_service",
        "unknown_endpoint",
        "duplicate",
        "role",
        "range",
    ];
}

pub(super) fn refuse<T>(reason: &'static str, detail: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { reason, detail: detail.into() })
}

/// The controller's word, as far as it is repeated.
pub(super) fn short(word: &str) -> String {
    word.chars().take(MOST_WORD).collect()
}

/// What a snapshot advises, by address. Epoch and deadline are the follower's matter.
pub(super) fn advised(
    snapshot: &Snapshot,
    services: &Services,
) -> Result<BTreeMap<String, Advice>, Refusal> {
    if snapshot.min_applier_version > APPLIER_VERSION {
        let wanted = snapshot.min_applier_version;
        return refuse("applier_version", format!("{wanted} is needed, this is {APPLIER_VERSION}"));
    }
    if snapshot.boot_id.is_empty() || snapshot.boot_id.len() > MOST_WORD {
        return refuse("boot_id", format!("must have 1 to {MOST_WORD} bytes"));
    }
    let mut advised = BTreeMap::new();
    let mut keys = HashSet::new();
    for service in &snapshot.services {
        let key = short(&service.service_key);
        if !keys.insert(&service.service_key) {
            return refuse("duplicate", format!("service `{key}` is there twice"));
        }
        let Some(targets) = services.get(&service.service_key) else {
            return refuse("unknown_service", format!("`{key}`"));
        };
        of_service(service, targets, &mut advised)?;
    }
    Ok(advised)
}

fn of_service(
    service: &ServiceSnapshot,
    targets: &[Target],
    advised: &mut BTreeMap<String, Advice>,
) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    for entry in &service.eps {
        let target = target(entry, targets)?;
        let advice = advice(entry, target)?;
        let address = &target.address;
        if !seen.insert(address) {
            return refuse("duplicate", format!("endpoint {address} is there twice"));
        }
        // Pools may share an engine, which has one weight in all of them.
        if advised.insert(address.clone(), advice).is_some_and(|other| other != advice) {
            return refuse("duplicate", format!("endpoint {address} is advised in two ways"));
        }
    }
    Ok(())
}

/// By address where there is one, else by index.
fn target<'a>(entry: &EpEntry, targets: &'a [Target]) -> Result<&'a Target, Refusal> {
    let found = if entry.ep_addr.is_empty() {
        usize::try_from(entry.ep_idx).ok().and_then(|place| targets.get(place))
    } else {
        targets.iter().find(|target| target.address.eq_ignore_ascii_case(&entry.ep_addr))
    };
    let EpEntry { ep_idx, ep_addr, .. } = entry;
    let unknown = || Refusal {
        reason: "unknown_endpoint",
        detail: format!("index {ep_idx}, address `{}`", short(ep_addr)),
    };
    found.ok_or_else(unknown)
}

fn advice(entry: &EpEntry, target: &Target) -> Result<Advice, Refusal> {
    use kvasir_fleet::Role as Own;
    let address = &target.address;
    match (Role::try_from(entry.role), target.role) {
        (Err(_), _) => return refuse("range", format!("{address}: role {}", entry.role)),
        (Ok(Role::Prefill), Own::Decode) | (Ok(Role::Decode), Own::Prefill) => {
            return refuse("role", format!("{address} has the other one here"));
        }
        _ => {}
    }
    let state = match EpState::try_from(entry.state) {
        Ok(EpState::Active) => AdvisedState::Active,
        Ok(EpState::Draining) => AdvisedState::Draining,
        Ok(EpState::Disabled) => AdvisedState::Disabled,
        Ok(EpState::Unspecified) | Err(_) => {
            return refuse("range", format!("{address}: state {}", entry.state));
        }
    };
    match u8::try_from(entry.weight) {
        // To take an endpoint out is a state, not a weight.
        Ok(percent @ 0..=100) => Ok(Advice { percent: percent.max(1), state }),
        _ => refuse("range", format!("{address}: weight {}", entry.weight)),
    }
}
