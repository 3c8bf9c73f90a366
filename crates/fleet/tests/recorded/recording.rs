//! Reads a recording: JSON lines, one per request or message.

use std::path::Path;

use kvasir_fleet::{Adapter, EngineCard, ServedModel};
use serde_json::Value;

/// One server's recording.
pub(crate) struct Recording {
    pub(crate) card: EngineCard,
    pub(crate) block_size: usize,
    pub(crate) lines: Vec<Line>,
}

pub(crate) enum Line {
    Request(Request),
    /// A live message: its payload, and its events as the recorder decoded them.
    Batch {
        payload: Vec<u8>,
        events: Vec<Value>,
    },
}

/// A request with the answer's numbers.
pub(crate) struct Request {
    pub(crate) step: String,
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    pub(crate) prompt_token_ids: Vec<Vec<u32>>,
    pub(crate) cached_tokens: u64,
}

impl Recording {
    /// `None` for files that do not begin with a `meta` line.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let meta = lines.next().filter(|line| line["kind"] == "meta")?;
        let block_size = meta["block_size"].as_str().unwrap().parse().unwrap();
        let lines = lines.filter_map(|line| read_line(&line)).collect();
        Some(Self { card: card(&meta["models"]["data"]), block_size, lines })
    }
}

fn card(models: &Value) -> EngineCard {
    let mut card = EngineCard::default();
    for model in models.as_array().unwrap() {
        let id = model["id"].as_str().unwrap().to_owned();
        let root = model["root"].as_str().map(str::to_owned);
        if model["parent"].is_null() {
            card.models.push(ServedModel { id, root, max_model_len: None });
        } else {
            card.adapters.push(Adapter { name: id, path: root });
        }
    }
    card
}

fn read_line(line: &Value) -> Option<Line> {
    match line["kind"].as_str()? {
        "frames" if line["socket"] == "pub" => {
            let payload = line["frames_hex"].as_array()?.last()?.as_str()?;
            let events = line["decoded"]["payload"][1].as_array()?.clone();
            Some(Line::Batch { payload: unhex(payload), events })
        }
        "request" if line["response"]["usage"].is_object() => Some(Line::Request(request(line))),
        _ => None,
    }
}

fn request(line: &Value) -> Request {
    let response = &line["response"];
    let ids = |value: &Value| -> Option<Vec<u32>> {
        value.as_array()?.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect()
    };
    let prompt_token_ids = match ids(&response["prompt_token_ids"]) {
        Some(chat) => vec![chat],
        None => {
            let choices = response["choices"].as_array().unwrap();
            choices.iter().map(|choice| ids(&choice["prompt_token_ids"]).unwrap()).collect()
        }
    };
    Request {
        step: line["step"].as_str().unwrap().to_owned(),
        path: line["path"].as_str().unwrap().to_owned(),
        body: line["body"].to_string().into_bytes(),
        prompt_token_ids,
        // vLLM 0.20 says null for none.
        cached_tokens: response["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap_or(0),
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}
