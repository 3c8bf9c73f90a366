//! One line of a recording.

use kvasir_fleet::EngineCard;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::{Answered, Live, unhex};
use super::read::Fault;
use super::{Meta, Request};

/// A line that means something for residency.
#[derive(Debug)]
pub(crate) struct Line {
    /// Its number, from 1.
    pub(crate) number: usize,
    /// The recorder's name for what was going on.
    pub(crate) step: Option<String>,
    /// When it was heard, in seconds since the epoch by the recorder's clock.
    pub(crate) at: Option<f64>,
    /// Whom it is about; empty in recordings of one publisher.
    pub(crate) source: Source,
    pub(crate) item: Item,
}

/// Which of several publishers of one recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) rank: Option<u32>,
}

#[derive(Debug)]
pub(crate) enum Item {
    Request(Box<Request>),
    /// A message of the PUB socket; `None` if it is no batch.
    Live(Option<Live>),
    Replay(Replay),
    Link(Link),
}

/// A question to the replay socket and what came back.
#[derive(Debug)]
pub(crate) struct Replay {
    /// The first number asked for.
    pub(crate) from: u64,
    pub(crate) answers: Vec<Answered>,
    /// Whether the end marker came.
    pub(crate) ended: bool,
}

impl Replay {
    /// The batches that came.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Live> {
        self.answers.iter().filter_map(|answer| match answer {
            Answered::Batch(batch) => Some(batch),
            Answered::End | Answered::Malformed => None,
        })
    }
}

/// A change of the connection to a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Connected,
    Disconnected,
}

/// What a line was found to be.
#[derive(Debug)]
pub(super) enum Found {
    Meta(Box<Meta>),
    Line(Line),
    /// Nothing that residency follows from.
    Nothing,
}

/// The fields of all kinds of lines; `decoded` views are for people, and not read.
#[derive(Debug, Deserialize)]
struct Raw {
    kind: Option<String>,
    step: Option<String>,
    label: Option<String>,
    t: Option<f64>,
    from: Option<String>,
    endpoint: Option<String>,
    dp_rank: Option<u32>,
    frames_hex: Option<Vec<String>>,
    request_frames_hex: Option<Vec<String>>,
    replies: Option<Vec<Reply>>,
    state: Option<String>,
    path: Option<String>,
    #[serde(default)]
    headers: Option<Value>,
    body: Option<Box<RawValue>>,
    status: Option<u16>,
    response: Option<Value>,
    tokenize: Option<Value>,
    engine: Option<Value>,
    version: Option<Value>,
    server_version: Option<Value>,
    models: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Reply {
    frames_hex: Vec<String>,
}

impl Line {
    pub(super) fn parse(text: &[u8]) -> Result<Found, Fault> {
        // A list would pass for the fields in their order.
        if !text.starts_with(b"{") {
            return Err(Fault::whole("not a JSON object"));
        }
        let raw: Raw = serde_json::from_slice(text)?;
        let item = match raw.kind.as_deref() {
            Some("meta") => return meta(&raw).map(|meta| Found::Meta(Box::new(meta))),
            Some("request") => Item::Request(Box::new(request(&raw)?)),
            Some("replay") => Item::Replay(replay(&raw)?),
            Some("link") => Item::Link(link(&raw)?),
            Some("frames") => Item::Live(live(&raw)?),
            // Messages and nothing else: their lines have no kind in the oldest recordings.
            None if raw.frames_hex.is_some() => Item::Live(live(&raw)?),
            None => return Err(Fault::whole("`kind` is missing")),
            Some(_) => return Ok(Found::Nothing),
        };
        let name = raw.from.or(raw.endpoint).unwrap_or_default();
        Ok(Found::Line(Self {
            number: 0,
            step: raw.step.or(raw.label),
            at: raw.t.filter(|t| t.is_finite()),
            source: Source { name, rank: raw.dp_rank },
            item,
        }))
    }
}

fn meta(raw: &Raw) -> Result<Meta, Fault> {
    let models = raw.models.as_ref().map(|models| models.get());
    let mut card = match models {
        None | Some("null") => EngineCard::default(),
        Some(text) => EngineCard::from_models(text.as_bytes()).map_err(|error| {
            let why = Fault::from(error).why;
            Fault::whole(format!("`models` is no answer of /v1/models: {why}"))
        })?,
    };
    let text = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).map(str::to_owned);
    let told = raw.server_version.as_ref().and_then(|v| v.get("version")).and_then(Value::as_str);
    card.version = told.map(str::to_owned).or_else(|| text(&raw.version));
    let kind = text(&raw.engine).or_else(|| owner(models?));
    let engine = match (kind, &card.version) {
        (Some(kind), Some(version)) => Some(format!("{kind} {version}")),
        (kind, version) => kind.or_else(|| version.clone()),
    };
    Ok(Meta { engine, card })
}

/// Engines call themselves the owner of what they serve.
fn owner(models: &str) -> Option<String> {
    let models: Value = serde_json::from_str(models).ok()?;
    models["data"][0]["owned_by"].as_str().map(str::to_owned)
}

fn live(raw: &Raw) -> Result<Option<Live>, Fault> {
    let frames = raw.frames_hex.as_ref().ok_or_else(|| missing("frames_hex"))?;
    Ok(Live::of(&unhex("frames_hex", frames)?))
}

fn replay(raw: &Raw) -> Result<Replay, Fault> {
    let asked = raw.request_frames_hex.as_ref().ok_or_else(|| missing("request_frames_hex"))?;
    let asked = unhex("request_frames_hex", asked)?;
    let from = asked.last().and_then(|frame| <[u8; 8]>::try_from(frame.as_slice()).ok());
    let from = from.map(u64::from_be_bytes).ok_or_else(|| {
        Fault::whole("`request_frames_hex` does not end with a number of 8 bytes")
    })?;
    let mut replay = Replay { from, answers: Vec::new(), ended: false };
    for reply in raw.replies.as_ref().ok_or_else(|| missing("replies"))? {
        match Answered::of(&unhex("replies.frames_hex", &reply.frames_hex)?) {
            Answered::End => replay.ended = true,
            answer => replay.answers.push(answer),
        }
    }
    Ok(replay)
}

fn link(raw: &Raw) -> Result<Link, Fault> {
    match raw.state.as_deref() {
        Some("connected") => Ok(Link::Connected),
        Some("disconnected") => Ok(Link::Disconnected),
        _ => Err(Fault::whole("`state` is neither `connected` nor `disconnected`")),
    }
}

fn request(raw: &Raw) -> Result<Request, Fault> {
    let status = raw.status.ok_or_else(|| missing("status"))?;
    Ok(Request::new(
        raw.path.as_deref(),
        raw.headers.as_ref(),
        raw.body.as_ref().map_or("null", |body| body.get()),
        status,
        raw.response.clone(),
        raw.tokenize.as_ref(),
    ))
}

fn missing(field: &str) -> Fault {
    Fault::whole(format!("`{field}` is missing"))
}
