//! A small generator of random numbers: the same seed gives the same scenario everywhere.

/// Numbers that look random.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        // A counter whose bits are mixed: every seed is as good as any other.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = (high - low + 1).unsigned_abs();
        low + i64::try_from(self.next() % span).unwrap_or(0)
    }

    pub fn percent(&mut self, share: i64) -> bool {
        self.between(1, 100) <= share
    }

    /// One of several, each as likely as the others.
    pub fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        let last = i64::try_from(choices.len()).unwrap_or(1) - 1;
        choices[usize::try_from(self.between(0, last)).unwrap_or(0)].clone()
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.between(0, i64::try_from(last).unwrap_or(0));
            items.swap(last, usize::try_from(other).unwrap_or(0));
        }
    }
}
