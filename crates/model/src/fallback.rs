//! Falling back to another flavor when machines do not come: a queue's rules, and what a Workload has tried.

use crate::names::FlavorName;
use crate::reasons::FallbackTrigger;
use crate::time::Timestamp;

/// What happens to a Workload that has given up every flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// It tries all of them again after a while.
    #[default]
    RetryAllFlavors,
    /// It is deactivated.
    DeactivateWorkload,
}

impl FailurePolicy {
    /// As a queue spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryAllFlavors => "RetryAllFlavors",
            Self::DeactivateWorkload => "DeactivateWorkload",
        }
    }
}

/// When a flavor is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackRule {
    /// The flavor; none is every flavor that has no rule of its own for the same trigger.
    pub flavor: Option<FlavorName>,
    /// What makes a Workload give it up.
    pub trigger: FallbackTrigger,
    /// How long it may take, with the trigger that is about time; none is for ever.
    pub timeout_seconds: Option<i64>,
}

/// When Workloads of a queue give up a flavor, and what happens when they have given up all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FallbackStrategy {
    /// What happens when all are given up.
    pub failure_policy: FailurePolicy,
    /// When one is.
    pub rules: Vec<FallbackRule>,
}

impl FallbackStrategy {
    /// The rule for a flavor: its own before the one for all.
    fn rule(&self, flavor: &FlavorName, trigger: FallbackTrigger) -> Option<&FallbackRule> {
        let named = |name: Option<&FlavorName>| {
            self.rules.iter().find(|rule| rule.trigger == trigger && rule.flavor.as_ref() == name)
        };
        named(Some(flavor)).or_else(|| named(None))
    }

    /// How long a flavor may take until all pods are ready; none if for ever.
    pub fn timeout_seconds(&self, flavor: &FlavorName) -> Option<i64> {
        self.rule(flavor, FallbackTrigger::TimeoutForPodsReadyExceeded)?.timeout_seconds
    }

    /// Whether a flavor is given up when an admission check rejects it.
    pub fn falls_back_when_rejected(&self, flavor: &FlavorName) -> bool {
        self.rule(flavor, FallbackTrigger::AdmissionCheckRejected).is_some()
    }
}

/// How one flavor was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorAttempt {
    /// The flavor.
    pub flavor: FlavorName,
    /// When it was last assigned; none if not since all were given up.
    pub assigned_at: Option<Timestamp>,
    /// How much of its time earlier assignments used up.
    pub accumulated_seconds: i64,
    /// Why it is given up, if it is.
    pub exhausted: Option<FallbackTrigger>,
    /// How often all flavors were given up.
    pub rounds: u32,
}

/// What a Workload has tried since it was last ready, in the order in which that was first assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorHistory(pub Vec<FlavorAttempt>);

impl FlavorHistory {
    /// This, if it says anything.
    pub fn noted(self) -> Option<Box<Self>> {
        (!self.0.is_empty()).then(|| Box::new(self))
    }

    /// How a flavor was tried.
    pub fn find(&self, flavor: &FlavorName) -> Option<&FlavorAttempt> {
        self.0.iter().find(|attempt| attempt.flavor == *flavor)
    }

    /// The flavors that are given up.
    pub fn exhausted(&self) -> impl Iterator<Item = &FlavorName> {
        self.0.iter().filter(|attempt| attempt.exhausted.is_some()).map(|attempt| &attempt.flavor)
    }

    /// How much of a flavor's time earlier assignments used up.
    pub fn accumulated_seconds(&self, flavor: &FlavorName) -> i64 {
        self.find(flavor).map_or(0, |attempt| attempt.accumulated_seconds)
    }

    /// How often all flavors were given up.
    pub fn rounds(&self) -> u32 {
        self.0.iter().map(|attempt| attempt.rounds).max().unwrap_or(0)
    }

    fn entry(&mut self, flavor: &FlavorName) -> &mut FlavorAttempt {
        let rounds = self.rounds();
        let position = self.0.iter().position(|attempt| attempt.flavor == *flavor).unwrap_or_else(|| {
            let flavor = flavor.clone();
            let attempt =
                FlavorAttempt { flavor, assigned_at: None, accumulated_seconds: 0, exhausted: None, rounds };
            self.0.push(attempt);
            self.0.len() - 1
        });
        &mut self.0[position]
    }

    /// A flavor is assigned.
    pub fn assign(&mut self, flavor: &FlavorName, at: Timestamp) {
        self.entry(flavor).assigned_at = Some(at);
    }

    /// A flavor that was assigned at one time is taken away at another.
    pub fn take_away(&mut self, flavor: &FlavorName, from: Timestamp, to: Timestamp) {
        let attempt = self.entry(flavor);
        attempt.assigned_at = Some(from);
        let used = (to.as_seconds() - from.as_seconds()).max(0);
        attempt.accumulated_seconds = attempt.accumulated_seconds.saturating_add(used);
    }

    /// A flavor is given up.
    pub fn give_up(&mut self, flavor: &FlavorName, trigger: FallbackTrigger) {
        self.entry(flavor).exhausted = Some(trigger);
    }

    /// All flavors may be tried again, as if none had been.
    pub fn begin_again(&mut self) {
        let rounds = self.rounds().saturating_add(1);
        for attempt in &mut self.0 {
            (attempt.assigned_at, attempt.accumulated_seconds, attempt.exhausted) = (None, 0, None);
            attempt.rounds = rounds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FallbackTrigger::{AdmissionCheckRejected, TimeoutForPodsReadyExceeded};

    fn rule(flavor: &str, trigger: FallbackTrigger, timeout_seconds: Option<i64>) -> FallbackRule {
        let flavor = (flavor != "*").then(|| flavor.into());
        FallbackRule { flavor, trigger, timeout_seconds }
    }

    #[test]
    fn the_exact_name_wins_for_each_trigger_by_itself() {
        let rules = vec![
            rule("*", TimeoutForPodsReadyExceeded, Some(60)),
            rule("spot", TimeoutForPodsReadyExceeded, Some(30)),
            rule("on-demand", TimeoutForPodsReadyExceeded, None),
            rule("spot", AdmissionCheckRejected, None),
        ];
        let strategy = FallbackStrategy { rules, ..FallbackStrategy::default() };
        let timeouts =
            ["reservation", "spot", "on-demand"].map(|name| strategy.timeout_seconds(&name.into()));
        assert_eq!(timeouts, [Some(60), Some(30), None], "a rule without a time shields its flavor");
        assert!(strategy.falls_back_when_rejected(&"spot".into()));
        assert!(!strategy.falls_back_when_rejected(&"reservation".into()));
    }

    #[test]
    fn time_adds_up_until_all_begin_again() {
        let at = Timestamp::from_seconds;
        let mut history = FlavorHistory::default();
        history.assign(&"a".into(), at(10));
        history.take_away(&"a".into(), at(10), at(15));
        history.take_away(&"a".into(), at(100), at(90));
        history.take_away(&"a".into(), at(100), at(102));
        assert_eq!(history.accumulated_seconds(&"a".into()), 7, "a clock set back takes nothing away");
        history.give_up(&"a".into(), TimeoutForPodsReadyExceeded);
        history.assign(&"b".into(), at(103));
        assert_eq!(history.exhausted().collect::<Vec<_>>(), [&"a".into()]);
        history.begin_again();
        assert_eq!((history.rounds(), history.exhausted().count()), (1, 0));
        assert_eq!(history.accumulated_seconds(&"a".into()), 0);
        history.assign(&"c".into(), at(104));
        assert_eq!(history.find(&"c".into()).map(|attempt| attempt.rounds), Some(1));
    }
}
