//! The leg `hash_contract`: which contract computes the published hashes.

use std::collections::BTreeSet;

use kvasir_fleet::EngineKind;
use kvasir_kv_hash::detect::{self, Detector, Expected, Form, Found};
use kvasir_kv_hash::vllm::{self, Algorithm, Contract};

use super::by_hashes::{self, Proof};
use super::convert::{Owned, by_adapter};
use super::seeds;
use super::to_hear_events;
use crate::facts::Facts;
use crate::probe::Probed;
use crate::report::{Leg, LegName};
use crate::shown::shown;
use crate::stream::Collected;
use crate::target::Target;

/// What was found, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remark {
    /// The adapter whose blocks show it; empty for the base model's.
    whose: String,
    pub(super) finding: String,
    pub(super) remedy: String,
}

impl Remark {
    /// One of the base model, or of all.
    pub(super) fn new(finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { whose: String::new(), finding: finding.into(), remedy: remedy.into() }
    }

    fn of(self, whose: &str) -> Self {
        Self { whose: whose.to_owned(), ..self }
    }
}

/// What all groups of events say.
#[derive(Debug, Default)]
struct Verdicts {
    /// What fits, best first.
    fits: Vec<detect::Match>,
    kinds: BTreeSet<&'static str>,
    off: Vec<Remark>,
    /// What keeps the leg from being ok.
    unknown: Vec<Remark>,
    /// What could not be checked, and need not be for the contract to be proved.
    notes: Vec<Remark>,
}

pub(super) fn leg(
    target: &Target,
    facts: &Facts,
    probed: &Probed,
    events: Option<&Collected>,
) -> Leg {
    let mut verdicts = Verdicts::default();
    let groups = events.map(by_adapter).unwrap_or_default();
    let heard = !groups.is_empty();
    for (adapter, events) in &groups {
        look(target, facts, *adapter, events, &mut verdicts);
    }
    let impossible = not_offered(target, facts);
    if impossible.is_none() && verdicts.fits.is_empty() {
        verdicts.off.extend(label_differs(target, facts));
    }
    verdicts.off.extend(impossible);
    verdicts.off.extend(label_contradicted(facts, &verdicts.fits));
    verdicts.unknown.extend(not_compared(target, &verdicts.fits));
    if target.goes_by_hashes() && verdicts.off.is_empty() {
        verdicts.off.extend(events.and_then(|heard| by_hashes::contradiction(&heard.contract)));
    }
    if !heard && by_hashes::come_without_tokens(events) {
        return without_tokens(target, probed, verdicts, facts);
    }
    if !heard {
        let remedy = match events {
            None => "see the leg events",
            Some(_) => to_hear_events(probed),
        };
        verdicts.unknown.push(Remark::new("no stored block with tokens was heard", remedy));
    }
    conclude(facts, verdicts)
}

/// Hashes that can be held against nothing in their events.
fn without_tokens(target: &Target, probed: &Probed, mut verdicts: Verdicts, facts: &Facts) -> Leg {
    match by_hashes::proof(probed) {
        _ if !target.goes_by_hashes() => verdicts.unknown.push(by_hashes::no_tokens()),
        Proof::Ok(finding) if verdicts.off.is_empty() => {
            return Leg::ok(LegName::HashContract, finding);
        }
        Proof::Ok(_) => {}
        Proof::Off(remark) => verdicts.off.push(remark),
        Proof::Unknown(remark) => verdicts.unknown.push(remark),
    }
    conclude(facts, verdicts)
}

fn conclude(facts: &Facts, verdicts: Verdicts) -> Leg {
    let Verdicts { fits, kinds, mut off, mut unknown, mut notes } = verdicts;
    let fit = describe(facts, &fits, &kinds);
    let seed_known = fits.iter().any(has_seed);
    let join = |remarks: &mut Vec<Remark>, fit: Option<String>| {
        dedup(remarks);
        let findings = remarks.iter().map(|r| format!("{}{}", r.whose, r.finding)).chain(fit);
        let remedies: BTreeSet<&str> = remarks.iter().map(|r| r.remedy.as_str()).collect();
        let remedies: Vec<&str> = remedies.into_iter().collect();
        (findings.collect::<Vec<_>>().join("; "), remedies.join("; "))
    };
    if !off.is_empty() {
        let (finding, remedy) = join(&mut off, fit);
        return Leg::off(LegName::HashContract, finding, remedy);
    }
    match fit {
        // What could not be checked beside it is named.
        Some(fit) if seed_known && unknown.is_empty() => {
            let (notes, _) = join(&mut notes, None);
            let notes = if notes.is_empty() { notes } else { format!("; {notes}") };
            Leg::ok(LegName::HashContract, format!("{fit}{notes}"))
        }
        fit => {
            unknown.append(&mut notes);
            let (finding, remedy) = join(&mut unknown, fit);
            Leg::unknown(LegName::HashContract, finding, remedy)
        }
    }
}

/// What is true of the base model's blocks need not be said of each adapter's.
fn dedup(remarks: &mut Vec<Remark>) {
    let mut seen = BTreeSet::new();
    remarks.retain(|remark| seen.insert(remark.finding.clone()));
}

/// Whether chains could be verified from their first blocks on.
fn has_seed(fit: &detect::Match) -> bool {
    !matches!(fit.found, Found::Vllm { seed: None, .. })
}

/// Runs detection on the events of one adapter, or of the base model.
fn look(
    target: &Target,
    facts: &Facts,
    adapter: Option<&str>,
    events: &[Owned<'_>],
    verdicts: &mut Verdicts,
) {
    let path = adapter.and_then(|name| facts.card.adapter(name)).and_then(|a| a.path.clone());
    let whose = adapter.map_or_else(String::new, |name| format!("adapter {}: ", shown(name)));
    if adapter.is_some() && path.is_none() {
        let finding = "not checked, /v1/models does not tell its path";
        let remark = Remark::new(finding, "load the adapter again and rerun");
        verdicts.notes.push(remark.of(&whose));
        return;
    }
    let lists: Vec<_> = events.iter().map(Owned::lists).collect();
    let stored: Vec<_> =
        events.iter().zip(&lists).map(|(event, lists)| event.borrow(lists)).collect();
    let expected = Expected {
        engine: match facts.kind {
            EngineKind::Vllm => Some("vllm"),
            EngineKind::Sglang => Some("sglang"),
            EngineKind::TrtLlm => Some("trtllm"),
            EngineKind::LlamaCpp | EngineKind::Other => None,
        },
        version: facts.vllm_version,
        algorithm: target.expected.algorithm.as_deref(),
        seed: target.expected.seed.as_ref().map(Option::as_deref),
        ..Expected::default()
    };
    let report = Detector::new().lora_paths(path).expect(expected).run(&stored);
    let published = stored.iter().any(|event| !event.extra_keys.is_empty());
    for leg in &report.legs {
        let case = seeds::Case { target, facts, found: report.found.as_ref(), published };
        judge(leg, &case, &whose, verdicts);
    }
    verdicts.fits.extend(report.found);
}

fn judge(leg: &detect::Leg, case: &seeds::Case<'_>, whose: &str, verdicts: &mut Verdicts) {
    use detect::Leg as L;
    let text = leg.to_string().replace("you configured", "expected");
    let seeded = verdicts.fits.iter().any(has_seed);
    let mut off = |remedy: String| {
        verdicts.off.push(Remark::new(text.as_str(), remedy).of(whose));
    };
    let mut note = |finding: &str, remedy: &str| {
        verdicts.notes.push(Remark::new(finding, remedy).of(whose));
    };
    match leg {
        L::ExtraKeys { kinds } => verdicts.kinds.extend(kinds),
        L::Algorithm { found, configured } => off(format!(
            "{}, or --prefix-caching-hash-algo {configured} on the engine",
            case.target.to_expect_algorithm(found)
        )),
        L::Seed { found, configured } => off(format!(
            "{}, or {} on the engine",
            case.target.to_expect_seed(found.as_option()),
            seeds::setting(configured)
        )),
        L::Engine { .. } => off("is this the publisher of this engine?".to_owned()),
        L::Generation { .. } => {
            off("the engine is patched, or the publisher is another engine's".to_owned());
        }
        L::Unexplained { .. } if case.published => {
            off("report it with the engine's version and its adapters".to_owned());
        }
        // The base model's blocks fit, so it is not the seed.
        L::SeedUnknown { .. } | L::NothingFits { .. } if !whose.is_empty() && seeded => {
            let remark = Remark::new(
                "its blocks do not fit the path that /v1/models tells: loaded from elsewhere before?",
                "run with --probe after the adapter was loaded",
            );
            verdicts.unknown.push(remark.of(whose));
        }
        L::SeedUnknown { .. } | L::NothingFits { .. } => match case.judge() {
            seeds::Judgement::Off(remark) => verdicts.off.push(remark.of(whose)),
            seeds::Judgement::Unknown(remark) => verdicts.unknown.push(remark.of(whose)),
        },
        L::Unexplained { .. } => {
            note(&text, "nothing to be done: such a release does not publish extra keys");
        }
        L::NoRoot => note(
            "seed not checked: no heard event begins a chain",
            "run with --probe: it sends a prompt that begins as no other did",
        ),
        // Blocks without tokens, and what the leg block_size says.
        _ => note(&text, "run with --probe, or again once there was traffic"),
    }
}

/// Metrics and expectation can differ without a single event.
fn label_differs(target: &Target, facts: &Facts) -> Option<Remark> {
    let (told, expected) = (facts.cache.algorithm.as_ref()?, target.expected.algorithm.as_ref()?);
    (told != expected).then(|| {
        let told = shown(told);
        Remark::new(
            format!("algorithm is {told} (cache_config_info), expected {expected}"),
            format!(
                "{}, or --prefix-caching-hash-algo {expected} on the engine",
                target.to_expect_algorithm(&told)
            ),
        )
    })
}

/// Metrics that name another algorithm than the one that computes the hashes.
fn label_contradicted(facts: &Facts, fits: &[detect::Match]) -> Option<Remark> {
    let told = facts.cache.algorithm.as_deref()?;
    let other = fits.iter().find_map(|fit| match &fit.found {
        Found::Vllm { algorithm, seed: Some(_), .. } => {
            let found = algorithm.to_string();
            (found != told).then_some(found)
        }
        _ => None,
    })?;
    let told = shown(told);
    Some(Remark::new(
        format!("cache_config_info says {told}, the published hashes are {other}"),
        "is this the publisher of this engine?",
    ))
}

/// Expectations that mean nothing to the engine whose hashes were found.
pub(super) fn not_compared(target: &Target, fits: &[detect::Match]) -> Option<Remark> {
    let (seed, algorithm) = (&target.expected.seed, &target.expected.algorithm);
    if target.goes_by_hashes() {
        // What the gateway makes of it says more.
        return None;
    }
    let flag = fits.iter().find_map(|fit| match &fit.found {
        Found::Vllm { .. } => None,
        _ if seed.is_some() => Some("--expect-seed"),
        Found::Sglang { .. } if algorithm.is_some() => Some("--expect-algo"),
        _ => None,
    })?;
    let finding = format!("{flag} was not compared: such hashes have none to choose");
    Some(Remark::new(finding, format!("leave {flag} out for this engine")))
}

/// Whether the expectation is one that such an engine can have at all.
fn not_offered(target: &Target, facts: &Facts) -> Option<Remark> {
    let text = target.expected.algorithm.as_deref()?;
    if facts.kind != EngineKind::Vllm {
        return None;
    }
    let error = match text.parse::<Algorithm>() {
        Err(error) => error,
        Ok(algorithm) => Contract::new(facts.vllm_version?, algorithm, Some("0"))
            .err()
            .filter(|error| matches!(error, vllm::ContractError::NotOffered { .. }))?,
    };
    let remedy = match &facts.cache.algorithm {
        Some(told) => {
            format!("{}, as cache_config_info says", target.to_expect_algorithm(&shown(told)))
        }
        None if target.goes_by_hashes() => "correct identity.engine.algorithm".to_owned(),
        None => "correct --expect-algo".to_owned(),
    };
    Some(Remark::new(error.to_string(), remedy))
}

/// The contract that fits, in words; `None` if none does.
fn describe(facts: &Facts, fits: &[detect::Match], kinds: &BTreeSet<&str>) -> Option<String> {
    // Of several groups the one that tells most.
    let best = fits.iter().max_by_key(|fit| (has_seed(fit), fit.verified))?;
    let verified: usize = fits.iter().map(|fit| fit.verified).sum();
    let checked: usize = fits.iter().map(|fit| fit.checked).sum();
    let form = match best.form {
        Form::Int => "integer hashes",
        Form::Bytes => "byte hashes",
    };
    let contract = match &best.found {
        Found::Vllm { algorithm, seed, generations, hash_block_size } => {
            let seed = seed.as_ref().map_or_else(|| "seed unknown".to_owned(), seeds::in_words);
            let generation = generation(facts, *generations);
            let group = hash_block_size.map(|size| format!(", hashed in blocks of {size}"));
            format!("{algorithm}, {seed}, {generation}{}", group.unwrap_or_default())
        }
        other => other.to_string(),
    };
    let with = match kinds.is_empty() {
        true => String::new(),
        false => format!(", with {}", kinds.iter().copied().collect::<Vec<_>>().join(" and ")),
    };
    Some(format!("{contract}, {form}, {verified} of {checked} blocks verified{with}"))
}

/// The engine's generation if its version is among those found.
fn generation(facts: &Facts, (first, last): (vllm::Generation, vllm::Generation)) -> String {
    let own = facts.vllm_version.and_then(|version| vllm::Generation::of(version).ok());
    match own.filter(|own| (first..=last).contains(own)) {
        Some(own) => format!("generation {own:?}"),
        None if first == last => format!("generation {first:?}"),
        None => format!("generations {first:?} to {last:?}"),
    }
}
