//! What a registry's values must be, and how its hosts are reached.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use serde_saphyr::{Location, Spanned};

use super::raw::{RawCalibration, RawHost, RawRegistry, RawService};
use super::{Calibration, Host, HostRole, HostState, Registry};

/// Where nothing is said.
const DEFAULT_EPOCH_S: f64 = 10.0;
/// The longest epoch, in seconds.
const MOST_EPOCH_S: f64 = 3600.0;
/// Hosts of one service.
const MOST_HOSTS: usize = 1024;
/// Bytes of a service's key.
const MOST_KEY: usize = 256;

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) line: u64,
    pub(super) column: u64,
    pub(super) key: String,
    pub(super) message: String,
}

type Checked<T> = Result<T, Fault>;

fn wrong<T>(at: Location, key: impl Into<String>, message: impl Into<String>) -> Checked<T> {
    Err(Fault { line: at.line(), column: at.column(), key: key.into(), message: message.into() })
}

/// A registry all of whose values are allowed.
pub(super) fn checked(raw: RawRegistry) -> Checked<Registry> {
    let strict = raw.version.is_some();
    if let Some(version) = &raw.version
        && version.value != 1
    {
        let message = format!("is {}; 1 is known", version.value);
        return wrong(version.referenced, "version", message);
    }
    let service_key = service(raw.service.value)?;
    let epoch = epoch(raw.epoch_period_sec, strict, raw.service.referenced)?;
    let at = raw.hosts.referenced;
    let count = raw.hosts.value.len();
    if !(1..=MOST_HOSTS).contains(&count) {
        return wrong(at, "hosts", format!("has {count} of them, not 1 to {MOST_HOSTS}"));
    }
    let mut indexes = HashMap::new();
    let mut addresses = HashMap::new();
    let mut hosts = Vec::new();
    for (name, raw) in raw.hosts.value {
        let (at, of_index) = (raw.referenced, raw.value.ep_idx.referenced);
        let host = host(&name, raw.value, strict, at)?;
        if let Some(other) = indexes.insert(host.ep_idx, name.clone()) {
            let message = format!("{} is that of `{other}`, too", host.ep_idx);
            return wrong(of_index, format!("hosts.{name}.ep_idx"), message);
        }
        if let Some(address) = &host.address
            && let Some(other) = addresses.insert(address.clone(), name.clone())
        {
            let message = format!("{address} is that of `{other}`, too");
            return wrong(at, format!("hosts.{name}"), message);
        }
        hosts.push(host);
    }
    hosts.sort_by_key(|host| host.ep_idx);
    Ok(Registry { service_key, epoch, hosts })
}

fn service(raw: RawService) -> Checked<String> {
    let RawService { key, vip, port } = raw;
    if !(1..=MOST_KEY).contains(&key.value.len()) {
        let message = format!("must have 1 to {MOST_KEY} bytes");
        return wrong(key.referenced, "service.key", message);
    }
    if let Some(vip) = vip
        && vip.value.parse::<IpAddr>().is_err()
    {
        let message = format!("`{}` is no IP address", vip.value);
        return wrong(vip.referenced, "service.vip", message);
    }
    if let Some(port) = port {
        check_port(&port, "service.port")?;
    }
    Ok(key.value)
}

fn check_port(port: &Spanned<u64>, key: &str) -> Checked<u16> {
    match u16::try_from(port.value).ok().filter(|port| *port > 0) {
        Some(port) => Ok(port),
        None => wrong(port.referenced, key, format!("{} is not 1 to 65535", port.value)),
    }
}

fn epoch(raw: Option<Spanned<f64>>, strict: bool, at: Location) -> Checked<Duration> {
    let Some(raw) = raw else {
        if strict {
            return wrong(at, "epoch_period_sec", "is needed in a registry of version 1");
        }
        return Ok(Duration::from_secs_f64(DEFAULT_EPOCH_S));
    };
    let seconds = raw.value;
    if !(seconds > 0.0 && seconds <= MOST_EPOCH_S) {
        let message = format!("{seconds} is not above 0 and at most {MOST_EPOCH_S}");
        return wrong(raw.referenced, "epoch_period_sec", message);
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn host(name: &str, raw: RawHost, strict: bool, at: Location) -> Checked<Host> {
    let key = |key: &str| format!("hosts.{name}.{key}");
    positive(&raw.hbm_gb, &key("hbm_gb"))?;
    let role = match raw.role.value.as_str() {
        "unified" => HostRole::Unified,
        "prefill" => HostRole::Prefill,
        "decode" => HostRole::Decode,
        other => {
            let message = format!("`{other}` is none of prefill, decode, unified");
            return wrong(raw.role.referenced, key("role"), message);
        }
    };
    let state = match raw.state.as_ref().map(|state| (state, state.value.as_str())) {
        None | Some((_, "active")) => HostState::Active,
        Some((_, "draining")) => HostState::Draining,
        Some((_, "disabled")) => HostState::Disabled,
        Some((state, other)) => {
            let message = format!("`{other}` is none of active, draining, disabled");
            return wrong(state.referenced, key("state"), message);
        }
    };
    let Ok(ep_idx) = u32::try_from(raw.ep_idx.value) else {
        return wrong(raw.ep_idx.referenced, key("ep_idx"), "is too large");
    };
    if raw.expected_num_gpu_blocks.value == 0 {
        let at = raw.expected_num_gpu_blocks.referenced;
        return wrong(at, key("expected_num_gpu_blocks"), "must be above 0");
    }
    let prior = positive(&raw.serving_throughput_prior, &key("serving_throughput_prior"))?;
    let port = check_port(&raw.port, &key("port"))?;
    let address = address(name, raw.address.as_ref(), port, strict, at)?;
    let calibration = raw.calibration.map(|raw| calibration(raw.value, name)).transpose()?;
    Ok(Host {
        name: name.to_owned(),
        address,
        role,
        ep_idx,
        state,
        gpu_model: raw.gpu_model,
        hbm_gb: raw.hbm_gb.value,
        expected_blocks: raw.expected_num_gpu_blocks.value,
        prior,
        calibration,
    })
}

fn positive(value: &Spanned<f64>, key: &str) -> Checked<f64> {
    if value.value > 0.0 && value.value.is_finite() {
        return Ok(value.value);
    }
    wrong(value.referenced, key, format!("{} is not above 0", value.value))
}

/// Where it is: its `address`, or its name where that is one.
fn address(
    name: &str,
    given: Option<&Spanned<String>>,
    port: u16,
    strict: bool,
    at: Location,
) -> Checked<Option<String>> {
    let named = name.parse::<IpAddr>().ok();
    if strict && named.is_none() {
        let message = "is no IP address: hosts of version 1 are keyed by theirs";
        return wrong(at, format!("hosts.{name}"), message);
    }
    let Some(given) = given else {
        return Ok(named.map(|ip| with_port(&ip.to_string(), port)));
    };
    let text = given.value.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_name = !bare.is_empty() && bare.chars().all(host);
    if bare.parse::<IpAddr>().is_err() && !is_name {
        let message = format!("`{text}` is neither an IP address nor a name; the port is `port`");
        return wrong(given.referenced, format!("hosts.{name}.address"), message);
    }
    Ok(Some(with_port(bare, port)))
}

fn with_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn calibration(raw: RawCalibration, name: &str) -> Checked<Calibration> {
    let key = |key: &str| format!("hosts.{name}.calibration.{key}");
    let speed = |value: &Option<Spanned<f64>>, of: &str| {
        value.as_ref().map(|value| positive(value, &key(of))).transpose()
    };
    let tokens_per_sec = speed(&raw.throughput_tokens_per_sec, "throughput_tokens_per_sec")?;
    let ratio = speed(&raw.throughput_ratio, "throughput_ratio")?;
    if let Some(word) = &raw.fingerprint {
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if word.value.len() != 16 || !word.value.bytes().all(is_hex) {
            let message = "must be 16 hexadecimal digits";
            return wrong(word.referenced, key("fingerprint"), message);
        }
        if raw.fingerprint_fields.is_none() {
            let message = "says nothing without `fingerprint_fields`";
            return wrong(word.referenced, key("fingerprint"), message);
        }
    }
    let fields = raw.fingerprint_fields.map(super::raw::RawFields::given).unwrap_or_default();
    let fingerprint = raw.fingerprint.map(|word| word.value);
    Ok(Calibration { tokens_per_sec, ratio, fingerprint, fields })
}
