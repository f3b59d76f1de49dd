//! The scenarios: what a user does, and what has to come of it, on every API.
//!
//! That something does *not* happen is shown by waiting for something that comes after it.

mod adoption;
mod changes;
mod cohorts;
mod commands;
mod fallback;
mod gangs;
mod leaving;
mod lifecycle;
mod manifests;
mod mistakes;
mod order;
mod outages;
mod pods;
mod preemption;
mod quota;
mod readiness;
mod requeueing;
mod status;
mod stopping;
mod succession;

use anyhow::Result;
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::scene::Scene;

/// A name, which is also the namespace, and the play.
pub type Scenario = (&'static str, for<'a> fn(&'a Scene) -> LocalBoxFuture<'a, Result<()>>);

pub type Lists = &'static [&'static [Scenario]];

macro_rules! scenarios {
    ($($module:ident: $($name:ident)+;)+) => {
        &[$($((stringify!($name), |scene| $module::$name(scene).boxed_local())),+),+]
    };
}

/// Scenarios that need no configuration.
pub const SCENARIOS: Lists =
    &[EVERYDAY, fallback::PLAYS.plain, fallback::PLAYS.two_groups, fallback::OF_TWO_GROUPS.two_groups];

const EVERYDAY: &[Scenario] = scenarios! {
    lifecycle:
        admit_and_finish
        finish_failed_job
        delete_running_job_frees_quota
        delete_workload_of_running_job
        delete_waiting_job
        recreate_under_same_name
        queued_job_that_runs_without_admission_is_suspended;
    quota:
        wait_for_quota_then_start
        several_pods_are_admitted_together
        second_flavor
        two_resource_groups
        quota_raised
        exceeds_max_quota
        untolerated_flavor;
    order:
        higher_priority_starts_first
        strict_fifo_blocks
        best_effort_passes;
    stopping:
        hold_queue_and_resume
        hold_and_drain_queue_and_resume
        hold_local_queue_and_resume
        drain_local_queue_and_resume
        deactivate_and_reactivate;
    preemption:
        lent_quota_is_taken_back
        borrower_preempted_while_being_admitted
        higher_priority_preempts_in_its_queue
        eviction_takes_four_requests
        nobody_borrows_what_its_owner_waits_for;
    leaving:
        preemptor_waits_for_slow_victim
        room_of_first_victim_stays_held
        preemptor_deleted_meanwhile
        preemptor_deactivated_meanwhile
        user_unsuspends_a_victim;
    cohorts:
        cohort_with_quota_of_its_own
        cohort_cycle_and_its_end
        quota_lowered_under_use;
    changes:
        job_changed_while_queued
        queue_changed_while_queued
        flavor_added
        missing_queue_created_later
        missing_cluster_queue_created_later
        namespace_not_selected_then_labelled;
    status:
        queue_status_counts
        events_tell_the_story;
    mistakes:
        bad_objects_are_refused
        backing_queue_is_immutable
        unsupported_kind_is_said;
    fallback:
        queue_waits_for_its_check
        rules_that_cannot_be_are_named;
    manifests:
        golden_manifests;
};

/// Scenarios with a configuration.
pub struct Group {
    pub config: &'static str,
    /// Not side by side: they start the controller again where others would not bear it, set its clock, or hold up everybody
    /// else.
    pub one_by_one: bool,
    pub scenarios: Lists,
}

/// Pods do not have to be ready.
const PLAIN: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
";

/// Scenarios in which pods have to be ready, or the controller ends and begins again while others run.
pub const CONFIGURED: &[Group] = &[
    Group {
        config: changes::UNNAMED,
        one_by_one: false,
        scenarios: &[scenarios! {
            changes:
                job_without_a_queue_waits_for_one;
        }],
    },
    Group {
        config: readiness::CONCURRENT,
        one_by_one: false,
        scenarios: &[
            scenarios! {
                gangs:
                    two_gangs_at_once_stall;
                readiness:
                    ready_in_time
                    fewer_completions_than_pods
                    failed_index_needs_no_pod
                    lost_pod_does_not_come_back
                    fails_and_recovers_for_ever;
                requeueing:
                    no_node_fits
                    nodes_are_fragmented
                    start_timeout_suspends_and_requeues
                    recovery_timeout_suspends_and_requeues;
            },
            fallback::WITH_READINESS.plain,
            fallback::WITH_READINESS.two_groups,
            fallback::READINESS_OF_TWO_GROUPS.two_groups,
        ],
    },
    Group {
        config: readiness::CONCURRENT,
        one_by_one: false,
        scenarios: &[fallback::WITH_READINESS.restarted, fallback::READINESS_OF_TWO_GROUPS.restarted],
    },
    Group {
        config: PLAIN,
        one_by_one: false,
        scenarios: &[fallback::PLAYS.restarted, fallback::OF_TWO_GROUPS.restarted],
    },
    Group {
        config: PLAIN,
        one_by_one: true,
        scenarios: &[fallback::BY_CLOCK.plain, fallback::BY_CLOCK.two_groups, fallback::BY_CLOCK.restarted],
    },
    Group {
        config: readiness::AT_ONCE,
        one_by_one: false,
        scenarios: &[scenarios! {
            requeueing:
                back_at_once_where_room_is
                preempted_comes_back_after_its_preemptor;
        }],
    },
    Group {
        config: readiness::CONCURRENT,
        one_by_one: true,
        scenarios: &[scenarios! {
            outages:
                restart_before_the_start_deadline
                restart_before_the_recovery_deadline
                restart_before_the_backoff_ends
                ends_at_the_timeout
                ten_minutes_without_controller
                clock_set_forward_and_back;
        }],
    },
    Group {
        config: adoption::AS_BEFORE,
        one_by_one: true,
        scenarios: &[scenarios! {
            adoption:
                installation_is_taken_over;
        }],
    },
    Group {
        config: readiness::SEQUENTIAL,
        one_by_one: true,
        scenarios: &[scenarios! {
            gangs:
                two_gangs_one_after_the_other
                nobody_is_admitted_while_one_is_not_ready
                admitted_when_all_others_are_ready;
        }],
    },
];

/// Scenarios after which the controller has not said everything to others, because it was killed or had too much to say: they
/// run one by one, after the rest.
pub const ALONE: &[Scenario] = scenarios! {
    commands:
        commands_tell_of_a_preemption
        snapshot_is_replayed;
    fallback:
        snapshot_goes_on_where_it_was_taken;
    pods:
        thousand_pods_on_a_hundred_nodes
        higher_priority_pods_take_places
        cloggers_starve_nobody
        scheduler_killed_while_binding
        scheduler_that_stood_still_binds_nothing
        nodes_go_while_pods_are_bound;
    succession:
        controller_that_stood_still_starts_nothing
        controller_hands_over_at_once;
    leaving:
        two_hundred_victims_at_once
        controller_killed_between_evictions
        victim_finishes_by_itself;
};
