//! What a fleet is built from.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use kvasir_balance::{Role, SelectionSpec};
use kvasir_kv_events::{Address, EndpointError};
use kvasir_upstream::Origin;

use crate::admission::AdmissionSpec;
use crate::breaker::BreakerSettings;
use crate::decision_log::DecisionLog;
use crate::identity::BlockIdentity;
use crate::split::SplitSettings;

/// A whole fleet.
#[derive(Clone, Debug)]
pub struct FleetSpec {
    /// Its pools; names of models, aliases included, are unique.
    pub pools: Vec<PoolSpec>,
    /// How often each engine's `/metrics` is read.
    pub scrape_interval: Duration,
    /// How long a connection to an engine may take, when the background asks it something.
    pub connect_timeout: Duration,
    /// Seeds the policies' tie-breaking.
    pub seed: u64,
    /// Where decisions are logged, if they are.
    pub decision_log: Option<Arc<DecisionLog>>,
    /// When engines are left alone, and how they are asked whether they are well.
    pub health: HealthSpec,
}

/// When engines are left alone, and how they are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSpec {
    /// Of requests that fail.
    pub breaker: BreakerSettings,
    /// The path of engines' health pages, asked for whenever metrics are; `None` for none.
    pub probe_path: Option<String>,
    /// How long a health page may take.
    pub probe_timeout: Duration,
}

impl Default for HealthSpec {
    fn default() -> Self {
        let probe_timeout = Duration::from_secs(2);
        Self { breaker: BreakerSettings::default(), probe_path: None, probe_timeout }
    }
}

/// One model and the engines that serve it.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// The model's name in requests.
    pub model: String,
    /// Other names for it: no pool's model, and no other pool's alias.
    pub aliases: Vec<String>,
    /// Whether its answers tell of decisions, where it has an opinion.
    pub decision_headers: Option<bool>,
    /// How an endpoint is selected.
    pub selection: SelectionSpec,
    /// Where tokenizers are staged.
    pub tokenizer_dir: Option<PathBuf>,
    /// The `authorization` header for the engines, in place of the client's.
    pub authorization: Option<HeaderValue>,
    /// Where its prompts' tokens come from.
    pub tokens: TokenSpec,
    /// How requests reach one data-parallel rank of an engine.
    pub rank_addressing: RankAddressingKind,
    /// What blocks are known by.
    pub identity: BlockIdentity,
    /// How long its engines may take.
    pub timeouts: Timeouts,
    /// What it takes at once and who waits; `None` for everything and nobody.
    pub admission: Option<AdmissionSpec>,
    /// How it splits requests among prefill and decode endpoints; `None` where all of them serve
    /// whole requests, whatever their roles.
    pub split: Option<SplitSettings>,
    /// The engines.
    pub endpoints: Vec<EndpointSpec>,
}

/// How long the phases of a request may take at an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection, waiting for a free one included.
    pub connect: Duration,
    /// From there until the first data of the answer.
    pub first_data: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
    /// From the request's head to the answer's last byte.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_data: Duration::from_secs(600),
            idle: Duration::from_secs(120),
            request: Duration::from_secs(3600),
        }
    }
}

/// Where a pool's prompts get their tokens, and how far that is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenSpec {
    /// The most bytes of prompt text that are tokenised of one request.
    pub max_prompt_bytes: usize,
    /// Whether token ids in clients' headers are taken for the prompt's.
    pub trust_headers: bool,
    /// When own tokens are held against the engines'.
    pub parity: ParityMode,
}

impl Default for TokenSpec {
    fn default() -> Self {
        let max_prompt_bytes = kvasir_prompt::Limits::default().prompt_bytes;
        Self { max_prompt_bytes, trust_headers: false, parity: ParityMode::Sample }
    }
}

/// When own tokens are held against the engines' `/tokenize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParityMode {
    /// Never.
    Off,
    /// Built-in texts and chats, once tokenizer and engine are there.
    Startup,
    /// That, and now and then a request that came by.
    Sample,
}

/// How requests reach one data-parallel rank of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankAddressingKind {
    /// Not at all: the engine chooses. It is one endpoint, credited with what all its ranks hold.
    #[default]
    None,
    /// By the header `X-data-parallel-rank`: each rank is an endpoint of its own.
    Header,
    /// By the URL, which belongs to one rank.
    Url,
}

/// The same for one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankAddressing {
    None,
    Header,
    Url { rank: u32 },
}

/// One engine.
#[derive(Clone, Debug)]
pub struct EndpointSpec {
    /// Its HTTP server, and how it is connected to.
    pub origin: Origin,
    /// Its event stream, where it is configured; else the engine is asked.
    pub events: Option<EventSpec>,
    /// Whether its events are to be fetched from its HTTP server (TensorRT-LLM), which takes them
    /// away from any other consumer.
    pub poll_events: bool,
    /// How many data-parallel ranks it has, where it is configured; else the engine is asked.
    pub ranks: Option<u32>,
    /// The rank that its URL belongs to, for [`RankAddressingKind::Url`].
    pub rank: Option<u32>,
    /// Its share of the load, in percent of a full one's.
    pub weight: u32,
    /// Whether requests may go there, all ranks alike.
    pub state: AdminState,
    /// Its part in pools that split requests.
    pub part: Part,
}

/// The part of an engine in pools that split requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its role.
    pub role: Role,
    /// The host of its bootstrap server (`SGLang`); its URL's where nothing else is said.
    pub bootstrap_host: Option<String>,
    /// The port of its bootstrap server; the pool's where nothing else is said.
    pub bootstrap_port: Option<u16>,
}

/// Whether an operator lets requests go to an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AdminState {
    /// They may.
    #[default]
    Active,
    /// No new conversations; those pinned there, and those that go on from what is stored there, go on.
    Drain,
    /// None.
    Disabled,
}

impl AdminState {
    /// The word used in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Drain => "drain",
            Self::Disabled => "disabled",
        }
    }

    /// The state of this number.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            1 => Self::Drain,
            2 => Self::Disabled,
            _ => Self::Active,
        }
    }
}

impl EndpointSpec {
    /// An engine of which only the address is known.
    #[must_use]
    pub fn at(origin: impl Into<Origin>) -> Self {
        Self {
            origin: origin.into(),
            events: None,
            poll_events: false,
            ranks: None,
            rank: None,
            weight: 100,
            state: AdminState::Active,
            part: Part::default(),
        }
    }

    pub(crate) fn addressing(&self, kind: RankAddressingKind) -> RankAddressing {
        match kind {
            RankAddressingKind::None => RankAddressing::None,
            RankAddressingKind::Header => RankAddressing::Header,
            RankAddressingKind::Url => RankAddressing::Url { rank: self.rank.unwrap_or(0) },
        }
    }
}

impl EventSpec {
    /// The stream of a rank whose ports lie so far above these.
    pub(crate) fn for_rank(&self, offset: u32) -> Result<Self, EndpointError> {
        if offset == 0 {
            return Ok(self.clone());
        }
        let at = |text: &str| Ok(Address::parse(text)?.for_rank(offset)?.to_string());
        let replay = self.replay.as_deref().map(at).transpose()?;
        Ok(Self { publisher: at(&self.publisher)?, replay, ..self.clone() })
    }

    /// Whether its addresses can be used.
    ///
    /// # Errors
    /// The address that cannot, and why.
    pub fn check(&self) -> Result<(), EndpointError> {
        Address::parse(&self.publisher)?;
        self.replay.as_deref().map(Address::parse).transpose()?;
        Ok(())
    }
}

/// A configured event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// The publisher's address as the engine has it, such as `tcp://*:5557`.
    pub publisher: String,
    /// The replay socket's address, likewise.
    pub replay: Option<String>,
    /// The topic to subscribe to; empty for everything.
    pub topic: String,
    /// Whether the engine connects to us.
    pub bind: bool,
}
