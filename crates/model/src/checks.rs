//! Admission checks: what else than quota has to agree before a Workload may start.

use crate::names::{AdmissionCheckName, FlavorName};
use crate::reasons::CheckState;
use crate::time::Timestamp;

/// A check, and whether somebody answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionCheck {
    /// Its name.
    pub name: AdmissionCheckName,
    /// Whether its controller says that it answers.
    pub active: bool,
}

/// A check that a queue demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredCheck {
    /// The check.
    pub name: AdmissionCheckName,
    /// The flavors that it concerns; empty is all.
    pub on_flavors: Vec<FlavorName>,
}

impl RequiredCheck {
    /// Whether a flavor is its business.
    pub fn concerns(&self, flavor: &FlavorName) -> bool {
        self.on_flavors.is_empty() || self.on_flavors.contains(flavor)
    }
}

/// What a check says of a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckAnswer {
    /// The check.
    pub name: AdmissionCheckName,
    /// What it says.
    pub state: CheckState,
    /// The same for people.
    pub message: String,
    /// Since when.
    pub at: Timestamp,
    /// How long to wait after a retry.
    pub requeue_after_seconds: Option<i64>,
    /// How often it asked for a retry.
    pub retry_count: Option<u32>,
}

impl CheckAnswer {
    /// Nothing was said yet.
    pub fn pending(name: AdmissionCheckName, at: Timestamp) -> Self {
        let (state, message) = (CheckState::Pending, String::new());
        Self { name, state, message, at, requeue_after_seconds: None, retry_count: None }
    }

    /// The same after an eviction: asked anew.
    pub fn asked_again(self, at: Timestamp) -> Self {
        if self.state == CheckState::Pending {
            return self;
        }
        let retries =
            (self.state == CheckState::Retry).then(|| self.retry_count.unwrap_or(0).saturating_add(1));
        Self {
            retry_count: retries,
            requeue_after_seconds: self.requeue_after_seconds,
            ..Self::pending(self.name, at)
        }
    }
}

/// What the checks of a Workload say, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckAnswers(pub Vec<CheckAnswer>);

impl CheckAnswers {
    /// These, if there are any.
    pub fn noted(mut self) -> Option<Box<Self>> {
        self.0.sort_by(|one, other| one.name.cmp(&other.name));
        (!self.0.is_empty()).then(|| Box::new(self))
    }

    /// What one says.
    pub fn find(&self, name: &AdmissionCheckName) -> Option<&CheckAnswer> {
        self.0.iter().find(|answer| answer.name == *name)
    }

    /// Those that say this.
    pub fn that_say(&self, state: CheckState) -> impl Iterator<Item = &CheckAnswer> {
        self.0.iter().filter(move |answer| answer.state == state)
    }

    /// Whether all agree.
    pub fn all_ready(&self) -> bool {
        self.0.iter().all(|answer| answer.state == CheckState::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_again_has_its_retries_counted() {
        let at = Timestamp::from_seconds;
        let answer = |state, retry_count| CheckAnswer {
            state,
            retry_count,
            requeue_after_seconds: Some(7),
            message: "no".to_owned(),
            ..CheckAnswer::pending("c".into(), at(1))
        };
        let table = [
            (CheckState::Pending, Some(2), Some(2), 1),
            (CheckState::Ready, Some(2), None, 9),
            (CheckState::Retry, None, Some(1), 9),
            (CheckState::Retry, Some(2), Some(3), 9),
            (CheckState::Rejected, Some(2), None, 9),
        ];
        for (state, before, after, since) in table {
            let asked = answer(state, before).asked_again(at(9));
            let expected = (CheckState::Pending, after, Some(7), at(since));
            assert_eq!(
                (asked.state, asked.retry_count, asked.requeue_after_seconds, asked.at),
                expected,
                "{state}"
            );
        }
    }
}
