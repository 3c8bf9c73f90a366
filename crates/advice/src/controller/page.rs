//! The controller's metrics page, in Prometheus' text form.

use std::time::Duration;

use kvasir_metrics::{describe, sample};

use super::advisor::Advisor;
use super::weights::Freshness;

impl Advisor {
    /// All families, `now` after the start.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn page(&self, now: Duration) -> String {
        let mut page = Page::default();
        let epoch = self.emission.epoch() as f64;
        page.one("snapshots_emitted_total", "counter", "Snapshots given.", epoch);
        page.one("current_epoch", "gauge", "Number of the last snapshot.", epoch);
        self.sources(&mut page, now);
        let flag = |flag: bool| f64::from(u8::from(flag));
        let stale = flag(self.is_fleet_stale(now));
        page.one(
            "fleet_stale",
            "gauge",
            "1 while no engine was heard of: no snapshots are given.",
            stale,
        );
        page.family("ep_weight", "gauge", "Weight last advised, 1 to 100.");
        for host in &self.registry.hosts {
            if let Some(weight) = self.given.get(&host.name) {
                let idx = host.ep_idx.to_string();
                let labels = [("service", &*self.registry.service_key), ("ep_idx", &*idx)];
                page.sample("ep_weight", &labels, f64::from(*weight));
            }
        }
        page.one("watchers_connected", "gauge", "Gateways that watch.", self.watchers as f64);
        page.family("acks_applied_total", "counter", "Snapshots a gateway applied.");
        for (gateway, acks) in &self.acks {
            page.sample("acks_applied_total", &[("gateway", gateway)], acks.applied as f64);
        }
        page.family("acks_rejected_total", "counter", "Snapshots a gateway rejected.");
        for (gateway, acks) in &self.acks {
            page.sample("acks_rejected_total", &[("gateway", gateway)], acks.rejected as f64);
        }
        let help = "Snapshots a slow gateway did not get, as newer ones were there.";
        page.one("watcher_dropped_snapshots_total", "counter", help, self.dropped as f64);
        let help = "New registries that could not be used.";
        page.one("registry_reload_failures_total", "counter", help, self.reload_failures as f64);
        page.0
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn sources(&self, page: &mut Page, now: Duration) {
        type Value<'a> = &'a dyn Fn(&crate::registry::Host) -> Option<f64>;
        let source = |host: &crate::registry::Host| self.sources.get(&host.name);
        let age = |host: &crate::registry::Host| {
            let last = source(host)?.last_page?;
            Some(now.saturating_sub(last).as_secs_f64())
        };
        let stale = |host: &crate::registry::Host| {
            Some(f64::from(u8::from(self.freshness(host, now) != Freshness::Fresh)))
        };
        let unresolved =
            |host: &crate::registry::Host| Some(f64::from(u8::from(self.address(host).is_none())));
        let registry =
            |host: &crate::registry::Host| Some(source(host)?.registry_mismatches as f64);
        let prints =
            |host: &crate::registry::Host| Some(source(host)?.fingerprint_mismatches as f64);
        let waiting = |host: &crate::registry::Host| source(host)?.reading.waiting;
        let usage = |host: &crate::registry::Host| source(host)?.reading.kv_usage;
        let families: [(&str, &str, &str, Value<'_>); 7] = [
            ("source_staleness_seconds", "gauge", "Age of an engine's last page.", &age),
            ("source_stale", "gauge", "1 while an engine was not heard of lately.", &stale),
            (
                "source_unresolved",
                "gauge",
                "1 while an engine's address is not known.",
                &unresolved,
            ),
            (
                "registry_mismatch_total",
                "counter",
                "Times an engine's cache was found to have another size than the registry says.",
                &registry,
            ),
            (
                "fingerprint_mismatch_total",
                "counter",
                "Times an engine was found not to be what was calibrated.",
                &prints,
            ),
            ("source_waiting", "gauge", "Requests that wait in an engine.", &waiting),
            ("source_kv_usage", "gauge", "Used share of an engine's KV cache, 0 to 1.", &usage),
        ];
        for (name, kind, help, value) in families {
            page.family(name, kind, help);
            for host in &self.registry.hosts {
                if let Some(value) = value(host) {
                    page.sample(name, &[("source", &host.name)], value);
                }
            }
        }
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        describe(&mut self.0, &named(name), kind, help);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        sample(&mut self.0, &named(name), labels, value);
    }
}

/// All families of the controller begin alike.
fn named(name: &str) -> String {
    format!("aictrl_{name}")
}
