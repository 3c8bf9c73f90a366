//! Whether a policy keeps conversations where they are, and tenants apart: several projects with a
//! cache salt each, and one system prompt that all of them share.
//!
//! The same trace is played once more without salts. Projects then hit what others computed, and a
//! check that did not see it there would not see anything.

use std::collections::{HashMap, HashSet};

use kvasir_kv_hash::{BlockKey, KeySpace, Scope};
use serde::Serialize;

use crate::compare::play;
use crate::options::{Options, OptionsError};
use crate::policies::SimPolicy;
use crate::prepared::Prepared;
use crate::record::Record;
use crate::workload::{Asked, Release, Segment, Workload};

/// The trace: so many projects, with so many conversations each, of so many turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tenants {
    /// Projects, each with a salt.
    pub projects: usize,
    /// Conversations of each.
    pub sessions: usize,
    /// Turns of each conversation; all but the first are *later* ones.
    pub turns: usize,
}

/// What a policy made of the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conformance {
    /// The policy's name.
    pub policy: String,
    /// Whether it passed with salts, and the check failed without, as it must.
    pub passed: bool,
    /// The trace.
    pub trace: Tenants,
    /// With a salt for each project.
    pub salted: Isolation,
    /// Without salts: the control.
    pub unsalted: Isolation,
}

/// One run's numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Isolation {
    /// Requests.
    pub requests: usize,
    /// Those that were answered in full.
    pub answered: usize,
    /// The part of later turns that went to the replica of the turn before; `None` where there are no
    /// later turns.
    pub affinity_rate: Option<f64>,
    /// Requests that were expected to hit, or did hit, what only other projects had sent to their
    /// replica.
    pub cross_salt_hits: usize,
    /// Different keys of blocks of all prompts.
    pub distinct_keys: usize,
    /// Different contents of these blocks, each with all before it.
    pub distinct_prefixes: usize,
    /// Whether later turns stayed, and no project hit what others had computed.
    pub passed: bool,
}

/// The part of later turns that must stay.
const LEAST_AFFINITY: f64 = 0.95;
/// Most requests of a trace.
const MAX_REQUESTS: usize = 100_000;
/// Tokens of the parts.
const SYSTEM: u32 = 1_024;
const QUESTION: u32 = 120;
const ANSWER: u32 = 80;
/// Seconds between the beginnings of two conversations, and of an answer's end and the next turn.
const BETWEEN: f64 = 0.4;
const PAUSE: f64 = 3.0;

impl Default for Tenants {
    /// 3 projects, 4 conversations each, 5 turns each.
    fn default() -> Self {
        Self { projects: 3, sessions: 4, turns: 5 }
    }
}

impl Tenants {
    /// Tokens per block that engines are best given: vLLM's default.
    pub const BLOCK_SIZE: usize = 16;

    /// Conversations of all projects.
    fn conversations(self) -> usize {
        self.projects * self.sessions
    }

    /// The requests, turn by turn: those of one turn in the order of their conversations.
    fn workload(self) -> Workload {
        let all = self.conversations();
        let mut requests: Vec<Asked> = Vec::with_capacity(all * self.turns);
        for place in 0..all * self.turns {
            let before = place.checked_sub(all);
            let mut prompt = match before.and_then(|before| Some((before, requests.get(before)?))) {
                Some((before, asked)) => {
                    let mut prompt = asked.prompt.clone();
                    prompt.push(Segment::answer_to(before, ANSWER));
                    prompt
                }
                None => vec![Segment { id: 1, tokens: SYSTEM }],
            };
            prompt.push(Segment { id: 2 + place as u64, tokens: QUESTION });
            let release = match before {
                Some(request) => Release::After { request, pause: PAUSE },
                None => Release::At(BETWEEN * place as f64),
            };
            requests.push(Asked { release, prompt, output_tokens: ANSWER });
        }
        Workload { name: "tenants".to_owned(), block_size: Self::BLOCK_SIZE, requests }
    }

    /// Whose a request is. Conversations of the projects take turns.
    fn project(self, request: usize) -> usize {
        request.checked_rem(self.conversations()).unwrap_or(0) % self.projects.max(1)
    }

    /// The salt of each request.
    fn salts(self) -> Vec<String> {
        let requests = self.conversations() * self.turns;
        (0..requests).map(|request| format!("project-{}", self.project(request))).collect()
    }
}

/// Plays the trace under a policy, with salts and without.
///
/// # Errors
/// Options that cannot be, by themselves or for this trace, and traces that are too long.
pub fn conformance(
    trace: Tenants,
    options: &Options,
    policy: &SimPolicy,
) -> Result<Conformance, OptionsError> {
    let requests = trace.projects.saturating_mul(trace.sessions).saturating_mul(trace.turns);
    if !(1..=MAX_REQUESTS).contains(&requests) {
        let expected = format!("1 to {MAX_REQUESTS}");
        let value = requests.to_string();
        return Err(OptionsError::Range { name: "requests of the trace", value, expected });
    }
    let workload = trace.workload();
    options.validate(workload.longest())?;
    let salts = trace.salts();
    let salted = isolation(trace, &workload, &salts, options, policy)?;
    let unsalted = isolation(trace, &workload, &[], options, policy)?;
    let passed = salted.passed && unsalted.cross_salt_hits > 0;
    Ok(Conformance { policy: policy.name(), passed, trace, salted, unsalted })
}

fn isolation(
    trace: Tenants,
    workload: &Workload,
    salts: &[String],
    options: &Options,
    policy: &SimPolicy,
) -> Result<Isolation, OptionsError> {
    let size = options.engine.block_size;
    let prepared = Prepared::new(workload, size).with_salts(salts);
    let records = play(&prepared, options, policy, &mut |_| {})?.records;
    let affinity_rate = affinity(trace, &records);
    let cross_salt_hits = crossings(trace, workload, size, &records);
    let blocks = |place: usize| prepared.keys(place).prompts.into_iter().flat_map(|c| c.keys);
    let distinct_keys: HashSet<BlockKey> = (0..records.len()).flat_map(blocks).collect();
    let contents = workload.requests.iter().flat_map(|asked| contents(&asked.tokens(), size));
    let distinct_prefixes: HashSet<BlockKey> = contents.collect();
    let answered = records.iter().filter(|record| record.is_answered()).count();
    let stays = affinity_rate.is_none_or(|rate| rate >= LEAST_AFFINITY);
    Ok(Isolation {
        requests: records.len(),
        answered,
        affinity_rate,
        cross_salt_hits,
        distinct_keys: distinct_keys.len(),
        distinct_prefixes: distinct_prefixes.len(),
        passed: stays && cross_salt_hits == 0 && answered == records.len(),
    })
}

/// The part of later turns that went where the turn before went.
fn affinity(trace: Tenants, records: &[Record]) -> Option<f64> {
    let later = records.iter().skip(trace.conversations());
    let (mut stayed, mut all) = (0_u32, 0_u32);
    for (turn, before) in later.zip(records) {
        all += 1;
        stayed += u32::from(turn.replica.is_some() && turn.replica == before.replica);
    }
    (all > 0).then(|| f64::from(stayed) / f64::from(all))
}

/// Requests that hit more, or were expected to, than their own project had sent to their replica
/// before: a model of its own, that knows neither engines nor inventories.
fn crossings(trace: Tenants, workload: &Workload, size: usize, records: &[Record]) -> usize {
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|place| (records[*place].arrived, *place));
    let mut sent: HashMap<(u16, usize), HashSet<BlockKey>> = HashMap::new();
    let mut crossings = 0;
    for place in order {
        let (record, asked) = (&records[place], &workload.requests[place]);
        let Some(replica) = record.replica else { continue };
        let own = sent.entry((replica, trace.project(place))).or_default();
        let mut tokens = asked.tokens();
        let shared = contents(&tokens, size).iter().take_while(|key| own.contains(*key)).count();
        let hit = record.predicted.max(record.cached) as usize;
        crossings += usize::from(hit > shared * size);
        Segment::answer_to(place, asked.output_tokens).append(&mut tokens);
        own.extend(contents(&tokens, size));
    }
    crossings
}

/// Keys of a prompt's blocks by their contents alone.
fn contents(tokens: &[u32], block_size: usize) -> Vec<BlockKey> {
    let space = KeySpace::fixed();
    let root = space.root(&Scope { model: "contents", lora: None, salt: None });
    space.chain(root, tokens, block_size)
}

impl Conformance {
    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let Tenants { projects, sessions, turns } = self.trace;
        let mut out = format!(
            "{}: {projects} projects x {sessions} conversations x {turns} turns, one system prompt\n",
            self.policy
        );
        let runs = [("with salts", &self.salted), ("without (control)", &self.unsalted)];
        for (name, run) in runs {
            let affinity = run.affinity_rate.map_or("null".to_owned(), |rate| format!("{rate:.3}"));
            out.push_str(&format!(
                "{name:<18} affinity_rate {affinity}  cross_salt_hits {}  distinct_keys {}  \
                 distinct_prefixes {}  answered {}/{}\n",
                run.cross_salt_hits,
                run.distinct_keys,
                run.distinct_prefixes,
                run.answered,
                run.requests,
            ));
        }
        out.push_str(match (self.passed, self.salted.passed) {
            (true, _) => "passed\n",
            (false, false) => "failed\n",
            (false, true) => {
                "failed: the control saw no hits across projects, so nothing is shown\n"
            }
        });
        out
    }

    /// The report as JSON, one object.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
