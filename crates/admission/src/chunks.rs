//! A list that grows without moving what is in it.

use std::ops::{Index, IndexMut};

/// How many elements are next to each other: so many that what an allocator adds to each part, up to 64 KiB, is little for an
/// element.
const PART: usize = 4096;

/// A list in parts. What grows to hundreds of thousands is neither copied nor twice in memory while it grows.
#[derive(Clone, Debug)]
pub(crate) struct Chunks<T> {
    /// All but the last have [`PART`] elements.
    parts: Vec<Vec<T>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { parts: Vec::new() }
    }
}

impl<T> Chunks<T> {
    pub(crate) fn len(&self) -> usize {
        self.parts.last().map_or(0, |last| (self.parts.len() - 1) * PART + last.len())
    }

    pub(crate) fn push(&mut self, element: T) {
        match self.parts.last_mut() {
            Some(last) if last.len() < PART => last.push(element),
            // A short list takes no more than it needs.
            None => self.parts.push(vec![element]),
            Some(_) => {
                let mut part = Vec::with_capacity(PART);
                part.push(element);
                self.parts.push(part);
            }
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.parts.get(index / PART)?.get(index % PART)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.parts.get_mut(index / PART)?.get_mut(index % PART)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().flatten()
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.parts[index / PART][index % PART]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.parts[index / PART][index % PART]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_is_found_at_its_place() {
        let mut chunks = Chunks::default();
        for number in 0..3 * PART + 1 {
            assert_eq!(chunks.len(), number);
            chunks.push(number);
        }
        chunks[PART] = 0;
        assert_eq!(chunks.get(PART), Some(&0));
        assert_eq!(chunks[3 * PART], 3 * PART);
        assert_eq!(chunks.get(3 * PART + 1), None);
        assert!(chunks.iter().skip(PART + 1).copied().eq(PART + 1..3 * PART + 1));
    }
}
