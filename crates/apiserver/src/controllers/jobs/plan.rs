//! What to do next for a Job, as a function of what is known. No I/O, no clock.
//!
//! A pod's end is counted exactly once across crashes: first its uid is written to
//! `status.uncountedTerminatedPods`, then its finalizer is taken off, then the counter replaces the uid.
//! Each plan makes one such step, so a plan writes the status at most once.

use std::cmp::Reverse;

use gangway_model::Timestamp;
use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};
use rustc_hash::FxHashSet;

use super::backoff::FailureRecord;
use super::conditions::{Outcome, has_condition, recorded_outcome, set_condition};
use super::indexes::IndexSet;
use super::per_index::PerIndex;
use super::view::{JobView, Phase, PodView, from_time, to_time};

/// More pods than this are created or deleted in several steps, so that one Job does not hold up others.
pub(super) const MAX_PODS_PER_STEP: usize = 500;
/// Keeps the status small.
const MAX_UNCOUNTED: usize = 500;

/// A pod to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deletion {
    pub uid: String,
    /// Take the finalizer off first: this deletion must not count as a failure.
    pub uncounted: bool,
}

/// Something to tell in an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

/// A pod to be created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NewPod {
    /// The index that it works on, if the Job is Indexed.
    pub index: Option<u32>,
    /// How often that index has failed, if the Job counts that.
    pub index_failures: Option<u32>,
}

/// Steps in order: create and delete pods, write the status, take finalizers off.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub create: Vec<NewPod>,
    pub delete: Vec<Deletion>,
    pub status: Option<JobStatus>,
    /// Pods whose finalizer to take off.
    pub release: Vec<String>,
    /// When to plan again even if nothing happens.
    pub wake_at: Option<Timestamp>,
    pub failures: FailureRecord,
    pub notes: Vec<Note>,
}

/// Plans the next step of a Job that is not finished.
pub(super) fn plan(job: &JobView, pods: &[&PodView], failures: FailureRecord, now: Timestamp) -> Plan {
    let mut planner = Planner::new(job, pods, failures, now);
    planner.decide_outcome();
    match planner.outcome {
        Some(_) => planner.delete_active(false),
        None => planner.manage(),
    }
    planner.track();
    planner.finish();
    planner.into_plan()
}

struct Planner<'a> {
    job: &'a JobView,
    pods: &'a [&'a PodView],
    now: Timestamp,
    status: JobStatus,
    active: Vec<&'a PodView>,
    terminating: usize,
    /// Pods, or indexes, that have succeeded, counted or not.
    succeeded: usize,
    failed: usize,
    completed: IndexSet,
    per_index: Option<PerIndex<'a>>,
    outcome: Option<Outcome>,
    created: usize,
    /// More pods have ended than fit into the status at once.
    status_is_full: bool,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn new(job: &'a JobView, pods: &'a [&'a PodView], failures: FailureRecord, now: Timestamp) -> Self {
        let mut status = job.status.clone();
        if status.start_time.is_none() && !job.suspended {
            status.start_time = Some(to_time(now));
        }
        let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
        let (counted_succeeded, counted_failed) = (as_set(&uncounted.succeeded), as_set(&uncounted.failed));
        let ended = |pod: &&&PodView| pod.is_tracked() && (!job.indexed || valid_index(job, pod).is_some());
        let tracked = || pods.iter().filter(ended).copied();
        let new_succeeded: Vec<&PodView> = tracked()
            .filter(|pod| pod.phase == Phase::Succeeded && !counted_succeeded.contains(pod.uid.as_str()))
            .collect();
        let new_failed: Vec<&PodView> = tracked()
            .filter(|pod| counts_as_failed(job, pod) && !counted_failed.contains(pod.uid.as_str()))
            .collect();
        let mut completed = completed_indexes(job);
        let succeeded = if job.indexed {
            for pod in &new_succeeded {
                pod.index.map(|index| completed.insert(index));
            }
            completed.len()
        } else {
            count(job.status.succeeded) + new_succeeded.len() + counted_succeeded.len()
        };
        Self {
            succeeded,
            failed: count(job.status.failed) + new_failed.len() + counted_failed.len(),
            active: pods.iter().filter(|pod| pod.is_active()).copied().collect(),
            terminating: pods.iter().filter(|pod| pod.is_terminating()).count(),
            plan: Plan { failures: failures.after(&new_succeeded, &new_failed), ..Plan::default() },
            outcome: None,
            created: 0,
            status_is_full: false,
            per_index: PerIndex::of(job, pods, &completed),
            completed,
            job,
            pods,
            now,
            status,
        }
    }

    /// Whether the Job has already been decided, or is lost.
    fn decide_outcome(&mut self) {
        self.outcome = recorded_outcome(&self.job.status);
        if self.outcome.is_some() {
            return;
        }
        if let Some(setting) = self.job.unsupported {
            let message = format!("spec.{setting} is not supported by this Job controller");
            self.status.start_time.get_or_insert_with(|| to_time(self.now));
            self.outcome = Some(Outcome::failure("NotSupported", &message));
        } else if self.failed > count(Some(self.job.backoff_limit)) || self.restarts_exceed_limit() {
            let message = "Job has reached the specified backoff limit";
            self.outcome = Some(Outcome::failure("BackoffLimitExceeded", message));
        } else if let Some(deadline) = self.active_deadline() {
            if deadline <= self.now {
                let message = "Job was active longer than specified deadline";
                self.outcome = Some(Outcome::failure("DeadlineExceeded", message));
            } else {
                self.wake_at(deadline);
            }
        }
        if self.outcome.is_none() {
            let per_index = self.per_index.as_ref();
            self.outcome = per_index.and_then(|per_index| per_index.outcome(self.job, &self.completed));
        }
    }

    /// Containers that restart in place fail without their pod failing.
    fn restarts_exceed_limit(&self) -> bool {
        if !self.job.restarts_in_place {
            return false;
        }
        let running = self.pods.iter().filter(|pod| matches!(pod.phase, Phase::Running | Phase::Pending));
        let restarts: i64 = running.map(|pod| i64::from(pod.restarts)).sum();
        restarts >= i64::from(self.job.backoff_limit.max(1))
    }

    fn active_deadline(&self) -> Option<Timestamp> {
        let seconds = self.job.active_deadline_seconds.filter(|_| !self.job.suspended)?;
        Some(from_time(self.status.start_time.as_ref()?).plus_seconds(seconds))
    }

    fn wake_at(&mut self, time: Timestamp) {
        self.plan.wake_at = Some(self.plan.wake_at.map_or(time, |earlier| earlier.min(time)));
    }

    /// Creates or deletes pods towards what the spec asks for.
    fn manage(&mut self) {
        if !self.job.deleting {
            if self.job.suspended {
                self.delete_active(true);
            } else {
                self.match_parallelism();
            }
        }
        let nothing_runs = self.active.is_empty() && self.created == 0;
        let enough = match self.job.completions {
            Some(completions) => self.succeeded >= count(Some(completions)),
            None => self.succeeded > 0,
        };
        if enough && nothing_runs {
            self.outcome = Some(Outcome::success());
        } else if !self.job.deleting {
            self.show_suspension();
        }
    }

    fn delete_active(&mut self, uncounted: bool) {
        let active = std::mem::take(&mut self.active);
        self.terminating += active.len();
        self.plan.delete.extend(active.into_iter().map(|pod| Deletion { uid: pod.uid.clone(), uncounted }));
    }

    fn match_parallelism(&mut self) {
        let parallelism = count(Some(self.job.parallelism));
        let wanted = match self.job.completions {
            Some(completions) => count(Some(completions)).saturating_sub(self.succeeded).min(parallelism),
            // A work queue: once one pod has succeeded no new ones start.
            None if self.succeeded > 0 => self.active.len(),
            None => parallelism,
        };
        let superfluous = self.superfluous(wanted);
        if !superfluous.is_empty() {
            self.active.retain(|pod| !superfluous.contains(&pod.uid));
            self.terminating += superfluous.len();
            self.plan.delete.extend(superfluous.into_iter().map(|uid| Deletion { uid, uncounted: true }));
            return;
        }
        let blocked = if self.job.replaces_only_failed { self.terminating } else { 0 };
        let missing = wanted.saturating_sub(blocked + self.active.len()).min(MAX_PODS_PER_STEP);
        if missing == 0 {
            return;
        }
        let delay = self.plan.failures.next_start().filter(|_| self.per_index.is_none());
        match delay.filter(|start| *start > self.now) {
            Some(start) => self.wake_at(start),
            None => self.create(missing),
        }
    }

    /// The pods whose loss costs least: those least far on their way, then the youngest.
    fn superfluous(&self, wanted: usize) -> FxHashSet<String> {
        let mut kept_indexes = FxHashSet::default();
        let (mut kept, mut removed) = (Vec::new(), Vec::new());
        for pod in &self.active {
            let twin = self.job.indexed
                && valid_index(self.job, pod)
                    .is_none_or(|index| self.completed.contains(index) || !kept_indexes.insert(index));
            if twin { removed.push(*pod) } else { kept.push(*pod) }
        }
        kept.sort_by_key(|pod| {
            (pod.assigned, pod.phase, pod.ready, Reverse(pod.restarts), Reverse(pod.created))
        });
        let excess = kept.len().saturating_sub(wanted);
        removed.extend(&kept[..excess]);
        removed.into_iter().take(MAX_PODS_PER_STEP).map(|pod| pod.uid.clone()).collect()
    }

    fn create(&mut self, missing: usize) {
        if self.job.indexed {
            let blocks =
                |pod: &&&PodView| pod.is_active() || (self.job.replaces_only_failed && pod.is_terminating());
            let taken: FxHashSet<u32> =
                self.pods.iter().filter(blocks).filter_map(|pod| valid_index(self.job, pod)).collect();
            let completions = u32::try_from(self.job.completions.unwrap_or(0)).unwrap_or(0);
            let has_failed =
                |index| self.per_index.as_ref().is_some_and(|per_index| per_index.failed.contains(index));
            let is_open = |index: &u32| {
                !taken.contains(index) && !self.completed.contains(*index) && !has_failed(*index)
            };
            let open: Vec<u32> = (0..completions).filter(is_open).take(missing).collect();
            self.create_indexes(&open);
        } else {
            self.plan.create = vec![NewPod::default(); missing];
        }
        self.created = self.plan.create.len();
    }

    /// Creates a pod for each index that need not wait after its last failure.
    fn create_indexes(&mut self, indexes: &[u32]) {
        for index in indexes.iter().copied() {
            let per_index = self.per_index.as_ref();
            let start = per_index.and_then(|per_index| per_index.next_start(index));
            match start.filter(|start| *start > self.now) {
                Some(start) => self.wake_at(start),
                None => {
                    let index_failures = per_index.map(|per_index| per_index.failures(index));
                    self.plan.create.push(NewPod { index: Some(index), index_failures });
                }
            }
        }
    }

    /// Writes into the status whether the Job is suspended.
    fn show_suspension(&mut self) {
        let (status, reason, message) = match self.job.suspended {
            true => ("True", "JobSuspended", "Job suspended"),
            false => ("False", "JobResumed", "Job resumed"),
        };
        if !set_condition(&mut self.status, "Suspended", status, reason, message, self.now) {
            return;
        }
        // The deadline counts from when the Job runs, and a Job that does not run may still move.
        self.status.start_time = (!self.job.suspended).then(|| to_time(self.now));
        let reason = if self.job.suspended { "Suspended" } else { "Resumed" };
        self.note(false, reason, message);
    }

    /// Counts pods that lost their finalizer, and puts those that ended on the way to it.
    fn track(&mut self) {
        let tracked: FxHashSet<&str> =
            self.pods.iter().filter(|pod| pod.is_tracked()).map(|pod| pod.uid.as_str()).collect();
        let mut uncounted = self.status.uncounted_terminated_pods.take().unwrap_or_default();
        let released = keep_only(&mut uncounted.succeeded, &tracked);
        add(&mut self.status.succeeded, released);
        let released = keep_only(&mut uncounted.failed, &tracked);
        add(&mut self.status.failed, released);
        let deleted: FxHashSet<&str> =
            self.plan.delete.iter().filter(|deletion| deletion.uncounted).map(|d| d.uid.as_str()).collect();
        let pods = self.pods;
        for pod in pods.iter().filter(|pod| pod.is_tracked() && !deleted.contains(pod.uid.as_str())) {
            if !self.may_release(pod) {
                continue;
            }
            if self.plan.release.len() >= MAX_UNCOUNTED {
                self.status_is_full = true;
                break;
            }
            self.plan.release.push(pod.uid.clone());
            self.record_end(pod, &mut uncounted);
        }
        if self.job.indexed {
            // The index is enough to count a success once, so these never wait among the uncounted.
            self.status.succeeded = Some(as_count(self.completed.len())).filter(|succeeded| *succeeded > 0);
            let text = self.completed.to_string();
            self.status.completed_indexes = Some(text).filter(|text| !text.is_empty());
        }
        if let Some(per_index) = &self.per_index {
            self.status.failed_indexes = Some(per_index.failed.to_string());
        }
        self.status.uncounted_terminated_pods = Some(uncounted);
    }

    fn may_release(&self, pod: &PodView) -> bool {
        let over = self.job.deleting || self.outcome.is_some();
        let is_needed = self.per_index.as_ref().is_some_and(|per_index| per_index.is_needed(pod));
        over || pod.phase == Phase::Succeeded || (counts_as_failed(self.job, pod) && !is_needed)
    }

    fn record_end(&self, pod: &PodView, uncounted: &mut UncountedTerminatedPods) {
        let lost = self.outcome.as_ref().is_some_and(Outcome::is_failure);
        let known = |list: &Option<Vec<String>>| list.iter().flatten().any(|uid| *uid == pod.uid);
        if pod.phase == Phase::Succeeded && !known(&uncounted.failed) {
            if !self.job.indexed && !known(&uncounted.succeeded) {
                uncounted.succeeded.get_or_insert_default().push(pod.uid.clone());
            }
        } else if counts_as_failed(self.job, pod) || lost {
            let counts = !self.job.indexed || valid_index(self.job, pod).is_some();
            if counts && !known(&uncounted.failed) {
                uncounted.failed.get_or_insert_default().push(pod.uid.clone());
            }
        }
    }

    /// Announces the outcome, and makes it final once every pod is counted and gone.
    fn finish(&mut self) {
        let Some(outcome) = self.outcome.take() else { return };
        let (interim, last) = outcome.condition_types();
        if !has_condition(&self.job.status, interim) {
            set_condition(&mut self.status, interim, "True", &outcome.reason, &outcome.message, self.now);
        }
        let uncounted = self.status.uncounted_terminated_pods.as_ref().map_or(0, count_of);
        if uncounted > 0 || self.terminating > 0 || self.status_is_full {
            return;
        }
        set_condition(&mut self.status, last, "True", &outcome.reason, &outcome.message, self.now);
        if outcome.is_failure() {
            self.note(true, &outcome.reason, &outcome.message);
        } else {
            self.status.completion_time = Some(to_time(self.now));
            self.note(false, "Completed", "Job completed");
        }
    }

    fn note(&mut self, warning: bool, reason: &str, message: &str) {
        self.plan.notes.push(Note { warning, reason: reason.to_owned(), message: message.to_owned() });
    }

    fn into_plan(self) -> Plan {
        let Self { job, mut status, active, created, terminating, mut plan, .. } = self;
        let ready = active.iter().filter(|pod| pod.ready).count();
        status.active = Some(as_count(active.len() + created)).filter(|active| *active > 0);
        status.ready = Some(as_count(ready));
        status.terminating = Some(as_count(terminating));
        plan.status = Some(status).filter(|status| *status != job.status);
        plan
    }
}

/// Whether a pod's end counts as a failure.
pub(super) fn counts_as_failed(job: &JobView, pod: &PodView) -> bool {
    pod.phase == Phase::Failed || (!job.replaces_only_failed && pod.deleting && pod.phase != Phase::Succeeded)
}

/// The pod's index, if the Job has such an index.
pub(super) fn valid_index(job: &JobView, pod: &PodView) -> Option<u32> {
    pod.index.filter(|index| i64::from(*index) < i64::from(job.completions.unwrap_or(0)))
}

fn completed_indexes(job: &JobView) -> IndexSet {
    let completions = u32::try_from(job.completions.unwrap_or(0)).unwrap_or(0);
    IndexSet::parse(job.status.completed_indexes.as_deref().unwrap_or_default(), completions)
}

fn as_set(uids: &Option<Vec<String>>) -> FxHashSet<&str> {
    uids.iter().flatten().map(String::as_str).collect()
}

/// Drops the uids that are not in `kept`; says how many those were.
fn keep_only(uids: &mut Option<Vec<String>>, kept: &FxHashSet<&str>) -> usize {
    let before = uids.as_ref().map_or(0, Vec::len);
    if let Some(list) = uids {
        list.retain(|uid| kept.contains(uid.as_str()));
    }
    let after = uids.as_ref().map_or(0, Vec::len);
    if after == 0 {
        *uids = None;
    }
    before - after
}

fn count_of(uncounted: &UncountedTerminatedPods) -> usize {
    let length = |uids: &Option<Vec<String>>| uids.as_ref().map_or(0, Vec::len);
    length(&uncounted.succeeded) + length(&uncounted.failed)
}

fn add(counter: &mut Option<i32>, more: usize) {
    if more > 0 {
        *counter = Some(counter.unwrap_or(0).saturating_add(as_count(more)));
    }
}

fn count(number: Option<i32>) -> usize {
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

fn as_count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
