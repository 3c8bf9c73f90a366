//! The hashes in events against the tokens in events: which contract made them, and whether blocks
//! that look plain are.
//!
//! The first blocks after everything was forgotten are checked, then a sample. Where an engine does
//! not publish what it hashed besides tokens (vLLM up to 0.16), a verified contract tells plain
//! blocks from others: there every block is checked.

use kvasir_inventory::EngineHash;
use kvasir_kv_events::{BlockStored, Event};
use kvasir_kv_hash::detect::Found;
use kvasir_kv_hash::verify::{Contract, Verdict, Verifier};

use crate::card::EngineCard;
use crate::hash_contract::{HashContract, HashState};
use crate::identity::{BlockIdentity, NoContract};

use self::search::{
    blocks, causes, explain, is_cut, is_plain, looks_plain, plain_events, search, text,
};

mod search;

/// Searches for a contract until everything is forgotten again.
const SEARCHES: u8 = 3;
/// Blocks that are checked before sampling begins.
const FIRST: u64 = 256;
/// Of so many blocks that come later, one is checked.
const ONE_IN: u64 = 256;
/// Blocks of one event that are checked as a sample.
const OF_ONE_EVENT: usize = 64;
/// Digests remembered to go on from, in samples.
const ROOM: usize = 4096;
/// The same where every block is checked: more than most caches have blocks.
const ROOM_FOR_ALL: usize = 1 << 18;

/// What the hashes of one stream say.
#[derive(Debug)]
pub(super) struct HashCheck {
    identity: BlockIdentity,
    /// Whether the engine had said what it is when the configured contract was made, and its version.
    made_for: Option<(bool, Option<String>)>,
    verifier: Option<Verifier>,
    found: HashContract,
    /// Nothing more is to be learned until everything is forgotten.
    settled: bool,
    searches_left: u8,
    /// Plain-looking blocks of events that came, and those of them that were checked, since
    /// everything was forgotten.
    seen: u64,
    sampled: u64,
    /// Whether any block was stored unchecked since then of which the engine does not say whether it
    /// is plain.
    unchecked: bool,
    checked: u64,
    failed: u64,
}

impl HashCheck {
    pub(super) fn new(identity: BlockIdentity) -> Self {
        Self {
            identity,
            made_for: None,
            verifier: None,
            found: HashContract::default(),
            settled: false,
            searches_left: SEARCHES,
            seen: 0,
            sampled: 0,
            unchecked: false,
            checked: 0,
            failed: 0,
        }
    }

    pub(super) fn found(&self) -> &HashContract {
        &self.found
    }

    /// Blocks checked, and those of them whose hash is another.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.checked, self.failed)
    }

    pub(super) fn by_engine_hashes(&self) -> bool {
        matches!(self.identity, BlockIdentity::Engine(_))
    }

    /// Whether the configured contract is not the engine's.
    pub(super) fn contradicts(&self) -> bool {
        let off = matches!(self.found.state, HashState::Mismatch | HashState::Unreproducible);
        self.by_engine_hashes() && off
    }

    /// Whether every block is told from those that differ by more than tokens, though the engine
    /// does not publish in what.
    pub(super) fn tells_apart(&self) -> bool {
        let covered = self.verifier.as_ref().is_some_and(|v| v.contract().covers_extras());
        (covered && self.by_engine_hashes()) || (self.checks_every() && !self.unchecked)
    }

    /// Whether applying these events may take a search: only the beginning of a plain prompt is
    /// searched for.
    pub(super) fn may_search(&self, events: &[Event]) -> bool {
        let wants = self.searches_left > 0 && !self.settled;
        let begins = |event: &Event| match event {
            Event::Stored(stored) => stored.parent.is_none() && is_plain(stored),
            Event::Removed(_) | Event::Cleared => false,
        };
        wants && self.found.state != HashState::Verified && events.iter().any(begins)
    }

    /// The stream begins anew, perhaps with an engine of another seed.
    pub(super) fn new_life(&mut self) {
        self.cleared();
        self.made_for = None;
        // A doubt stays until the next life is verified.
        if !(self.by_engine_hashes() && self.found.state == HashState::Mismatch) {
            self.found = HashContract::default();
        }
        if !self.by_engine_hashes() {
            self.verifier = None;
        }
    }

    /// Every block was forgotten.
    pub(super) fn cleared(&mut self) {
        if self.settled && !self.by_engine_hashes() {
            self.verifier = None;
        }
        if let Some(verifier) = &mut self.verifier {
            verifier.forget();
        }
        self.settled = false;
        self.searches_left = SEARCHES;
        self.seen = 0;
        self.sampled = 0;
        self.unchecked = false;
    }

    /// A batch is about to be applied.
    pub(super) fn before(&mut self, events: &[Event], card: &EngineCard) {
        if let BlockIdentity::Engine(hashing) = &self.identity {
            let told = !card.models.is_empty();
            let made_for = self.made_for.as_ref();
            if made_for.is_none_or(|(had, version)| *had != told || *version != card.version) {
                let contract = hashing.contract(Some(card).filter(|_| told));
                self.made_for = Some((told, card.version.clone()));
                self.configured(contract);
            }
        } else if self.verifier.is_none() && self.searches_left > 0 {
            self.search(events, card);
        }
    }

    /// Blocks are gone.
    pub(super) fn removed(&mut self, hashes: &[EngineHash]) {
        if let Some(verifier) = self.verifier.as_mut().filter(|verifier| !verifier.is_empty()) {
            hashes.iter().for_each(|hash| verifier.removed(hash.0));
        }
    }

    /// Checks an event whose blocks are about to be stored; which of them look plain and are not, as
    /// far as can be told.
    pub(super) fn check(&mut self, stored: &BlockStored) -> Vec<usize> {
        let published = stored.extra_keys.is_some();
        // Blocks without tokens of their own are those that other events described.
        if !published && !self.by_engine_hashes() && is_cut(stored) {
            if self.checks_every() && looks_plain(stored) {
                return self.check_every(stored);
            }
            // An adapter's blocks may be salted. Those of one without a name are nobody's.
            self.unchecked |= stored.lora_id.is_none() || stored.lora_name.is_some();
        }
        if is_plain(stored) {
            self.check_sample(stored, published);
        }
        Vec::new()
    }

    /// Whether each block is checked of which the engine does not say whether it is plain.
    pub(super) fn checks_every(&self) -> bool {
        let covered = self.verifier.as_ref().is_some_and(|v| v.contract().covers_extras());
        covered && !self.by_engine_hashes() && self.found.state == HashState::Verified
    }

    fn check_every(&mut self, stored: &BlockStored) -> Vec<usize> {
        let Some(verifier) = &mut self.verifier else { return Vec::new() };
        let mut others = Vec::new();
        for (at, block) in blocks(stored).enumerate() {
            match verifier.check(&block) {
                Verdict::Fits => self.checked += 1,
                Verdict::Differs => {
                    self.checked += 1;
                    self.failed += 1;
                    others.push(at);
                }
                // Behind a block that was never checked it is as good as that.
                Verdict::NoParent if self.unchecked => {}
                Verdict::NoParent => others.push(at),
            }
        }
        others
    }

    fn check_sample(&mut self, stored: &BlockStored, published: bool) {
        self.seen += stored.block_hashes.len() as u64;
        if self.settled || (self.sampled >= FIRST && self.sampled * ONE_IN > self.seen) {
            return;
        }
        let Some(verifier) = &mut self.verifier else { return };
        let mut fits = 0;
        let mut differs = false;
        for block in blocks(stored).take(OF_ONE_EVENT) {
            match verifier.check(&block) {
                Verdict::Fits => fits += 1,
                Verdict::Differs => differs = true,
                Verdict::NoParent => break,
            }
            if differs {
                break;
            }
        }
        self.sampled += fits + u64::from(differs);
        self.checked += fits + u64::from(differs);
        self.failed += u64::from(differs);
        if differs {
            // Behind a block that fits, it is not the contract.
            self.differs(stored, published, fits > 0 || stored.parent.is_some());
        } else if fits > 0 && self.found.state != HashState::Verified {
            let contract = verifier.contract().to_string();
            let detail = "as configured".to_owned();
            let state = HashState::Verified;
            self.found = HashContract { state, contract, cause: String::new(), detail };
        }
    }

    /// A plain-looking block has another hash than the contract computes.
    fn differs(&mut self, stored: &BlockStored, published: bool, behind_one_that_fits: bool) {
        let verified = self.found.state == HashState::Verified;
        if behind_one_that_fits || (verified && !self.by_engine_hashes()) {
            if published {
                let detail = "a block does not fit the contract that others fit".to_owned();
                self.mismatch("unexplained".to_owned(), detail);
            }
            return;
        }
        let BlockIdentity::Engine(hashing) = &self.identity else { return };
        if self.searches_left == 0 {
            return;
        }
        self.searches_left -= 1;
        let report = explain(hashing, stored);
        // It may be salted, or of an image, where the engine does not say: then no contract fits.
        let certain = published || report.found.is_some();
        if certain || (self.searches_left == 0 && !verified) {
            self.mismatch(causes(&report), text(&report));
        }
    }

    fn mismatch(&mut self, cause: String, detail: String) {
        let contract = self.verifier.as_ref().map(|v| v.contract().to_string());
        let contract = contract.unwrap_or_default();
        self.found = HashContract { state: HashState::Mismatch, contract, cause, detail };
        self.settled = true;
    }

    fn configured(&mut self, contract: Result<Contract, NoContract>) {
        match contract {
            Ok(contract) => {
                if self.verifier.as_ref().is_none_or(|v| *v.contract() != contract) {
                    self.verifier = Some(Verifier::new(contract, ROOM));
                    self.checks_anew();
                }
            }
            Err(NoContract::NotTold) => {
                if self.verifier.take().is_some() {
                    self.checks_anew();
                }
            }
            Err(NoContract::Never(cause, detail)) => {
                self.verifier = None;
                self.unreproducible(cause, detail);
            }
        }
    }

    /// What was found is of another contract. A doubt stays until blocks fit.
    fn checks_anew(&mut self) {
        self.settled = false;
        self.searches_left = SEARCHES;
        self.seen = 0;
        self.sampled = 0;
        if self.found.state != HashState::Mismatch {
            self.found = HashContract::default();
        }
    }

    fn unreproducible(&mut self, cause: &str, detail: String) {
        let (state, contract) = (HashState::Unreproducible, String::new());
        self.found = HashContract { state, contract, cause: cause.to_owned(), detail };
        self.searches_left = 0;
    }

    /// Looks for the contract of an engine of which none is promised.
    fn search(&mut self, events: &[Event], card: &EngineCard) {
        let plain = plain_events(events);
        let Some(first) = plain.first() else { return };
        let published = first.extra_keys.is_some();
        self.searches_left -= 1;
        let report = search(&plain);
        let found = report.found.as_ref().map(|found| &found.found);
        if let Some(contract) = found.and_then(Contract::of_plain_blocks) {
            let room = if published { ROOM } else { ROOM_FOR_ALL };
            self.verifier = Some(Verifier::new(contract, room));
            let detail = found.map(ToString::to_string).unwrap_or_default();
            let (state, contract) = (HashState::Verified, contract.to_string());
            self.found = HashContract { state, contract, cause: String::new(), detail };
            return;
        }
        // The first prompts may be salted where the engine does not say.
        if published || self.searches_left == 0 || found.is_some() {
            let cause = match found {
                Some(Found::TrtLlm { .. }) => "not_followed",
                Some(_) => "seed_not_found",
                None if card.kind == crate::kind::EngineKind::Vllm => "seed_not_found",
                None => "nothing_fits",
            };
            self.unreproducible(cause, text(&report));
        }
    }
}
