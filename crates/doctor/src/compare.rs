//! What must be alike across the engines of one pool.

use serde::Serialize;

use crate::facts::Facts;
use crate::report::{Leg, LegName, Report, Verdict};
use crate::shown::{list, shown};

/// The reports of several engines, and what was found looking across them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// The worst of all legs.
    pub verdict: Verdict,
    /// One report per engine, in the order given.
    pub endpoints: Vec<Report>,
    /// Legs across the engines; none for a single one.
    pub across: Vec<Leg>,
}

/// What one engine says that must be alike; `None` where it does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alike {
    engine: Option<String>,
    max_model_len: Option<u64>,
    block_size: Option<u32>,
    base: Option<String>,
}

impl Alike {
    pub(crate) fn of(facts: &Facts) -> Self {
        let model = facts.card.models.iter().find(|model| model.id == facts.model);
        let sizes = facts.cache.hash_block_size.or(facts.cache.block_size);
        Self {
            engine: facts.version.is_some().then(|| facts.engine()),
            max_model_len: model.and_then(|model| model.max_model_len),
            block_size: sizes.or(facts.card.block_size),
            base: Some(facts.card.base().to_owned()).filter(|base| !base.is_empty()),
        }
    }
}

/// Looks across the reports of one pool's engines.
#[must_use]
pub fn compare(endpoints: Vec<Report>) -> Examination {
    let across = if endpoints.len() > 1 { across(&endpoints) } else { Vec::new() };
    let within = endpoints.iter().map(|report| report.verdict);
    let verdict = Verdict::worst(within.chain(across.iter().map(|leg| leg.verdict)));
    Examination { verdict, endpoints, across }
}

fn across(endpoints: &[Report]) -> Vec<Leg> {
    let leg = |name, read: fn(&Alike) -> Option<String>, remedy| {
        let told = Told::by(endpoints, read);
        told.leg(name, remedy)
    };
    vec![
        leg(
            LegName::Versions,
            |alike| alike.engine.clone(),
            "bring all engines to one version: their hashes, events and limits may differ",
        ),
        leg(
            LegName::BaseModels,
            |alike| alike.base.clone(),
            "load one model and revision from one path everywhere: blocks of different bases are \
             never taken for each other, and every prompt is hashed once for each",
        ),
        leg(
            LegName::MaxModelLen,
            |alike| alike.max_model_len.map(|tokens| tokens.to_string()),
            "start all engines with one --max-model-len: else a long request fails or not by where \
             it goes",
        ),
        leg(
            LegName::BlockSizes,
            |alike| alike.block_size.map(|tokens| tokens.to_string()),
            "start all engines with one --block-size: every prompt is hashed once for each size",
        ),
    ]
}

/// Which engines said what.
struct Told<'a> {
    values: Vec<(String, Vec<&'a str>)>,
    silent: Vec<&'a str>,
}

impl<'a> Told<'a> {
    fn by(endpoints: &'a [Report], read: fn(&Alike) -> Option<String>) -> Self {
        let mut told = Self { values: Vec::new(), silent: Vec::new() };
        for report in endpoints {
            let url = report.base_url.as_str();
            let Some(value) = read(&report.alike) else {
                told.silent.push(url);
                continue;
            };
            match told.values.iter_mut().find(|(known, _)| *known == value) {
                Some((_, urls)) => urls.push(url),
                None => told.values.push((value, vec![url])),
            }
        }
        told
    }

    fn leg(&self, name: LegName, remedy: &str) -> Leg {
        let each =
            |(value, urls): &(String, Vec<&str>)| format!("{} at {}", shown(value), list(urls));
        match (self.values.as_slice(), self.silent.as_slice()) {
            ([], _) => Leg::unknown(name, "no engine tells", "see the legs of each engine"),
            ([(value, urls)], []) => {
                Leg::ok(name, format!("{} at all {}", shown(value), urls.len()))
            }
            ([one], silent) => Leg::unknown(
                name,
                format!("{}; {} not told", each(one), list(silent)),
                "see the legs of the engines that do not tell",
            ),
            (several, silent) => {
                let values: Vec<String> = several.iter().take(4).map(each).collect();
                let more = several.len().saturating_sub(4);
                let more = if more > 0 { format!("; {more} more") } else { String::new() };
                let silent = if silent.is_empty() {
                    String::new()
                } else {
                    format!("; {} not told", list(silent))
                };
                Leg::off(name, format!("{}{more}{silent}", values.join("; ")), remedy)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(url: &str, alike: Alike) -> Report {
        let legs = vec![Leg::ok(LegName::Http, "answers")];
        Report { alike, ..Report::new(url.to_owned(), None, legs) }
    }

    fn alike(version: &str, max_model_len: u64) -> Alike {
        Alike {
            engine: Some(format!("vllm {version}")),
            max_model_len: Some(max_model_len),
            block_size: Some(16),
            base: Some("/srv/tiny".to_owned()),
        }
    }

    fn leg(examination: &Examination, name: LegName) -> &Leg {
        examination.across.iter().find(|leg| leg.leg == name).unwrap()
    }

    #[test]
    fn one_engine_is_not_compared() {
        let found = compare(vec![report("http://a", alike("0.32.0", 2048))]);
        assert!(found.across.is_empty() && found.verdict == Verdict::Ok);
    }

    #[test]
    fn alike_engines_are_ok() {
        let found =
            compare(["http://a", "http://b"].map(|url| report(url, alike("0.32.0", 2048))).into());
        assert_eq!(found.verdict, Verdict::Ok, "{found:?}");
        assert_eq!(found.across.len(), 4);
    }

    #[test]
    fn the_engine_that_differs_is_named() {
        let found = compare(vec![
            report("http://a", alike("0.32.0", 2048)),
            report("http://b", alike("0.32.0", 4096)),
            report("http://c", alike("0.32.0", 2048)),
        ]);
        assert_eq!(found.verdict, Verdict::Off);
        let differs = leg(&found, LegName::MaxModelLen);
        assert_eq!(differs.finding, "2048 at http://a, http://c; 4096 at http://b");
        assert_eq!(leg(&found, LegName::Versions).verdict, Verdict::Ok);
    }

    #[test]
    fn silence_is_no_agreement() {
        let found = compare(vec![
            report("http://a", alike("0.32.0", 2048)),
            report("http://b", Alike::default()),
        ]);
        let versions = leg(&found, LegName::Versions);
        assert_eq!(versions.verdict, Verdict::Unknown);
        assert!(versions.finding.contains("http://b not told"), "{versions}");
        let none = compare(vec![report("x", Alike::default()), report("y", Alike::default())]);
        assert_eq!(none.verdict, Verdict::Unknown);
    }
}
