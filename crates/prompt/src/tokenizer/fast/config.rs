//! What `tokenizer.json` asks for, if it is byte-level BPE and nothing else.

use std::collections::HashMap;

use super::merge::{Merges, PairMap, pair};
use super::split::Split;
use crate::json::{self, Dict, Json};

/// GPT-2's expression, which the byte-level pre-tokenizer uses by itself.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The parts of a tokenizer.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) nfc: bool,
    pub(super) splits: Vec<Split>,
    pub(super) merges: Merges,
}

pub(super) fn read(json: &[u8]) -> Result<Config, String> {
    let text = std::str::from_utf8(json).map_err(|e| e.to_string())?;
    let Json::Dict(file) = json::parse(text).map_err(|e| e.message.to_owned())? else {
        return Err("not a JSON object".to_owned());
    };
    Ok(Config {
        nfc: nfc(file.non_null("normalizer"))?,
        splits: splits(file.non_null("pre_tokenizer"))?,
        merges: merges(file.non_null("model").and_then(Json::as_dict).ok_or("no model")?)?,
    })
}

fn kind(part: &Json) -> &str {
    part.as_dict().and_then(|d| d.str("type")).unwrap_or("without a type")
}

fn list<'a>(part: &'a Json, key: &str) -> &'a [Json] {
    part.as_dict().and_then(|d| d.get(key)).and_then(Json::as_list).unwrap_or_default()
}

fn is(part: &Json, key: &str, default: bool) -> bool {
    part.as_dict().and_then(|d| d.get(key)).map_or(default, Json::is_truthy)
}

fn nfc(normalizer: Option<&Json>) -> Result<bool, String> {
    let Some(normalizer) = normalizer else { return Ok(false) };
    match (kind(normalizer), list(normalizer, "normalizers")) {
        ("NFC", _) | ("Sequence", [Json::Dict(_)]) if is_nfc(normalizer) => Ok(true),
        ("Sequence", []) => Ok(false),
        (other, _) => Err(format!("normalizer {other}")),
    }
}

fn is_nfc(normalizer: &Json) -> bool {
    match list(normalizer, "normalizers") {
        [only] => kind(only) == "NFC",
        _ => kind(normalizer) == "NFC",
    }
}

fn splits(pre_tokenizer: Option<&Json>) -> Result<Vec<Split>, String> {
    let pre_tokenizer = pre_tokenizer.ok_or("no pre-tokenizer")?;
    let parts = match kind(pre_tokenizer) {
        "Sequence" => list(pre_tokenizer, "pretokenizers"),
        _ => std::slice::from_ref(pre_tokenizer),
    };
    let (last, before) = parts.split_last().ok_or("no pre-tokenizer")?;
    if kind(last) != "ByteLevel" || is(last, "add_prefix_space", true) {
        return Err(format!("pre-tokenizer {}", kind(last)));
    }
    let mut splits = before.iter().map(split).collect::<Result<Vec<_>, _>>()?;
    if is(last, "use_regex", true) {
        splits.push(Split { pattern: GPT2.to_owned(), keep_gaps: true });
    }
    Ok(splits)
}

fn split(part: &Json) -> Result<Split, String> {
    let refuse = || format!("pre-tokenizer {}", kind(part));
    let dict = part.as_dict().filter(|_| kind(part) == "Split").ok_or_else(refuse)?;
    let pattern = dict.get("pattern").and_then(Json::as_dict).and_then(|p| p.str("Regex"));
    let keep_gaps = match (dict.str("behavior"), is(part, "invert", false)) {
        (Some("Isolated"), false) => true,
        (Some("Removed"), true) => false,
        _ => return Err(refuse()),
    };
    Ok(Split { pattern: pattern.ok_or_else(refuse)?.to_owned(), keep_gaps })
}

fn merges(model: &Dict) -> Result<Merges, String> {
    if let Some(kind) = model.str("type").filter(|kind| *kind != "BPE") {
        return Err(format!("model {kind}"));
    }
    for key in ["dropout", "continuing_subword_prefix", "end_of_word_suffix"] {
        if model.get(key).is_some_and(Json::is_truthy) {
            return Err(format!("model with {key}"));
        }
    }
    let vocab = model.get("vocab").and_then(Json::as_dict).ok_or("no vocabulary")?;
    let ids = vocab.0.iter().map(|(text, id)| Some((text.as_str(), id_of(id)?)));
    let ids: HashMap<&str, u32> = ids.collect::<Option<_>>().ok_or("an id that is none")?;
    let letters = byte_letters();
    let mut bytes = Box::new([0; 256]);
    for (letter, byte) in &letters {
        let mut buffer = [0; 4];
        let id = ids.get(&*letter.encode_utf8(&mut buffer)).ok_or("a byte without a token")?;
        bytes[usize::from(*byte)] = *id;
    }
    let mut pairs = PairMap::default();
    let list = model.get("merges").and_then(Json::as_list).ok_or("no merges")?;
    for (rank, merge) in list.iter().enumerate() {
        let (left, right) = match merge {
            Json::Str(text) => text.split_once(' '),
            Json::List(two) => match two.as_slice() {
                [Json::Str(left), Json::Str(right)] => Some((left.as_str(), right.as_str())),
                _ => None,
            },
            _ => None,
        }
        .ok_or("a merge that is none")?;
        let id = |text: &str| ids.get(text).copied().ok_or("a merge without a token");
        let merged = id(&format!("{left}{right}"))?;
        let rank = u32::try_from(rank).map_err(|e| e.to_string())?;
        pairs.insert(pair(id(left)?, id(right)?), (rank, merged));
    }
    let whole = model.get("ignore_merges").is_some_and(Json::is_truthy).then(|| {
        let word = |text: &str| {
            text.chars().map(|c| letters.get(&c).copied()).collect::<Option<Box<[u8]>>>()
        };
        ids.iter().filter_map(|(text, id)| Some((word(text)?, *id))).collect()
    });
    Ok(Merges { bytes, pairs, whole })
}

fn id_of(value: &Json) -> Option<u32> {
    value.as_lax_int().and_then(|id| u32::try_from(id).ok())
}

/// The letters that stand for bytes in a byte-level vocabulary: printable ones for themselves, the
/// others for characters from U+0100 on.
fn byte_letters() -> HashMap<char, u8> {
    let mut other = 0x100;
    (0..=u8::MAX)
        .filter_map(|byte| {
            let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
            let letter = if printable {
                char::from(byte)
            } else {
                other += 1;
                char::from_u32(other - 1)?
            };
            Some((letter, byte))
        })
        .collect()
}
