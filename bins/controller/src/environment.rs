//! Environment variables, by the names that LoxiLB's controller has for them. Flags win over them.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

/// Those of LoxiLB's that have no equivalent: set to anything but `0`, `off` or nothing they are named in the log.
const WITHOUT_EFFECT: [&str; 10] = [
    "AICTRL_LMC_COST",
    "AICTRL_LMC_MAX_PTS",
    "AICTRL_LMC_STALE_SEC",
    "AICTRL_TTFT_COEF_FILE",
    "AICTRL_TTFT_WEIGHT",
    "AICTRL_TTFT_MAX_PTS",
    "AICTRL_TTFT_STALE_SEC",
    "AICTRL_NEGATIVE_CONTROL_INVERT",
    "AICTRL_FEATURE_SNAP_FILE",
    "AICTRL_REANCHOR_SEC",
];

/// A variable's text; `None` where it is empty or not set.
pub(crate) fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => bail!("{name}: is not UTF-8"),
    }
}

/// What a flag says, else a variable, else the default.
pub(crate) fn or_variable<T>(flag: Option<T>, name: &str, default: T) -> Result<T>
where
    T: FromStr<Err: Display>,
{
    if let Some(value) = flag {
        return Ok(value);
    }
    let Some(text) = variable(name)? else { return Ok(default) };
    text.parse().map_err(|error| anyhow!("{name}: `{text}`: {error}"))
}

/// An address; `:PORT` is every interface.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let whole = text.strip_prefix(':').map(|port| format!("0.0.0.0:{port}"));
    whole.as_deref().unwrap_or(text).parse().map_err(|error| format!("`{text}`: {error}"))
}

/// Seconds above zero, at most a day.
pub(crate) fn seconds(value: f64, name: &str) -> Result<Duration> {
    if !(value > 0.0 && value <= 86_400.0) {
        bail!("{name}: {value} is not above 0 and at most 86400");
    }
    Ok(Duration::from_secs_f64(value))
}

/// Names the variables that change nothing here.
pub(crate) fn tell_without_effect() -> Result<()> {
    for name in WITHOUT_EFFECT {
        if variable(name)?.is_some_and(|text| !matches!(&*text, "0" | "off" | "false")) {
            tracing::warn!(variable = name, "variable without effect");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_a_port_alone() {
        assert_eq!(address(":18856").unwrap().to_string(), "0.0.0.0:18856");
        assert_eq!(address("[::1]:1").unwrap().to_string(), "[::1]:1");
        assert!(address("here").is_err() && address(":x").is_err());
    }

    #[test]
    fn times_are_above_zero() {
        assert_eq!(seconds(0.5, "x").unwrap(), Duration::from_millis(500));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 86_401.0] {
            assert!(seconds(wrong, "x").is_err(), "{wrong}");
        }
    }
}
