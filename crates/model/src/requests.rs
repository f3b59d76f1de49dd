//! How much of each resource something asks for or holds.

use std::fmt;

use crate::names::ResourceName;
use crate::quantity::{Amount, Shown};

/// Amounts by resource, in the units in which they are counted. Sums saturate.
///
/// A list by name, each name once: there are few, and they are compared and hashed more often than changed.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requests(Vec<(ResourceName, i64)>);

impl Requests {
    /// Asks for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where a resource stands, or where it would.
    fn position(&self, resource: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| name.as_str().cmp(resource))
    }

    /// The amount of a resource, to be changed; 0 if it was not mentioned.
    fn amount_mut(&mut self, resource: &ResourceName) -> &mut i64 {
        let index = self.position(resource.as_str()).unwrap_or_else(|index| {
            self.0.insert(index, (resource.clone(), 0));
            index
        });
        &mut self.0[index].1
    }

    /// How much of `resource`; 0 if it is not mentioned.
    pub fn get(&self, resource: &str) -> i64 {
        self.position(resource).map_or(0, |index| self.0[index].1)
    }

    /// Whether `resource` is mentioned, be it with 0.
    pub fn contains(&self, resource: &str) -> bool {
        self.position(resource).is_ok()
    }

    /// Sets the amount of one resource.
    pub fn set(&mut self, resource: ResourceName, value: i64) {
        *self.amount_mut(&resource) = value;
    }

    /// Forgets a resource.
    pub fn remove(&mut self, resource: &str) {
        if let Ok(index) = self.position(resource) {
            self.0.remove(index);
        }
    }

    /// Adds to the amount of one resource.
    pub fn add(&mut self, resource: &ResourceName, value: i64) {
        let sum = self.amount_mut(resource);
        *sum = sum.saturating_add(value);
    }

    /// Adds all of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for (resource, value) in other.iter() {
            self.add(resource, value);
        }
    }

    /// Raises each amount to at least that of `other`.
    pub fn raise_to(&mut self, other: &Self) {
        for (resource, value) in other.iter() {
            match self.position(resource.as_str()) {
                Ok(index) => self.0[index].1 = self.0[index].1.max(value),
                Err(index) => self.0.insert(index, (resource.clone(), value)),
            }
        }
    }

    /// Each amount times `count`.
    pub fn times(&self, count: i64) -> Self {
        self.iter().map(|(resource, value)| (resource.clone(), value.saturating_mul(count))).collect()
    }

    /// Resources with their amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, i64)> {
        self.0.iter().map(|(resource, value)| (resource, *value))
    }

    /// Whether no resource is mentioned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(ResourceName, i64)> for Requests {
    fn from_iter<T: IntoIterator<Item = (ResourceName, i64)>>(iter: T) -> Self {
        let mut requests = Self::new();
        for (resource, value) in iter {
            requests.set(resource, value);
        }
        requests
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (resource, value)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} {resource}", Shown { resource, amount: Amount::new(value) })?;
        }
        Ok(())
    }
}
