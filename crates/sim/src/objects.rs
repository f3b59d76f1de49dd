//! The objects that a scenario is made of.

use serde_json::{Value, json};

use crate::fallbacks::{Demand, Fallbacks, Rule, Strategy};
use crate::scenario::{CARD, FLAVORS, JobPlan, Queue, Quota, flavor_name};

/// A flavor, whose nodes have its name as a label.
pub fn flavor(name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name},
        "spec": {"nodeLabels": {"pool": name}}})
}

/// A flavor of the second group, which every node serves.
pub fn card(name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}})
}

fn quota_json(flavor: &str, quota: Quota) -> Value {
    let mut resource = json!({"name": "cpu", "nominalQuota": quota.nominal.to_string()});
    if let Some(limit) = quota.borrowing_limit {
        resource["borrowingLimit"] = json!(limit.to_string());
    }
    if let Some(limit) = quota.lending_limit {
        resource["lendingLimit"] = json!(limit.min(quota.nominal).to_string());
    }
    json!({"name": flavor, "resources": [resource]})
}

/// The resource groups of a queue or cohort that has these flavors, in this order.
pub fn resource_groups(quotas: &[Quota], flavors: &[usize]) -> Value {
    let flavors: Vec<Value> =
        flavors.iter().map(|flavor| quota_json(FLAVORS[*flavor], quotas[*flavor])).collect();
    json!([{"coveredResources": ["cpu"], "flavors": flavors}])
}

/// Those of a queue that may have a second group.
pub fn groups_of_queue(quotas: &[Quota], fallbacks: &Fallbacks) -> Value {
    let mut groups = resource_groups(quotas, &fallbacks.flavors);
    let quota_json = |(flavor, nominal): &(usize, u32)| json!({"name": flavor_name(*flavor), "resources": [{"name": CARD, "nominalQuota": nominal.to_string()}]});
    let cards: Vec<Value> = fallbacks.cards.iter().map(quota_json).collect();
    if let Some(groups) = groups.as_array_mut().filter(|_| !cards.is_empty()) {
        groups.push(json!({"coveredResources": [CARD], "flavors": cards}));
    }
    groups
}

fn rule_json(rule: &Rule) -> Value {
    let mut value = json!({"name": rule.flavor.map_or("*", flavor_name)});
    if rule.is_about_checks {
        value["trigger"] = json!("AdmissionCheckRejected");
    }
    if let Some(seconds) = rule.timeout_seconds {
        value["timeout"] = json!(format!("{seconds}s"));
    }
    value
}

fn strategy_json(strategy: &Strategy) -> Value {
    let policy = if strategy.deactivates { "DeactivateWorkload" } else { "RetryAllFlavors" };
    let rules: Vec<Value> = strategy.rules.iter().map(rule_json).collect();
    json!({"fallbackStrategy": {"failurePolicy": policy, "rules": rules}})
}

fn demand_json(demand: &Demand) -> Value {
    let flavors: Vec<&str> = demand.flavors.iter().map(|flavor| flavor_name(*flavor)).collect();
    json!({"name": demand.check, "onFlavors": flavors})
}

/// The part of a queue's spec that says which flavors it has and gives up, and which checks it demands. What it does not say
/// is null, so that it can be a patch.
pub fn fallbacks(quotas: &[Quota], fallbacks: &Fallbacks) -> Value {
    let demands: Vec<Value> = fallbacks.checks.iter().map(demand_json).collect();
    let checks = (!demands.is_empty()).then(|| json!({"admissionChecks": demands}));
    json!({"resourceGroups": groups_of_queue(quotas, fallbacks),
        "flavorFungibility": fallbacks.strategy.as_ref().map(strategy_json),
        "admissionChecksStrategy": checks})
}

/// A ClusterQueue.
pub fn cluster_queue(queue: &Queue) -> Value {
    let strategy = if queue.is_strict { "StrictFIFO" } else { "BestEffortFIFO" };
    let mut preemption = json!({"withinClusterQueue": queue.within, "reclaimWithinCohort": queue.reclaim});
    if queue.borrows_by_priority {
        preemption["borrowWithinCohort"] = json!({"policy": "LowerPriority"});
    }
    let mut spec = json!({"cohortName": queue.cohort, "queueingStrategy": strategy, "namespaceSelector": {},
        "preemption": preemption});
    if let (Value::Object(spec), Value::Object(more)) =
        (&mut spec, fallbacks(&queue.quotas, &queue.fallbacks))
    {
        spec.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": queue.name},
        "spec": spec})
}

/// An AdmissionCheck that somebody answers who does not say that it is there.
pub fn admission_check(name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": name},
        "spec": {"controllerName": "gangway.dev/manual"}})
}

/// A LocalQueue of the same name as its ClusterQueue.
pub fn local_queue(name: &str) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}})
}

/// A Cohort, with as many cpus of the first flavor.
pub fn cohort(name: &str, parent: Option<&str>, cpus: u32) -> Value {
    let mut spec = json!({});
    if let Some(parent) = parent {
        spec["parentName"] = json!(parent);
    }
    if cpus > 0 {
        let quota = |nominal| Quota { nominal, borrowing_limit: None, lending_limit: None };
        spec["resourceGroups"] = resource_groups(&[quota(cpus), quota(0)], &[0, 1]);
    }
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": name}, "spec": spec})
}

/// The class of Workloads of this priority.
pub fn priority_class(priority: u32) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": format!("p{priority}")}, "value": priority})
}

/// A Job whose pods do on fake nodes what the plan says.
pub fn job(plan: &JobPlan) -> Value {
    let mut annotations = json!({
        "fake.gangway.dev/run-for": format!("{}ms", plan.runs_millis),
        "fake.gangway.dev/terminate-after": format!("{}ms", plan.leaves_millis),
    });
    match plan.ready_millis {
        None => annotations["fake.gangway.dev/ready-after"] = json!("never"),
        Some(0) => {}
        Some(millis) => annotations["fake.gangway.dev/ready-after"] = json!(format!("{millis}ms")),
    }
    if plan.fails {
        annotations["fake.gangway.dev/fail"] = json!("true");
    }
    let mut resources = json!({"requests": {"cpu": plan.cpus.to_string()}});
    if plan.cards > 0 {
        resources["requests"][CARD] = json!(plan.cards.to_string());
        resources["limits"] = json!({CARD: plan.cards.to_string()});
    }
    let container = json!({"name": "main", "image": "fake", "resources": resources});
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": plan.name, "namespace": "default", "labels": {
            "kueue.x-k8s.io/queue-name": plan.queue,
            "kueue.x-k8s.io/priority-class": format!("p{}", plan.priority)}},
        "spec": {"parallelism": plan.pods, "completions": plan.pods, "backoffLimit": 1, "suspend": true,
            "template": {"metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 60, "containers": [container]}}}})
}
