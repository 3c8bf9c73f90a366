//! Kvasir's own variables.

use super::{Effect, Variable, flag, parsed, word};
use crate::admin::AdminConfig;
use crate::decision_log::DecisionLogConfig;
use crate::model::{Config, LogFormat};
use crate::tracing::TracingConfig;
use kvasir_balance::PolicyKind;

pub(super) const VARIABLES: [Variable; 15] = [
    Variable {
        name: "KVASIR_LISTEN",
        key: "listen",
        set: |config, text| set(&mut config.listen, text.parse()),
    },
    Variable {
        name: "KVASIR_ADMIN_LISTEN",
        key: "admin.listen",
        set: |config, text| {
            let address = text.parse()?;
            config.admin.get_or_insert_with(AdminConfig::default).listen = address;
            Ok(Effect::Set)
        },
    },
    Variable {
        name: "KVASIR_POLICY",
        key: "pools[].policy",
        set: |config, text| {
            let kind: PolicyKind = text.parse().map_err(|error| format!("{error}"))?;
            config.pools.iter_mut().for_each(|pool| pool.policy = kind.into());
            Ok(Effect::Set)
        },
    },
    Variable {
        name: "KVASIR_TOKENIZER_DIR",
        key: "pools[].tokenizer_dir",
        set: |config, text| {
            config.pools.iter_mut().for_each(|pool| pool.tokenizer_dir = Some(text.into()));
            Ok(Effect::Set)
        },
    },
    Variable {
        name: "KVASIR_DECISION_HEADERS",
        key: "decision_headers",
        set: |config, text| set(&mut config.decision_headers, flag(text)),
    },
    Variable {
        name: "KVASIR_DECISION_LOG",
        key: "decision_log.directory",
        set: |config, text| {
            config.log_decisions_in(text.into());
            Ok(Effect::Set)
        },
    },
    Variable {
        name: "KVASIR_MAX_BODY_BYTES",
        key: "max_body_bytes",
        set: |config, text| set(&mut config.max_body_bytes, parsed(text)),
    },
    Variable {
        name: "KVASIR_MAX_PROMPT_BYTES",
        key: "max_prompt_bytes",
        set: |config, text| set(&mut config.max_prompt_bytes, parsed(text)),
    },
    Variable {
        name: "KVASIR_INVENTORY_MAX_BYTES",
        key: "inventory.max_bytes",
        set: |config, text| set(&mut config.inventory.max_bytes, parsed(text)),
    },
    Variable {
        name: "KVASIR_SCRAPE_INTERVAL_MS",
        key: "scrape_interval_ms",
        set: |config, text| set(&mut config.scrape_interval_ms, parsed(text)),
    },
    Variable {
        name: "KVASIR_SHUTDOWN_GRACE_S",
        key: "shutdown_grace_s",
        set: |config, text| set(&mut config.shutdown_grace_s, parsed(text)),
    },
    Variable {
        name: "KVASIR_SHUTDOWN_DELAY_S",
        key: "shutdown_delay_s",
        set: |config, text| set(&mut config.shutdown_delay_s, parsed(text)),
    },
    Variable {
        name: "KVASIR_OTLP_ENDPOINT",
        key: "tracing.otlp_endpoint",
        set: |config, text| {
            let endpoint = text.parse()?;
            match &mut config.tracing {
                Some(tracing) => tracing.otlp_endpoint = endpoint,
                none => *none = Some(TracingConfig::to(endpoint)),
            }
            Ok(Effect::Set)
        },
    },
    Variable {
        name: "KVASIR_LOG_FORMAT",
        key: "log.format",
        set: |config, text| {
            let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
            set(&mut config.log.format, word(text, &formats))
        },
    },
    Variable {
        name: "KVASIR_LOG_LEVEL",
        key: "log.level",
        set: |config, text| set(&mut config.log.level, Ok(Some(text.to_owned()))),
    },
];

fn set<T>(key: &mut T, value: Result<T, String>) -> Result<Effect, String> {
    *key = value?;
    Ok(Effect::Set)
}

impl Config {
    /// Logs decisions in another directory than the file says, or in one at all.
    pub fn log_decisions_in(&mut self, directory: std::path::PathBuf) {
        let limits = self.decision_log.take();
        self.decision_log = Some(match limits {
            Some(limits) => DecisionLogConfig { directory, ..limits },
            None => DecisionLogConfig::at(directory),
        });
    }
}
