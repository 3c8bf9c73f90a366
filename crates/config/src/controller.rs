//! The weight controller that the gateway follows. None by default.

use std::path::PathBuf;

use http::uri::Authority;
use serde::{Deserialize, Serialize};

use crate::bounds::{HOUR_MS, Wrong, within};
use crate::connections::EngineTlsConfig;
use crate::secret::{Secret, SecretSource, Sources};

/// Services at most.
const MOST_SERVICES: usize = 1024;

/// Where the weight controller is, and how its advice is followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerConfig {
    /// `host:port` of its gRPC port.
    pub address: String,
    /// TLS to it; plain text by default.
    #[serde(default)]
    pub tls: Option<EngineTlsConfig>,
    /// The token shown to it, one of three. None by default.
    #[serde(default)]
    pub token: Option<Secret>,
    /// The environment variable that holds it.
    #[serde(default)]
    pub token_env: Option<String>,
    /// The file that holds it.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// What it calls this gateway. Default: `kvasir` and where clients connect.
    #[serde(default)]
    pub gateway_id: Option<String>,
    /// The pools behind the keys of its services. A pool is known by its model without that.
    #[serde(default)]
    pub services: Vec<ControllerService>,
    /// How long advice takes to fade after its deadline, in milliseconds. Default 30000.
    #[serde(default = "decay_ms")]
    pub decay_ms: u64,
    /// How long an advised state holds at least, in milliseconds. Default 5000.
    #[serde(default = "hysteresis_ms")]
    pub hysteresis_ms: u64,
    /// How long an acknowledgement may take, in milliseconds. Default 10000.
    #[serde(default = "ack_timeout_ms")]
    pub ack_timeout_ms: u64,
    /// The longest random delay before advice takes effect, in percent of its period. Default 10.
    #[serde(default = "apply_jitter_percent")]
    pub apply_jitter_percent: u32,
}

/// A service of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerService {
    /// Its key, such as `10.0.0.1:8080:tcp`.
    pub key: String,
    /// The model of the pool it is.
    pub pool: String,
}

fn decay_ms() -> u64 {
    30_000
}

fn hysteresis_ms() -> u64 {
    5_000
}

fn ack_timeout_ms() -> u64 {
    10_000
}

fn apply_jitter_percent() -> u32 {
    10
}

impl ControllerConfig {
    /// One at this address.
    #[must_use]
    pub fn at(address: String) -> Self {
        Self {
            address,
            tls: None,
            token: None,
            token_env: None,
            token_file: None,
            gateway_id: None,
            services: Vec::new(),
            decay_ms: decay_ms(),
            hysteresis_ms: hysteresis_ms(),
            ack_timeout_ms: ack_timeout_ms(),
            apply_jitter_percent: apply_jitter_percent(),
        }
    }

    /// Where the token is that is shown to it.
    #[must_use]
    pub fn token_source(&self) -> Option<SecretSource<'_>> {
        self.sources().source()
    }

    fn sources(&self) -> Sources<'_, Secret> {
        Sources {
            key: "token",
            given: self.token.as_ref(),
            env: self.token_env.as_deref(),
            file: self.token_file.as_deref(),
        }
    }

    /// Whether its parts fit together, for pools of these models; the key and what is wrong with it.
    pub(crate) fn check(&self, models: &[&str]) -> Result<(), Wrong> {
        let fail = |key: String, message: String| Err((key, message));
        let has_port = |authority: Authority| {
            authority.port_u16().is_some_and(|port| port > 0) && !authority.as_str().contains('@')
        };
        if !self.address.parse().is_ok_and(has_port) {
            let message = format!("`{}` is not host:port", self.address);
            return fail("address".to_owned(), message);
        }
        if let Some(tls) = &self.tls {
            tls.check().map_err(|(key, message)| (format!("tls.{key}"), message))?;
        }
        self.sources().check_token()?;
        if self.gateway_id.as_ref().is_some_and(|id| !(1..=256).contains(&id.len())) {
            return fail("gateway_id".to_owned(), "must have 1 to 256 bytes".to_owned());
        }
        if self.services.len() > MOST_SERVICES {
            return fail("services".to_owned(), format!("more than {MOST_SERVICES}"));
        }
        for (place, service) in self.services.iter().enumerate() {
            let at = |key: &str| format!("services[{place}].{key}");
            if self.services[..place].iter().any(|other| other.key == service.key) {
                return fail(at("key"), format!("`{}` is there twice", service.key));
            }
            // Of engines given by URL alone it is not known yet what they serve.
            if !models.is_empty() && !models.contains(&&*service.pool) {
                return fail(at("pool"), format!("there is no pool `{}`", service.pool));
            }
        }
        within("decay_ms", &self.decay_ms, &100, &HOUR_MS)?;
        within("hysteresis_ms", &self.hysteresis_ms, &0, &HOUR_MS)?;
        within("ack_timeout_ms", &self.ack_timeout_ms, &1, &HOUR_MS)?;
        within("apply_jitter_percent", &self.apply_jitter_percent, &0, &100)
    }
}
