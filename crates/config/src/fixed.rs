//! What a running gateway cannot change. It is listed here and nowhere else.

use crate::admin::AdminConfig;
use crate::model::Config;

impl Config {
    /// Puts back what cannot change while a gateway runs that was started with `started`: `self` is
    /// then what it can run with. The keys whose new values wait for a restart.
    pub fn hold_fixed(&mut self, started: &Self) -> Vec<&'static str> {
        let mut held = Vec::new();
        // A key that is not listed here does not compile.
        let Self {
            listen,
            listener,
            inventory,
            decision_log,
            tracing,
            admin,
            loxilb,
            controller,
            log,
            api_keys: _,
            api_keys_env: _,
            api_keys_file: _,
            pools: _,
            decision_headers: _,
            decision_headers_token: _,
            decision_headers_token_env: _,
            decision_headers_token_file: _,
            max_body_bytes: _,
            max_prompt_bytes: _,
            forward_paths: _,
            timeouts: _,
            scrape_interval_ms: _,
            shutdown_grace_s: _,
            shutdown_delay_s: _,
            retries: _,
            health: _,
        } = self;
        hold("listen", listen, &started.listen, &mut held);
        let forwarded_headers = listener.forwarded_headers;
        listener.forwarded_headers = started.listener.forwarded_headers;
        hold("listener", listener, &started.listener, &mut held);
        listener.forwarded_headers = forwarded_headers;
        hold("inventory", inventory, &started.inventory, &mut held);
        hold("decision_log", decision_log, &started.decision_log, &mut held);
        hold("tracing", tracing, &started.tracing, &mut held);
        hold_admin(admin, started.admin.as_ref(), &mut held);
        hold("loxilb", loxilb, &started.loxilb, &mut held);
        hold("controller", controller, &started.controller, &mut held);
        hold("log", log, &started.log, &mut held);
        held
    }
}

/// Of the admin port the tokens can change, as long as they fit where it listens.
fn hold_admin(
    wanted: &mut Option<AdminConfig>,
    started: Option<&AdminConfig>,
    held: &mut Vec<&'static str>,
) {
    let (Some(admin), Some(before)) = (&mut *wanted, started) else {
        return hold("admin", wanted, &started.cloned(), held);
    };
    let AdminConfig {
        listen,
        tls,
        store,
        audit_log,
        read_token: _,
        read_token_env: _,
        read_token_file: _,
        write_token: _,
        write_token_env: _,
        write_token_file: _,
    } = admin;
    hold("admin.listen", listen, &before.listen, held);
    hold("admin.tls", tls, &before.tls, held);
    hold("admin.store", store, &before.store, held);
    hold("admin.audit_log", audit_log, &before.audit_log, held);
    // Without a token on another address than the one it goes on listening at: that stays shut.
    if admin.check().is_err() {
        hold("admin", wanted, &started.cloned(), held);
    }
}

fn hold<T: Clone + PartialEq>(
    key: &'static str,
    wanted: &mut T,
    started: &T,
    held: &mut Vec<&'static str>,
) {
    if wanted != started {
        wanted.clone_from(started);
        held.push(key);
    }
}
