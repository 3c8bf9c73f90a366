//! Which stage of a request a function's instructions belong to.
//!
//! Some functions are of a stage by their name. All others (collections, hashing, copying of
//! memory) count for whoever called them, in the proportion of what was executed in those calls.

use super::profile::Profile;

/// How the name of a function begins, and the stage it is of; the first that fits.
const RULES: [(&str, Stage); 57] = {
    use Stage::*;
    [
        ("malloc", Allocation),
        ("calloc", Allocation),
        ("realloc", Allocation),
        ("free", Allocation),
        ("cfree", Allocation),
        ("_int_malloc", Allocation),
        ("_int_free", Allocation),
        ("_int_realloc", Allocation),
        ("posix_memalign", Allocation),
        ("aligned_alloc", Allocation),
        ("mi_", Allocation),
        ("kvasir_prompt::tokenizer", Tokenise),
        ("kvasir_prompt::envelope", Envelope),
        ("kvasir_prompt::names", Envelope),
        ("kvasir_prompt::renderer", Render),
        ("kvasir_prompt::template", Render),
        ("minijinja", Render),
        ("kvasir_prompt", Parse),
        ("kvasir_fleet::apply::hash_check", EventCheck),
        ("kvasir_kv_hash::verify", EventCheck),
        ("kvasir_kv_hash::key", Keys),
        ("kvasir_inventory::index::Index::keys", Keys),
        ("kvasir_inventory::Inventory::keys", Keys),
        ("kvasir_inventory::query", LookUp),
        ("kvasir_inventory::Inventory::overlaps", LookUp),
        ("kvasir_fleet::evidence", LookUp),
        ("kvasir_fleet::apply", EventApply),
        ("kvasir_fleet::application", EventApply),
        ("kvasir_kv_events::wire", EventDecode),
        ("kvasir_kv_events::frames", EventDecode),
        ("kvasir_kv_events", EventReceive),
        ("zmq", EventReceive),
        ("zmq_", EventReceive),
        ("kvasir_fleet::pending", Choose),
        ("kvasir_fleet::selecting", Choose),
        ("kvasir_fleet::pool", Choose),
        ("kvasir_fleet::load", Choose),
        ("kvasir_balance", Choose),
        ("kvasir_fleet::parity", Observe),
        ("kvasir_fleet::exposition", Observe),
        ("kvasir_proxy::relay", Relay),
        ("kvasir_proxy::usage", Relay),
        ("kvasir_proxy::access_log", Observe),
        ("kvasir_proxy::listen", Receive),
        ("kvasir_proxy::incoming", Receive),
        ("kvasir_upstream", Forward),
        ("kvasir_proxy::attempts", Forward),
        ("kvasir_proxy::forward", Forward),
        ("kvasir_proxy", Proxy),
        ("kvasir_fleet", Proxy),
        ("metrics", Observe),
        ("tracing", Observe),
        ("hyper", Http),
        ("httparse", Http),
        ("http::", Http),
        ("tokio", Runtime),
        ("mio", Runtime),
    ]
};

/// A stage of a request, or of the events that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Stage {
    Receive,
    Http,
    Envelope,
    Parse,
    Render,
    Tokenise,
    Keys,
    LookUp,
    Choose,
    Forward,
    Relay,
    Proxy,
    Observe,
    Runtime,
    EventReceive,
    EventDecode,
    EventApply,
    EventCheck,
    Allocation,
    Other,
}

impl Stage {
    /// All of them, in the order of a request.
    pub(super) const ALL: [Self; 20] = [
        Self::Receive,
        Self::Http,
        Self::Envelope,
        Self::Parse,
        Self::Render,
        Self::Tokenise,
        Self::Keys,
        Self::LookUp,
        Self::Choose,
        Self::Forward,
        Self::Relay,
        Self::Proxy,
        Self::Observe,
        Self::Runtime,
        Self::EventReceive,
        Self::EventDecode,
        Self::EventApply,
        Self::EventCheck,
        Self::Allocation,
        Self::Other,
    ];

    /// What it is.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Receive => "receive (listener)",
            Self::Http => "HTTP, both sides",
            Self::Envelope => "envelope and names",
            Self::Parse => "parse messages",
            Self::Render => "render the template",
            Self::Tokenise => "tokenise",
            Self::Keys => "block keys",
            Self::LookUp => "look up, evidence",
            Self::Choose => "choose and commit",
            Self::Forward => "forward",
            Self::Relay => "relay",
            Self::Proxy => "proxy: the rest",
            Self::Observe => "metrics, log, parity",
            Self::Runtime => "runtime (tokio)",
            Self::EventReceive => "events: receive (ZeroMQ)",
            Self::EventDecode => "events: decode",
            Self::EventApply => "events: apply",
            Self::EventCheck => "events: check hashes",
            Self::Allocation => "allocation, all stages",
            Self::Other => "other",
        }
    }
}

/// Instructions by stage, in the order of [`Stage::ALL`].
pub(super) type Costs = [f64; Stage::ALL.len()];

/// How often what is known of callers is handed on; chains of unnamed calls are shorter.
const ROUNDS: usize = 64;

/// The stage a function is of by its name.
pub(super) fn stage_of(name: &str) -> Option<Stage> {
    let begin = name.trim_start_matches(['<', '&']);
    let begin = begin.strip_prefix("mut ").unwrap_or(begin);
    RULES.iter().find(|(prefix, _)| begin.starts_with(prefix)).map(|(_, stage)| *stage)
}

/// What each stage executed.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52 instructions")]
pub(super) fn by_stage(profile: &Profile) -> Costs {
    let named: Vec<Option<Stage>> = profile.names.iter().map(|name| stage_of(name)).collect();
    let mut callers: Vec<Vec<(usize, f64)>> = vec![Vec::new(); named.len()];
    for (&(caller, callee), &cost) in &profile.calls {
        if named[callee].is_none() && caller != callee {
            callers[callee].push((caller, cost as f64));
        }
    }
    let only = |stage: Stage| {
        let mut shares = Costs::default();
        shares[stage as usize] = 1.0;
        shares
    };
    let mut shares: Vec<Costs> =
        named.iter().map(|stage| stage.map_or_else(Costs::default, only)).collect();
    for _ in 0..ROUNDS {
        for function in (0..named.len()).filter(|at| named[*at].is_none()) {
            let total: f64 = callers[function].iter().map(|(_, cost)| cost).sum();
            let mut new = Costs::default();
            for (caller, cost) in &callers[function] {
                for (new, share) in new.iter_mut().zip(shares[*caller]) {
                    *new += share * cost / total.max(1.0);
                }
            }
            shares[function] = new;
        }
    }
    let mut costs = Costs::default();
    for (own, shares) in profile.own.iter().zip(&shares) {
        let known: f64 = shares.iter().sum();
        for (cost, share) in costs.iter_mut().zip(shares) {
            *cost += share * *own as f64;
        }
        costs[Stage::Other as usize] += (1.0 - known).max(0.0) * *own as f64;
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_stage() {
        assert_eq!(
            stage_of("<kvasir_prompt::tokenizer::fast::Fast as X>::f"),
            Some(Stage::Tokenise)
        );
        assert_eq!(stage_of("core::ptr::drop_in_place<kvasir_prompt::Chat>"), None);
        assert_eq!(stage_of("malloc_consolidate"), Some(Stage::Allocation));
    }

    #[test]
    fn what_has_no_name_counts_for_its_callers() {
        let text = "fn=(1) kvasir_balance::select\n1 10\ncfn=(3) core::hash\ncalls=1 0\n1 30\n\
                    fn=(2) minijinja::vm\n1 20\ncfn=(3)\ncalls=3 0\n1 90\n\
                    fn=(3)\n1 80\ncfn=(4) memcpy\ncalls=1 0\n1 40\nfn=(4)\n1 40\nfn=(5) start\n1 7\n";
        let costs = by_stage(&Profile::parse(text));
        assert!((costs[Stage::Choose as usize] - 40.0).abs() < 1e-6, "{costs:?}");
        assert!((costs[Stage::Render as usize] - 110.0).abs() < 1e-6, "{costs:?}");
        assert!((costs[Stage::Other as usize] - 7.0).abs() < 1e-6, "{costs:?}");
    }
}
