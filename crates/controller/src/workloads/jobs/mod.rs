//! The batch/v1 Job integration: the Workload that stands for a Job, and what a Job needs next.

mod batch_job;
mod plan;
#[cfg(test)]
mod plan_tests;
mod priority;
mod template;

pub(super) use batch_job::{JobView, facts, queue_name};
pub(super) use plan::{Owned, Step, Surroundings, plan};
pub(super) use priority::Classes;
