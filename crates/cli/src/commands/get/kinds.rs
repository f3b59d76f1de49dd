//! The columns of each kind.

use gangway_api::kueue::{
    ClusterQueue, Cohort, FlavorUsage, LocalQueue, ResourceQuota, ResourceUsage, Workload,
};
use gangway_api::time::from_api;
use gangway_model::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};

use crate::render::span::{age, span};

/// A kind that `gangway get` shows.
pub trait Listed:
    Resource<DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + serde::Serialize
    + serde::de::DeserializeOwned
    + Send
    + 'static
{
    /// Whether its objects are in namespaces.
    const NAMESPACED: bool;
    /// Headings after the name; `>` for numbers.
    const HEADINGS: &'static [&'static str];
    /// More headings for `-o wide`.
    const WIDE_HEADINGS: &'static [&'static str];

    /// A cell for each heading.
    fn cells(&self, now: Timestamp) -> Vec<String>;
    /// A cell for each wide heading.
    fn wide_cells(&self) -> Vec<String>;
}

impl Listed for LocalQueue {
    const NAMESPACED: bool = true;
    const HEADINGS: &'static [&'static str] = &["CLUSTER QUEUE", ">PENDING", ">ADMITTED", "ACTIVE", ">AGE"];
    const WIDE_HEADINGS: &'static [&'static str] = &["IN USE", "WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        vec![
            or_dash(self.spec.cluster_queue.clone()),
            status.pending_workloads.to_string(),
            status.admitted_workloads.to_string(),
            active(&status.conditions),
            age_of(self, now),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        vec![usage(&status.flavors_usage), inactive_because(&status.conditions)]
    }
}

impl Listed for ClusterQueue {
    const NAMESPACED: bool = false;
    const HEADINGS: &'static [&'static str] =
        &["COHORT", "STRATEGY", ">PENDING", ">ADMITTED", "ACTIVE", "IN USE", "BORROWED", ">AGE"];
    const WIDE_HEADINGS: &'static [&'static str] = &["STOP", "WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let cohort = self.spec.cohort_name.clone().or_else(|| self.spec.cohort.clone());
        vec![
            or_dash(cohort),
            self.spec.queueing_strategy.clone().unwrap_or_else(|| "BestEffortFIFO".to_owned()),
            status.pending_workloads.to_string(),
            status.admitted_workloads.to_string(),
            active(&status.conditions),
            usage(&status.flavors_usage),
            borrowed(&status.flavors_usage),
            age_of(self, now),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        let conditions = self.status.clone().unwrap_or_default().conditions;
        vec![or_dash(self.spec.stop_policy.clone()), inactive_because(&conditions)]
    }
}

impl Listed for Cohort {
    const NAMESPACED: bool = false;
    const HEADINGS: &'static [&'static str] = &["PARENT", "OWN QUOTA", ">AGE"];
    const WIDE_HEADINGS: &'static [&'static str] = &["BORROWS AT MOST", "LENDS AT MOST"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let quota = quotas(self, |quota| Some(&quota.nominal_quota));
        vec![or_dash(self.spec.parent_name.clone()), quota, age_of(self, now)]
    }

    fn wide_cells(&self) -> Vec<String> {
        vec![quotas(self, |q| q.borrowing_limit.as_ref()), quotas(self, |q| q.lending_limit.as_ref())]
    }
}

impl Listed for Workload {
    const NAMESPACED: bool = true;
    const HEADINGS: &'static [&'static str] = &["QUEUE", "STATE", "RESERVED IN", "FLAVOR", ">AGE", "WHY"];
    const WIDE_HEADINGS: &'static [&'static str] = &["PRIORITY", "OWNER", "MESSAGE"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let (state, deciding) = workload_state(&status.conditions);
        let admission = status.admission.unwrap_or_default();
        let mut flavors: Vec<String> =
            admission.pod_set_assignments.iter().flat_map(|set| set.flavors.values().cloned()).collect();
        flavors.sort_unstable();
        flavors.dedup();
        vec![
            or_dash(self.spec.queue_name.clone()),
            state.to_owned(),
            or_dash(Some(admission.cluster_queue)),
            or_dash(Some(flavors.join(","))),
            age_of(self, now),
            or_dash(deciding.map(|condition| condition.reason.clone())),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let owner = self.owner_references().first().map(|owner| format!("{}/{}", owner.kind, owner.name));
        let message = workload_state(&status.conditions).1.map(|condition| condition.message.clone());
        vec![self.spec.priority.unwrap_or(0).to_string(), or_dash(owner), or_dash(message)]
    }
}

impl Listed for Job {
    const NAMESPACED: bool = true;
    const HEADINGS: &'static [&'static str] = &["QUEUE", "STATE", ">DONE", ">RUN", ">AGE"];
    const WIDE_HEADINGS: &'static [&'static str] = &["ACTIVE", "READY", "FAILED", "WHY"];

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let queue = self.labels().get(gangway_api::names::QUEUE_NAME_LABEL).cloned();
        let status = self.status.clone().unwrap_or_default();
        let wanted = self.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(1);
        let started = status.start_time.as_ref().map(from_api);
        let ended = status.completion_time.as_ref().map(from_api);
        let ran = started.map(|started| span(ended.unwrap_or(now).nanos_since(started)));
        vec![
            or_dash(queue),
            job_state(self).to_owned(),
            format!("{}/{wanted}", status.succeeded.unwrap_or(0)),
            or_dash(ran),
            age_of(self, now),
        ]
    }

    fn wide_cells(&self) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let count = |count: Option<i32>| count.unwrap_or(0).to_string();
        let conditions = status.conditions.unwrap_or_default();
        let why =
            conditions.iter().find(|condition| condition.type_ == "Failed" && condition.status == "True");
        let why = why.and_then(|condition| condition.message.clone());
        vec![count(status.active), count(status.ready), count(status.failed), or_dash(why)]
    }
}

fn job_state(job: &Job) -> &'static str {
    let status = job.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let holds = |wanted: &str| conditions.iter().any(|c| c.type_ == wanted && c.status == "True");
    let suspended = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
    match () {
        () if holds("Complete") => "Succeeded",
        () if holds("Failed") => "Failed",
        () if suspended && status.active.unwrap_or(0) > 0 => "Stopping",
        () if suspended => "Suspended",
        () if status.active.unwrap_or(0) > 0 => "Running",
        () => "Starting",
    }
}

/// The state in a word, and the condition that says why.
fn workload_state(conditions: &[Condition]) -> (&'static str, Option<&Condition>) {
    let condition = |wanted: &str| conditions.iter().find(|condition| condition.type_ == wanted);
    let holding = |wanted: &str| condition(wanted).filter(|condition| condition.status == "True");
    if let Some(finished) = holding("Finished") {
        return ("Finished", Some(finished));
    }
    match (holding("Evicted"), holding("QuotaReserved"), holding("Admitted")) {
        (Some(evicted), Some(_), _) => ("Evicting", Some(evicted)),
        (_, _, Some(admitted)) => ("Admitted", Some(admitted)),
        (_, Some(reserved), None) => ("Reserved", Some(reserved)),
        (_, None, None) => ("Pending", condition("QuotaReserved")),
    }
}

fn active(conditions: &[Condition]) -> String {
    let active = conditions.iter().find(|condition| condition.type_ == "Active");
    or_dash(active.map(|condition| if condition.status == "True" { "yes" } else { "no" }.to_owned()))
}

fn inactive_because(conditions: &[Condition]) -> String {
    let inactive =
        conditions.iter().find(|condition| condition.type_ == "Active" && condition.status != "True");
    or_dash(inactive.map(|condition| format!("{}: {}", condition.reason, condition.message)))
}

/// What is in use, such as `on-demand cpu 3, memory 2Gi; spot cpu 1`.
fn usage(flavors: &[FlavorUsage]) -> String {
    used(flavors, |resource| resource.total.as_ref())
}

/// What of it is borrowed.
fn borrowed(flavors: &[FlavorUsage]) -> String {
    used(flavors, |resource| resource.borrowed.as_ref())
}

fn used(flavors: &[FlavorUsage], amount: fn(&ResourceUsage) -> Option<&Quantity>) -> String {
    by_flavor(flavors.iter().map(|flavor| {
        let used = flavor.resources.iter().filter_map(|resource| {
            Some((resource.name.as_str(), amount(resource)?.0.as_str())).filter(|(_, amount)| *amount != "0")
        });
        (flavor.name.as_str(), used.collect())
    }))
}

fn quotas(cohort: &Cohort, amount: fn(&ResourceQuota) -> Option<&Quantity>) -> String {
    let flavors = cohort.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    by_flavor(flavors.map(|flavor| {
        let quotas = flavor.resources.iter();
        let quotas = quotas.filter_map(|quota| Some((quota.name.as_str(), amount(quota)?.0.as_str())));
        (flavor.name.as_str(), quotas.collect())
    }))
}

/// `on-demand cpu 3, memory 2Gi; spot cpu 1`; flavors of which there is nothing are left out.
fn by_flavor<'a>(flavors: impl Iterator<Item = (&'a str, Vec<(&'a str, &'a str)>)>) -> String {
    let flavors = flavors.filter(|(_, amounts)| !amounts.is_empty()).map(|(flavor, amounts)| {
        let amounts: Vec<String> =
            amounts.into_iter().map(|(resource, amount)| format!("{resource} {amount}")).collect();
        format!("{flavor} {}", amounts.join(", "))
    });
    or_dash(Some(flavors.collect::<Vec<_>>().join("; ")))
}

fn age_of<K: Resource>(object: &K, now: Timestamp) -> String {
    let created = object.meta().creation_timestamp.as_ref().map(from_api);
    or_dash(created.map(|created| age(now.nanos_since(created))))
}

fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_queue_shows_its_cohort_and_what_it_borrows() {
        let usage = json!([{"name": "spot", "resources": [
            {"name": "cpu", "total": "6", "borrowed": "2"}, {"name": "memory", "total": "1Gi", "borrowed": "0"}]}]);
        let queue: ClusterQueue = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"},
            "spec": {"cohort": "all"}, "status": {"admittedWorkloads": 3, "flavorsUsage": usage},
        }))
        .unwrap();
        let cells = queue.cells(Timestamp::EPOCH);
        let expected = ["all", "BestEffortFIFO", "0", "3", "-", "spot cpu 6, memory 1Gi", "spot cpu 2", "-"];
        assert_eq!(cells, expected);
        assert_eq!(cells.len(), ClusterQueue::HEADINGS.len());
    }

    #[test]
    fn a_cohort_shows_its_parent_and_its_own_quota() {
        let quota = json!({"name": "cpu", "nominalQuota": 4, "lendingLimit": "500m"});
        let groups =
            json!([{"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [quota]}]}]);
        let spec = json!({"parentName": "root", "resourceGroups": groups});
        let cohort = Cohort::new("all", serde_json::from_value(spec).unwrap());
        assert_eq!(cohort.cells(Timestamp::EPOCH), ["root", "spot cpu 4", "-"]);
        assert_eq!(cohort.wide_cells(), ["-", "spot cpu 500m"]);
    }
}
