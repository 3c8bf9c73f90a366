//! `kvasirctl hash`: an engine's block hashes of a prompt, byte for byte.

mod refusal;
mod unhashed;

use std::fmt::Write as _;
use std::io::{Read, stdin};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use kvasir_kv_hash::vllm::{self, RequestExtras};
use kvasir_kv_hash::{Engine, Explained, Spec};
use serde_json::{Value, json};

use self::refusal::Refusal;
use crate::args::HashArgs;
use crate::output::write;
use crate::{Ended, say};

/// The largest file of token ids that is read: some ten million tokens.
const MAX_FILE: u64 = 64 << 20;

pub(crate) fn run(args: HashArgs) -> Result<Ended> {
    let engine: Engine = args.engine.parse()?;
    if let Err(refusal) = refusal::check(&args, engine) {
        return Ok(refused(&refusal));
    }
    let request = request(&args, engine);
    let spec = Spec {
        engine,
        version: args.engine_version.as_deref().unwrap_or_default(),
        algorithm: &args.algo,
        seed: args.seed.as_deref(),
        block_size: args.block_size as usize,
    };
    let unhashed = unhashed::unhashed(&spec, &args, &request);
    let tokens = match args.prompt.tokens_file {
        Some(path) => read_tokens(&path)?,
        None => args.prompt.tokens,
    };
    let explained = match spec.explain(&request, &tokens) {
        Ok(explained) => explained,
        Err(error) => return Ok(refused(&Refusal::of(&error))),
    };
    for flag in unhashed {
        let name = format!("{engine} {}", if engine == Engine::LoxiLb { "" } else { spec.version });
        say(&format!("note: {flag} is not hashed by {}", name.trim_end()));
    }
    let hashed = explained.blocks.len().saturating_mul(spec.block_size);
    let rest = tokens.len().saturating_sub(hashed);
    if args.json && explained.blocks.is_empty() {
        say(&format!("note: {rest} tokens fill no block of {}", spec.block_size));
    }
    let text = if args.json {
        format!("{}\n", as_json(engine, &explained, args.preimage))
    } else {
        as_lines(engine, &explained, args.preimage, rest)
    };
    write(&text)?;
    Ok(Ended::Done)
}

fn refused(refusal: &Refusal) -> Ended {
    say(&refusal.why);
    Ended::Status(refusal.status)
}

/// What the request brings besides tokens; TensorRT-LLM's adapters need no name.
fn request(args: &HashArgs, engine: Engine) -> RequestExtras {
    let lora = match (&args.lora, args.lora_id) {
        (Some(lora), int_id) => Some(vllm::Lora { int_id, ..lora.clone() }),
        (None, int_id @ Some(_)) if engine == Engine::TrtLlm => {
            Some(vllm::Lora { int_id, ..vllm::Lora::default() })
        }
        (None, _) => None,
    };
    let (cache_salt, items) = (args.cache_salt.clone(), args.item.clone());
    RequestExtras { lora, cache_salt, items, prompt_embeds: None }
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
        let _ = writeln!(text, "{rest} tokens after the last hashed block: not hashed");
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
