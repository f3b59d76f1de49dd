//! Sets of completion indexes, written as in `status.completedIndexes`: `0-3,7`.

use std::collections::BTreeSet;
use std::fmt;

/// Indexes of an Indexed Job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct IndexSet(BTreeSet<u32>);

impl IndexSet {
    /// Reads what is below `completions`; parts that cannot be read are left out, as they name nothing.
    pub(super) fn parse(text: &str, completions: u32) -> Self {
        let mut indexes = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
                indexes.extend(first..=last.min(completions.saturating_sub(1)));
            }
        }
        indexes.retain(|index| *index < completions);
        Self(indexes)
    }

    pub(super) fn insert(&mut self, index: u32) -> bool {
        self.0.insert(index)
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.0.contains(&index)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if(|next| *next == last + 1).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                // Two neighbours are written one by one, as the real controller does.
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for (text, completions, written, count) in [
            ("", 5, "", 0),
            ("0-3,7", 10, "0-3,7", 5),
            ("0,1,3", 10, "0,1,3", 3),
            ("0-9", 4, "0-3", 4),
            ("7", 4, "", 0),
            ("x,2,-,4294967295-1", 5, "2", 1),
            ("0-4294967295", 3, "0-2", 3),
        ] {
            let set = IndexSet::parse(text, completions);
            assert_eq!(set.to_string(), written, "{text}");
            assert_eq!(set.len(), count, "{text}");
        }
    }
}
