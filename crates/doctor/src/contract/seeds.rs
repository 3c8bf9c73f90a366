//! What it means that no seed tried computes an engine's hashes.

use kvasir_kv_hash::detect::{Found, Match, Seed, Seeds};
use kvasir_kv_hash::vllm::{Algorithm, Contract, ContractError, Unknowable};

use super::hash::Remark;
use crate::facts::Facts;
use crate::target::Target;

/// What is known where no seed fits.
pub(super) struct Case<'a> {
    pub(super) target: &'a Target,
    pub(super) facts: &'a Facts,
    /// The contract whose seed is not known.
    pub(super) found: Option<&'a Match>,
    /// Whether events show what was hashed besides tokens.
    pub(super) published: bool,
}

/// Whether that is somebody's fault.
pub(super) enum Judgement {
    Off(Remark),
    Unknown(Remark),
}

/// Why it does no harm.
const HARMLESS: &str = "the gateway needs no seed: it keys blocks by the tokens of events";

/// And where it does.
const HARMFUL: &str = "the pool goes by the engine's hashes: give identity.engine what it hashes by, or \
                       take `identity: tokens`";

// === impl Case ===

impl Case<'_> {
    pub(super) fn judge(&self) -> Judgement {
        let tried = Seeds::default().len();
        let Some(expected) = &self.target.expected.seed else {
            return Judgement::Unknown(self.without_expectation(tried));
        };
        let seed = Seed::from(expected.as_deref());
        match self.contract(expected.as_deref()) {
            Some(Err(ContractError::Unknowable(why))) => Judgement::Unknown(self.unknowable(why)),
            // It was tried with every algorithm, and refuted.
            _ if self.published || self.found.is_some() => Judgement::Off(Remark::new(
                format!(
                    "seed differs: it is not {seed}, as expected, nor any of {tried} others tried"
                ),
                format!("{}, or {} on the engine", self.its_seed(), setting(&seed)),
            )),
            _ => Judgement::Unknown(Remark::new(
                format!(
                    "no contract computes these hashes, with seed {seed} or {tried} others: another \
                     seed, or extra keys that such a release does not publish"
                ),
                self.harmless(),
            )),
        }
    }

    fn without_expectation(&self, tried: usize) -> Remark {
        match self.contract(None) {
            Some(Err(ContractError::Unknowable(Unknowable::RandomNoneHash))) => Remark::new(
                format!(
                    "seed not among {tried} tried; with none set, this engine starts its chains \
                     from random bytes, which cannot be reproduced"
                ),
                format!(
                    "{HARMLESS}; for hashes that can be checked, set PYTHONHASHSEED=0 on the engine"
                ),
            ),
            Some(Err(ContractError::Unknowable(why))) => self.unknowable(why),
            _ => Remark::new(
                format!("no contract computes these hashes: seed not among {tried} tried"),
                format!("--expect-seed with the engine's PYTHONHASHSEED; {HARMLESS}"),
            ),
        }
    }

    fn its_seed(&self) -> String {
        let place =
            if self.target.goes_by_hashes() { "identity.engine.seed" } else { "--expect-seed" };
        format!("{place} with the engine's PYTHONHASHSEED")
    }

    /// Why an unknown seed does no harm, where it does none.
    fn harmless(&self) -> &'static str {
        if self.target.goes_by_hashes() { HARMFUL } else { HARMLESS }
    }

    fn unknowable(&self, why: Unknowable) -> Remark {
        Remark::new(not_reproducible(why), self.harmless())
    }

    /// The contract of the engine's own version and algorithm, as far as they are known, with a
    /// seed.
    fn contract(&self, seed: Option<&str>) -> Option<Result<Contract, ContractError>> {
        let found = self.found.and_then(|found| match &found.found {
            Found::Vllm { algorithm, .. } => Some(*algorithm),
            _ => None,
        });
        let named = |text: &Option<String>| text.as_deref()?.parse::<Algorithm>().ok();
        let algorithm = found
            .or_else(|| named(&self.facts.cache.algorithm))
            .or_else(|| named(&self.target.expected.algorithm))?;
        Some(Contract::new(self.facts.vllm_version?, algorithm, seed))
    }
}

fn not_reproducible(why: Unknowable) -> &'static str {
    match why {
        Unknowable::RandomNoneHash => {
            "not reproducible: without PYTHONHASHSEED such an engine starts its chains from random \
             bytes (before 0.29, and with xxhash and xxhash_cbor always)"
        }
        Unknowable::BuiltinHash => {
            "not reproducible: algorithm builtin is CPython's hash(), which depends on the process"
        }
        _ => "not reproducible outside the engine's process",
    }
}

/// The seed in a finding.
pub(super) fn in_words(seed: &Seed) -> String {
    match seed {
        Seed::Unset => "seed unset (a fixed start since 0.29)".to_owned(),
        seed => format!("seed {seed}"),
    }
}

/// What gives an engine this seed.
pub(super) fn setting(seed: &Seed) -> String {
    match seed {
        Seed::Unset => "no PYTHONHASHSEED".to_owned(),
        Seed::Text(text) => format!("PYTHONHASHSEED={text}"),
    }
}
