//! Which settings of all pools are others than before.

use crate::model::Config;

impl Config {
    /// The keys of the file whose values are others than in `before`, but for `pools`: of those,
    /// the fleet says what changed.
    #[must_use]
    pub fn changed_since(&self, before: &Self) -> Vec<&'static str> {
        macro_rules! differing {
            ($($key:ident),+) => {{
                // A key that is not listed here does not compile.
                let Self { pools: _, $($key),+ } = self;
                let mut changed = Vec::new();
                $(if *$key != before.$key {
                    changed.push(stringify!($key));
                })+
                changed
            }};
        }
        differing!(
            listen,
            listener,
            api_keys,
            api_keys_env,
            api_keys_file,
            decision_headers,
            decision_headers_token,
            decision_headers_token_env,
            decision_headers_token_file,
            max_body_bytes,
            max_prompt_bytes,
            forward_paths,
            timeouts,
            scrape_interval_ms,
            shutdown_grace_s,
            shutdown_delay_s,
            inventory,
            decision_log,
            retries,
            health,
            tracing,
            admin,
            loxilb,
            controller,
            log
        )
    }
}
