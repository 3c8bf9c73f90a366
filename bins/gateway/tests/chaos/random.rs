//! Chance that can be had again: splitmix64.

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `most` - 1.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    pub(crate) fn of<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        let place = usize::try_from(self.below(among.len() as u64)).unwrap_or_default();
        &among[place]
    }
}
