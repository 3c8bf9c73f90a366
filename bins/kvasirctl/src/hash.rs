//! `kvasirctl hash`: an engine's block hashes of a prompt, byte for byte.

use std::fmt::Write as _;
use std::io::{Read, Write as _, stdin, stdout};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use kvasir_kv_hash::vllm::{self, RequestExtras};
use kvasir_kv_hash::{Engine, Explained, Spec};
use serde_json::{Value, json};

use crate::args::HashArgs;
use crate::{Ended, say};

/// The largest file of token ids that is read: some ten million tokens.
const MAX_FILE: u64 = 64 << 20;
/// The exit status for arguments that cannot be.
const WRONG_ARGUMENTS: u8 = 2;

pub(crate) fn run(args: HashArgs) -> Result<Ended> {
    let HashArgs { prompt, lora, lora_id, cache_salt, item, .. } = args;
    let engine: Engine = args.engine.parse()?;
    let version = args.engine_version.as_deref().unwrap_or_default();
    if let Err(why) = fits(engine, version, args.seed.as_deref()) {
        say(&why);
        return Ok(Ended::Status(WRONG_ARGUMENTS));
    }
    let tokens = match prompt.tokens_file {
        Some(path) => read_tokens(&path)?,
        None => prompt.tokens,
    };
    let lora = match (lora, lora_id) {
        (Some(lora), int_id) => Some(vllm::Lora { int_id, ..lora }),
        (None, Some(id)) => Some(vllm::Lora { int_id: Some(id), ..vllm::Lora::default() }),
        (None, None) => None,
    };
    let request = RequestExtras { lora, cache_salt, items: item, prompt_embeds: None };
    let spec = Spec {
        engine,
        version,
        algorithm: &args.algo,
        seed: args.seed.as_deref(),
        block_size: args.block_size as usize,
    };
    // What stands behind the engine's own error is in its words already.
    let explained = spec.explain(&request, &tokens).map_err(|error| match &request.lora {
        Some(lora) if lora.path.is_none() => anyhow!("{error} (--lora NAME=PATH, --lora-id N)"),
        _ => anyhow!("{error}"),
    })?;
    note_unhashed(&spec, &request, &explained);
    let rest = tokens.len() % spec.block_size;
    let text = if args.json {
        if explained.blocks.is_empty() {
            say(&format!("note: {rest} tokens fill no block of {}", spec.block_size));
        }
        format!("{}\n", as_json(engine, &explained, args.preimage))
    } else {
        as_lines(engine, &explained, args.preimage, rest)
    };
    // A reader that has seen enough is not an error.
    match stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(Ended::Done),
    }
}

/// Whether the engine has such a version and seed at all.
fn fits(engine: Engine, version: &str, seed: Option<&str>) -> Result<(), String> {
    match (engine, seed) {
        (Engine::TrtLlm, _) if !matches!(version, "v1" | "v2") => Err(format!(
            "TensorRT-LLM's hashes differ by cache manager: --engine-version v1 or v2, not {version:?}"
        )),
        (Engine::Sglang | Engine::TrtLlm, Some(_)) => {
            Err(format!("{engine}'s hashes have no seed: leave --seed out"))
        }
        (Engine::Vllm, Some(seed)) if !vllm::python_accepts(seed) => Err(format!(
            "Python does not start with PYTHONHASHSEED={seed:?}: it takes `random` or a number from 0 \
             to 4294967295; leave --seed out where it is not set"
        )),
        _ => Ok(()),
    }
}

/// Says which parts of the request changed nothing: this engine does not hash them.
fn note_unhashed(spec: &Spec<'_>, request: &RequestExtras, explained: &Explained) {
    if explained.blocks.is_empty() {
        return;
    }
    let without_id = request.lora.clone().map(|lora| vllm::Lora { int_id: None, ..lora });
    let had_id = request.lora.as_ref().is_some_and(|lora| lora.int_id.is_some());
    let parts = [
        (
            "--cache-salt",
            request.cache_salt.is_some(),
            RequestExtras { cache_salt: None, ..request.clone() },
        ),
        ("--lora", request.lora.is_some(), RequestExtras { lora: None, ..request.clone() }),
        ("--lora-id", had_id, RequestExtras { lora: without_id, ..request.clone() }),
        (
            "--item",
            !request.items.is_empty(),
            RequestExtras { items: Vec::new(), ..request.clone() },
        ),
    ];
    for (flag, _, without) in parts.into_iter().filter(|(_, given, _)| *given) {
        // An error without it means that it is needed.
        let unchanged = spec.blocks_with(&without).is_ok_and(|mut blocks| {
            let tokens = explained.blocks.len().saturating_mul(spec.block_size);
            blocks.append(&vec![0; tokens]);
            spec.blocks_with(request).is_ok_and(|mut with| {
                with.append(&vec![0; tokens]);
                with.keys() == blocks.keys()
            })
        });
        if unchanged {
            say(&format!(
                "note: {flag} changes nothing: {} {} does not hash it",
                spec.engine, spec.version
            ));
        }
    }
}

fn read_tokens(path: &Path) -> Result<Vec<u32>> {
    let name = path.display();
    let mut text = String::new();
    let mut source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).with_context(|| name.to_string())?)
    };
    source
        .by_ref()
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .with_context(|| name.to_string())?;
    ensure!(text.len() as u64 <= MAX_FILE, "{name}: larger than {} MiB", MAX_FILE >> 20);
    serde_json::from_str(&text).with_context(|| format!("{name}: not a JSON array of token ids"))
}

fn as_json(engine: Engine, explained: &Explained, preimages: bool) -> Value {
    let blocks: Vec<Value> = explained
        .blocks
        .iter()
        .map(|block| {
            let mut shown = json!({
                "digest": block.digest.as_deref().map(hex),
                "key": block.key.to_string(),
            });
            if engine == Engine::Sglang {
                shown["signed"] = json!(block.key.cast_signed().to_string());
            }
            if preimages {
                shown["preimage"] = json!(block.preimage.as_deref().map(hex));
            }
            shown
        })
        .collect();
    json!({"none_hash": explained.none_hash.as_deref().map(hex), "blocks": blocks})
}

/// A line a block, and what is not hashed.
fn as_lines(engine: Engine, explained: &Explained, preimages: bool, rest: usize) -> String {
    let mut text = String::new();
    let shown = |bytes: &Option<Vec<u8>>| bytes.as_deref().map_or_else(|| "-".to_owned(), hex);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "none_hash  {}", shown(&explained.none_hash));
    for (index, block) in explained.blocks.iter().enumerate() {
        let _ =
            writeln!(text, "block {index:<5}digest {}  key {}", shown(&block.digest), block.key);
        if engine == Engine::Sglang {
            let _ = writeln!(text, "           signed {}", block.key.cast_signed());
        }
        if preimages {
            let _ = writeln!(text, "           preimage {}", shown(&block.preimage));
        }
    }
    if rest > 0 {
        let _ = writeln!(text, "{rest} tokens after the last full block: not hashed");
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
