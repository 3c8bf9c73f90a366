//! The model's tokenizer on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvasir_prompt::{Located, Renderer, Source, locate};
use serde_json::Value;

use crate::facts::Facts;
use crate::shown::shown;
use crate::target::Target;

/// Larger ones are nothing a tokenizer comes with.
const MAX_CONFIG: u64 = 16 << 20;

/// A tokenizer that loaded.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) renderer: Arc<Renderer>,
    /// Where it is and which rule found it, for findings.
    pub(super) place: String,
    /// The texts of its special tokens.
    pub(super) special: Vec<String>,
}

/// Looks for the tokenizer as the gateway does, or in the one place it was told, and loads it.
///
/// # Errors
/// Where it was looked for, or what is wrong with it.
pub(super) async fn find(target: &Target, facts: &Facts) -> Result<Found, String> {
    let model = target.model.clone().unwrap_or_else(|| facts.model.clone());
    let root = facts.card.models.first().and_then(|model| model.root.clone());
    let (only, staged) = (target.tokenizer.clone(), target.tokenizer_dir.clone());
    let load = move || {
        let (dir, place) = match &only {
            Some(only) => only_in(only, &model)?,
            None => match locate(&model, staged.as_deref(), root.as_deref()) {
                Located::Found { dir, source } => described(dir, source),
                missing @ Located::Missing { .. } => return Err(missing.to_string()),
            },
        };
        let renderer = Renderer::load(&dir).map_err(|error| error.to_string())?;
        Ok(Found { renderer: Arc::new(renderer), special: special_tokens(&dir), place })
    };
    let found = tokio::task::spawn_blocking(load).await;
    found.unwrap_or_else(|error| Err(format!("loading: {error}")))
}

/// The tokenizer in this directory or in the model's below it, and nowhere else.
fn only_in(only: &Path, model: &str) -> Result<(PathBuf, String), String> {
    if only.join("tokenizer.json").is_file() {
        return Ok((only.to_owned(), only.display().to_string()));
    }
    match locate(model, Some(only), None) {
        Located::Found { dir, source: Source::Staged } => Ok(described(dir, Source::Staged)),
        _ => Err(format!(
            "{} holds no tokenizer.json, nor a directory of model `{}` that does",
            only.display(),
            shown(model)
        )),
    }
}

fn described(dir: PathBuf, source: Source) -> (PathBuf, String) {
    let place = format!("{} ({source})", dir.display());
    (dir, place)
}

/// The begin and end tokens of `tokenizer_config.json`.
fn special_tokens(dir: &Path) -> Vec<String> {
    let path = dir.join("tokenizer_config.json");
    let small = std::fs::metadata(&path).is_ok_and(|meta| meta.len() <= MAX_CONFIG);
    let text = if small { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
    let Ok(config) = serde_json::from_slice::<Value>(&text) else { return Vec::new() };
    let token = |key: &str| {
        let token = config.get(key)?;
        let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
        (!text.is_empty() && text.len() <= 256).then(|| text.to_owned())
    };
    let mut tokens: Vec<String> =
        ["bos_token", "eos_token"].into_iter().filter_map(token).collect();
    tokens.dedup();
    tokens
}
