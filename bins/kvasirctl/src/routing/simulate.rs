//! `kvasirctl routing simulate`: E4's own measure, with E4's own library calls. It knows one key, no
//! capacity and no load; `kvasirctl simulate` knows all of them.

use anyhow::Result;
use kvasir_balance::e4::{Gateway, Mode, NoReplicas, Replica, measure_hit_rate, prefix_key};
use serde_json::json;

use crate::args::SimulateRoutingArgs;
use crate::output::print;
use crate::table::plain;

/// Simulates both modes and prints their hit rates.
pub(super) fn run(args: &SimulateRoutingArgs) -> Result<()> {
    let rate = |mode| rate(mode, args.replicas, args.shared_prefix_requests);
    let (aware, robin) = (rate(Mode::CacheAware)?, rate(Mode::RoundRobin)?);
    let document = json!({
        "cache_aware_hit_rate": aware,
        "round_robin_hit_rate": robin,
        "mode": args.mode.as_str(),
    });
    print(args.print.output, &document, || {
        format!(
            "Simulating {}: {} requests with one shared prefix, {} replicas\n\
             cache-aware hit rate: {:.1}%\n\
             round-robin hit rate: {:.1}%\n",
            plain(&args.model),
            args.shared_prefix_requests,
            args.replicas,
            aware * 100.0,
            robin * 100.0,
        )
    })
}

fn rate(mode: Mode, replicas: u32, requests: u32) -> Result<f64, NoReplicas> {
    let replicas = (0..replicas).map(|n| Replica::new(format!("replica-{n}"))).collect();
    let mut gateway = Gateway::new(replicas, mode, None);
    let key = prefix_key("shared system prompt", "", "");
    measure_hit_rate(&mut gateway, std::iter::repeat_n(&*key, requests as usize))
}
