//! How much of each resource something asks for or holds.

use std::collections::BTreeMap;
use std::fmt;

use crate::names::ResourceName;
use crate::quantity::{Amount, Shown};

/// Amounts by resource, in the units in which they are counted. Sums saturate.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requests(BTreeMap<ResourceName, i64>);

impl Requests {
    /// Asks for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// How much of `resource`; 0 if it is not mentioned.
    pub fn get(&self, resource: &str) -> i64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    /// Whether `resource` is mentioned, be it with 0.
    pub fn contains(&self, resource: &str) -> bool {
        self.0.contains_key(resource)
    }

    /// Sets the amount of one resource.
    pub fn set(&mut self, resource: ResourceName, value: i64) {
        self.0.insert(resource, value);
    }

    /// Forgets a resource.
    pub fn remove(&mut self, resource: &str) {
        self.0.remove(resource);
    }

    /// Adds to the amount of one resource.
    pub fn add(&mut self, resource: &ResourceName, value: i64) {
        let sum = self.0.entry(resource.clone()).or_insert(0);
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
            let entry = self.0.entry(resource.clone()).or_insert(value);
            *entry = (*entry).max(value);
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
        Self(iter.into_iter().collect())
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter()).finish()
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
