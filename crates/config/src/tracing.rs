//! Where spans of requests are sent to.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

const LONGEST_NAME: usize = 255;

/// Where spans of requests are sent to, and of how many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracingConfig {
    /// The collector's base URL for OTLP over HTTP, such as `http://collector:4318`; `/v1/traces`
    /// is added to it.
    pub otlp_endpoint: OtlpEndpoint,
    /// The share of requests that is traced where the client says nothing of it (`traceparent`).
    /// Default 0.1; 0 to 1.
    #[serde(default = "sample_ratio", deserialize_with = "ratio")]
    pub sample_ratio: f64,
    /// The resource attribute `service.name`. Default `kvasir-gateway`; 1 to 255 bytes.
    #[serde(default = "service_name", deserialize_with = "name")]
    pub service_name: String,
}

/// A collector's base URL: scheme `http` or `https`, a host, an optional port and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpEndpoint {
    https: bool,
    authority: Authority,
    /// Without a slash at its end.
    path: String,
}

impl TracingConfig {
    /// To this collector, with the defaults.
    #[must_use]
    pub fn to(otlp_endpoint: OtlpEndpoint) -> Self {
        Self { otlp_endpoint, sample_ratio: sample_ratio(), service_name: service_name() }
    }
}

impl OtlpEndpoint {
    /// Whether it is spoken to in TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The path that traces are posted to.
    #[must_use]
    pub fn traces_path(&self) -> String {
        format!("{}/v1/traces", self.path)
    }
}

impl FromStr for OtlpEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What stands before an `@` or after a `?` may be a password or a key: not repeated.
        if text.contains(['@', '?', '#']) {
            return Err("a collector's URL has no user, query or fragment".to_owned());
        }
        let problem = |why: &str| {
            format!("`{text}` is not a collector's URL (such as http://collector:4318): {why}")
        };
        let uri: Uri = text.parse().map_err(|e| problem(&format!("{e}")))?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(problem(&format!("scheme `{other}` is not supported"))),
            None => return Err(problem("it has no scheme")),
        };
        let authority = uri.authority().ok_or_else(|| problem("it has no host"))?.clone();
        if authority.host().is_empty() {
            return Err(problem("it has no host"));
        }
        if authority.as_str() != authority.host() && authority.port_u16().is_none() {
            return Err(problem("the port is no number up to 65535"));
        }
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { https, authority, path })
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

impl<'de> Deserialize<'de> for OtlpEndpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for OtlpEndpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn sample_ratio() -> f64 {
    0.1
}

fn service_name() -> String {
    "kvasir-gateway".to_owned()
}

fn ratio<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let ratio = f64::deserialize(deserializer)?;
    // Not a number is in no range.
    if !(0.0..=1.0).contains(&ratio) {
        return Err(de::Error::custom("must be from 0 to 1"));
    }
    Ok(ratio)
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if !(1..=LONGEST_NAME).contains(&name.len()) {
        let message = format!("a service's name has from 1 to {LONGEST_NAME} bytes");
        return Err(de::Error::custom(message));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn parse(tracing: &str) -> Result<Config, String> {
        let pools = "pools: [{model: m, endpoints: [{url: 'http://a'}]}]";
        let text = format!("{pools}\ntracing: {tracing}");
        Config::parse("f", &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_collector_is_enough() {
        let tracing = parse("{otlp_endpoint: 'http://c:4318'}").unwrap().tracing.unwrap();
        assert_eq!((tracing.sample_ratio, &*tracing.service_name), (0.1, "kvasir-gateway"));
        let endpoint = tracing.otlp_endpoint;
        assert_eq!((endpoint.is_https(), endpoint.authority().as_str()), (false, "c:4318"));
        assert_eq!(endpoint.traces_path(), "/v1/traces");
        let tracing = parse("{otlp_endpoint: 'https://[::1]/otlp/', sample_ratio: 1}").unwrap();
        let endpoint = tracing.tracing.unwrap().otlp_endpoint;
        assert!(endpoint.is_https());
        assert_eq!(endpoint.traces_path(), "/otlp/v1/traces");
        assert_eq!(endpoint.to_string(), "https://[::1]/otlp");
    }

    #[test]
    fn what_cannot_be_is_said_with_its_place() {
        let at = |rest: &str| format!("{{otlp_endpoint: 'http://c:4318', {rest}}}");
        for (tracing, why) in [
            ("{}".to_owned(), "otlp_endpoint"),
            ("{otlp_endpoint: 'c:4318'}".to_owned(), "is not a collector's URL"),
            ("{otlp_endpoint: 'grpc://c:4317'}".to_owned(), "scheme `grpc` is not supported"),
            ("{otlp_endpoint: 'http://u:secret@c'}".to_owned(), "has no user"),
            ("{otlp_endpoint: 'http://c:99999'}".to_owned(), "is not a collector's URL"),
            (at("sample_ratio: 1.01"), "must be from 0 to 1"),
            (at("sample_ratio: -0.1"), "must be from 0 to 1"),
            (at("sample_ratio: .nan"), "must be from 0 to 1"),
            (at("service_name: ''"), "from 1 to 255 bytes"),
            (at("protocol: grpc"), "protocol"),
        ] {
            let error = parse(&tracing).unwrap_err();
            assert!(error.starts_with("f:2:") && error.contains(why), "{tracing}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
