//! What is known about the Jobs of a run, from what the API said. Pure: news in, rows and transitions out.

use std::collections::BTreeMap;

use gangway_model::Timestamp;
use gangway_model::reasons::PendingReason;

/// A Job by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey {
    pub namespace: String,
    pub name: String,
}

/// Where a Job is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Created; nobody has said anything about it yet.
    Queued,
    /// No quota yet; the reason says why.
    Waiting,
    /// It has quota and its pods are on their way.
    Starting,
    /// A pod runs.
    Running,
    /// It lost its quota and its pods are going.
    Stopping,
    Succeeded,
    Failed,
}

impl State {
    /// As people and programs read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Waiting => "Waiting",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether nothing more will happen to it.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A reason token and its sentence, with the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    pub reason: String,
    pub message: String,
}

/// What a Job object says.
#[derive(Clone, Debug, Default)]
pub struct JobNews {
    pub suspended: bool,
    /// Pods that are active or terminating.
    pub pods_left: i32,
    pub succeeded: bool,
    pub failed: Option<Why>,
    /// It asks for no pod at a time, so it has none even with quota.
    pub wants_no_pods: bool,
}

/// What the Workload of a Job says.
#[derive(Clone, Debug, Default)]
pub struct WorkloadNews {
    pub admitted: bool,
    /// Why it has to give its quota back: it holds that until its pods are gone.
    pub leaving: Option<Why>,
    /// Why it has no quota.
    pub waiting: Option<Why>,
    /// The flavors that it was given.
    pub flavors: Vec<String>,
}

/// What a pod of a Job says.
#[derive(Clone, Debug, Default)]
pub struct PodNews {
    /// It runs, or has run, and was not told to go.
    pub began: bool,
    /// It is on a node.
    pub placed: bool,
    /// Why it is on no node, or cannot start on the one that it is on.
    pub held_up: Option<Why>,
    /// It was deleted.
    pub gone: bool,
}

/// A Job of the run.
#[derive(Clone, Debug)]
pub struct JobPicture {
    pub key: JobKey,
    pub queue: String,
    pub state: State,
    pub why: Why,
    pub flavors: Vec<String>,
    pub created: Timestamp,
    pub admitted: Option<Timestamp>,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    /// How often it had to give its quota back.
    pub evictions: u32,
    job: JobNews,
    workload: WorkloadNews,
    /// The pods that exist, by UID.
    pods: BTreeMap<String, PodNews>,
    /// What was complained of last about a Job for which nothing else speaks.
    warning: Option<Why>,
    /// A pod was seen to run. News of pods may come before the news that there is quota.
    began: bool,
}

impl JobPicture {
    /// How long it has waited or waited for its quota.
    pub fn wait_nanos(&self, now: Timestamp) -> i64 {
        self.admitted.or(self.ended).unwrap_or(now).nanos_since(self.created)
    }

    /// The flavors that it has quota in; `-` if it has none.
    pub fn flavors_text(&self) -> String {
        match self.admitted {
            Some(_) if !self.flavors.is_empty() => self.flavors.join(","),
            _ => "-".to_owned(),
        }
    }

    /// How long it has run; none before its first pod runs.
    pub fn run_nanos(&self, now: Timestamp) -> Option<i64> {
        self.started.map(|started| self.ended.unwrap_or(now).nanos_since(started))
    }

    fn judge(&self) -> (State, Why) {
        if let Some(why) = &self.job.failed {
            return (State::Failed, why.clone());
        }
        if self.job.succeeded {
            return (State::Succeeded, Why::default());
        }
        if let Some(why) = &self.workload.leaving {
            return (State::Stopping, why.clone());
        }
        if self.workload.admitted {
            let state = if self.started.is_some() { State::Running } else { State::Starting };
            let why = if state == State::Starting { self.held_up() } else { None };
            return (state, why.unwrap_or_default());
        }
        let state = match (&self.workload.waiting, self.job.pods_left) {
            (_, 1..) if self.job.suspended => State::Stopping,
            (Some(_), _) => State::Waiting,
            (None, _) => State::Queued,
        };
        let why = self.workload.waiting.as_ref().or(self.warning.as_ref());
        (state, why.cloned().unwrap_or_default())
    }

    /// Why none of its pods gets to run. One that is on its node and does not complain is on its way, however
    /// long its init containers take.
    fn held_up(&self) -> Option<Why> {
        if self.job.wants_no_pods {
            let message = "spec.parallelism is 0, so the Job has no pods; set it to 1 or more".to_owned();
            return Some(Why { reason: "NoPodsWanted".to_owned(), message });
        }
        if self.pods.values().any(|pod| pod.placed && pod.held_up.is_none()) {
            return None;
        }
        match self.pods.is_empty() {
            true => self.warning.clone(),
            false => self.pods.values().find_map(|pod| pod.held_up.clone()),
        }
    }

    fn settle(&mut self, now: Timestamp) {
        if self.workload.admitted {
            self.admitted.get_or_insert(now);
            if self.began {
                self.started.get_or_insert(now);
            }
        }
        let (state, why) = self.judge();
        if state == State::Stopping && self.state != State::Stopping {
            self.evictions += 1;
        }
        match state {
            // A Job that lost its quota waits again, and its next run is another one.
            State::Queued | State::Waiting | State::Stopping => {
                if self.admitted.is_some() {
                    self.began = false;
                }
                self.admitted = None;
                self.started = None;
            }
            State::Succeeded | State::Failed => {
                self.ended.get_or_insert(now);
            }
            State::Starting | State::Running => {}
        }
        (self.state, self.why) = (state, why);
    }
}

/// All Jobs of the run, in the order of the files.
#[derive(Debug, Default)]
pub struct Picture {
    jobs: Vec<JobPicture>,
    places: BTreeMap<JobKey, usize>,
}

impl Picture {
    /// A Job that was applied at `now`.
    pub fn add(&mut self, key: JobKey, queue: String, now: Timestamp) {
        self.places.insert(key.clone(), self.jobs.len());
        self.jobs.push(JobPicture {
            key,
            queue,
            state: State::Queued,
            why: Why::default(),
            flavors: Vec::new(),
            created: now,
            admitted: None,
            started: None,
            ended: None,
            evictions: 0,
            job: JobNews { suspended: true, ..JobNews::default() },
            workload: WorkloadNews::default(),
            pods: BTreeMap::new(),
            warning: None,
            began: false,
        });
    }

    /// The Jobs, in the order of the files.
    pub fn jobs(&self) -> &[JobPicture] {
        &self.jobs
    }

    /// Whether every Job has ended.
    pub fn all_ended(&self) -> bool {
        self.jobs.iter().all(|job| job.state.is_end())
    }

    /// Whether nothing can happen any more without somebody's help: whatever has not ended waits, nothing
    /// runs, and no evaluation is under way.
    pub fn is_stuck(&self) -> bool {
        !self.all_ended() && self.jobs.iter().all(|job| job.state.is_end() || waits_for_help(job))
    }

    /// When the first Job had its quota.
    pub fn first_admission(&self) -> Option<Timestamp> {
        self.jobs.iter().filter_map(|job| job.admitted).min()
    }

    /// A Job object changed. Returns the Job if its state or reason is another one now.
    pub fn job_news(&mut self, key: &JobKey, news: JobNews, now: Timestamp) -> Option<&JobPicture> {
        self.change(key, now, |job| job.job = news)
    }

    /// A Workload changed.
    pub fn workload_news(&mut self, key: &JobKey, news: WorkloadNews, now: Timestamp) -> Option<&JobPicture> {
        self.change(key, now, |job| {
            if !news.flavors.is_empty() {
                job.flavors.clone_from(&news.flavors);
            }
            // What was complained of before has not kept it from being queued.
            if news.admitted || news.waiting.is_some() {
                job.warning = None;
            }
            job.workload = news;
        })
    }

    /// The pod with this UID changed.
    pub fn pod_news(
        &mut self,
        key: &JobKey,
        uid: &str,
        news: PodNews,
        now: Timestamp,
    ) -> Option<&JobPicture> {
        self.change(key, now, |job| {
            job.began |= news.began && job.workload.leaving.is_none();
            if news.gone {
                job.pods.remove(uid);
            } else {
                job.pods.insert(uid.to_owned(), news);
            }
        })
    }

    /// Somebody complained about a Job.
    pub fn warning(&mut self, key: &JobKey, why: Why, now: Timestamp) -> Option<&JobPicture> {
        self.change(key, now, |job| job.warning = Some(why))
    }

    fn change(
        &mut self,
        key: &JobKey,
        now: Timestamp,
        change: impl FnOnce(&mut JobPicture),
    ) -> Option<&JobPicture> {
        let job = &mut self.jobs[*self.places.get(key)?];
        let before = (job.state, job.why.clone());
        change(job);
        job.settle(now);
        (before != (job.state, job.why.clone())).then_some(job)
    }
}

fn waits_for_help(job: &JobPicture) -> bool {
    match job.state {
        State::Waiting => job.why.reason != PendingReason::PendingEvaluation.as_str(),
        // No Workload was made of it.
        State::Queued => true,
        // A pod may take its time; only one that says why it cannot start is stuck.
        State::Starting => !job.why.reason.is_empty(),
        State::Running | State::Stopping | State::Succeeded | State::Failed => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> JobKey {
        JobKey { namespace: "a".into(), name: "j".into() }
    }

    fn picture() -> Picture {
        let mut picture = Picture::default();
        picture.add(key(), "main".into(), Timestamp::from_seconds(10));
        picture
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn waiting(reason: &str) -> WorkloadNews {
        let why = Why { reason: reason.into(), message: "2 of 2 cpu are in use".into() };
        WorkloadNews { waiting: Some(why), ..WorkloadNews::default() }
    }

    fn admitted() -> WorkloadNews {
        WorkloadNews { admitted: true, flavors: vec!["spot".into()], ..WorkloadNews::default() }
    }

    #[test]
    fn a_job_goes_from_queued_to_succeeded() {
        let mut picture = picture();
        let seen = |job: Option<&JobPicture>| job.map(|job| job.state);
        assert_eq!(
            seen(picture.workload_news(&key(), waiting("WaitingForQuota"), at(11))),
            Some(State::Waiting)
        );
        assert_eq!(seen(picture.workload_news(&key(), waiting("WaitingForQuota"), at(12))), None);
        assert_eq!(seen(picture.workload_news(&key(), admitted(), at(13))), Some(State::Starting));
        let began = PodNews { began: true, ..PodNews::default() };
        assert_eq!(seen(picture.pod_news(&key(), "1", began, at(14))), Some(State::Running));
        let done = JobNews { succeeded: true, ..JobNews::default() };
        assert_eq!(seen(picture.job_news(&key(), done, at(17))), Some(State::Succeeded));
        let job = &picture.jobs()[0];
        assert_eq!(job.wait_nanos(at(99)), 3_000_000_000);
        assert_eq!(job.run_nanos(at(99)), Some(3_000_000_000));
        assert_eq!(job.flavors, ["spot"]);
        assert!(picture.all_ended() && !picture.is_stuck());
    }

    #[test]
    fn an_evicted_job_waits_again() {
        let mut picture = picture();
        picture.workload_news(&key(), admitted(), at(11));
        picture.job_news(&key(), JobNews { pods_left: 1, ..JobNews::default() }, at(12));
        picture.pod_news(&key(), "1", PodNews { began: true, ..PodNews::default() }, at(12));
        picture.workload_news(&key(), waiting("PendingEvaluation"), at(13));
        let suspended = JobNews { suspended: true, pods_left: 1, ..JobNews::default() };
        let job = picture.job_news(&key(), suspended, at(14)).unwrap();
        assert_eq!((job.state, job.started), (State::Stopping, None));
    }

    #[test]
    fn a_preempted_job_says_why_it_stops_and_starts_anew() {
        let mut picture = picture();
        let runs = || PodNews { began: true, ..PodNews::default() };
        picture.workload_news(&key(), admitted(), at(11));
        picture.pod_news(&key(), "1", runs(), at(12));
        let leaving = WorkloadNews { leaving: Some(why("InCohortReclamation")), ..WorkloadNews::default() };
        let job = picture.workload_news(&key(), leaving, at(13)).unwrap();
        assert_eq!((job.state, job.why.reason.as_str()), (State::Stopping, "InCohortReclamation"));
        // The pod has not heard of it yet.
        picture.pod_news(&key(), "1", runs(), at(13));
        assert!(!picture.is_stuck());
        picture.workload_news(&key(), waiting("WaitingForQuota"), at(14));
        let job = picture.workload_news(&key(), admitted(), at(15)).unwrap();
        assert_eq!((job.state, job.wait_nanos(at(99))), (State::Starting, 5_000_000_000));
        assert_eq!(job.evictions, 1);
    }

    #[test]
    fn a_run_is_stuck_when_all_that_is_left_waits_for_help() {
        let mut picture = picture();
        picture.workload_news(&key(), waiting("PendingEvaluation"), at(11));
        assert!(!picture.is_stuck());
        picture.workload_news(&key(), waiting("ExceedsMaxQuota"), at(11));
        assert!(picture.is_stuck());
        picture.workload_news(&key(), admitted(), at(12));
        picture.pod_news(&key(), "1", PodNews { began: true, ..PodNews::default() }, at(12));
        assert!(!picture.is_stuck());
    }

    fn why(reason: &str) -> Why {
        Why { reason: reason.into(), message: "a sentence".into() }
    }

    #[test]
    fn a_job_that_starts_is_stuck_only_if_no_pod_of_it_can() {
        let mut picture = picture();
        picture.workload_news(&key(), admitted(), at(11));
        assert!(!picture.is_stuck(), "its pods are not there yet");
        let unplaced = PodNews { held_up: Some(why("Unschedulable")), ..PodNews::default() };
        picture.pod_news(&key(), "1", unplaced, at(12));
        assert!(picture.is_stuck());
        assert_eq!(picture.jobs()[0].why, why("Unschedulable"));
        let placed = PodNews { placed: true, ..PodNews::default() };
        picture.pod_news(&key(), "2", placed.clone(), at(13));
        assert!(!picture.is_stuck(), "an init container may take its time");
        picture.pod_news(&key(), "2", PodNews { gone: true, ..placed }, at(14));
        assert!(picture.is_stuck());
    }

    #[test]
    fn a_job_that_wants_no_pods_is_stuck_and_says_so() {
        let mut picture = picture();
        picture.job_news(&key(), JobNews { wants_no_pods: true, ..JobNews::default() }, at(11));
        picture.workload_news(&key(), admitted(), at(11));
        assert!(picture.is_stuck());
        assert_eq!(picture.jobs()[0].why.reason, "NoPodsWanted");
    }

    #[test]
    fn a_complaint_is_the_reason_until_a_workload_speaks() {
        let mut picture = picture();
        let job = picture.warning(&key(), why("UnsupportedJob"), at(11)).unwrap();
        assert_eq!((job.state, job.why.reason.as_str()), (State::Queued, "UnsupportedJob"));
        assert!(picture.is_stuck());
        picture.workload_news(&key(), admitted(), at(12));
        assert_eq!(picture.jobs()[0].why, Why::default());
        picture.warning(&key(), why("FailedCreate"), at(13));
        assert!(picture.is_stuck(), "no pod of it could be made");
    }
}
