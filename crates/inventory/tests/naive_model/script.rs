//! Random interleavings of events: what may happen, and how it becomes an event.

use std::collections::BTreeMap;

use kvasir_inventory::{GroupKind, Tier};
use proptest::prelude::*;

use crate::model::{Content, Store};

/// A prompt: a root, a block size, one letter a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Doc {
    pub(crate) root: u8,
    /// Separates the engine's handles while nothing published tells the blocks apart.
    pub(crate) hidden_salt: bool,
    pub(crate) block_size: u32,
    pub(crate) letters: Vec<u8>,
}

impl Doc {
    /// The content of its blocks. Letters 2 and 3 differ by an extra alone, 4 and 5 by what
    /// follows them.
    pub(crate) fn contents(&self) -> Vec<Content> {
        let plain =
            |letter: u8| (0..self.block_size).map(|at| u32::from(letter) + at % 2).collect();
        let content = |letter: &u8| match letter {
            3 => Content {
                tokens: plain(2),
                extras: vec![(b"image".to_vec(), 1)],
                ..Content::default()
            },
            5 => Content { tokens: plain(4), lookahead: vec![7], ..Content::default() },
            letter => Content { tokens: plain(*letter), ..Content::default() },
        };
        self.letters.iter().map(content).collect()
    }
}

/// The kinds of an engine's cache groups, by number.
pub(crate) type Kinds = [GroupKind; 3];

/// What an engine may look like.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) kinds: Kinds,
    /// How many of its groups it uses.
    pub(crate) groups: u8,
    pub(crate) by_engine: bool,
}

/// What is wrong with a store event, or unusual.
#[derive(Clone, Debug)]
pub(crate) enum Twist {
    None,
    /// One block goes by a handle of another.
    ReusedHandle {
        at: usize,
        of: usize,
    },
    /// The parent is some handle or other.
    OtherParent(usize),
    /// The parent is left out, wherever the blocks start.
    NoParent,
    NoTokens,
    TooFewTokens,
    ZeroBlockSize,
    TooManyExtras,
    /// More tokens than blocks, as events of groups that skip blocks have.
    TooManyTokens,
    TooManyLookaheads,
    Unsupported,
    /// A kind that contradicts what was said before.
    OtherKind,
}

/// One step of one endpoint.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Store {
        doc: Doc,
        from: usize,
        tier: Tier,
        group: u8,
        twist: Twist,
    },
    Remove {
        doc: Doc,
        from: usize,
        tier: Tier,
        group: u8,
    },
    /// Any handle, known or not.
    RemoveAny {
        handle: usize,
        tier: Tier,
        group: u8,
    },
    Clear,
    Renew,
}

impl Step {
    pub(crate) fn doc(&self) -> Option<&Doc> {
        match self {
            Self::Store { doc, .. } | Self::Remove { doc, .. } => Some(doc),
            _ => None,
        }
    }
}

/// The engine behind each endpoint, and which endpoint does what.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) engines: Vec<Engine>,
    pub(crate) steps: Vec<(usize, Step)>,
}

pub(crate) const ENDPOINTS: usize = 3;

/// `honest` engines name a block by its content, and tell what separates blocks.
pub(crate) fn scripts(honest: bool) -> impl Strategy<Value = Script> {
    let engines = prop::collection::vec(engines(), ENDPOINTS);
    let steps = prop::collection::vec((0..ENDPOINTS, steps(honest)), 160);
    (engines, steps).prop_map(|(engines, steps)| Script { engines, steps })
}

fn engines() -> impl Strategy<Value = Engine> {
    let window = (2..=9_u32).prop_map(|tokens| GroupKind::SlidingWindow { tokens }).boxed();
    let full = Just(GroupKind::FullAttention).boxed();
    let other = prop_oneof![
        3 => window,
        2 => Just(GroupKind::State),
        2 => full.clone(),
    ]
    .boxed();
    let first = prop_oneof![6 => full, 1 => other.clone()];
    let kinds = (first, other.clone(), other).prop_map(|(a, b, c)| [a, b, c]);
    let groups = prop_oneof![3 => Just(1_u8), 2 => Just(2), 1 => Just(3)];
    (kinds, groups, prop::bool::weighted(0.3)).prop_map(|(kinds, groups, by_engine)| Engine {
        kinds,
        groups,
        by_engine,
    })
}

fn docs(honest: bool) -> impl Strategy<Value = Doc> {
    // Few letters and short prompts: shared beginnings are the rule.
    let letter = prop_oneof![12 => Just(0_u8), 4 => Just(1), 1 => 2..=5_u8];
    let letters = prop::collection::vec(letter, 1..=5);
    let size = prop_oneof![9 => Just(2_u32), 1 => Just(4)];
    let root = prop_oneof![4 => Just(0_u8), 1 => Just(1)];
    let hidden = prop::bool::weighted(if honest { 0.0 } else { 0.1 });
    (root, hidden, size, letters).prop_map(|(root, hidden_salt, block_size, letters)| Doc {
        root,
        hidden_salt,
        block_size,
        letters,
    })
}

fn tiers() -> impl Strategy<Value = Tier> {
    prop_oneof![6 => Just(Tier::Device), 3 => Just(Tier::Host), 1 => Just(Tier::Remote)]
}

fn groups() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0_u8), 1 => Just(1), 1 => Just(2)]
}

fn twists(honest: bool) -> BoxedStrategy<Twist> {
    let odd = prop_oneof![
        40 => Just(Twist::None),
        4 => Just(Twist::NoTokens),
        1 => Just(Twist::TooFewTokens),
        1 => Just(Twist::ZeroBlockSize),
        1 => Just(Twist::TooManyExtras),
        1 => Just(Twist::TooManyLookaheads),
        3 => Just(Twist::TooManyTokens),
    ];
    if honest {
        return odd.boxed();
    }
    prop_oneof![
        40 => odd,
        4 => (0..5_usize, 0..200_usize).prop_map(|(at, of)| Twist::ReusedHandle { at, of }),
        2 => (0..200_usize).prop_map(Twist::OtherParent),
        1 => Just(Twist::NoParent),
        1 => prop::bool::weighted(0.3).prop_map(|really| {
            if really { Twist::Unsupported } else { Twist::None }
        }),
        1 => prop::bool::weighted(0.2).prop_map(|really| {
            if really { Twist::OtherKind } else { Twist::None }
        }),
    ]
    .boxed()
}

fn steps(honest: bool) -> impl Strategy<Value = Step> {
    let from = prop_oneof![3 => Just(0_usize), 2 => 0..5_usize];
    let place = (docs(honest), from, tiers(), groups()).boxed();
    let store = (place.clone(), twists(honest)).prop_map(|((doc, from, tier, group), twist)| {
        Step::Store { doc, from, tier, group, twist }
    });
    let remove = place.prop_map(|(doc, from, tier, group)| Step::Remove { doc, from, tier, group });
    let any = (0..200_usize, tiers(), groups()).prop_map(|(handle, tier, group)| Step::RemoveAny {
        handle,
        tier,
        group,
    });
    prop_oneof![
        60 => store,
        25 => remove,
        6 => any,
        1 => Just(Step::Clear),
        1 => Just(Step::Renew),
    ]
}

/// The handles that engines give to blocks: one number per content, salts included.
#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: BTreeMap<Doc, u64>,
}

impl Names {
    /// The handles of all blocks of `doc`.
    pub(crate) fn all(&mut self, doc: &Doc) -> Vec<u64> {
        (1..=doc.letters.len()).map(|blocks| self.of(doc, blocks)).collect()
    }

    /// The handle of the last block of the first `blocks` of `doc`.
    fn of(&mut self, doc: &Doc, blocks: usize) -> u64 {
        let prefix = Doc { letters: doc.letters[..blocks].to_vec(), ..doc.clone() };
        let next = self.numbers.len() as u64;
        *self.numbers.entry(prefix).or_insert(next)
    }

    /// Some handle given so far, or, rarely, one that was not.
    pub(crate) fn any(&self, number: usize) -> u64 {
        (number % (self.numbers.len() + 3)) as u64
    }

    /// The handles of the blocks of `doc` from number `from` on, at least of the last one.
    pub(crate) fn run(&mut self, doc: &Doc, from: usize) -> (Option<u64>, Vec<u64>) {
        let from = from.min(doc.letters.len() - 1);
        let parent = (from > 0).then(|| self.of(doc, from));
        (parent, (from..doc.letters.len()).map(|at| self.of(doc, at + 1)).collect())
    }

    /// The store event of a step.
    pub(crate) fn store(
        &mut self,
        doc: &Doc,
        from: usize,
        tier: Tier,
        group: u8,
        engine: &Engine,
        twist: &Twist,
    ) -> Store {
        let (parent, hashes) = self.run(doc, from);
        let contents = doc.contents();
        let contents = &contents[doc.letters.len() - hashes.len()..];
        let mut event = Store {
            parent,
            root: doc.root,
            tokens: contents.iter().flat_map(|content| content.tokens.clone()).collect(),
            extras: contents.iter().map(|content| content.extras.clone()).collect(),
            lookahead: contents.iter().map(|content| content.lookahead.clone()).collect(),
            block_size: doc.block_size,
            hashes,
            tier,
            group,
            kind: engine.kinds[usize::from(group)],
            by_engine: engine.by_engine,
        };
        if event.lookahead.iter().all(Vec::is_empty) && event.hashes.len() > 1 {
            event.lookahead.clear();
        }
        if event.extras.iter().all(Vec::is_empty) && event.hashes.len() > 1 {
            event.extras.clear();
        }
        match twist {
            Twist::None => {}
            Twist::ReusedHandle { at, of } => {
                let at = at % event.hashes.len();
                event.hashes[at] = self.any(*of);
            }
            Twist::OtherParent(of) => event.parent = Some(self.any(*of)),
            Twist::NoParent => event.parent = None,
            Twist::NoTokens => event.tokens.clear(),
            Twist::TooFewTokens => drop(event.tokens.pop()),
            Twist::ZeroBlockSize => event.block_size = 0,
            Twist::TooManyExtras => event.extras.push(vec![]),
            Twist::TooManyTokens => event.tokens.extend([9, 9]),
            Twist::TooManyLookaheads => event.lookahead.push(vec![]),
            Twist::Unsupported => event.kind = GroupKind::Unsupported,
            Twist::OtherKind => event.kind = GroupKind::SlidingWindow { tokens: 100 },
        }
        event
    }
}
