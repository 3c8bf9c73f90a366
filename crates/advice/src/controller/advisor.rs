//! What is known of every engine, and the snapshot that follows from it. It has no clock and asks nobody:
//! times are handed in, as what has passed since the start.

use std::collections::BTreeMap;
use std::time::Duration;

use super::emission::Emission;
use super::telemetry::Reading;
use super::weights::{Freshness, Speed, WeightSettings, Weights};
use crate::fingerprint;
use crate::registry::{Calibration, Host, HostRole, HostState, Registry};
use crate::wire::aictrl::{Ack, AckStatus, EpEntry, EpState, Role, ServiceSnapshot, Snapshot};

/// Gateways whose acknowledgements are counted each by itself.
const MOST_GATEWAYS: usize = 256;

/// How an advisor judges.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdvisorSettings {
    /// How weights follow speeds.
    pub weights: WeightSettings,
}

/// Whether an engine is what was calibrated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did not say.
    Unknown,
    /// It is.
    Verified,
    /// Its cache has another size.
    BlocksDiffer {
        /// Blocks by the registry.
        expected: u64,
        /// Blocks by the engine.
        live: u64,
    },
    /// Its fingerprint is another.
    FingerprintDiffers {
        /// By the registry.
        expected: String,
        /// Of what the engine says.
        live: String,
    },
}

/// What is known of one engine.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    pub(super) last_page: Option<Duration>,
    pub(super) reading: Reading,
    /// Why the last page did not come.
    pub(super) error: Option<String>,
    pub(super) registry_mismatches: u64,
    pub(super) fingerprint_mismatches: u64,
    /// The verdict before, so that a change is told once.
    told: Option<Verdict>,
    missing_told: bool,
}

/// Acknowledgements of one gateway.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acks {
    pub(super) applied: u64,
    pub(super) rejected: u64,
}

/// All of it.
#[derive(Debug)]
pub struct Advisor {
    pub(super) registry: Registry,
    settings: AdvisorSettings,
    pub(super) sources: BTreeMap<String, Source>,
    /// Addresses that the gateway told, by `ep_idx`.
    resolved: BTreeMap<u32, String>,
    weights: Weights,
    pub(super) given: BTreeMap<String, u32>,
    pub(super) emission: Emission,
    pub(super) acks: BTreeMap<String, Acks>,
    pub(super) watchers: u64,
    pub(super) dropped: u64,
    pub(super) reload_failures: u64,
    fleet_was_stale: bool,
}

impl Advisor {
    /// Of a registry; `boot_id` is an id no other process has had.
    #[must_use]
    pub fn new(registry: Registry, settings: AdvisorSettings, boot_id: String) -> Self {
        let mut advisor = Self {
            registry,
            settings,
            sources: BTreeMap::new(),
            resolved: BTreeMap::new(),
            weights: Weights::default(),
            given: BTreeMap::new(),
            emission: Emission::new(boot_id),
            acks: BTreeMap::new(),
            watchers: 0,
            dropped: 0,
            reload_failures: 0,
            fleet_was_stale: false,
        };
        advisor.keep_sources();
        advisor
    }

    /// The registry it goes by.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Goes by another registry from now on; what is known of engines that are in both stays.
    pub fn take_registry(&mut self, registry: Registry) {
        if self.registry.service_key != registry.service_key {
            self.resolved.clear();
        }
        for host in &registry.hosts {
            let before = self.registry.hosts.iter().find(|known| known.name == host.name);
            if before.is_some_and(|before| before.address != host.address) {
                self.sources.remove(&host.name);
            }
        }
        self.registry = registry;
        self.keep_sources();
    }

    fn keep_sources(&mut self) {
        let hosts = &self.registry.hosts;
        self.sources.retain(|name, _| hosts.iter().any(|host| host.name == *name));
        for host in hosts {
            self.sources.entry(host.name.clone()).or_default();
        }
        self.tell_unresolved();
    }

    fn tell_unresolved(&self) {
        for host in self.registry.hosts.iter().filter(|host| self.address(host).is_none()) {
            tracing::warn!(
                source = host.name,
                ep_idx = host.ep_idx,
                state = "unresolved",
                "no address: the endpoint stays on its static prior"
            );
        }
    }

    /// What the gateway says its endpoints are, in its order: for hosts without an address.
    pub fn resolve(&mut self, endpoints: &[String]) {
        let told = endpoints.iter().enumerate();
        let told =
            told.filter_map(|(place, address)| Some((u32::try_from(place).ok()?, address.clone())));
        let told: BTreeMap<u32, String> = told.collect();
        if told == self.resolved {
            return;
        }
        for host in self.registry.hosts.iter().filter(|host| host.address.is_none()) {
            if self.resolved.get(&host.ep_idx) != told.get(&host.ep_idx) {
                self.sources.insert(host.name.clone(), Source::default());
            }
        }
        self.resolved = told;
        self.tell_unresolved();
    }

    /// Whether any host has to be looked up at the gateway.
    #[must_use]
    pub fn needs_gateway(&self) -> bool {
        self.registry.hosts.iter().any(|host| host.address.is_none())
    }

    pub(super) fn address<'a>(&'a self, host: &'a Host) -> Option<&'a str> {
        let told = || self.resolved.get(&host.ep_idx).map(String::as_str);
        host.address.as_deref().or_else(told)
    }

    /// Engines to be asked: name and `host:port`.
    #[must_use]
    pub fn to_ask(&self) -> Vec<(String, String)> {
        let hosts = self.registry.hosts.iter();
        hosts.filter_map(|host| Some((host.name.clone(), self.address(host)?.to_owned()))).collect()
    }

    /// An engine's page came, or did not.
    pub fn read(&mut self, name: &str, page: Result<Reading, String>, now: Duration) {
        let Some(host) = self.registry.hosts.iter().find(|host| host.name == name) else { return };
        let Some(source) = self.sources.get_mut(name) else { return };
        match page {
            Err(why) => {
                if source.error.is_none() {
                    tracing::warn!(source = name, why, state = "unread", "no metrics of an engine");
                }
                source.error = Some(why);
            }
            Ok(reading) => {
                if source.error.take().is_some() {
                    tracing::info!(source = name, "metrics of an engine are back");
                }
                source.note_missing(name, &reading);
                source.reading = reading;
                source.last_page = Some(now);
                source.judge(host);
            }
        }
    }

    /// Whether an engine is what was calibrated.
    #[must_use]
    pub fn verdict(&self, name: &str) -> Verdict {
        let told = self.sources.get(name).and_then(|source| source.told.clone());
        told.unwrap_or(Verdict::Unknown)
    }

    pub(super) fn freshness(&self, host: &Host, now: Duration) -> Freshness {
        if self.address(host).is_none() {
            return Freshness::Fresh;
        }
        let source = self.sources.get(&host.name);
        match source.and_then(|source| source.last_page) {
            Some(last) => {
                Freshness::of(now.saturating_sub(last), self.settings.weights.stale_budget)
            }
            // Whoever was never heard of says nothing yet.
            None => Freshness::Soft,
        }
    }

    /// Whether there are engines to be asked, and none of them was heard of lately.
    #[must_use]
    pub fn is_fleet_stale(&self, now: Duration) -> bool {
        let asked: Vec<&Host> =
            self.registry.hosts.iter().filter(|host| self.address(host).is_some()).collect();
        let stale = |host: &&Host| self.freshness(host, now) != Freshness::Fresh;
        !asked.is_empty() && asked.iter().all(stale)
    }

    /// The snapshot that is due `now`, if one is.
    pub fn tick(&mut self, now: Duration, unix_ms: u64) -> Option<Snapshot> {
        let period = self.registry.epoch;
        let stale = self.is_fleet_stale(now);
        if stale && !self.fleet_was_stale {
            tracing::warn!(state = "fleet_stale", "no engine was heard of: no snapshots are given");
        }
        self.fleet_was_stale = stale;
        if stale || !self.emission.is_due(now, period) {
            return None;
        }
        let speeds = self.speeds(now);
        self.given = self.weights.next(&speeds, &self.settings.weights);
        let eps = self.registry.hosts.iter().filter_map(|host| self.entry(host)).collect();
        let service = ServiceSnapshot { service_key: self.registry.service_key.clone(), eps };
        Some(self.emission.emit((now, unix_ms), period, service))
    }

    fn entry(&self, host: &Host) -> Option<EpEntry> {
        Some(EpEntry {
            ep_idx: host.ep_idx,
            ep_addr: self.address(host).unwrap_or_default().to_owned(),
            role: match host.role {
                HostRole::Unified => Role::Unspecified,
                HostRole::Prefill => Role::Prefill,
                HostRole::Decode => Role::Decode,
            } as i32,
            // What is to be taken out is named whether its engine answers or not.
            weight: match (self.given.get(&host.name), host.state) {
                (Some(weight), _) => *weight,
                (None, HostState::Active) => return None,
                (None, HostState::Draining | HostState::Disabled) => 100,
            },
            state: match host.state {
                HostState::Active => EpState::Active,
                HostState::Draining => EpState::Draining,
                HostState::Disabled => EpState::Disabled,
            } as i32,
        })
    }

    /// What each engine's speed is taken to be. Tokens per second count in a role all of whose engines are
    /// what was calibrated; else the ratio of each that is, and the prior of each that is not.
    fn speeds(&self, now: Duration) -> BTreeMap<String, Speed> {
        let all_timed = |role: HostRole| {
            let mut of_role = self.registry.hosts.iter().filter(|host| host.role == role);
            of_role
                .all(|host| self.measured(host).is_some_and(|known| known.tokens_per_sec.is_some()))
        };
        let timed = [HostRole::Unified, HostRole::Prefill, HostRole::Decode]
            .map(|role| (role, all_timed(role)));
        let is_timed = |role| timed.iter().any(|(known, all)| *known == role && *all);
        let speed = |host: &Host| {
            let known = self.measured(host);
            let timed =
                known.and_then(|known| known.tokens_per_sec.filter(|_| is_timed(host.role)));
            timed.or_else(|| known?.ratio).unwrap_or(host.prior)
        };
        let of = |host: &Host| {
            let freshness = self.freshness(host, now);
            (host.name.clone(), Speed { role: host.role, speed: speed(host), freshness })
        };
        self.registry.hosts.iter().map(of).collect()
    }

    /// What was measured on an engine, where it still is that engine.
    fn measured<'a>(&self, host: &'a Host) -> Option<&'a Calibration> {
        let calibration = host.calibration.as_ref()?;
        (self.verdict(&host.name) == Verdict::Verified).then_some(calibration)
    }

    /// A gateway said what became of a snapshot.
    pub fn note_ack(&mut self, ack: &Ack) {
        let is_known = self.acks.contains_key(&ack.gateway_id);
        let name =
            if is_known || self.acks.len() < MOST_GATEWAYS { &*ack.gateway_id } else { "other" };
        let acks = self.acks.entry(name.to_owned()).or_default();
        if ack.status == AckStatus::Applied as i32 {
            acks.applied += 1;
        } else {
            acks.rejected += 1;
            tracing::warn!(
                gateway = name,
                epoch = ack.epoch,
                why = ack.error_detail,
                "a snapshot was rejected"
            );
        }
    }

    /// A gateway watches, or does not any more.
    pub fn note_watcher(&mut self, comes: bool) {
        self.watchers = if comes { self.watchers + 1 } else { self.watchers.saturating_sub(1) };
    }

    /// A watcher was too slow for so many snapshots.
    pub fn note_dropped(&mut self, count: u64) {
        self.dropped += count;
    }

    /// A new registry could not be used.
    pub fn note_reload_failure(&mut self) {
        self.reload_failures += 1;
    }
}

impl Source {
    fn note_missing(&mut self, name: &str, reading: &Reading) {
        if !reading.missing.is_empty() && !self.missing_told {
            self.missing_told = true;
            let families = reading.missing.join(", ");
            tracing::info!(source = name, families, "families that are not there yet");
        }
    }

    /// Compares what the engine says with what is expected of it; a difference is told when it appears.
    fn judge(&mut self, host: &Host) {
        let verdict = verdict(host, &self.reading);
        if self.told.as_ref() == Some(&verdict) {
            return;
        }
        match &verdict {
            Verdict::Unknown => {}
            Verdict::Verified => {
                tracing::info!(source = host.name, "the engine is what the registry says");
            }
            Verdict::BlocksDiffer { expected, live } => {
                self.registry_mismatches += 1;
                tracing::error!(
                    source = host.name,
                    expected,
                    live,
                    state = "registry_mismatch",
                    "the engine's cache has another size: its static prior counts"
                );
            }
            Verdict::FingerprintDiffers { expected, live } => {
                self.fingerprint_mismatches += 1;
                tracing::error!(
                    source = host.name,
                    expected,
                    live,
                    state = "fingerprint_mismatch",
                    "the engine is not what was calibrated: its static prior counts"
                );
            }
        }
        self.told = Some(verdict);
    }
}

fn verdict(host: &Host, reading: &Reading) -> Verdict {
    let Some(live) = reading.blocks else { return Verdict::Unknown };
    if live != host.expected_blocks {
        return Verdict::BlocksDiffer { expected: host.expected_blocks, live };
    }
    let calibration = host.calibration.as_ref();
    let Some((known, expected)) =
        calibration.and_then(|known| Some((known, known.fingerprint.as_ref()?)))
    else {
        return Verdict::Verified;
    };
    let mut fields = known.fields.clone();
    let role = host.role.as_str().to_owned();
    let block_size = reading.block_size.map(|size| size.to_string());
    for (key, value) in [
        ("num_gpu_blocks", Some(live.to_string())),
        ("block_size", block_size),
        ("role", Some(role)),
    ] {
        // What was not measured with is no part of what it was measured on.
        if let (Some(field), Some(value)) = (fields.get_mut(key), value) {
            *field = value;
        }
    }
    let live = fingerprint(&fields);
    if live == *expected {
        Verdict::Verified
    } else {
        Verdict::FingerprintDiffers { expected: expected.clone(), live }
    }
}
