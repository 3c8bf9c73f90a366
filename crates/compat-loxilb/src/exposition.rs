//! The page of metrics: what was counted, and what the fleets of the rules are now.

use std::net::SocketAddr;
use std::sync::Arc;

use kvasir_fleet::{Endpoint, EndpointView, Fleet};
use kvasir_inventory::Trust;
use kvasir_metrics::{describe, sample};

use crate::gateway::Gateway;
use crate::table::{Placed, Table};
use crate::tally::{BUCKETS, Histogram, REASONS, Tally};
use crate::translate::is_followed;

/// Finds an engine in the fleet of a rule.
pub(crate) fn find(fleet: &Fleet, engine: SocketAddr) -> Option<Arc<Endpoint>> {
    let is = |one: &Arc<Endpoint>| one.authority().as_str().parse() == Ok(engine);
    fleet.endpoints().into_iter().find(is)
}

fn seen(gateway: &dyn Gateway, placed: &Placed) -> Vec<(u32, String, bool, Option<EndpointView>)> {
    let fleet = gateway.fleet(placed.at());
    let one = |(index, endpoint): (u32, &crate::rule::Endpoint)| {
        let at = SocketAddr::new(endpoint.ip, endpoint.target_port);
        let found = fleet.as_ref().and_then(|fleet| find(fleet, at));
        let seen = found.map(|endpoint| endpoint.view());
        (index, at.to_string(), is_followed(&placed.rule, endpoint), seen)
    };
    placed.endpoints().map(one).collect()
}

/// The whole page.
pub(crate) fn page(table: &Table, tally: &Tally, gateway: &dyn Gateway) -> String {
    let mut page = String::new();
    tier15(&mut page, table, tally);
    requests(&mut page, tally);
    fleets(&mut page, table, gateway);
    page
}

fn tier15(page: &mut String, table: &Table, tally: &Tally) {
    let indices: std::collections::BTreeSet<u32> =
        table.rules().iter().flat_map(|placed| placed.indices.iter().copied()).collect();
    for (name, help, counts) in [
        (
            "loxilb_pd_kv_tier15_hits_total",
            "Requests whose endpoint the caches chose.",
            &tally.hits,
        ),
        (
            "loxilb_pd_kv_tier15_spills_total",
            "Of these, those for which load outweighed the cache.",
            &tally.spills,
        ),
        (
            "loxilb_pd_kv_tier15_cold_seeds_total",
            "Of these, those sent to an endpoint to fill it.",
            &tally.cold_seeds,
        ),
    ] {
        describe(page, name, "counter", help);
        let all = indices.iter().chain(counts.keys());
        for index in all.collect::<std::collections::BTreeSet<_>>() {
            let count = counts.get(index).copied().unwrap_or(0);
            sample(page, name, &[("ep_idx", &index.to_string())], count);
        }
    }
    let name = "loxilb_pd_kv_tier15_miss_reason_total";
    describe(page, name, "counter", "Requests in which the engines' caches had no say, by reason.");
    for reason in REASONS {
        sample(page, name, &[("reason", reason)], tally.misses.get(reason).copied().unwrap_or(0));
    }
    let name = "loxilb_pd_kv_tier15_fallthrough_total";
    describe(page, name, "counter", "The same, of rules of mode 1, together.");
    sample(page, name, &[], tally.fallthrough);
    let name = "loxilb_pd_kv_zero_hit_watchdog_total";
    describe(page, name, "counter", "Times that many requests in a row met no holder.");
    for placed in table.rules() {
        let count = tally.watchdog.get(&placed.service).copied().unwrap_or(0);
        sample(page, name, &[("service_id", &placed.service.to_string())], count);
    }
}

fn requests(page: &mut String, tally: &Tally) {
    let name = "loxilb_ai_requests_total";
    describe(page, name, "counter", "Requests that ended.");
    for ((model, status), count) in &tally.requests {
        let labels = [("model", model.as_str()), ("tenant", ""), ("status", &status.to_string())];
        sample(page, name, &labels, *count);
    }
    let name = "loxilb_ai_request_duration_seconds";
    describe(page, name, "histogram", "How long they took.");
    for (model, histogram) in &tally.durations {
        histogram.write(page, name, model);
    }
    let name = "loxilb_ai_pd_requests_total";
    describe(page, name, "counter", "Requests of rules that split, as they ended.");
    for ((model, status), count) in &tally.split {
        let labels = [("model", model.as_str()), ("phase", "complete"), ("status", status)];
        sample(page, name, &labels, *count);
    }
}

impl Histogram {
    fn write(&self, page: &mut String, name: &str, model: &str) {
        let mut so_far = 0;
        let bounds = BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(self.buckets) {
            so_far += count;
            let labels = [("model", model), ("tenant", ""), ("le", bound.as_str())];
            sample(page, &format!("{name}_bucket"), &labels, so_far);
        }
        let labels = [("model", model), ("tenant", "")];
        sample(page, &format!("{name}_sum"), &labels, self.sum);
        sample(page, &format!("{name}_count"), &labels, so_far);
    }
}

/// What a family of the rules' endpoints says of one; `None` for no line.
type Value = fn(&EndpointView) -> u64;

fn fleets(page: &mut String, table: &Table, gateway: &dyn Gateway) {
    let rules: Vec<(&Placed, Vec<_>)> =
        table.rules().iter().map(|placed| (placed, seen(gateway, placed))).collect();
    let name = "loxilb_pd_ep_info";
    describe(page, name, "gauge", "1: which address an index stands for.");
    for (placed, endpoints) in &rules {
        for (index, at, _, _) in endpoints {
            let service = placed.service.to_string();
            sample(
                page,
                name,
                &[("service", &service), ("ep_idx", &index.to_string()), ("ep", at)],
                1,
            );
        }
    }
    let blocks: Value = |seen| seen.all_blocks();
    let name = "loxilb_pd_kv_blocks";
    describe(page, name, "gauge", "Blocks that an endpoint is known to hold.");
    for (placed, endpoints) in &rules {
        for (index, _, _, seen) in endpoints.iter().filter(|(_, _, followed, _)| *followed) {
            let service = placed.service.to_string();
            let labels = [("service", service.as_str()), ("ep_idx", &index.to_string())];
            sample(page, name, &labels, seen.as_ref().map_or(0, blocks));
        }
    }
    let streams: [(&str, &str, &str, Value); 4] = [
        ("loxilb_kv_subscriber_connected", "gauge", "1 while the event stream is up.", |seen| {
            u64::from(!matches!(seen.trust, Trust::Absent(_)))
        }),
        ("loxilb_kv_subscriber_reconnect_total", "counter", "Event streams lost.", |seen| {
            seen.streams.iter().map(|stream| stream.disconnects).sum()
        }),
        (
            "loxilb_kv_subscriber_recv_error_total",
            "counter",
            "Batches that could not be read.",
            |seen| seen.streams.iter().map(|stream| stream.schema_errors).sum(),
        ),
        ("loxilb_kv_inv_cap_evictions_total", "counter", "Blocks given up for room.", |seen| {
            seen.streams.iter().map(|stream| stream.given_up).sum()
        }),
    ];
    for (name, kind, help, value) in streams {
        describe(page, name, kind, help);
        for (placed, endpoints) in &rules {
            for (_, at, _, seen) in endpoints.iter().filter(|(_, _, followed, _)| *followed) {
                let labels = [("service", placed.label()), ("ep", at.clone())];
                let labels = labels.each_ref().map(|(key, value)| (*key, value.as_str()));
                sample(page, name, &labels, seen.as_ref().map_or(0, value));
            }
        }
    }
    active(page, &rules, gateway);
}

fn active<T>(page: &mut String, rules: &[(&Placed, T)], gateway: &dyn Gateway) {
    let name = "loxilb_ai_active_streams";
    describe(page, name, "gauge", "Requests that are at engines now.");
    let mut by_model = std::collections::BTreeMap::<String, u64>::new();
    let places: std::collections::BTreeSet<SocketAddr> =
        rules.iter().map(|(placed, _)| placed.at()).collect();
    for fleet in places.iter().filter_map(|at| gateway.fleet(*at)) {
        for pool in fleet.pools() {
            let flying = pool.members().iter().map(|one| u64::from(one.in_flight())).sum::<u64>();
            *by_model.entry(pool.model().to_owned()).or_default() += flying;
        }
    }
    for (model, count) in by_model {
        sample(page, name, &[("model", &model)], count);
    }
}
