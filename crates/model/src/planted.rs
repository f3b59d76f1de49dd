//! Bugs that can be planted, so that it can be seen whether the checks find them. Only a simulation plants any.

/// A mistake that somebody could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// What was decided and met a conflict stays booked.
    QuotaLeakedOnConflict,
    /// Quota comes back and nobody who waits for it is told.
    WakeUpLost,
    /// Quota that was given before a restart does not count after it.
    DoubleAdmissionAfterRestart,
    /// What a victim had is given back twice.
    VictimReleasedTwice,
    /// The room that victims leave is not kept for their preemptor.
    HoldForgotten,
    /// Whoever does not lead any more writes on.
    StaleLeaderWrites,
    /// A Job that was told to stop keeps what its start injected.
    TemplateNotRestored,
    /// A Job whose pods are on their way out counts as stopped.
    TerminatingPodsNotCounted,
    /// Who was sent back for not being ready is tried again at once.
    BackoffIgnored,
    /// That somebody was sent back for not being ready is not counted.
    CountLost,
    /// That pods were not ready in time is forgotten if nobody was there when the time was over.
    DeadlineLost,
    /// Who may not be sent back any more has to leave, and stays active.
    DeactivationForgotten,
    /// What was tried is forgotten with the eviction.
    HistoryLost,
    /// A flavor that was given up is tried like any other.
    ExhaustedFlavorTried,
    /// With each assignment the time of all flavors begins anew.
    FallbackTimeLost,
    /// Who has given up one flavor counts as having given up all.
    UntriedFlavorGivenUp,
    /// Who has quota is admitted although a check has not answered.
    CheckIgnored,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::QuotaLeakedOnConflict,
        Self::WakeUpLost,
        Self::DoubleAdmissionAfterRestart,
        Self::VictimReleasedTwice,
        Self::HoldForgotten,
        Self::StaleLeaderWrites,
        Self::TemplateNotRestored,
        Self::TerminatingPodsNotCounted,
        Self::BackoffIgnored,
        Self::CountLost,
        Self::DeadlineLost,
        Self::DeactivationForgotten,
        Self::HistoryLost,
        Self::ExhaustedFlavorTried,
        Self::FallbackTimeLost,
        Self::UntriedFlavorGivenUp,
        Self::CheckIgnored,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QuotaLeakedOnConflict => "quota-leaked-on-conflict",
            Self::WakeUpLost => "wake-up-lost",
            Self::DoubleAdmissionAfterRestart => "double-admission-after-restart",
            Self::VictimReleasedTwice => "victim-released-twice",
            Self::HoldForgotten => "hold-forgotten",
            Self::StaleLeaderWrites => "stale-leader-writes",
            Self::TemplateNotRestored => "template-not-restored",
            Self::TerminatingPodsNotCounted => "terminating-pods-not-counted",
            Self::BackoffIgnored => "backoff-ignored",
            Self::CountLost => "count-lost",
            Self::DeadlineLost => "deadline-lost",
            Self::DeactivationForgotten => "deactivation-forgotten",
            Self::HistoryLost => "history-lost",
            Self::ExhaustedFlavorTried => "exhausted-flavor-tried",
            Self::FallbackTimeLost => "fallback-time-lost",
            Self::UntriedFlavorGivenUp => "untried-flavor-given-up",
            Self::CheckIgnored => "check-ignored",
        }
    }

    /// Whether it can only show where pods have to be ready in time.
    pub fn is_about_readiness(self) -> bool {
        matches!(
            self,
            Self::BackoffIgnored | Self::CountLost | Self::DeadlineLost | Self::DeactivationForgotten
        )
    }

    /// Whether it can only show where flavors are given up and checks are asked.
    pub fn is_about_fallbacks(self) -> bool {
        matches!(
            self,
            Self::HistoryLost
                | Self::ExhaustedFlavorTried
                | Self::FallbackTimeLost
                | Self::UntriedFlavorGivenUp
                | Self::CheckIgnored
        )
    }
}

/// The bug that is planted; usually none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted(Option<Bug>);

impl Planted {
    /// Whether this bug is planted.
    pub fn is(self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }
}

impl From<Option<Bug>> for Planted {
    fn from(bug: Option<Bug>) -> Self {
        Self(bug)
    }
}
