//! `x-kvasir-endpoint` and `x-kvasir-reason`, read strictly.

use std::collections::BTreeMap;

use kvasir_testkit::client::{Head, Response};

/// Where a request went, and on what grounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) endpoint: String,
    /// The endpoint's data-parallel rank, where it is one.
    pub(crate) rank: Option<u32>,
    pub(crate) policy: String,
    pub(crate) reason: String,
    /// Tokens of the prompt the endpoint was credited with.
    pub(crate) overlap: u64,
    /// Tokens beyond that which were being computed there.
    pub(crate) pending: u64,
    pub(crate) prompt: u64,
    pub(crate) level: String,
    pub(crate) tokens: String,
    pub(crate) trust: String,
    /// Its number, where decisions are logged.
    pub(crate) id: Option<u64>,
    /// Why the pool's policy had no say, where it told.
    pub(crate) miss: Option<String>,
    /// How it was served, in pools that split requests.
    pub(crate) plan: Option<String>,
    /// Tokens that the prefill endpoint of a split request was credited with.
    pub(crate) prefill_overlap: Option<u64>,
}

impl Decision {
    /// Of an answer that must be a 200.
    #[track_caller]
    pub(crate) fn of(response: &Response) -> Self {
        assert_eq!(response.status, 200, "{}", response.text());
        Self::of_head(&response.head)
    }

    #[track_caller]
    pub(crate) fn of_head(head: &Head) -> Self {
        let header = |name| head.header(name).unwrap_or_else(|| panic!("no {name} in {head:?}"));
        let text = header("x-kvasir-reason");
        let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
        for field in text.split("; ") {
            let (key, value) = field.split_once('=').unwrap_or_else(|| panic!("{text}"));
            assert_eq!(fields.insert(key, value), None, "{key} twice in {text}");
        }
        let pending = fields.remove("pending").map_or(0, |text| {
            text.parse().ok().filter(|tokens| *tokens > 0).unwrap_or_else(|| panic!("{text}"))
        });
        fields.remove("detail");
        fields.remove("decode_by");
        let id = fields.remove("decision").map(|id| id.parse().unwrap());
        let miss = fields.remove("miss").map(str::to_owned);
        let plan = fields.remove("plan").map(str::to_owned);
        let prefill_overlap = fields.remove("prefill_overlap").map(|text| text.parse().unwrap());
        let mut take = |key| fields.remove(key).unwrap_or_else(|| panic!("no {key} in {text}"));
        let decision = Self {
            endpoint: header("x-kvasir-endpoint").to_owned(),
            rank: head.header("x-kvasir-rank").map(|rank| rank.parse().unwrap()),
            policy: take("policy").to_owned(),
            reason: take("reason").to_owned(),
            overlap: take("overlap").parse().unwrap(),
            pending,
            prompt: take("prompt").parse().unwrap(),
            level: take("level").to_owned(),
            tokens: take("tokens").to_owned(),
            trust: take("trust").to_owned(),
            id,
            miss,
            plan,
            prefill_overlap,
        };
        assert!(fields.is_empty(), "unknown fields in {text}");
        decision
    }
}
