//! Machines that do not come: another flavor is tried, and that is remembered. And checks that have to agree first.
//!
//! Every play is given as it is, for Jobs that need something of two resource groups, and with a controller that ends and begins
//! again in the middle: after that the choice of flavor has to be the same. Whatever the moment, nothing that is needed to choose is
//! lost; so those with a restart run side by side, and each bears the restarts of the others.

mod budget;
mod checks;
mod giving_up;
mod ladder;
mod queue;
mod stage;
mod together;

use futures::FutureExt;

use super::Scenario;
use stage::{Stage, Variant};

pub use checks::{queue_waits_for_its_check, rules_that_cannot_be_are_named};
pub use ladder::snapshot_goes_on_where_it_was_taken;

/// The scenarios that are made of the same plays.
pub struct Plays {
    pub plain: &'static [Scenario],
    pub two_groups: &'static [Scenario],
    pub restarted: &'static [Scenario],
}

macro_rules! play {
    ($module:ident $name:ident $suffix:literal $variant:ident) => {
        (concat!(stringify!($name), $suffix), |scene| {
            async { $module::$name(Stage::open(scene, Variant::$variant).await?).boxed_local().await }
                .boxed_local()
        })
    };
}

macro_rules! plays {
    ($($module:ident: $($name:ident)+;)+) => {
        Plays {
            plain: &[$($(play!($module $name "" PLAIN)),+),+],
            two_groups: &[$($(play!($module $name "_two_groups" TWO_GROUPS)),+),+],
            restarted: &[$($(play!($module $name "_restarted" RESTARTED)),+),+],
        }
    };
    // Plays that are about two groups.
    (both $($module:ident: $($name:ident)+;)+) => {
        Plays {
            plain: &[],
            two_groups: &[$($(play!($module $name "" TWO_GROUPS)),+),+],
            restarted: &[$($(play!($module $name "_restarted" BOTH)),+),+],
        }
    };
}

/// Where pods do not have to be ready otherwise.
pub const PLAYS: Plays = plays! {
    ladder:
        next_flavor_when_machines_do_not_come
        back_to_the_reservation
        on_to_the_third_flavor
        down_the_whole_ladder
        the_full_one_and_the_other_fail_in_turn
        pod_sets_with_different_times;
    giving_up:
        deactivated_when_every_flavor_failed
        own_deactivation_keeps_what_was_tried;
    budget:
        preempted_while_a_flavor_is_tried
        two_timers_in_one_second;
    checks:
        starts_when_the_check_agrees
        rejected_check_falls_back_or_deactivates
        check_that_stays_pending
        check_that_retries_while_time_runs;
    together:
        rules_edited_meanwhile
        flavors_edited_meanwhile
        another_queue_begins_anew;
};

/// Those of them that are about two groups.
pub const OF_TWO_GROUPS: Plays = plays! { both
    ladder:
        groups_with_different_times;
};

/// Those that set the clock, for everybody.
pub const BY_CLOCK: Plays = plays! {
    giving_up:
        three_rounds_with_growing_waits;
    budget:
        one_minute_left;
};

/// Where pods have to be ready.
pub const WITH_READINESS: Plays = plays! {
    giving_up:
        all_flavors_again_and_again;
    together:
        its_own_time_goes_before_the_general_one;
};

/// Those of them that are about two groups.
pub const READINESS_OF_TWO_GROUPS: Plays = plays! { both
    together:
        of_both_times_the_first_counts;
};
