//! Why does a pod wait? Worked out anew from the objects, so no scheduler needs to run.

use gangway_model::scheduling::{ProfileSettings, SchedulerSettings};
use gangway_model::{Clock, NodeName, Uid};
use gangway_placement::{
    Decision, Event, Explanation, Family, FamilyKind, Options, PodRecord, PodRef, Scheduler,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::records::{FamilyObject, budget_record, family_record, family_resource, node_record, pod_record};

/// A pod as a scheduler would judge it now.
#[derive(Clone, Debug)]
pub struct ExplainedPod {
    /// Where it is and what the nodes say.
    pub explanation: Explanation,
    /// The scheduler that it asks for.
    pub scheduler_name: String,
    /// What would become of it if it were its turn now.
    pub turn: Turn,
    /// What its condition says of its last attempt, if anything.
    pub condition: Option<Condition>,
}

/// What would become of a pod if it were its turn now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It would get this node.
    Placed(NodeName),
    /// Others would have to leave this node for it.
    Preempts {
        /// The node.
        node: NodeName,
        /// Who would have to leave.
        victims: Vec<PodRef>,
    },
    /// It would wait.
    Waits,
    /// It is not its turn: it has a node, or is kept out of the queue.
    None,
}

/// What a pod's condition `PodScheduled` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// Lists the objects and judges one pod by itself: others that wait are not placed before it.
///
/// # Errors
///
/// If pods or nodes cannot be listed.
pub async fn explain_pod(
    client: Client,
    clock: &dyn Clock,
    namespace: &str,
    name: &str,
) -> kube::Result<Option<ExplainedPod>> {
    let Some(asked) = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(name).await? else {
        return Ok(None);
    };
    let everything = ListParams::default();
    let pods = Api::<Pod>::all(client.clone()).list(&everything).await?;
    let nodes = Api::<Node>::all(client.clone()).list(&everything).await?;
    // Whoever may not see budgets gets an answer without them.
    let budgets = Api::<PodDisruptionBudget>::all(client.clone()).list(&everything).await;
    let record = pod_record(&asked);
    let families = families(&client, &record).await.into_iter().map(Event::FamilyApplied);
    let scheduler_name = record.scheduler_name.to_string();
    let profiles = vec![ProfileSettings::named(&scheduler_name)];
    let settings = SchedulerSettings { profiles, ..SchedulerSettings::default() };
    let mut scheduler = Scheduler::new(Options { settings, seed: 0 });
    let now = clock.now();
    let is_counted = |pod: &&Pod| pod.uid() == asked.uid() || has_room(pod);
    let events = nodes.iter().map(|node| Event::NodeApplied(node_record(node)));
    let events = events.chain(pods.iter().filter(is_counted).map(|pod| Event::PodApplied(pod_record(pod))));
    let budgets = budgets.iter().flatten().map(budget_record).map(Event::BudgetApplied);
    for event in events.chain(budgets).chain(families).chain([Event::Synced]) {
        scheduler.apply(event, now);
    }
    let turn = turn(&mut scheduler, &record.uid, now);
    let explanation = scheduler.explain(&record.uid);
    Ok(Some(ExplainedPod { explanation, scheduler_name, turn, condition: condition(&asked) }))
}

/// What tells who belongs together with a pod, as far as it may be seen.
async fn families(client: &Client, pod: &PodRecord) -> Vec<Family> {
    let namespace = pod.name.namespace.as_str();
    let of = |kind| Api::<FamilyObject>::namespaced_with(client.clone(), namespace, &family_resource(kind));
    let services = of(FamilyKind::Service).list(&ListParams::default()).await;
    let services = services.iter().flatten().map(|object| family_record(FamilyKind::Service, object));
    let mut families: Vec<Family> = services.collect();
    if let Some(owner) = &pod.owner
        && let Ok(Some(object)) = of(owner.kind).get_opt(&owner.name).await
    {
        families.push(family_record(owner.kind, &object));
    }
    families
}

/// Whether a pod has a node, or room is made for it on one.
fn has_room(pod: &Pod) -> bool {
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let is_nominated = pod.status.as_ref().is_some_and(|status| status.nominated_node_name.is_some());
    is_bound || is_nominated
}

/// Asks for one decision after the other until it is the pod's: whom room is made for may come first.
fn turn(scheduler: &mut Scheduler, uid: &Uid, now: gangway_model::Timestamp) -> Turn {
    let mut was_asked = false;
    while scheduler.has_work() {
        for decision in scheduler.next(now, 1) {
            match decision {
                Decision::Bind { pod, node, .. } if pod.uid == *uid => return Turn::Placed(node),
                Decision::Preempt { preemptor, node, victims, .. } if preemptor.uid == *uid => {
                    return Turn::Preempts { node, victims };
                }
                Decision::Report { pod, .. } => was_asked |= pod.uid == *uid,
                Decision::Bind { .. } | Decision::Preempt { .. } => {}
            }
        }
    }
    if was_asked { Turn::Waits } else { Turn::None }
}

fn condition(pod: &Pod) -> Option<Condition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let told = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some(Condition {
        reason: told.reason.clone().unwrap_or_default(),
        message: told.message.clone().unwrap_or_default(),
    })
}
