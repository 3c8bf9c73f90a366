//! A small seeded generator: the same seed gives the same workload on every machine and in every
//! release, which a library's generator does not promise.

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The generator of one `stream` of numbers under a seed; streams are independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed).wrapping_add(mix(stream.wrapping_mul(GAMMA))))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number from `least` up to and including `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = most.saturating_sub(least).saturating_add(1);
        least + self.next() % span
    }

    /// One of `items`; there must be one.
    pub(crate) fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        let at = self.between(0, (items.len() as u64).saturating_sub(1));
        usize::try_from(at).ok().and_then(|at| items.get(at)).copied().unwrap_or_default()
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
