//! Hand-overs of KV that failed before, and are not tried for a while.

/// Who hands over nothing to whom. Numbers are places in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nobody can fetch from this prefill endpoint.
    Prefill(usize),
    /// This decode endpoint can fetch from nobody.
    Decode(usize),
    /// These two alone cannot.
    Link {
        /// The prefill endpoint.
        prefill: usize,
        /// The decode endpoint.
        decode: usize,
    },
}

impl Cut {
    /// The endpoints it is about: the prefill endpoint, and the decode endpoint.
    #[must_use]
    pub fn ends(self) -> (Option<usize>, Option<usize>) {
        match self {
            Self::Prefill(prefill) => (Some(prefill), None),
            Self::Decode(decode) => (None, Some(decode)),
            Self::Link { prefill, decode } => (Some(prefill), Some(decode)),
        }
    }

    fn bars(self, prefill: usize, decode: usize) -> bool {
        let (from, to) = self.ends();
        from.is_none_or(|from| from == prefill) && to.is_none_or(|to| to == decode)
    }
}

/// Whether one of them stands between the two.
pub(super) fn barred(cut: &[Cut], prefill: usize, decode: usize) -> bool {
    cut.iter().any(|one| one.bars(prefill, decode))
}
