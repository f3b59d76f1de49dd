//! Unique ids and name suffixes: random, or a function of a seed.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use gangway_model::Timestamp;

/// Without vowels and look-alikes, so that no suffix is a word.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// The odd constant of the SplitMix64 sequence.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A source of ids; the same seed gives the same ids in the same order.
#[derive(Debug)]
pub(crate) struct Ids {
    state: AtomicU64,
    salt: u64,
    /// Milliseconds and a running number of the last uid, 48 and 12 bits.
    last: AtomicU64,
}

impl Ids {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(mix(seed)), salt: mix(seed ^ STEP), last: AtomicU64::new(0) }
    }

    /// Seeded by the operating system.
    pub(crate) fn random() -> Self {
        let bytes = random_bytes::<16>();
        let (state, salt) = bytes.split_at(8);
        let number = |half: &[u8]| half.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Self { state: AtomicU64::new(number(state)), salt: number(salt), last: AtomicU64::new(0) }
    }

    fn next(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed))
    }

    /// A version 7 UUID: uids are ordered as they were given out, so that objects created in the same
    /// second, which is as fine as their timestamps are, still have the order of their creation.
    pub(crate) fn uid(&self, now: Timestamp) -> String {
        let millis = u64::try_from(now.as_nanos() / 1_000_000).unwrap_or(0) & 0xffff_ffff_ffff;
        let step = |last: u64| (last + 1).max(millis << 12);
        let ordered =
            match self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(step(last))) {
                Ok(last) | Err(last) => step(last),
            };
        let low = mix(self.next() ^ self.salt);
        let version = (ordered >> 12) << 16 | 0x7000 | (ordered & 0xfff);
        let variant = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        let mut uid = String::with_capacity(36);
        let written = write!(
            uid,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            version >> 32,
            (version >> 16) & 0xffff,
            version & 0xffff,
            variant >> 48,
            variant & 0xffff_ffff_ffff
        );
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
        uid
    }

    /// What `generateName` is completed with.
    pub(crate) fn suffix(&self) -> String {
        let mut number = self.next();
        let radix = SUFFIX_ALPHABET.len() as u64;
        (0..SUFFIX_LENGTH)
            .map(|_| {
                let letter = SUFFIX_ALPHABET[(number % radix) as usize];
                number /= radix;
                char::from(letter)
            })
            .collect()
    }
}

fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .expect("the operating system gives random bytes; without them no token would be secret");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_ids() {
        let (one, same, other) = (Ids::seeded(1), Ids::seeded(1), Ids::seeded(2));
        let now = Timestamp::from_seconds(1_700_000_000);
        let uid = one.uid(now);
        assert_eq!(uid, same.uid(now));
        assert_ne!(uid, other.uid(now));
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'7');
    }

    #[test]
    fn uids_are_ordered_even_if_the_clock_is_not() {
        let ids = Ids::seeded(1);
        let at = |millis| Timestamp::from_seconds(1_700_000_000).plus_millis(millis);
        let mut uids: Vec<String> = (0..10_000).map(|i| ids.uid(at(i / 5000))).collect();
        uids.push(ids.uid(at(-1000)));
        assert!(uids.is_sorted_by(|a, b| a < b));
    }
}
