//! The loop around the planner.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use gangway_model::{Clock, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use rustc_hash::FxHashMap;

use super::cache::{Applied, Cache, OwnedPod, PodNews, Uid, version};
use super::execute::{Report, execute, release_orphan};
use super::notes;
use super::plan::{Note, Plan, plan};
use super::view::{JobView, PodView, from_time, is_finished, is_managed_elsewhere};

/// Syncs under way at once; more would only queue in front of the API.
const MAX_SYNCS: usize = 64;
/// Watch events taken in before the next plans are made, so that a burst leads to few plans.
const MAX_BURST: usize = 256;
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(30);

type WatchStream<K> = BoxStream<'static, Result<Event<K>, watcher::Error>>;

/// What a side task found out.
enum Finding {
    Nothing,
    /// Plan this Job again.
    Retry(Uid),
    /// This pod does not exist.
    PodGone(Uid),
}

/// A point in time at which something is due for a Job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Plan(Uid),
    /// The time to live of a finished Job is over.
    Expire {
        uid: Uid,
        namespace: String,
        name: String,
    },
}

pub(super) struct Controller {
    client: Client,
    clock: Arc<dyn Clock>,
    cache: Cache,
    queue: VecDeque<Uid>,
    due: BTreeSet<(Timestamp, Due)>,
    syncs: FuturesUnordered<BoxFuture<'static, (Uid, Arc<Job>, Report)>>,
    side_tasks: FuturesUnordered<BoxFuture<'static, Finding>>,
    jobs_listed: bool,
    pods_listed: bool,
    /// A suspended Job keeps its start time.
    keeps_start_times: bool,
}

impl Controller {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            clock,
            cache: Cache::default(),
            queue: VecDeque::new(),
            due: BTreeSet::new(),
            syncs: FuturesUnordered::new(),
            side_tasks: FuturesUnordered::new(),
            jobs_listed: false,
            pods_listed: false,
            keeps_start_times: false,
        }
    }

    pub(super) fn keeping_start_times(self) -> Self {
        Self { keeps_start_times: true, ..self }
    }

    pub(super) async fn run(mut self) {
        let mut jobs: WatchStream<Job> = watch(&self.client);
        let mut pods: WatchStream<Pod> = watch(&self.client);
        loop {
            self.start_syncs();
            let pause = self.until_next_due();
            tokio::select! {
                biased;
                Some(event) = jobs.next() => self.on_job_event(event),
                Some(event) = pods.next() => self.on_pod_event(event),
                Some((uid, job, report)) = self.syncs.next(), if !self.syncs.is_empty() => self.on_synced(uid, job, report),
                Some(finding) = self.side_tasks.next(), if !self.side_tasks.is_empty() => self.on_finding(finding),
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => self.on_due(),
            }
            for _ in 0..MAX_BURST {
                match (jobs.next().now_or_never(), pods.next().now_or_never()) {
                    (None | Some(None), None | Some(None)) => break,
                    (job, pod) => {
                        job.flatten().into_iter().for_each(|event| self.on_job_event(event));
                        pod.flatten().into_iter().for_each(|event| self.on_pod_event(event));
                    }
                }
            }
        }
    }

    fn on_job_event(&mut self, event: Result<Event<Job>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.cache.begin_job_listing(),
            Ok(Event::Apply(job) | Event::InitApply(job)) => self.on_job(job),
            Ok(Event::Delete(job)) => {
                if let Some(uid) = job.uid() {
                    self.on_job_gone(&uid);
                }
            }
            Ok(Event::InitDone) => {
                for uid in self.cache.end_job_listing() {
                    self.on_job_gone(&uid);
                }
                self.jobs_listed = true;
                self.on_listed();
            }
            Err(error) => tracing::warn!(%error, "the watch of Jobs was interrupted"),
        }
    }

    fn on_pod_event(&mut self, event: Result<Event<Pod>, watcher::Error>) {
        match event {
            Ok(Event::Init) => self.cache.begin_pod_listing(),
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => match self.cache.apply_pod(&pod) {
                PodNews::Owned(pod) => self.on_pod(pod),
                PodNews::Orphan(view) => {
                    let pod = OwnedPod { owner: Uid::new(), owner_name: String::new(), view };
                    self.release_later(pod, true);
                }
                PodNews::None => {}
            },
            Ok(Event::Delete(pod)) => {
                if let Some(owner) = self.cache.remove_pod(&pod) {
                    self.mark_dirty(&owner);
                }
            }
            Ok(Event::InitDone) => {
                let (affected, doubtful) = self.cache.end_pod_listing();
                affected.iter().for_each(|owner| self.mark_dirty(owner));
                doubtful.into_iter().for_each(|pod| self.confirm(pod));
                self.pods_listed = true;
                self.on_listed();
            }
            Err(error) => tracing::warn!(%error, "the watch of Pods was interrupted"),
        }
    }

    /// Everything is known for the first time, or again: look at all of it.
    fn on_listed(&mut self) {
        if !self.is_ready() {
            return;
        }
        for uid in self.cache.job_uids() {
            self.mark_dirty(&uid);
        }
        for owner in self.cache.owners_without_job() {
            self.release_pods_of(&owner);
        }
    }

    /// Before both lists are in, pods would be created that exist already.
    fn is_ready(&self) -> bool {
        self.jobs_listed && self.pods_listed
    }

    fn on_job(&mut self, job: Job) {
        let Some(uid) = job.uid() else { return };
        let expiry = expiry(&job);
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        match self.cache.apply_job(job) {
            Applied::Changed => self.mark_dirty(&uid),
            Applied::Finished => {
                if let Some(time) = expiry {
                    self.due.insert((time, Due::Expire { uid: uid.clone(), namespace, name }));
                }
                self.release_pods_of(&uid);
            }
            Applied::Ignored => {}
        }
    }

    fn on_job_gone(&mut self, uid: &str) {
        self.cache.remove_job(uid);
        self.release_pods_of(uid);
    }

    fn on_pod(&mut self, pod: OwnedPod) {
        if self.cache.job(&pod.owner).is_some() {
            self.mark_dirty(&pod.owner);
        } else if self.is_ready() && pod.view.is_tracked() {
            let known_finished = self.cache.is_finished(&pod.owner);
            self.release_later(pod, known_finished);
        }
    }

    /// No Job will count these pods any more.
    fn release_pods_of(&mut self, owner: &str) {
        if !self.is_ready() {
            return;
        }
        let tracked = self.cache.pods_of(owner).into_iter().filter(|pod| pod.is_tracked()).cloned();
        let pods: Vec<PodView> = tracked.collect();
        for view in pods {
            let pod = OwnedPod { owner: owner.to_owned(), owner_name: String::new(), view };
            self.release_later(pod, true);
        }
    }

    fn release_later(&mut self, pod: OwnedPod, owner_is_done: bool) {
        let client = self.client.clone();
        let task = async move {
            let mut delay = FIRST_RETRY;
            loop {
                match release_if_orphan(&client, &pod, owner_is_done).await {
                    Ok(()) => return Finding::Nothing,
                    Err(error) => {
                        tracing::warn!(pod = %pod.view.name, %error, "a pod without Job keeps its finalizer")
                    }
                }
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LAST_RETRY);
            }
        };
        self.side_tasks.push(task.boxed());
    }

    /// Asks whether a pod that was created while pods were listed still exists.
    fn confirm(&mut self, pod: PodView) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let task = async move {
            match api.get_opt(&pod.name).await {
                Ok(Some(current)) if current.uid().as_deref() == Some(&*pod.uid) => Finding::Nothing,
                Ok(_) => Finding::PodGone(pod.uid),
                // The next listing asks again.
                Err(_) => Finding::Nothing,
            }
        };
        self.side_tasks.push(task.boxed());
    }

    fn mark_dirty(&mut self, uid: &str) {
        if let Some(job) = self.cache.job_mut(uid) {
            job.dirty = true;
            if !job.syncing {
                self.queue.push_back(uid.to_owned());
            }
        }
    }

    fn start_syncs(&mut self) {
        while self.is_ready() && self.syncs.len() < MAX_SYNCS {
            let Some(uid) = self.queue.pop_front() else { return };
            self.start_sync(uid);
        }
    }

    fn start_sync(&mut self, uid: Uid) {
        let Some(tracked) = self.cache.job_mut(&uid).filter(|job| job.dirty && !job.syncing) else { return };
        tracked.dirty = false;
        let (job, failures) = (tracked.job.clone(), tracked.failures);
        let pods = self.cache.pods_of(&uid);
        let view = JobView::of(&job);
        let mut plan = plan(&view, &pods, failures, self.clock.now());
        if let Some(status) = plan.status.as_mut().filter(|_| self.keeps_start_times && view.suspended) {
            status.start_time = view.status.start_time.clone();
        }
        if let Some(time) = plan.wake_at {
            self.due.insert((time, Due::Plan(uid.clone())));
        }
        if is_idle(&plan) {
            return;
        }
        let touched = plan.delete.iter().map(|deletion| &deletion.uid).chain(&plan.release);
        let by_uid: FxHashMap<&str, &PodView> = pods.iter().map(|pod| (pod.uid.as_str(), *pod)).collect();
        let touched: FxHashMap<Uid, PodView> =
            touched.filter_map(|uid| Some((uid.clone(), (*by_uid.get(uid.as_str())?).clone()))).collect();
        if let Some(tracked) = self.cache.job_mut(&uid) {
            tracked.syncing = true;
        }
        let client = self.client.clone();
        let sync = async move {
            let report = execute(client, job.clone(), plan, touched).await;
            (uid, job, report)
        };
        self.syncs.push(sync.boxed());
    }

    fn on_synced(&mut self, uid: Uid, synced: Arc<Job>, report: Report) {
        let advanced = report.job.as_ref().is_some_and(|job| version(job) != version(&*synced));
        let touched_pods = report.created.len() + report.changed.len() + report.gone.len() > 0;
        report.created.iter().for_each(|pod| self.cache.apply_created(pod));
        report.changed.iter().for_each(|pod| self.cache.apply_pod_answer(pod));
        report.gone.iter().for_each(|pod| drop(self.cache.remove_pod_by_answer(pod)));
        for note in report.notes {
            self.post(synced.clone(), note);
        }
        if let Some(tracked) = self.cache.job_mut(&uid) {
            tracked.syncing = false;
            tracked.failures = report.failures.unwrap_or(tracked.failures);
            match report.error {
                None => tracked.attempts = 0,
                Some(error) => {
                    let delay = retry_delay(tracked.attempts);
                    tracked.attempts = tracked.attempts.saturating_add(1);
                    tracing::warn!(job = %synced.name_any(), %error, ?delay, "a Job could not be brought forward");
                    self.retry_later(uid.clone(), delay);
                    return;
                }
            }
        }
        let finished = match report.job {
            Some(job) if is_finished(&job) => {
                self.on_finished_by_answer(job);
                true
            }
            Some(job) => {
                self.cache.apply_job_answer(job);
                false
            }
            None => false,
        };
        let outstanding = self.cache.job(&uid).is_some_and(|job| job.dirty);
        // A write that changed nothing must not lead to the same write again.
        if !finished && (outstanding || touched_pods || advanced) {
            self.mark_dirty(&uid);
        }
    }

    fn on_finished_by_answer(&mut self, job: Job) {
        if job.uid().is_some_and(|uid| self.cache.job(&uid).is_some()) {
            self.on_job(job);
        }
    }

    fn post(&mut self, job: Arc<Job>, note: Note) {
        let (client, now) = (self.client.clone(), self.clock.now());
        let task = async move {
            notes::post(client, &job, note, now).await;
            Finding::Nothing
        };
        self.side_tasks.push(task.boxed());
    }

    fn retry_later(&mut self, uid: Uid, delay: Duration) {
        let task = async move {
            tokio::time::sleep(delay).await;
            Finding::Retry(uid)
        };
        self.side_tasks.push(task.boxed());
    }

    fn on_finding(&mut self, finding: Finding) {
        match finding {
            Finding::Nothing => {}
            Finding::Retry(uid) => self.mark_dirty(&uid),
            Finding::PodGone(uid) => {
                if let Some(owner) = self.cache.remove_pod_by_answer(&uid) {
                    self.mark_dirty(&owner);
                }
            }
        }
    }

    fn until_next_due(&self) -> Option<Duration> {
        let (time, _) = self.due.first()?;
        let nanos = u64::try_from(time.nanos_since(self.clock.now())).unwrap_or(0);
        Some(Duration::from_nanos(nanos))
    }

    fn on_due(&mut self) {
        let now = self.clock.now();
        while let Some((_, due)) = self.due.first().filter(|(time, _)| *time <= now).cloned() {
            self.due.pop_first();
            match due {
                Due::Plan(uid) => self.mark_dirty(&uid),
                Due::Expire { uid, namespace, name } => self.expire(uid, &namespace, name),
            }
        }
    }

    fn expire(&mut self, uid: Uid, namespace: &str, name: String) {
        let api: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        let task = async move {
            let preconditions = Preconditions { uid: Some(uid), resource_version: None };
            let options = DeleteParams::background().preconditions(preconditions);
            match api.delete(&name, &options).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => tracing::warn!(job = %name, %error, "a Job outlives its time to live"),
            }
            Finding::Nothing
        };
        self.side_tasks.push(task.boxed());
    }
}

fn watch<K>(client: &Client) -> WatchStream<K>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    watcher::watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff().boxed()
}

fn is_idle(plan: &Plan) -> bool {
    plan.create.is_empty() && plan.delete.is_empty() && plan.status.is_none() && plan.release.is_empty()
}

fn retry_delay(attempts: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << attempts.min(16)).min(LAST_RETRY)
}

/// When a finished Job is to be deleted.
fn expiry(job: &Job) -> Option<Timestamp> {
    let seconds = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let finished = conditions.iter().find(|condition| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
    })?;
    Some(from_time(finished.last_transition_time.as_ref()?).plus_seconds(i64::from(seconds)))
}

/// Takes the finalizer off a pod whose Job is gone or finished.
async fn release_if_orphan(client: &Client, pod: &OwnedPod, owner_is_done: bool) -> Result<(), kube::Error> {
    if !owner_is_done {
        let api: Api<Job> = Api::namespaced(client.clone(), &pod.view.namespace);
        let owner = api.get_opt(&pod.owner_name).await?;
        let runs = |job: &Job| !is_finished(job) || is_managed_elsewhere(job);
        if owner.is_some_and(|job| job.uid().as_deref() == Some(&*pod.owner) && runs(&job)) {
            return Ok(());
        }
    }
    release_orphan(client, &pod.view).await
}
