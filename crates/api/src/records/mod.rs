//! Objects to records of the model, and states of the model to statuses of objects.
//!
//! Reading is total. What cannot be understood is reported, and the record holds the safest thing in its place: a
//! queue that cannot be read admits nothing, a quota that cannot be read is zero.

mod checks;
mod fallback;
mod flavors;
mod queues;
mod selectors;
mod status;
mod workloads;

use std::fmt;

use crate::time::seconds_of;

pub use checks::admission_check;
pub use flavors::{flavor, namespace};
pub use queues::{cluster_queue, cohort, local_queue};
pub use selectors::label_selector;
pub use status::{cluster_queue_status, local_queue_status, workload_status};
pub use workloads::{ResourceRules, workload};

/// What an object says, as far as it could be understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// The record.
    pub record: T,
    /// What is wrong with the object.
    pub problems: Vec<Invalid>,
    /// Settings that cannot be used and without which the object works.
    pub cautions: Vec<Invalid>,
    /// What the object asks for that Gangway does not do; it is kept and has no effect.
    pub unsupported: Vec<Invalid>,
    /// Whether the conditions were a set that Gangway never writes and the safest state was chosen.
    pub repaired: bool,
}

/// A field that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The object, such as `ClusterQueue/main`.
    pub object: String,
    /// The field, such as `spec.resourceGroups[0].flavors[1]`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.path, self.message)
    }
}

/// Collects what is wrong with one object while it is read.
struct Reader {
    object: String,
    problems: Vec<Invalid>,
    cautions: Vec<Invalid>,
    unsupported: Vec<Invalid>,
}

impl Reader {
    fn new(object: String) -> Self {
        Self { object, problems: Vec::new(), cautions: Vec::new(), unsupported: Vec::new() }
    }

    fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        let (object, path, message) = (self.object.clone(), path.into(), message.into());
        self.problems.push(Invalid { object, path, message });
    }

    /// The seconds of a length of time; none if there is none, or none that can be used.
    fn seconds(&mut self, path: &str, text: Option<&String>) -> Option<i64> {
        match seconds_of(text?) {
            Ok(seconds) => Some(seconds),
            Err(message) => {
                let (object, path) = (self.object.clone(), path.to_owned());
                self.cautions.push(Invalid { object, path, message });
                None
            }
        }
    }

    fn unsupported(&mut self, asked: bool, path: &str) {
        if asked {
            let message = "Gangway does not support this field yet; it has no effect".to_owned();
            let invalid = Invalid { object: self.object.clone(), path: path.to_owned(), message };
            self.unsupported.push(invalid);
        }
    }

    /// The value that a word means, or `safest` if it is not one of `words`.
    fn word<T: Copy>(&mut self, path: &str, word: &str, words: &[(&str, T)], safest: T) -> T {
        if let Some((_, value)) = words.iter().find(|(known, _)| *known == word) {
            return *value;
        }
        let allowed: Vec<&str> = words.iter().map(|(known, _)| *known).collect();
        self.problem(path, format!("{word:?} is not one of {}", allowed.join(", ")));
        safest
    }

    /// The problems in one sentence, for records that carry them.
    fn summary(&self) -> Option<String> {
        let texts: Vec<String> = self.problems.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    fn finish<T>(self, record: T) -> Read<T> {
        let Self { problems, cautions, unsupported, .. } = self;
        Read { record, problems, cautions, unsupported, repaired: false }
    }
}
