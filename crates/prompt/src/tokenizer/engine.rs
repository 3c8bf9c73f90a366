//! Which code tokenizes: the fastest that says what the library says.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fast::Fast;
use super::library::Library;
use super::selftest;

/// One of this many parts that had to be tokenized is compared with what the library says.
const SAMPLE: u64 = 512;
/// Largest part that is compared, in bytes: the library takes some milliseconds for it.
const SAMPLE_BYTES: usize = 4096;

/// Text to ids, with nothing around them.
pub(super) trait Encode: std::fmt::Debug + Send + Sync {
    /// Appends the ids of a text.
    fn append_ids(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String>;
}

/// Which code turns a model's text into token ids.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerEngine {
    /// Kvasir's own byte-level BPE, which agreed with the library on everything tried so far.
    ByteLevel,
    /// The `tokenizers` library; the text says why not the faster one.
    Library(String),
}

/// The library and, where it does for this model, the faster code.
#[derive(Debug)]
pub(super) struct Engines {
    pub(super) library: Library,
    fast: Result<Fast, String>,
    /// Why the faster code is not used any more.
    differed: OnceLock<String>,
    parts: AtomicU64,
}

/// What became of a part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The faster code had it wrong: what it said before is not to be trusted either.
    Differed,
}

impl Engines {
    pub(super) fn new(json: &[u8], library: Library, split_special: bool) -> Self {
        let added = library.added_tokens();
        let fast = match library.is_deterministic() {
            true => Fast::new(json, &added, split_special),
            false => Err("merges are dropped at random".to_owned()),
        };
        let fast = fast.and_then(|fast| {
            let tokens = added.iter().map(|(_, token)| token.content.as_str());
            selftest::compare(&library, &fast, tokens).map(|()| fast)
        });
        Self { library, fast, differed: OnceLock::new(), parts: AtomicU64::new(0) }
    }

    pub(super) fn library_only(library: Library, why: &str) -> Self {
        let fast = Err(why.to_owned());
        Self { library, fast, differed: OnceLock::new(), parts: AtomicU64::new(0) }
    }

    pub(super) fn state(&self) -> TokenizerEngine {
        match (self.differed.get(), &self.fast) {
            (Some(why), _) | (None, Err(why)) => TokenizerEngine::Library(why.clone()),
            (None, Ok(_)) => TokenizerEngine::ByteLevel,
        }
    }

    /// Whether the faster code tokenizes.
    pub(super) fn is_fast(&self) -> bool {
        self.fast.is_ok() && !self.differs()
    }

    /// Whether the faster code was found wrong.
    pub(super) fn differs(&self) -> bool {
        self.differed.get().is_some()
    }

    /// Appends the ids of a part of a text. Of the parts the faster code does, a sample is
    /// compared; once one differs, the library does all.
    pub(super) fn append_ids(&self, text: &str, ids: &mut Vec<u32>) -> Result<Outcome, String> {
        let Some(fast) = self.fast.as_ref().ok().filter(|_| !self.differs()) else {
            return self.library.append_ids(text, ids).map(|()| Outcome::Done);
        };
        let start = ids.len();
        fast.append_ids(text, ids)?;
        let is_sample = self.parts.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE);
        if !is_sample || text.len() > SAMPLE_BYTES {
            return Ok(Outcome::Done);
        }
        let want = self.library.ids(text)?;
        if ids.get(start..) == Some(want.as_slice()) {
            return Ok(Outcome::Done);
        }
        ids.truncate(start);
        ids.extend_from_slice(&want);
        // The text is a client's: it stays out of what is logged.
        let why = format!("another id than the library's in a text of {} bytes", text.len());
        let _ = self.differed.set(why);
        Ok(Outcome::Differed)
    }

    #[cfg(test)]
    pub(super) fn with_fast(library: Library, fast: Fast) -> Self {
        Self { library, fast: Ok(fast), differed: OnceLock::new(), parts: AtomicU64::new(0) }
    }
}
