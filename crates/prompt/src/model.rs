//! The files of a model directory: special tokens, added tokens, chat templates, who renders.
//!
//! The rules are those of transformers 5.19 (which file wins) and vLLM 0.32 (which models it
//! does not render with a template at all).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokenizers::AddedToken;

use crate::json::{self, Dict, Json};
use crate::{LoadError, Unrouted};

/// Largest configuration or template file that is read.
const MAX_CONFIG_BYTES: u64 = 32 << 20;

/// The special tokens every template may name.
const SPECIAL: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// What a directory says about its model.
#[derive(Debug)]
pub(crate) struct Model {
    /// Special tokens by variable name, in no particular order.
    pub(crate) special_tokens: Vec<(String, String)>,
    /// Tokens the configuration lists with their properties, by id.
    pub(crate) added_tokens: Vec<AddedToken>,
    pub(crate) split_special_tokens: bool,
    pub(crate) templates: Templates,
    /// Why the engine's tokenizer may differ from the file.
    pub(crate) caveat: Option<String>,
    /// The engine renders this model's chats otherwise.
    pub(crate) rendered_by: RenderedBy,
}

/// Template sources by use.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    pub(crate) plain: Option<String>,
    /// For requests with tools, where it is another one.
    pub(crate) with_tools: Option<String>,
}

/// Who turns a conversation into a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RenderedBy {
    Template,
    Harmony,
    /// The engine's own code for this kind of model. `tokenizer`: its tokenizer is another, too.
    Engine {
        kind: String,
        tokenizer: bool,
    },
}

impl RenderedBy {
    /// Why chats of this model are rendered here no more than approximately.
    pub(crate) fn refuses_chat(&self) -> Result<(), Unrouted> {
        match self {
            Self::Template | Self::Harmony => Ok(()),
            Self::Engine { kind, .. } => Err(Unrouted::EngineRendered(kind.clone())),
        }
    }

    /// Why plain text of this model is tokenised here no more than approximately.
    pub(crate) fn refuses_text(&self) -> Result<(), Unrouted> {
        match self {
            Self::Engine { kind, tokenizer: true } => Err(Unrouted::EngineRendered(kind.clone())),
            _ => Ok(()),
        }
    }
}

impl Model {
    pub(crate) fn read(dir: &Path) -> Result<Self, LoadError> {
        let config = read_json(&dir.join("tokenizer_config.json"))?.unwrap_or_default();
        let legacy = read_json(&dir.join("special_tokens_map.json"))?.unwrap_or_default();
        let model_config = read_json(&dir.join("config.json"))?.unwrap_or_default();
        let templates = templates(dir, &config)?;
        let rendered_by = rendered_by(dir, &model_config, templates.plain.as_deref());
        let special_tokens = special_tokens(&config, &legacy);
        Ok(Self {
            added_tokens: added_tokens(&config),
            split_special_tokens: config.get("split_special_tokens").is_some_and(Json::is_truthy),
            special_tokens,
            caveat: caveat(&config, model_config.str("model_type")),
            templates,
            rendered_by,
        })
    }
}

pub(crate) fn read_file(path: &Path, limit: u64) -> Result<Option<String>, LoadError> {
    let fail = |error| LoadError::Read { path: path.to_owned(), error };
    match std::fs::metadata(path) {
        Ok(meta) if meta.len() > limit => Err(LoadError::Invalid {
            path: path.to_owned(),
            message: format!("larger than {limit} bytes"),
        }),
        Ok(_) => std::fs::read_to_string(path).map(Some).map_err(fail),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(fail(e)),
    }
}

fn read_json(path: &Path) -> Result<Option<Dict>, LoadError> {
    let Some(text) = read_file(path, MAX_CONFIG_BYTES)? else { return Ok(None) };
    let invalid = |message: String| LoadError::Invalid { path: path.to_owned(), message };
    match json::parse(&text) {
        Ok(Json::Dict(dict)) => Ok(Some(dict)),
        Ok(_) => Err(invalid("not a JSON object".to_owned())),
        Err(e) => {
            let (line, column) = json::position(text.as_bytes(), e.offset);
            Err(invalid(format!("{} (line {line}, column {column})", e.message)))
        }
    }
}

/// A token written as a string or as an object with `content`.
fn token_text(value: &Json) -> Option<&str> {
    value.as_str().or_else(|| value.as_dict()?.str("content"))
}

fn special_tokens(config: &Dict, legacy: &Dict) -> Vec<(String, String)> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    // The old file counts only where the configuration does not list its added tokens.
    let legacy = if config.contains("added_tokens_decoder") { None } else { Some(legacy) };
    let mut take = |key: &str, value: &Json| {
        if let Some(text) = token_text(value) {
            found.insert(key.to_owned(), text.to_owned());
        }
    };
    for dict in [Some(config), legacy].into_iter().flatten() {
        for (key, value) in &dict.0 {
            if SPECIAL.contains(&key.as_str()) || key.ends_with("_token") {
                take(key, value);
            }
            if let ("extra_special_tokens" | "model_specific_special_tokens", Some(named)) =
                (key.as_str(), value.as_dict())
            {
                named.0.iter().for_each(|(key, value)| take(key, value));
            }
        }
    }
    found.into_iter().collect()
}

fn added_tokens(config: &Dict) -> Vec<AddedToken> {
    let mut listed: Vec<(u64, AddedToken)> = Vec::new();
    if let Some(decoder) = config.get("added_tokens_decoder").and_then(Json::as_dict) {
        for (id, token) in &decoder.0 {
            if let (Ok(id), Some(token)) = (id.parse(), token.as_dict().and_then(added_token)) {
                listed.push((id, token));
            }
        }
    }
    listed.sort_by_key(|(id, _)| *id);
    listed.into_iter().map(|(_, token)| token).collect()
}

fn added_token(token: &Dict) -> Option<AddedToken> {
    let flag = |name: &str| token.get(name).is_some_and(Json::is_truthy);
    let special = flag("special");
    let normalized = token.get("normalized").map_or(!special, Json::is_truthy);
    Some(
        AddedToken::from(token.str("content")?, special)
            .single_word(flag("single_word"))
            .lstrip(flag("lstrip"))
            .rstrip(flag("rstrip"))
            .normalized(normalized),
    )
}

/// `chat_template.jinja` (and `additional_chat_templates/`) win over the configuration's
/// `chat_template`. The older `chat_template.json` belongs to a processor: vLLM asks that first,
/// but only for requests without tools.
fn templates(dir: &Path, config: &Dict) -> Result<Templates, LoadError> {
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    if let Some(text) = read_file(&dir.join("chat_template.jinja"), MAX_CONFIG_BYTES)? {
        named.insert("default".to_owned(), text);
    }
    for path in additional_templates(dir) {
        if let (Some(name), Some(text)) =
            (path.file_stem().and_then(|s| s.to_str()), read_file(&path, MAX_CONFIG_BYTES)?)
        {
            named.insert(name.to_owned(), text);
        }
    }
    let has_files = !named.is_empty();
    if !has_files {
        match config.get("chat_template") {
            Some(Json::Str(text)) => {
                named.insert("default".to_owned(), text.clone());
            }
            Some(Json::List(list)) => {
                for entry in list.iter().filter_map(Json::as_dict) {
                    if let (Some(name), Some(text)) = (entry.str("name"), entry.str("template")) {
                        named.insert(name.to_owned(), text.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    let default = named.remove("default");
    let with_tools = named.remove("tool_use");
    let processor = match read_json(&dir.join("chat_template.json"))? {
        Some(file) if !has_files => file.str("chat_template").map(str::to_owned),
        _ => None,
    };
    Ok(match processor {
        Some(text) => Templates { plain: Some(text), with_tools: with_tools.or(default) },
        None => Templates { plain: default, with_tools },
    })
}

fn additional_templates(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("additional_chat_templates"));
    let mut paths: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "jinja"))
        .take(64)
        .collect();
    paths.sort();
    paths
}

fn rendered_by(dir: &Path, config: &Dict, template: Option<&str>) -> RenderedBy {
    let kind = config.str("model_type").unwrap_or_default();
    let architectures: Vec<&str> = config
        .get("architectures")
        .and_then(Json::as_list)
        .map(|list| list.iter().filter_map(Json::as_str).collect())
        .unwrap_or_default();
    let engine = |kind: &str, tokenizer| RenderedBy::Engine { kind: kind.to_owned(), tokenizer };
    for architecture in architectures {
        match architecture {
            "DeepseekV32ForCausalLM" => return engine("deepseek_v32", false),
            "DeepseekV4ForCausalLM" | "DeepseekV4ForConditionalGeneration" => {
                return engine("deepseek_v4", false);
            }
            "DeepseekV41ForCausalLM" => return engine("deepseek_v41", false),
            "KimiK3ForConditionalGeneration" => return engine("kimi_k3", false),
            "MoonshotKimiaForCausalLM" => return engine("kimi_audio", true),
            "InklingForCausalLM" | "InklingForConditionalGeneration" => {
                return engine("inkling", false);
            }
            _ => {}
        }
    }
    match kind {
        "gpt_oss" => RenderedBy::Harmony,
        "deepseek_v32" | "deepseek_v4" | "deepseek_v41" => engine(kind, false),
        _ if is_mistral_format(dir) => engine("mistral", true),
        // Without a configuration the marks of the format tell.
        "" if template.is_some_and(is_harmony) => RenderedBy::Harmony,
        _ => RenderedBy::Template,
    }
}

/// Classes for which transformers 5 builds a tokenizer of its own instead of reading
/// `tokenizer.json` as it is.
fn caveat(config: &Dict, model_type: Option<&str>) -> Option<String> {
    let class = config.str("tokenizer_class")?;
    let base = class.strip_suffix("Fast").unwrap_or(class);
    // Known to be overridden with the plain class.
    let overridden = matches!(model_type, Some("deepseek_v3"));
    (matches!(base, "LlamaTokenizer" | "GPT2Tokenizer") && !overridden).then(|| {
        format!(
            "transformers 5 rebuilds the pre-tokenizer of class {class}: token ids can differ \
             from tokenizer.json around leading spaces and special tokens"
        )
    })
}

/// vLLM takes mistral-common's tokenizer where a repository has weights and tokenizer in
/// Mistral's own format.
fn is_mistral_format(dir: &Path) -> bool {
    let (mut weights, mut tokenizer) = (false, false);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().take(4096) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        weights |= name.starts_with("consolidated") && name.ends_with(".safetensors");
        tokenizer |= name == "tekken.json" || name.starts_with("tokenizer.model.v");
    }
    weights && tokenizer
}

fn is_harmony(template: &str) -> bool {
    ["<|start|>", "<|channel|>", "<|message|>", "<|return|>"].iter().all(|m| template.contains(m))
}
