//! Unique ids and name suffixes: random, or a function of a seed.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

impl Ids {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(mix(seed)), salt: mix(seed ^ STEP) }
    }

    /// Seeded by the operating system.
    pub(crate) fn random() -> Self {
        let bytes = random_bytes::<16>();
        let (state, salt) = bytes.split_at(8);
        let number = |half: &[u8]| half.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        Self { state: AtomicU64::new(number(state)), salt: number(salt) }
    }

    fn next(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed))
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&self) -> String {
        let high = self.next();
        let low = mix(high ^ self.salt);
        let mut uid = String::with_capacity(36);
        let version = (high & 0xffff_ffff_ffff_0fff) | 0x4000;
        let variant = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
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
        let uid = one.uid();
        assert_eq!(uid, same.uid());
        assert_ne!(uid, other.uid());
        assert_ne!(uid, one.uid());
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
    }
}
