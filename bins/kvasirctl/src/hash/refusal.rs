//! Why `kvasirctl hash` gives no hashes, in the command line's words, and with which exit status.

use kvasir_kv_hash::{Engine, SpecError, sglang, trtllm, vllm};

use crate::args::HashArgs;

/// The exit status for hashes that cannot be computed here.
const UNKNOWABLE: u8 = 1;
/// The exit status for arguments that cannot be.
const WRONG_ARGUMENTS: u8 = 2;

/// Why there are no hashes.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u8,
    pub(super) why: String,
}

impl Refusal {
    fn wrong(why: impl Into<String>) -> Self {
        Self { status: WRONG_ARGUMENTS, why: why.into() }
    }

    fn unknowable(why: impl Into<String>) -> Self {
        Self { status: UNKNOWABLE, why: why.into() }
    }

    /// What the library says, where a flag has to be named beside it.
    pub(super) fn of(error: &SpecError) -> Self {
        let why = error.to_string();
        match error {
            SpecError::Vllm(vllm::ContractError::LoraPartMissing { part, .. }) => {
                let flag = if *part == "path" { "--lora NAME=PATH" } else { "--lora-id N" };
                Self::wrong(format!("{why}: {flag}"))
            }
            // No flag takes this id.
            SpecError::Sglang(sglang::ContractError::Unknowable(sglang::Unknowable::LoraId)) => {
                Self::unknowable(
                    "unknowable: this engine's hashes for an adapter cover its id, which is drawn \
                     when the adapter is loaded and which events do not carry; compare by the \
                     tokens and `lora_name` of events instead",
                )
            }
            SpecError::Vllm(
                vllm::ContractError::Unknowable(_) | vllm::ContractError::Unsupported(_),
            )
            | SpecError::TrtLlm(trtllm::ContractError::Unknowable(_))
            | SpecError::Extras { .. } => Self::unknowable(why),
            _ => Self::wrong(why),
        }
    }
}

/// Refuses flags that this engine cannot have, or cannot have without another one.
pub(super) fn check(args: &HashArgs, engine: Engine) -> Result<(), Refusal> {
    let version = args.engine_version.as_deref().unwrap_or_default();
    let seed = args.seed.as_deref();
    match engine {
        Engine::Vllm => {
            if let Some(seed) = seed.filter(|seed| !vllm::python_accepts(seed)) {
                return Err(Refusal::wrong(format!(
                    "Python does not start with PYTHONHASHSEED={seed:?}: it takes `random` or a \
                     number from 0 to 4294967295; leave --seed out where it is not set"
                )));
            }
            if args.lora.is_none() && args.lora_id.is_some() {
                return Err(Refusal::wrong("--lora-id needs --lora with vLLM"));
            }
        }
        Engine::Sglang | Engine::TrtLlm => {
            if seed.is_some() {
                let why = format!("{engine}'s hashes have no seed: leave --seed out");
                return Err(Refusal::wrong(why));
            }
            if engine == Engine::TrtLlm && !matches!(version, "v1" | "v2") {
                return Err(Refusal::wrong(format!(
                    "TensorRT-LLM's hashes differ by cache manager, not by release: use \
                     --engine-version v1 or v2 instead of {version:?}"
                )));
            }
            if engine == Engine::TrtLlm && args.lora.is_some() && args.lora_id.is_none() {
                let why = "TensorRT-LLM hashes an adapter's task id: give --lora-id N";
                return Err(Refusal::wrong(why));
            }
            if !args.item.is_empty() {
                return Err(Refusal::unknowable(format!(
                    "{engine}'s hashes of images cannot be computed from --item, which takes \
                     vLLM's identifiers"
                )));
            }
        }
        Engine::LoxiLb => {}
    }
    Ok(())
}
