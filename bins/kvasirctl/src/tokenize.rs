//! `kvasirctl tokenize`: what the gateway would route a request by.

use std::fs;
use std::io::{self, Read, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use kvasir_prompt::{Api, Limits, Prompts, Renderer, Unrouted, given_ids};
use serde_json::{Value, json};

use crate::args::tokenize::TokenizeArgs;

/// Largest body that is read: more than any engine takes.
const MAX_BODY: u64 = 256 << 20;

/// Reads, renders, prints.
pub(crate) fn run(args: &TokenizeArgs) -> Result<()> {
    let body = read(&args.body)?;
    let path = args.path.split(['?', '#']).next().unwrap_or_default();
    let shown = shown(args, path, &body)?;
    let text = if args.json { format!("{shown}\n") } else { lines(&shown) };
    io::stdout().lock().write_all(text.as_bytes()).context("standard output")
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(MAX_BODY).read_to_end(&mut body)
    } else {
        fs::File::open(file).and_then(|file| file.take(MAX_BODY).read_to_end(&mut body))
    };
    read.with_context(|| file.display().to_string())?;
    Ok(body)
}

/// What is routed by, of whatever path.
fn shown(args: &TokenizeArgs, path: &str, body: &[u8]) -> Result<Value> {
    let Some(api) = Api::from_path(path) else {
        let why = Unrouted::UnsupportedApi("").as_str();
        return Ok(json!({
            "level": "none",
            "reason": why,
            "detail": format!("requests to `{path}` are not routed by tokens"),
            "prompts": [],
        }));
    };
    Ok(show(prompts(args, api, body)?))
}

/// The prompts; a model that cannot be loaded is only an error where it is needed.
fn prompts(args: &TokenizeArgs, api: Api, body: &[u8]) -> Result<Result<Prompts, Unrouted>> {
    if let Some(given) = given_ids(api, body, Limits::default()) {
        return Ok(Ok(given));
    }
    let renderer = Renderer::load(&args.model_dir)
        .with_context(|| format!("model directory {}", args.model_dir.display()))?;
    Ok(if args.by_template && api == Api::Chat {
        renderer.template_prompts(body)
    } else {
        renderer.prompts(api, body)
    })
}

/// `reason` is a word, as in logs and metrics; `detail` says it in full.
fn show(prompts: Result<Prompts, Unrouted>) -> Value {
    match prompts {
        Ok(Prompts { prompts, level, why, texts, .. }) => {
            let prompts: Vec<Value> = prompts
                .into_iter()
                .zip(texts)
                .map(|(ids, text)| json!({"text": text, "token_ids": ids}))
                .collect();
            json!({
                "level": level.as_str(),
                "reason": why.as_ref().map(Unrouted::as_str),
                "detail": why.as_ref().map(Unrouted::to_string),
                "prompts": prompts,
            })
        }
        Err(why) => json!({
            "level": "none",
            "reason": why.as_str(),
            "detail": why.to_string(),
            "prompts": [],
        }),
    }
}

fn lines(shown: &Value) -> String {
    let word = |name: &str| shown[name].as_str().unwrap_or_default();
    let mut out = format!("level: {}\n", word("level"));
    if !word("reason").is_empty() {
        out.push_str(&format!("reason: {} ({})\n", word("reason"), word("detail")));
    }
    for prompt in shown["prompts"].as_array().into_iter().flatten() {
        let ids: Vec<String> =
            prompt["token_ids"].as_array().into_iter().flatten().map(Value::to_string).collect();
        out.push_str(&format!("\n{} tokens: {}\n", ids.len(), ids.join(" ")));
        if let Some(text) = prompt["text"].as_str() {
            out.push_str(&format!("{text}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests;
