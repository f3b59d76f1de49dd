//! The second decision lane: pods that have to go for another.
//!
//! All victims of one pod but the last are removed at once, then the last: the pod that gets their room is not woken before. One
//! that cannot be removed saves those that come after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, stream};
use gangway_model::{Clock, NodeName};
use gangway_placement::{DecisionId, Outcome, PodRef};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;

use super::counts::BindCounts;
use super::records::{DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER};
use crate::trouble::{Trouble, wait_after};

/// For so many pods room is made at the same time; others wait.
const MOST_IN_FLIGHT: usize = 32;
/// So many victims of one pod are removed at the same time.
const MOST_VICTIMS_AT_ONCE: usize = 16;
/// How often it is tried to remove one victim.
const MOST_ATTEMPTS: u32 = 5;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Pods that have to go, and for whom.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) id: DecisionId,
    pub(super) preemptor: PodRef,
    pub(super) node: NodeName,
    pub(super) victims: Vec<PodRef>,
    /// The scheduler that removes them, as it is called in what they are told.
    pub(super) scheduler_name: Arc<str>,
}

/// How it ended.
pub(super) struct Report {
    pub(super) plan: Plan,
    pub(super) outcome: Outcome,
    /// Those whom we told to go.
    pub(super) removed: Vec<PodRef>,
}

/// What became of one victim.
enum End {
    /// We told it to go.
    Removed,
    /// It was gone or on its way out.
    Left,
    /// It could not be removed, and why.
    Stays(String),
}

/// A plan with what became of those of its victims who were told.
type Ended = (Plan, Vec<(PodRef, End)>);

/// Victims on their way out. Dropping it drops what was not sent.
pub(super) struct Preemptions {
    hands: Hands,
    waiting: VecDeque<Plan>,
    requests: FuturesUnordered<BoxFuture<'static, Ended>>,
    trouble: Trouble,
}

/// What it takes to remove a pod.
#[derive(Clone)]
struct Hands {
    client: Client,
    clock: Arc<dyn Clock>,
    counts: Arc<BindCounts>,
}

impl Preemptions {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>, counts: Arc<BindCounts>) -> Self {
        Self {
            hands: Hands { client, clock, counts },
            waiting: VecDeque::new(),
            requests: FuturesUnordered::new(),
            trouble: Trouble::with("removing pods for others"),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn add(&mut self, plan: Plan) {
        self.waiting.push_back(plan);
    }

    /// Sends what there is room for, unless it has become void: nobody leaves for a pod that is gone or has its node.
    pub(super) fn send(&mut self, is_wanted: impl Fn(DecisionId) -> bool) {
        while self.requests.len() < MOST_IN_FLIGHT {
            let Some(plan) = self.waiting.pop_front() else { return };
            if is_wanted(plan.id) {
                self.requests.push(carry_out(self.hands.clone(), plan).boxed());
            } else {
                self.hands.counts.preemptions_superseded();
            }
        }
    }

    /// The next one that ended; pending for ever while there is none.
    pub(super) async fn next(&mut self) -> Option<Report> {
        let (plan, ends) = self.requests.next().await?;
        let mut removed = Vec::new();
        let mut outcome = Outcome::Landed;
        for (victim, end) in ends {
            match end {
                End::Removed => removed.push(victim),
                End::Left => {}
                End::Stays(error) => {
                    self.trouble.failed(&error);
                    self.hands.counts.victims_kept();
                    outcome = Outcome::Rejected;
                }
            }
        }
        if outcome == Outcome::Landed {
            self.trouble.worked();
        }
        Some(Report { plan, outcome, removed })
    }
}

async fn carry_out(hands: Hands, plan: Plan) -> Ended {
    let remove = |victim: PodRef| {
        let (hands, scheduler_name) = (hands.clone(), Arc::clone(&plan.scheduler_name));
        async move {
            let end = hands.remove(&victim, &scheduler_name).await;
            (victim, end)
        }
    };
    let (last, others) = match plan.victims.split_last() {
        Some((last, others)) => (Some(last.clone()), others.to_vec()),
        None => (None, Vec::new()),
    };
    let others = stream::iter(others).map(&remove).buffer_unordered(MOST_VICTIMS_AT_ONCE);
    let mut ends: Vec<(PodRef, End)> = others.collect().await;
    let is_in_vain = ends.iter().any(|(_, end)| matches!(end, End::Stays(_)));
    if let Some(last) = last.filter(|_| !is_in_vain) {
        ends.push(remove(last).await);
    }
    (plan, ends)
}

impl Hands {
    /// Tells a pod that it has to go. What goes wrong in passing is tried again.
    async fn remove(&self, victim: &PodRef, scheduler_name: &str) -> End {
        let mut error = String::new();
        for attempts in 0..MOST_ATTEMPTS {
            if attempts > 0 {
                self.counts.victims_retried();
                tokio::time::sleep(wait_after(attempts - 1)).await;
            }
            match self.try_to_remove(victim, scheduler_name).await {
                Ok(end) => return end,
                Err(kube::Error::Api(status)) if matches!(status.code, 400..=403 | 405..=407 | 410..=428) => {
                    return End::Stays(status.message.clone());
                }
                // A conflict, or trouble on the way: look again.
                Err(failed) => error = failed.to_string(),
            }
        }
        End::Stays(error)
    }

    async fn try_to_remove(&self, victim: &PodRef, scheduler_name: &str) -> Result<End, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), victim.name.namespace.as_str());
        let name = &*victim.name.name;
        self.counts.pods_read();
        let found = in_time(pods.get_opt(name)).await?;
        let Some(pod) = found.filter(|pod| pod.metadata.uid.as_deref().is_some_and(|uid| victim.uid == uid))
        else {
            return Ok(End::Left);
        };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed")) {
            return Ok(End::Left);
        }
        if let Some(patch) = marked(&pod, scheduler_name, self.now()) {
            self.counts.victims_marked();
            let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
            match in_time(pods.patch_status(name, &parameters, &patch)).await {
                Err(error) if is_missing(&error) => return Ok(End::Left),
                result => result.map(drop)?,
            }
        }
        self.counts.victims_deleted();
        let uid = Some(victim.uid.to_string());
        let preconditions = Some(Preconditions { uid, resource_version: None });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        match in_time(pods.delete(name, &parameters)).await {
            Err(error) if is_missing(&error) => Ok(End::Left),
            result => result.map(|_| End::Removed),
        }
    }

    fn now(&self) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
        gangway_api::time::to_api(self.clock.now())
    }
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

async fn in_time<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(result) => result,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}

/// The patch that says why the pod goes; `None` if it says so already.
fn marked(
    pod: &Pod,
    scheduler_name: &str,
    now: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
) -> Option<serde_json::Value> {
    let present = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_ours = |condition: &&PodCondition| condition.type_ == DISRUPTION_TARGET;
    let before = present.iter().find(is_ours).filter(|condition| condition.status == "True");
    let message = format!("{scheduler_name}: preempting to accommodate a higher priority pod");
    if before.is_some_and(|condition| condition.reason.as_deref() == Some(PREEMPTION_BY_SCHEDULER)) {
        return None;
    }
    let since = before.and_then(|condition| condition.last_transition_time.clone());
    let condition = PodCondition {
        type_: DISRUPTION_TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some(PREEMPTION_BY_SCHEDULER.to_owned()),
        message: Some(message),
        last_transition_time: Some(since.unwrap_or(now)),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    };
    let mut conditions: Vec<_> = present.iter().filter(|condition| !is_ours(condition)).collect();
    conditions.push(&condition);
    Some(json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {"conditions": conditions},
    }))
}

#[cfg(test)]
mod tests {
    use gangway_model::Timestamp;

    use super::*;

    #[test]
    fn a_victim_is_told_once_and_keeps_its_other_conditions() {
        let pod = |conditions: serde_json::Value| -> Pod {
            let pod = json!({
                "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
                "status": {"conditions": conditions},
            });
            serde_json::from_value(pod).unwrap()
        };
        let now = || gangway_api::time::to_api(Timestamp::from_seconds(9));
        let patch = marked(&pod(json!([{"type": "Ready", "status": "True"}])), "gangway", now()).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions[0]["type"], "Ready");
        assert_eq!(conditions[1]["reason"], PREEMPTION_BY_SCHEDULER);
        let message = "gangway: preempting to accommodate a higher priority pod";
        assert_eq!(conditions[1]["message"], message);
        assert_eq!(marked(&pod(patch["status"]["conditions"].clone()), "gangway", now()), None);
    }
}
