//! Made-up workloads with the shapes that routers meet: conversations, retrieval, agents, and one
//! prefix that everybody asks for.

use std::fmt;
use std::str::FromStr;

use kvasir_balance::Rng;

use super::{Asked, Release, Segment, Workload};

/// A made-up workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synthetic {
    /// Conversations: a system prompt of one of several tenants, then turns that quote all turns
    /// before. A turn comes when the answer before it has been read.
    MultiTurn,
    /// Retrieval: instructions that all share, some of a few hundred documents (few of them
    /// popular), a question of its own.
    Rag,
    /// Agents: tools and instructions that all runs of one kind share, then many steps in quick
    /// succession, each with the result of a tool.
    Agent,
    /// Half of all requests begin with one long prefix; the others share nothing.
    HotPrefix,
}

/// A workload's name that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown workload `{0}`, expected one of `multi_turn`, `rag`, `agent`, `hot_prefix`")]
pub struct UnknownWorkload(String);

impl Synthetic {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::MultiTurn, Self::Rag, Self::Agent, Self::HotPrefix];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MultiTurn => "multi_turn",
            Self::Rag => "rag",
            Self::Agent => "agent",
            Self::HotPrefix => "hot_prefix",
        }
    }

    /// So many requests, two a second on average where they come by themselves. The same seed
    /// makes the same ones.
    #[must_use]
    pub fn generate(self, requests: usize, seed: u64) -> Workload {
        let mut maker = Maker { rng: Rng::new(seed), next_id: 1 << 32, requests: Vec::new() };
        match self {
            Self::MultiTurn => maker.multi_turn(requests),
            Self::Rag => maker.rag(requests),
            Self::Agent => maker.agent(requests),
            Self::HotPrefix => maker.hot_prefix(requests),
        }
        let requests = in_order(maker.requests, requests);
        Workload { name: self.name().to_owned(), block_size: BLOCK_SIZE, requests }
    }
}

impl FromStr for Synthetic {
    type Err = UnknownWorkload;

    fn from_str(name: &str) -> Result<Self, UnknownWorkload> {
        let known = Self::ALL.into_iter().find(|workload| workload.name() == name);
        known.ok_or_else(|| UnknownWorkload(name.to_owned()))
    }
}

impl fmt::Display for Synthetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// vLLM's default.
const BLOCK_SIZE: usize = 16;
/// Requests a second, where they come by themselves.
const RATE: f64 = 2.0;

struct Maker {
    rng: Rng,
    next_id: u64,
    /// With the time at which each would come if nothing took any time.
    requests: Vec<(f64, Asked)>,
}

impl Maker {
    /// From 0 to 1.
    fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// Lengths with a long tail: the median times e to a normal number of this spread.
    fn length(&mut self, median: f64, spread: f64) -> u32 {
        // The sum of twelve uniform numbers is close enough to normal.
        let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
        // The bounds are those of the numbers that are asked for.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let tokens = (median * (spread * normal).exp()).clamp(1.0, 1e6) as u32;
        tokens
    }

    /// Tokens that nobody has seen before.
    fn fresh(&mut self, tokens: u32) -> Segment {
        self.next_id += 1;
        Segment { id: self.next_id, tokens }
    }

    /// A place below `count`; the n-th is picked in proportion to 1/n.
    fn popular(&mut self, count: usize) -> usize {
        let total: f64 = (1..=count).map(|n| 1.0 / n as f64).sum();
        let mut left = self.uniform() * total;
        for place in 0..count {
            left -= 1.0 / (place + 1) as f64;
            if left <= 0.0 {
                return place;
            }
        }
        count.saturating_sub(1)
    }

    fn multi_turn(&mut self, requests: usize) {
        let tenants: Vec<Segment> = (0..8).map(|_| self.system_prompt(1_500.0)).collect();
        let turns = 6.0;
        let mut start = 0.0;
        while self.requests.len() < requests {
            start += self.exponential(turns / RATE);
            let tenant = self.popular(tenants.len());
            let count = 1 + self.rng.below(11);
            self.session(
                start,
                count,
                vec![tenants[tenant]],
                &Turns { question: (120.0, 0.8), answer: (250.0, 0.7), pause: 15.0 },
            );
        }
    }

    fn agent(&mut self, requests: usize) {
        let kinds: Vec<Segment> = (0..4).map(|_| self.system_prompt(6_000.0)).collect();
        let mut start = 0.0;
        while self.requests.len() < requests {
            start += self.exponential(15.0 / RATE);
            let kind = self.popular(kinds.len());
            let task = self.length(800.0, 0.6);
            let prompt = vec![kinds[kind], self.fresh(task)];
            let count = 5 + self.rng.below(21);
            self.session(
                start,
                count,
                prompt,
                &Turns { question: (900.0, 1.0), answer: (120.0, 0.6), pause: 1.5 },
            );
        }
    }

    fn rag(&mut self, requests: usize) {
        let instructions = self.system_prompt(400.0);
        let documents: Vec<Segment> = (0..300)
            .map(|_| {
                let tokens = self.length(1_200.0, 0.5);
                self.fresh(tokens)
            })
            .collect();
        let mut start = 0.0;
        for _ in 0..requests {
            start += self.exponential(1.0 / RATE);
            let mut prompt = vec![instructions];
            for _ in 0..4 {
                let document = documents[self.popular(documents.len())];
                if !prompt.contains(&document) {
                    prompt.push(document);
                }
            }
            let question = self.length(60.0, 0.5);
            prompt.push(self.fresh(question));
            self.single(start, prompt, 200.0);
        }
    }

    fn hot_prefix(&mut self, requests: usize) {
        let hot = self.system_prompt(8_000.0);
        let mut start = 0.0;
        for _ in 0..requests {
            start += self.exponential(1.0 / RATE);
            let (mut prompt, median) =
                if self.uniform() < 0.5 { (vec![hot], 200.0) } else { (Vec::new(), 3_000.0) };
            let own = self.length(median, 0.6);
            prompt.push(self.fresh(own));
            self.single(start, prompt, 150.0);
        }
    }

    fn system_prompt(&mut self, median: f64) -> Segment {
        let tokens = self.length(median, 0.3);
        self.fresh(tokens)
    }

    fn single(&mut self, start: f64, prompt: Vec<Segment>, answer: f64) {
        let output_tokens = self.length(answer, 0.7);
        let release = Release::At(start);
        self.requests.push((start, Asked { release, prompt, output_tokens }));
    }

    fn session(&mut self, start: f64, count: usize, mut prompt: Vec<Segment>, turns: &Turns) {
        let mut nominal = start;
        let mut release = Release::At(start);
        for _ in 0..count {
            let (median, spread) = turns.question;
            let question = self.length(median, spread).min(20_000);
            prompt.push(self.fresh(question));
            let (median, spread) = turns.answer;
            let output_tokens = self.length(median, spread).min(4_000);
            let request = self.requests.len();
            self.requests.push((nominal, Asked { release, prompt: prompt.clone(), output_tokens }));
            prompt.push(Segment::answer_to(request, output_tokens));
            let pause = self.exponential(turns.pause);
            nominal += pause;
            release = Release::After { request, pause };
        }
    }
}

/// What the turns of a session look like: medians and spreads, and the mean pause in seconds.
struct Turns {
    question: (f64, f64),
    answer: (f64, f64),
    pause: f64,
}

/// Numbers the requests by the time they would come if nothing took any time, and keeps the first
/// ones.
fn in_order(requests: Vec<(f64, Asked)>, count: usize) -> Vec<Asked> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    // Stable: the turns of a session stay in order.
    order.sort_by(|a, b| requests[*a].0.total_cmp(&requests[*b].0));
    let mut place = vec![0; requests.len()];
    order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
    let mut sorted: Vec<(usize, Asked)> =
        requests.into_iter().enumerate().map(|(old, (_, asked))| (place[old], asked)).collect();
    sorted.sort_by_key(|(new, _)| *new);
    let mut renumbered: Vec<Asked> = sorted.into_iter().map(|(_, asked)| asked).collect();
    for asked in &mut renumbered {
        if let Release::After { request, .. } = &mut asked.release {
            *request = place[*request];
        }
        for segment in &mut asked.prompt {
            if let Some(old) = segment.answered() {
                segment.id = super::answer_id(place[old] as u64);
            }
        }
    }
    renumbered.truncate(count);
    renumbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_as_large_as_asked_and_waits_for_earlier_ones_only() {
        for workload in Synthetic::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
            let made = workload.generate(500, 3);
            assert_eq!(made, workload.generate(500, 3));
            assert_ne!(made, workload.generate(500, 4));
            assert_eq!(made.requests.len(), 500);
            for (place, asked) in made.requests.iter().enumerate() {
                assert!(asked.output_tokens > 0 && asked.prompt_tokens() > 0);
                if let Release::After { request, .. } = asked.release {
                    assert!(request < place);
                    // The turn quotes the answer it waited for.
                    let quoted = Segment::answer_to(request, made.requests[request].output_tokens);
                    assert!(asked.prompt.contains(&quoted));
                }
            }
        }
        assert!("mixed".parse::<Synthetic>().unwrap_err().to_string().contains("`multi_turn`"));
    }

    #[test]
    fn half_of_the_hot_workload_is_hot() {
        let made = Synthetic::HotPrefix.generate(1_000, 1);
        let hot = made.requests.iter().filter(|asked| asked.prompt.len() == 2).count();
        assert!((430..570).contains(&hot), "{hot}");
    }
}
