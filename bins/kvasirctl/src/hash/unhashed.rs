//! Which flags of `kvasirctl hash` leave the hashes as they are.

use kvasir_kv_hash::vllm::{self, RequestExtras};
use kvasir_kv_hash::{Engine, Spec, loxilb};

use crate::args::HashArgs;

/// The flags that this engine does not hash, though they were given: without them, the hashes are
/// the same.
///
/// Tells by hashing one block with and without each; an error without one means it is needed.
pub(super) fn unhashed(spec: &Spec<'_>, args: &HashArgs, request: &RequestExtras) -> Vec<String> {
    let spec = Spec { block_size: 1, ..*spec };
    let key = |spec: &Spec<'_>, request: &RequestExtras| {
        spec.blocks_with(request).ok().and_then(|mut blocks| blocks.append(&[0]).first().copied())
    };
    let plain = RequestExtras::default();
    let same = |one: &RequestExtras, other: &RequestExtras| {
        key(&spec, one).is_some_and(|key_of_one| key(&spec, other) == Some(key_of_one))
    };
    let mut flags = Vec::new();
    if args.engine_version.is_some() && spec.engine == Engine::LoxiLb {
        flags.push("--engine-version".to_owned());
    }
    let unseeded = key(&Spec { seed: None, ..spec }, &plain);
    if args.seed.is_some() && unseeded.is_some() && unseeded == key(&spec, &plain) {
        flags.push(match args.seed.as_deref() {
            Some(seed) if is_too_long(&spec, seed) => "--seed (longer than 23 bytes)".to_owned(),
            _ => "--seed".to_owned(),
        });
    }
    let salted = RequestExtras { cache_salt: request.cache_salt.clone(), ..plain.clone() };
    if request.cache_salt.is_some() && same(&salted, &plain) {
        flags.push("--cache-salt".to_owned());
    }
    flags.extend(unhashed_adapter(spec.engine, args, request, same));
    // At the first token, wherever it was.
    let item =
        request.items.first().map(|item| vllm::MmItem { offset: 0, length: 1, ..item.clone() });
    let pictured = RequestExtras { items: item.into_iter().collect(), ..plain.clone() };
    if !request.items.is_empty() && same(&pictured, &plain) {
        flags.push("--item".to_owned());
    }
    flags
}

/// What of `--lora` and `--lora-id` is not hashed.
fn unhashed_adapter(
    engine: Engine,
    args: &HashArgs,
    request: &RequestExtras,
    same: impl Fn(&RequestExtras, &RequestExtras) -> bool,
) -> Vec<String> {
    let with = |lora: vllm::Lora| RequestExtras { lora: Some(lora), ..RequestExtras::default() };
    let mut flags = Vec::new();
    if let (Some(_), Some(lora)) = (&args.lora, &request.lora) {
        let given = with(lora.clone());
        let renamed = vllm::Lora { name: format!("{}'", lora.name), ..lora.clone() };
        if same(&given, &with(renamed)) {
            flags.push("--lora".to_owned());
        } else if lora.path.is_some()
            && same(&given, &with(vllm::Lora { path: None, ..lora.clone() }))
        {
            flags.push("the path of --lora".to_owned());
        }
    }
    let id_is_unhashed = match &request.lora {
        Some(lora) if matches!(engine, Engine::Vllm | Engine::TrtLlm) => {
            same(&with(lora.clone()), &with(vllm::Lora { int_id: None, ..lora.clone() }))
        }
        _ => true,
    };
    if args.lora_id.is_some() && id_is_unhashed {
        flags.push("--lora-id".to_owned());
    }
    flags
}

fn is_too_long(spec: &Spec<'_>, seed: &str) -> bool {
    spec.engine == Engine::LoxiLb
        && matches!(
            loxilb::Contract::new(loxilb::Algorithm::Sha256Cbor, Some(seed)).first_parent(),
            loxilb::FirstParent::ZerosForLongSeed(_)
        )
}
