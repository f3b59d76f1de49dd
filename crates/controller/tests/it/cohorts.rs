//! Quota that is lent and taken back, through the API.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use gangway_api::kueue::{ClusterQueue, Cohort, LocalQueue, Workload};
use k8s_openapi::api::core::v1::Event;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::metrics::tells;
use crate::world::{World, condition, create, until, workload_of};

/// A quota of cpus in the flavor of the world.
fn groups(quota: Value) -> Value {
    json!([{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}])
}

/// Plays a story while the controller and the cluster are there.
fn with_controller<'w>(world: &'w World, story: impl Future<Output = ()> + 'w) -> LocalBoxFuture<'w, ()> {
    async move {
        tokio::select! {
            () = world.controller(world.server.client()).boxed_local() => {}
            () = world.cluster() => {}
            () = story => {}
        }
    }
    .boxed_local()
}

fn admitted(workloads: &BTreeMap<String, Workload>) -> usize {
    let is_admitted = |workload: &&Workload| {
        condition(workload, "Admitted").is_some() && condition(workload, "Evicted").is_none()
    };
    workloads.values().filter(is_admitted).count()
}

#[tokio::test(start_paused = true)]
async fn lent_quota_is_taken_back_and_both_sides_are_told() {
    let world = World::new().await;
    world.change_queue(json!({"cohortName": "all"})).await;
    let quota = groups(json!({"name": "cpu", "nominalQuota": 1}));
    let spec = json!({"namespaceSelector": {}, "cohort": "all", "resourceGroups": quota,
        "preemption": {"withinCohort": "Always"}});
    create(&world.cluster_queues(), json!({"metadata": {"name": "lender"}, "spec": spec})).await;
    let queues: Api<LocalQueue> = Api::default_namespaced(world.server.client());
    create(&queues, json!({"metadata": {"name": "lender"}, "spec": {"clusterQueue": "lender"}})).await;
    let story = async {
        world.submit("one").await;
        world.submit("two").await;
        until("one of them borrows", world.workloads(), |all| admitted(all) == 2).await;
        let borrows = |all: &BTreeMap<String, ClusterQueue>| {
            let status = serde_json::to_value(&all["cq"].status).expect("a status");
            status["flavorsUsage"][0]["resources"][0]["borrowed"] == "1"
        };
        until("the queue says so", world.cluster_queues(), borrows).await;
        world.submit_to("lender", "owner").await;
        let told = |all: &BTreeMap<String, Workload>| {
            let owner = workload_of("owner", all).and_then(ResourceExt::uid);
            all.values().any(|victim| {
                let preemptor = victim.status.as_ref().and_then(|status| status.preemptor.clone());
                let reasons = (condition(victim, "Evicted"), condition(victim, "Preempted"));
                reasons == (Some("Preempted"), Some("InCohortReclamation"))
                    && preemptor.is_some()
                    && preemptor == owner
            })
        };
        until("a borrower is preempted", world.workloads(), told).await;
        let starts = |all: &BTreeMap<String, Workload>| {
            workload_of("owner", all).is_some_and(|w| condition(w, "Admitted").is_some())
        };
        until("the owner of the quota starts", world.workloads(), starts).await;
        let events: Api<Event> = Api::default_namespaced(world.server.client());
        until("both sides are told", events, both_sides_are_told).await;
        world.let_pods_finish();
        world.complete(3).await;
    };
    with_controller(&world, story).await;
}

fn both_sides_are_told(events: &BTreeMap<String, Event>) -> bool {
    let about = |reason: &str| {
        let event = events.values().find(|event| event.reason.as_deref() == Some(reason))?;
        event.involved_object.name.clone()
    };
    let (victim, evicted) = (about("Preempted"), about("EvictedDueToPreempted"));
    let preemptor = about("PreemptedWorkload");
    victim.is_some() && victim == evicted && preemptor.is_some() && preemptor != victim
}

#[tokio::test(start_paused = true)]
async fn the_quota_of_a_cohort_is_there_as_long_as_the_cohort_is() {
    let world = World::new().await;
    world.change_queue(json!({"cohortName": "all"})).await;
    let cohorts: Api<Cohort> = Api::all(world.server.client());
    let spec = json!({"resourceGroups": groups(json!({"name": "cpu", "nominalQuota": 1}))});
    create(&cohorts, json!({"metadata": {"name": "all"}, "spec": spec})).await;
    for name in ["one", "two", "three"] {
        world.submit(name).await;
    }
    let story = async {
        until("two run", world.workloads(), |all| admitted(all) == 2).await;
        let cpus = "cohort=\"all\",flavor=\"default\",resource=\"cpu\"";
        for (name, labels) in [
            ("kueue_cohort_subtree_quota", cpus),
            ("kueue_cohort_subtree_resource_reservations", cpus),
            ("kueue_cohort_subtree_admitted_active_workloads", "cohort=\"all\""),
            ("kueue_cohort_subtree_admitted_workloads_total", "cohort=\"all\",priority_class=\"\""),
        ] {
            tells(&world, name, &[format!("{name}{{{labels}}} 2")]).await;
        }
        let info = "kueue_cohort_info{cohort=\"all\",parent_cohort=\"\",root_cohort=\"all\"} 1";
        tells(&world, "kueue_cohort_info", &[info.to_owned()]).await;
        cohorts.delete("all", &DeleteParams::default()).await.expect("no cohort");
        world.let_pods_finish();
        world.complete(3).await;
    };
    with_controller(&world, story).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_used_says_why_and_the_others_go_on() {
    let world = World::new().await;
    let quota = groups(json!({"name": "cpu", "nominalQuota": 1, "lendingLimit": 2}));
    let spec = json!({"namespaceSelector": {}, "cohortName": "all", "resourceGroups": quota});
    create(&world.cluster_queues(), json!({"metadata": {"name": "bad"}, "spec": spec})).await;
    world.submit("one").await;
    let says_why = |all: &BTreeMap<String, ClusterQueue>| {
        let status = serde_json::to_value(&all["bad"].status).expect("a status");
        let active = &status["conditions"][0];
        let message = active["message"].as_str().unwrap_or_default();
        let path =
            "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: must be at most nominalQuota";
        active["status"] == "False" && message.contains(path)
    };
    let story = async {
        until("the queue says why", world.cluster_queues(), says_why).await;
        world.let_pods_finish();
        world.complete(1).await;
    };
    with_controller(&world, story).await;
}
