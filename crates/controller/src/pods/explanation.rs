//! Why does a pod wait? Worked out anew from the objects, so no scheduler needs to run.

use gangway_model::scheduling::{ProfileSettings, SchedulerSettings};
use gangway_model::{Clock, NodeName, Uid};
use gangway_placement::{
    Decision, Event, Explanation, Family, FamilyKind, Options, PodRecord, PodRef, Scheduler, queue,
};
use k8s_openapi::api::core::v1::{self, Node, Pod, PodCondition};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::next_try::{Attempts, NextTry, next_try};
use super::records::{FamilyObject, budget_record, family_record, family_resource, node_record, pod_record};

/// A pod as a scheduler would judge it now.
#[derive(Clone, Debug)]
pub struct ExplainedPod {
    /// Where it is and what the nodes say.
    pub explanation: Explanation,
    /// The scheduler that it asks for.
    pub scheduler_name: String,
    /// Whether the configuration has a profile of that name. Without one it is judged by the default plugins.
    pub has_profile: bool,
    /// What would become of it if it were its turn now.
    pub turn: Turn,
    /// What its condition says of its last attempt, if anything.
    pub condition: Option<Condition>,
    /// What objects tell of its attempts until now.
    pub attempts: Attempts,
    /// When it is tried next, by that.
    pub next_try: NextTry,
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

/// Lists the objects and judges one pod by itself, by the profile that it asks for: others that wait are not placed before it.
/// Without `settings` every scheduler has the default ones.
///
/// # Errors
///
/// If pods or nodes cannot be listed.
pub async fn explain_pod(
    client: Client,
    clock: &dyn Clock,
    settings: Option<&SchedulerSettings>,
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
    let (settings, has_profile) = settings_for(settings, &scheduler_name);
    let waits = queue::Settings::from(&settings);
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
    let attempts = Attempts::of(&asked, &told_of(&client, namespace, &record.uid).await);
    let next_try = next_try(&explanation.state, &turn, &attempts, &waits, now);
    let condition = refusal(&asked).map(Condition::from);
    Ok(Some(ExplainedPod { explanation, scheduler_name, has_profile, turn, condition, attempts, next_try }))
}

/// The settings with no profile but the one of this name, and whether there is one.
fn settings_for(settings: Option<&SchedulerSettings>, scheduler_name: &str) -> (SchedulerSettings, bool) {
    let found = settings.and_then(|settings| settings.profile(scheduler_name)).cloned();
    let has_profile = settings.is_none() || found.is_some();
    let profiles = vec![found.unwrap_or_else(|| ProfileSettings::named(scheduler_name))];
    (SchedulerSettings { profiles, ..settings.cloned().unwrap_or_default() }, has_profile)
}

/// The Events of a pod; none for whoever may not see them.
async fn told_of(client: &Client, namespace: &str, uid: &Uid) -> Vec<v1::Event> {
    let events = Api::<v1::Event>::namespaced(client.clone(), namespace);
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    events.list(&about).await.map(|events| events.items).unwrap_or_default()
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

/// The condition that says that a pod has no node.
pub(super) fn refusal(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}

impl From<&PodCondition> for Condition {
    fn from(told: &PodCondition) -> Self {
        Self {
            reason: told.reason.clone().unwrap_or_default(),
            message: told.message.clone().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pod_is_judged_by_the_profile_that_it_asks_for() {
        let packing = ProfileSettings { filter: Vec::new(), ..ProfileSettings::named("packing") };
        let file = SchedulerSettings {
            profiles: vec![ProfileSettings::named("other"), packing.clone()],
            max_backoff: Duration::from_secs(60),
            ..SchedulerSettings::default()
        };
        let default = ProfileSettings::named;
        let table = [
            (Some(&file), "packing", packing, 60, true),
            (Some(&file), "absent", default("absent"), 60, false),
            (None, "absent", default("absent"), 10, true),
        ];
        for (settings, name, profile, max_backoff, has_profile) in table {
            let (found, has) = settings_for(settings, name);
            assert_eq!(found.profiles, [profile], "{name}");
            assert_eq!((found.max_backoff, has), (Duration::from_secs(max_backoff), has_profile), "{name}");
        }
    }
}
