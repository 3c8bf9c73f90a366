//! What a policy answers.

/// Why a candidate was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Its turn in the rotation.
    Turn,
    /// Chance.
    Random,
    /// It had the least load.
    LeastLoad,
    /// It had less load than another one drawn at random.
    LessOfTwo,
    /// It holds the longest prefix.
    LongestPrefix,
    /// It adds the least latency, with some of the prompt cached.
    LeastLatencyWarm,
    /// It adds the least latency although it holds none of the prompt.
    LeastLatencyCold,
    /// It shares more of the prompt's beginning with requests it answered than the rest.
    LikelyPrefix,
    /// It has the best blend of several scores.
    BestScore,
    /// The conversation is pinned to it.
    Pinned,
    /// The request's key belongs to it.
    Hashed,
    /// The request's key belongs to another one, which is at its bound.
    HashedOverflow,
}

impl Reason {
    /// The word used in headers, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Random => "random",
            Self::LeastLoad => "least_load",
            Self::LessOfTwo => "less_of_two",
            Self::LongestPrefix => "longest_prefix",
            Self::LeastLatencyWarm => "least_latency_warm",
            Self::LeastLatencyCold => "least_latency_cold",
            Self::LikelyPrefix => "likely_prefix",
            Self::BestScore => "best_score",
            Self::Pinned => "pinned",
            Self::Hashed => "hashed",
            Self::HashedOverflow => "hashed_overflow",
        }
    }
}

/// A policy's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The chosen candidate's place in the view.
    pub index: usize,
    /// Why.
    pub reason: Reason,
    /// One score per candidate, in the policy's own unit; lower is better. Empty for policies that
    /// do not compare.
    pub scores: Vec<f64>,
    /// What was special about it, in the policy's own words; empty for nothing.
    pub detail: &'static str,
}

impl Choice {
    /// A choice without scores.
    #[must_use]
    pub fn plain(index: usize, reason: Reason) -> Self {
        Self { index, reason, scores: Vec::new(), detail: "" }
    }

    /// The best scored candidate besides the chosen one; `None` where nothing was compared.
    #[must_use]
    pub fn runner_up(&self) -> Option<usize> {
        let others = self.scores.iter().enumerate().filter(|(place, _)| *place != self.index);
        others.min_by(|a, b| a.1.total_cmp(b.1)).map(|(place, _)| place)
    }
}
