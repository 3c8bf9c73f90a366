//! One engine: its address, its events, its data-parallel ranks.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

use crate::disaggregation::{EndpointRole, check_host};

/// More data-parallel ranks than any engine has.
const MAX_RANKS: u32 = 1024;
/// A hundred times a full share.
const MAX_WEIGHT: u32 = 10_000;
/// The longest name of a group.
const MAX_GROUP_BYTES: usize = 64;

/// In place of an address: the events are fetched.
const POLL: &str = "poll";

/// How requests reach one data-parallel rank of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RankAddressing {
    /// Not at all: the engine chooses among its ranks, and is one endpoint.
    #[default]
    None,
    /// By the header `X-data-parallel-rank`, set by the gateway: each rank is an endpoint.
    Header,
    /// By the URL, which belongs to one rank.
    Url,
}

/// Whether requests may go to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointState {
    /// They may.
    #[default]
    Active,
    /// Only those of conversations that are there already.
    Drain,
    /// None.
    Disabled,
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
// `remote`: the derived functions know our keys; the traits, in `rolter`, take rolter's as well.
#[serde(remote = "Self", deny_unknown_fields)]
pub struct EndpointConfig {
    /// Its base URL: `http://host:port` or `https://host:port`.
    pub url: EngineUrl,
    /// The event publisher of its first rank, `tcp://host:port`; further ranks publish on the ports
    /// above. The word `poll` fetches the events from the engine instead (TensorRT-LLM), which takes
    /// them away from any other consumer. Found through `GET /kv_event_sources` when absent.
    #[serde(default)]
    pub events: Option<String>,
    /// Its replay socket; found likewise.
    #[serde(default)]
    pub replay: Option<String>,
    /// The topic to subscribe to. Default: everything.
    #[serde(default)]
    pub topic: Option<String>,
    /// Whether the engine connects to us: `events` is then the address to listen on.
    #[serde(default)]
    pub bind: bool,
    /// How many data-parallel ranks it has, where the engine does not tell.
    #[serde(default)]
    pub ranks: Option<u32>,
    /// The rank its URL belongs to, where `rank_addressing` is `url`.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Its share of the load in percent of a full one's, for policies that go by weights. Default
    /// 100; 0 counts as 1; up to 10000. One engine has one weight in all its pools.
    #[serde(default = "full")]
    pub weight: u32,
    /// Whether requests may go there. Default `active`.
    #[serde(default)]
    pub state: EndpointState,
    /// The group of the pool's endpoints that it belongs to, by which settings of the control plane
    /// name several of them: 1 to 64 letters, digits or any of `-_.`.
    #[serde(default)]
    pub group: Option<String>,
    /// Its part in a pool that splits requests. Default `unified`.
    #[serde(default)]
    pub role: EndpointRole,
    /// The port of its bootstrap server (`SGLang`), where that is not the pool's.
    #[serde(default)]
    pub bootstrap_port: Option<u16>,
    /// The host of its bootstrap server, where that is not its URL's.
    #[serde(default)]
    pub bootstrap_host: Option<String>,
}

fn full() -> u32 {
    100
}

/// An engine's base URL: scheme `http` or `https`, a host, an optional port, nothing else. However it is
/// written, one engine is one text: host in small letters, the port without zeros in front.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineUrl {
    https: bool,
    authority: http::uri::Authority,
}

// === impl EngineUrl ===

impl EngineUrl {
    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &http::uri::Authority {
        &self.authority
    }

    /// Whether it is spoken to in TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.https
    }
}

impl FromStr for EngineUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // What stands before an `@` or after a `?` may be a password or a key: not repeated.
        if text.contains(['@', '?']) {
            let why = "an engine URL is http(s)://host:port alone, without a user or a query; a key \
                       goes into `api_key_env` or `api_key_file`";
            return Err(why.to_owned());
        }
        let problem = |why: &str| {
            format!("`{text}` is not an engine URL (http://host:port or https://host:port): {why}")
        };
        if text.contains('#') {
            return Err(problem("it must have no `#`; the rank of a URL is the key `rank`"));
        }
        let uri: http::Uri = text.parse().map_err(|e| problem(&format!("{e}")))?;
        let https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(problem(&format!("scheme `{other}` is not supported"))),
            None => return Err(problem("it has no scheme")),
        };
        if !matches!(uri.path(), "" | "/") {
            return Err(problem("it must have no path"));
        }
        let authority = uri.authority().ok_or_else(|| problem("it has no host"))?;
        if authority.host().is_empty() {
            return Err(problem("it has no host"));
        }
        if authority.as_str() != authority.host() && authority.port_u16().is_none() {
            return Err(problem("the port is no number up to 65535"));
        }
        let host = authority.host().to_ascii_lowercase();
        let plain =
            authority.port_u16().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        let authority = plain.parse().map_err(|error| problem(&format!("{error}")))?;
        Ok(Self { https, authority })
    }
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

impl<'de> Deserialize<'de> for EngineUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for EngineUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn is_group(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_GROUP_BYTES).contains(&name.len()) && name.bytes().all(allowed)
}

// === impl EndpointConfig ===

impl EndpointConfig {
    /// What is configured of its event stream: an engine in two pools has one.
    pub(crate) fn stream(&self) -> Option<(&str, Option<&str>, Option<&str>, bool)> {
        let events = self.events.as_deref()?;
        Some((events, self.replay.as_deref(), self.topic.as_deref(), self.bind))
    }

    /// What it is in pools that split requests: the same in all of them.
    pub(crate) fn part(&self) -> (EndpointRole, Option<u16>, Option<&str>) {
        (self.role, self.bootstrap_port, self.bootstrap_host.as_deref())
    }

    /// An engine of which only the URL is known.
    #[must_use]
    pub fn at(url: EngineUrl) -> Self {
        Self {
            url,
            events: None,
            replay: None,
            topic: None,
            bind: false,
            ranks: None,
            rank: None,
            weight: full(),
            state: EndpointState::default(),
            group: None,
            role: EndpointRole::default(),
            bootstrap_port: None,
            bootstrap_host: None,
        }
    }

    /// The address and topic that belong to its publisher alone, where it connects to us.
    pub(crate) fn listens_at(&self) -> Option<(&str, Option<&str>)> {
        let address = self.events.as_deref().filter(|_| self.bind)?;
        Some((address, self.topic.as_deref().filter(|topic| !topic.is_empty())))
    }

    /// Whether its events are to be fetched from its HTTP server.
    #[must_use]
    pub fn polls(&self) -> bool {
        self.events.as_deref() == Some(POLL)
    }

    /// Whether its settings fit together, and fit the pool's; if not, the key and what is wrong.
    pub(crate) fn check(&self, addressing: RankAddressing) -> Result<(), (&'static str, String)> {
        let fail = |key, message: &str| Err((key, message.to_owned()));
        let listens = self.replay.is_some() || self.bind || self.topic.is_some();
        if self.polls() && listens {
            return fail("events", "`poll` goes without `replay`, `topic` and `bind`");
        }
        if self.events.is_none() && (self.replay.is_some() || self.bind) {
            return fail("events", "is needed where `replay` or `bind` is given");
        }
        if self.weight > MAX_WEIGHT {
            return fail("weight", &format!("must be from 0 to {MAX_WEIGHT}"));
        }
        if self.group.as_deref().is_some_and(|group| !is_group(group)) {
            let why = format!("must be 1 to {MAX_GROUP_BYTES} letters, digits or any of `-_.`");
            return fail("group", &why);
        }
        if self.bootstrap_port == Some(0) {
            return fail("bootstrap_port", "must be from 1 to 65535");
        }
        if let Some(Err(why)) = self.bootstrap_host.as_deref().map(check_host) {
            return fail("bootstrap_host", why);
        }
        match self.ranks {
            Some(ranks) if !(1..=MAX_RANKS).contains(&ranks) => {
                return fail("ranks", &format!("must be from 1 to {MAX_RANKS}"));
            }
            Some(_) if addressing == RankAddressing::Url => {
                return fail("ranks", "has no meaning where `rank_addressing` is `url`");
            }
            _ => {}
        }
        match (self.rank, addressing) {
            (None, RankAddressing::Url) => {
                fail("rank", "is needed where `rank_addressing` is `url`")
            }
            (Some(rank), RankAddressing::Url) if rank >= MAX_RANKS => {
                fail("rank", &format!("must be below {MAX_RANKS}"))
            }
            (Some(_), RankAddressing::None | RankAddressing::Header) => {
                fail("rank", "has a meaning only where `rank_addressing` is `url`")
            }
            _ => Ok(()),
        }
    }
}
