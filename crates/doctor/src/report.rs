//! What a check says: legs, verdicts, reports.

use std::fmt;

use serde::Serialize;

use crate::compare::Alike;

/// How one leg stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be told; the finding says why.
    Unknown,
    /// Not as it should be, or not as expected.
    Off,
}

impl Verdict {
    /// The worst of several; [`Verdict::Ok`] if there are none.
    #[must_use]
    pub fn worst(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().max().unwrap_or(Self::Ok)
    }

    /// The word in reports: `ok`, `off`, `unknown`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Off => "off",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a leg is about. The names are stable: scripts read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LegName {
    /// The engine's HTTP server answers.
    Http,
    /// Which engine it is, and its version.
    Engine,
    /// The models and adapters it serves, and `max_model_len`.
    Models,
    /// The metric families the gateway reads.
    Metrics,
    /// Prefix caching is on.
    PrefixCaching,
    /// The event publisher can be reached and speaks.
    Events,
    /// The replay socket can be reached and answers.
    Replay,
    /// The form of events: arrays or maps, integers or bytes.
    Wire,
    /// Tokens per block, by events, metrics and expectation.
    BlockSize,
    /// Own tokens of plain text against the engine's.
    Tokenizer,
    /// Own tokens of chats, tools among them, against the engine's.
    ChatTemplate,
    /// The contract that computes the engine's block hashes.
    HashContract,
    /// Predicted against reported cached tokens.
    Prediction,
    /// Versions alike across a pool.
    Versions,
    /// Base models alike across a pool.
    BaseModels,
    /// `max_model_len` alike across a pool.
    MaxModelLen,
    /// Block sizes alike across a pool.
    BlockSizes,
}

impl LegName {
    /// The name in reports, such as `hash_contract`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Engine => "engine",
            Self::Models => "models",
            Self::Metrics => "metrics",
            Self::PrefixCaching => "prefix_caching",
            Self::Events => "events",
            Self::Replay => "replay",
            Self::Wire => "wire",
            Self::BlockSize => "block_size",
            Self::Tokenizer => "tokenizer",
            Self::ChatTemplate => "chat_template",
            Self::HashContract => "hash_contract",
            Self::Prediction => "prediction",
            Self::Versions => "versions",
            Self::BaseModels => "base_models",
            Self::MaxModelLen => "max_model_len",
            Self::BlockSizes => "block_sizes",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Leg {
    /// What it is about.
    pub leg: LegName,
    /// How it stands.
    pub verdict: Verdict,
    /// What was found, in one line.
    pub finding: String,
    /// What to do about it, in one line; `None` where nothing is to be done.
    pub remedy: Option<String>,
}

impl Leg {
    /// A leg that is as it should be.
    #[must_use]
    pub fn ok(leg: LegName, finding: impl Into<String>) -> Self {
        Self { leg, verdict: Verdict::Ok, finding: finding.into(), remedy: None }
    }

    /// A leg that is not, and what to do.
    #[must_use]
    pub fn off(leg: LegName, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { leg, verdict: Verdict::Off, finding: finding.into(), remedy }
    }

    /// A leg that could not be told, and what would tell.
    #[must_use]
    pub(crate) fn unknown(
        leg: LegName,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { leg, verdict: Verdict::Unknown, finding: finding.into(), remedy }
    }
}

/// One line; the remedy follows an arrow.
impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7}  {:<14}  {}", self.verdict, self.leg.as_str(), self.finding)?;
        match &self.remedy {
            Some(remedy) => write!(f, " -> {remedy}"),
            None => Ok(()),
        }
    }
}

/// All that was found of one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The engine's address, as `http://host:port`.
    pub base_url: String,
    /// The engine and its version, such as `vllm 0.32.0`; `None` if it did not tell.
    pub engine: Option<String>,
    /// The worst of the legs.
    pub verdict: Verdict,
    /// Each leg, in the order looked at.
    pub legs: Vec<Leg>,
    /// Whether anything answered at its address, be it with a refusal.
    #[serde(skip)]
    pub answers: bool,
    /// What [`crate::compare`] looks at.
    #[serde(skip)]
    pub(crate) alike: Alike,
}

impl Report {
    pub(crate) fn new(base_url: String, engine: Option<String>, legs: Vec<Leg>) -> Self {
        let verdict = Verdict::worst(legs.iter().map(|leg| leg.verdict));
        let answers = engine.is_some();
        Self { base_url, engine, verdict, legs, answers, alike: Alike::default() }
    }

    /// The leg of that name, if it was looked at.
    #[must_use]
    pub fn leg(&self, name: LegName) -> Option<&Leg> {
        self.legs.iter().find(|leg| leg.leg == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_is_the_reports() {
        let legs = vec![
            Leg::ok(LegName::Http, "answers"),
            Leg::unknown(LegName::Wire, "no events", "send traffic"),
        ];
        assert_eq!(Report::new(String::new(), None, legs.clone()).verdict, Verdict::Unknown);
        let off = Leg::off(LegName::Replay, "no socket", "set replay_endpoint");
        let report = Report::new(String::new(), None, [legs, vec![off]].concat());
        assert_eq!(report.verdict, Verdict::Off);
        assert_eq!(Report::new(String::new(), None, Vec::new()).verdict, Verdict::Ok);
    }

    #[test]
    fn the_words_of_text_and_json_are_the_same() {
        let leg = Leg::off(LegName::HashContract, "seed differs", "set --expect-seed");
        let json = serde_json::to_value(&leg).unwrap();
        assert_eq!(json["leg"], leg.leg.as_str());
        assert_eq!(json["verdict"], leg.verdict.as_str());
        assert_eq!(leg.to_string(), "off      hash_contract   seed differs -> set --expect-seed");
    }
}
