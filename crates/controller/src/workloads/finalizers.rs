//! Finalizers that the reference left on objects, and that nobody else would take away when they are deleted.
//!
//! Gangway sets none: a Workload ends with its Job, and what is still in use is told by a condition.

use futures::FutureExt;
use gangway_api::kueue::{AdmissionCheck, ClusterQueue, ResourceFlavor, Workload};
use gangway_api::names::RESOURCE_IN_USE_FINALIZER;
use gangway_model::{ClusterQueueName, Uid};
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::counts::Lane;
use super::lanes::{Answer, End, Purpose, Request, Target};
use super::shell::{Retry, Shell, millis};
use crate::index::uid_of;
use crate::trouble::wait_after;

/// An object that is being deleted and waits for its finalizer to go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Going {
    Workload(Uid),
    ClusterQueue(Uid),
    Flavor(Uid),
    AdmissionCheck(Uid),
}

impl Shell {
    /// Notes an object that is being deleted, if the finalizer is what keeps it.
    pub(super) fn note_going<K: Resource>(&mut self, object: &K, going: fn(Uid) -> Going) {
        let is_kept = object.meta().deletion_timestamp.is_some()
            && object.finalizers().iter().any(|finalizer| finalizer == RESOURCE_IN_USE_FINALIZER);
        if is_kept {
            self.going.insert(going(uid_of(object)));
        }
    }

    /// Takes the finalizer off everything that nobody holds any more.
    pub(super) fn let_go(&mut self) {
        for going in self.going.clone() {
            if self.lanes.free_slots(Lane::Decisions) == 0 {
                return;
            }
            let target = match &going {
                Going::Workload(uid) => Target::Workload(uid.clone()),
                Going::ClusterQueue(uid) => Target::ClusterQueue(uid.clone()),
                Going::Flavor(uid) | Going::AdmissionCheck(uid) => Target::Definition(uid.clone()),
            };
            if self.lanes.is_busy(&target) || self.is_held(&going) {
                continue;
            }
            self.going.remove(&going);
            if let Some(request) = self.release(&going) {
                self.lanes.send(Lane::Decisions, vec![target], Purpose::Finalizer(going), request);
            }
        }
    }

    /// Whether somebody uses it. A Workload's quota counts until its pods are gone, whether it is there or not.
    fn is_held(&self, going: &Going) -> bool {
        let queues = || self.cluster_queues.values();
        match going {
            Going::Workload(_) => false,
            Going::ClusterQueue(uid) => self.cluster_queues.get(uid).is_some_and(|queue| {
                let counts =
                    self.engine.cluster_queue_status(&ClusterQueueName::from(queue.name_any().as_str()));
                counts.is_some_and(|(_, _, counts)| counts.reserving > 0)
            }),
            Going::Flavor(uid) => self.flavors.get(uid).is_some_and(|flavor| {
                let name = flavor.name_any();
                let uses = |queue: &ClusterQueue| {
                    let mut flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
                    flavors.any(|quotas| quotas.name == name)
                };
                queues().any(|queue| uses(queue))
            }),
            Going::AdmissionCheck(uid) => self.admission_checks.get(uid).is_some_and(|check| {
                let name = check.name_any();
                let demands = |queue: &ClusterQueue| {
                    let strategy = queue.spec.admission_checks_strategy.as_ref();
                    let mut checks = strategy.iter().flat_map(|strategy| &strategy.admission_checks);
                    queue.spec.admission_checks.contains(&name) || checks.any(|check| check.name == name)
                };
                queues().any(|queue| demands(queue))
            }),
        }
    }

    fn release(&self, going: &Going) -> Option<Request> {
        let client = self.lanes.client.clone();
        Some(match going {
            Going::Workload(uid) => {
                let workload = self.workloads.get(uid)?.as_ref();
                let namespace = workload.namespace().unwrap_or_default();
                without_finalizer(Api::<Workload>::namespaced(client, &namespace), workload)
            }
            Going::ClusterQueue(uid) => {
                without_finalizer(Api::all(client), self.cluster_queues.get(uid)?.as_ref())
            }
            Going::Flavor(uid) => {
                without_finalizer(Api::<ResourceFlavor>::all(client), self.flavors.get(uid)?.as_ref())
            }
            Going::AdmissionCheck(uid) => {
                let check = self.admission_checks.get(uid)?.as_ref();
                without_finalizer(Api::<AdmissionCheck>::all(client), check)
            }
        })
    }

    /// Takes in how that ended. What failed is tried again after a while, if the object is still there.
    pub(super) fn finalizer_written(&mut self, going: Going, end: End) {
        if matches!(end, End::Landed(_)) {
            return;
        }
        if let End::Refused(refusal) = &end {
            let message = &refusal.message;
            tracing::warn!(message, "the API refuses to take a finalizer off; trying again until it works");
        }
        let due = self.clock.now().plus_millis(millis(wait_after(2)));
        self.retries.insert((due, Retry::Finalizer(going)));
    }
}

/// The patch of an object that takes the finalizer away and leaves those of others. It holds for the version that was
/// looked at.
fn without_finalizer<K>(api: Api<K>, object: &K) -> Request
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + 'static,
{
    let name = object.name_any();
    let others: Vec<&String> =
        object.finalizers().iter().filter(|finalizer| *finalizer != RESOURCE_IN_USE_FINALIZER).collect();
    let patch = json!({"metadata": {
        "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": others,
    }});
    async move {
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Answer::Nothing)
    }
    .boxed()
}
