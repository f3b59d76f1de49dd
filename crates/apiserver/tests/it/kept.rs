//! No field of the reference's API is lost: what is written under the schema of our CRDs is read back.

use gangway_apiserver::ApiServer;
use http::StatusCode;
use kube::Client;
use serde_json::{Value, json};

use crate::support::{CRDS, create, get, merge, server};

const GROUP: &str = "/apis/kueue.x-k8s.io";

async fn installed() -> (ApiServer, Client) {
    let server = server();
    let client = server.client();
    for crd in gangway_api::crds() {
        create(&client, CRDS, &json!(crd)).await;
    }
    (server, client)
}

/// Every part of `wanted` that `found` does not have.
fn lost(wanted: &Value, found: &Value, path: &str, missing: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (field, inner) in wanted {
                lost(inner, found.get(field).unwrap_or(&Value::Null), &format!("{path}.{field}"), missing);
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            for (index, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                lost(wanted, found, &format!("{path}[{index}]"), missing);
            }
        }
        _ if wanted == found => {}
        _ => missing.push(format!("{path}: {wanted} became {found}")),
    }
}

/// Creates an object, writes its status if it has one, and looks for what was lost.
async fn is_kept(client: &Client, version: &str, plural: &str, namespace: &str, object: Value) {
    let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    let path = format!("{GROUP}/{version}{within}/{plural}");
    let kind = object["kind"].clone();
    let mut created = object.clone();
    created.as_object_mut().unwrap().remove("status");
    created["apiVersion"] = json!(format!("kueue.x-k8s.io/{version}"));
    create(client, &path, &created).await;
    let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
    if !object["status"].is_null() {
        let (status, answer) =
            merge(client, &format!("{path}/status"), &json!({"status": object["status"]})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let (_, found) = get(client, &path).await;
    let mut missing = Vec::new();
    for part in ["spec", "status", "value", "description"] {
        if !object[part].is_null() {
            lost(&object[part], &found[part], part, &mut missing);
        }
    }
    assert!(missing.is_empty(), "{kind} of {version}: {missing:#?}");
}

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": kind, "message": "m", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn named(kind: &str, rest: Value) -> Value {
    let mut object = json!({"kind": kind, "metadata": {"name": "full"}});
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

fn workload() -> Value {
    let topology = json!({
        "required": "rack", "podIndexLabel": "i", "subGroupIndexLabel": "s", "subGroupCount": 2,
        "podSetGroupName": "g", "podSetSliceRequiredTopology": "host", "podSetSliceSize": 2,
        "podSetSliceRequiredTopologyConstraints": [{"topology": "host", "size": 2}],
    });
    let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]);
    let containers = json!([{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]);
    let template = json!({"spec": {"containers": containers, "resourceClaims": claims}});
    let assignment = json!({
        "levels": ["host"],
        "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "h"}], "podCounts": {"universal": 2}}],
    });
    named(
        "Workload",
        json!({
            "spec": {
                "podSets": [{"name": "main", "count": 2, "minCount": 1, "template": template, "topologyRequest": topology}],
                "queueName": "lq", "priority": 3, "active": true, "maximumExecutionTimeSeconds": 60,
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
                "preemptionGates": [{"name": "multikueue"}],
            },
            "status": {
                "conditions": [condition("QuotaReserved", "True"), condition("BlockedOnPreemptionGates", "False")],
                "admission": {"clusterQueue": "cq", "podSetAssignments": [{
                    "name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}, "count": 2,
                    "topologyAssignment": assignment, "delayedTopologyRequest": "Ready",
                }]},
                "requeueState": {"count": 1, "requeueAt": "2026-01-01T00:00:00Z"},
                "reclaimablePods": [{"name": "main", "count": 1}],
                "admissionChecks": [{
                    "name": "check", "state": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "m",
                    "requeueAfterSeconds": 5, "retryCount": 2,
                    "podSetUpdates": [{"name": "main", "labels": {"a": "b"}, "nodeSelector": {"c": "d"}}],
                }],
                "resourceRequests": [{"name": "main", "resources": {"cpu": "2"}}],
                "accumulatedPastExecutionTimeSeconds": 7, "accumulatedPastExexcutionTimeSeconds": 7,
                "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]},
                "nominatedClusterNames": ["one", "two"],
                "unhealthyNodes": [{"name": "n"}],
                "preemptionGates": [{
                    "name": "multikueue", "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        }),
    )
}

fn cluster_queue(version: &str) -> Value {
    let quota = json!({"name": "cpu", "nominalQuota": "4", "borrowingLimit": "1", "lendingLimit": "2"});
    let flavors = json!([{"name": "f", "resources": [quota]}, {"name": "g", "resources": [quota]}]);
    let usage = json!([{"name": "f", "resources": [{"name": "cpu", "total": "4", "borrowed": "0"}]}]);
    let mut spec = json!({
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        "queueingStrategy": "BestEffortFIFO", "namespaceSelector": {"matchLabels": {"a": "b"}},
        "flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": "PreemptionOverBorrowing",
        },
        "preemption": {
            "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5},
        },
        "stopPolicy": "Hold", "fairSharing": {"weight": "2"},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        "concurrentAdmissionPolicy": {"migration": {
            "mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "g"},
        }},
    });
    let older = version == "v1beta1";
    spec[if older { "cohort" } else { "cohortName" }] = json!("co");
    if older {
        spec["admissionChecks"] = json!(["check"]);
    } else {
        spec["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "check", "onFlavors": ["f"]}]});
    }
    named(
        "ClusterQueue",
        json!({"spec": spec, "status": {
            "conditions": [condition("Active", "True"), condition("MultiKueueManagerQuotaAutomation", "True")],
            "flavorsReservation": usage, "flavorsUsage": usage,
            "pendingWorkloads": 1, "reservingWorkloads": 2, "admittedWorkloads": 3,
            "fairSharing": {"weightedShare": 9},
            "pendingWorkloadsStatus": {"clusterQueuePendingWorkload": [], "lastChangeTime": "2026-01-01T00:00:00Z"},
        }}),
    )
}

fn others() -> Vec<(&'static str, Value)> {
    let usage = json!([{"name": "f", "resources": [{"name": "cpu", "total": "4"}]}]);
    let sharing = json!({"weightedShare": 9, "admissionFairSharingStatus": {
        "consumedResources": {"cpu": "1"}, "lastUpdate": "2026-01-01T00:00:00Z",
    }});
    let group = json!({"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [
        {"name": "cpu", "nominalQuota": "4", "borrowingLimit": "1", "lendingLimit": "9"},
    ]}]});
    vec![
        (
            "resourceflavors",
            named(
                "ResourceFlavor",
                json!({"spec": {
                    "nodeLabels": {"a": "b"}, "topologyName": "racks",
                    "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3}],
                }}),
            ),
        ),
        (
            "cohorts",
            named(
                "Cohort",
                json!({
                    "spec": {"parentName": "root", "resourceGroups": [group], "fairSharing": {"weight": "2"}},
                    "status": {"fairSharing": {"weightedShare": 9}},
                }),
            ),
        ),
        (
            "admissionchecks",
            named(
                "AdmissionCheck",
                json!({
                    "spec": {
                        "controllerName": "kueue.x-k8s.io/provisioning-request", "retryDelayMinutes": 15,
                        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "full"},
                    },
                    "status": {"conditions": [condition("Active", "True")]},
                }),
            ),
        ),
        ("workloadpriorityclasses", named("WorkloadPriorityClass", json!({"value": 5, "description": "d"}))),
        (
            "localqueues",
            named(
                "LocalQueue",
                json!({
                    "spec": {"clusterQueue": "cq", "stopPolicy": "Hold", "fairSharing": {"weight": "2"}},
                    "status": {
                        "conditions": [condition("Active", "True")],
                        "pendingWorkloads": 1, "reservingWorkloads": 2, "admittedWorkloads": 3,
                        "flavorsReservation": usage, "flavorsUsage": usage, "flavorUsage": usage,
                        "flavors": [{"name": "f", "resources": ["cpu"], "nodeLabels": {"a": "b"}, "topology": {"name": "t"}}],
                        "fairSharing": sharing,
                    },
                }),
            ),
        ),
    ]
}

/// Objects of the kinds that are only kept.
fn only_kept() -> Vec<(&'static str, Value)> {
    vec![
        (
            "topologies",
            named("Topology", json!({"spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "host"}]}})),
        ),
        (
            "provisioningrequestconfigs",
            named(
                "ProvisioningRequestConfig",
                json!({"spec": {
                    "provisioningClassName": "p", "parameters": {"a": "b"}, "managedResources": ["cpu"],
                    "retryStrategy": {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
                    "podSetUpdates": {"nodeSelector": [{"key": "k", "valueFromProvisioningClassDetail": "d"}]},
                    "podSetMergePolicy": "IdenticalPodTemplates",
                }}),
            ),
        ),
        (
            "multikueueconfigs",
            named("MultiKueueConfig", json!({"spec": {"clusters": ["a"], "quotaManagement": "Manual"}})),
        ),
        (
            "multikueueclusters",
            named(
                "MultiKueueCluster",
                json!({
                    "spec": {"clusterSource": {"kubeConfig": {"location": "l", "locationType": "Secret"}}},
                    "status": {"conditions": [condition("Active", "True")]},
                }),
            ),
        ),
    ]
}

#[tokio::test]
async fn no_field_of_the_reference_is_lost_in_either_version() {
    for version in ["v1beta1", "v1beta2"] {
        let (_server, client) = installed().await;
        is_kept(&client, version, "workloads", "default", workload()).await;
        is_kept(&client, version, "clusterqueues", "", cluster_queue(version)).await;
        for (plural, object) in others().into_iter().chain(only_kept()) {
            let namespace = if plural == "localqueues" { "default" } else { "" };
            is_kept(&client, version, plural, namespace, object).await;
        }
    }
}
