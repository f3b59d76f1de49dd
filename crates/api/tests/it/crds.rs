//! The CRDs as a whole.

use gangway_api::{crds, crds_yaml};
use serde_json::Value;

#[test]
fn both_versions_have_one_schema_and_the_newer_one_is_stored() {
    let crds = crds();
    let kinds: Vec<&str> = crds.iter().map(|crd| crd.spec.names.kind.as_str()).collect();
    let expected = [
        "AdmissionCheck",
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "MultiKueueCluster",
        "MultiKueueConfig",
        "ProvisioningRequestConfig",
        "ResourceFlavor",
        "Topology",
        "WorkloadPriorityClass",
        "Workload",
    ];
    assert_eq!(kinds, expected);
    for crd in &crds {
        let [older, newer] = crd.spec.versions.as_slice() else { panic!("{crd:?}") };
        assert_eq!((older.name.as_str(), older.served, older.storage), ("v1beta1", true, false));
        assert_eq!((newer.name.as_str(), newer.served, newer.storage), ("v1beta2", true, true));
        assert_eq!(older.schema, newer.schema);
        assert_eq!(older.subresources, newer.subresources);
    }
}

#[test]
fn scopes_and_short_names_are_those_of_the_contract() {
    let table = [
        ("AdmissionCheck", "Cluster", vec!["ac"], true),
        ("ClusterQueue", "Cluster", vec!["cq"], true),
        ("Cohort", "Cluster", vec!["co"], true),
        ("LocalQueue", "Namespaced", vec!["queue", "queues", "lq"], true),
        ("MultiKueueCluster", "Cluster", vec!["mkc"], true),
        ("MultiKueueConfig", "Cluster", vec!["mkconf"], false),
        ("ProvisioningRequestConfig", "Cluster", vec!["prc"], false),
        ("ResourceFlavor", "Cluster", vec!["flavor", "flavors", "rf"], false),
        ("Topology", "Cluster", vec!["topo"], false),
        ("WorkloadPriorityClass", "Cluster", vec!["wpc"], false),
        ("Workload", "Namespaced", vec!["kwl", "kueueworkload", "kueueworkloads"], true),
    ];
    for (crd, (kind, scope, short_names, has_status)) in crds().iter().zip(table) {
        assert_eq!(crd.spec.names.kind, kind);
        assert_eq!(crd.spec.scope, scope, "{kind}");
        assert_eq!(crd.spec.names.short_names.clone().unwrap(), short_names, "{kind}");
        let status = crd.spec.versions[0].subresources.as_ref().and_then(|s| s.status.as_ref());
        assert_eq!(status.is_some(), has_status, "{kind}");
    }
}

#[test]
fn workloads_can_be_selected_by_their_cluster_queue() {
    let crds = crds();
    let workload = crds.iter().find(|crd| crd.spec.names.kind == "Workload").unwrap();
    let selectable = workload.spec.versions[0].selectable_fields.as_ref().unwrap();
    assert_eq!(selectable[0].json_path, ".status.admission.clusterQueue");
}

/// Fields with another spelling have no default, for the default would contradict the other spelling.
#[test]
fn only_fields_without_another_spelling_have_a_default() {
    let mut found = Vec::new();
    for crd in crds() {
        let version = serde_json::to_value(&crd.spec.versions[1]).unwrap();
        defaults(&version["schema"]["openAPIV3Schema"], &crd.spec.names.kind, &mut found);
    }
    found.sort();
    let expected = [
        "ClusterQueue.spec",
        "ClusterQueue.spec.queueingStrategy",
        "ClusterQueue.spec.stopPolicy",
        "Cohort.spec",
        "LocalQueue.spec",
        "LocalQueue.spec.stopPolicy",
        "MultiKueueCluster.spec",
        "MultiKueueConfig.spec",
        "ProvisioningRequestConfig.spec",
        "ResourceFlavor.spec",
        "Topology.spec",
        "Workload.spec.active",
        "Workload.spec.podSets.count",
        "Workload.spec.podSets.name",
        "Workload.status.admission.podSetAssignments.name",
        "Workload.status.resourceRequests.name",
    ];
    assert_eq!(found, expected);
}

fn defaults(schema: &Value, path: &str, found: &mut Vec<String>) {
    assert!(schema.get("nullable").is_none(), "{path} is nullable");
    if schema.get("default").is_some() {
        found.push(path.to_owned());
    }
    for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
        defaults(inner, &format!("{path}.{field}"), found);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            defaults(&schema[inner], path, found);
        }
    }
}

#[test]
fn the_yaml_reads_back_and_is_of_a_sane_size() {
    let text = crds_yaml().unwrap();
    let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let expected: Vec<Value> = crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    assert_eq!(read.len(), expected.len());
    assert!(text.len() < 400_000, "{}", text.len());
    for crd in expected {
        // A client-side apply keeps a copy of the object in an annotation of at most 256 KiB.
        assert!(crd.to_string().len() < 200_000);
    }
}

/// What is only kept, and what is not acted on, stands on the page for those who come from Kueue.
#[test]
fn the_page_about_kueue_names_what_is_not_acted_on() {
    let page = include_str!("../../../../docs/from-kueue.md");
    let fields = [
        "spec.admissionScope",
        "spec.concurrentAdmissionPolicy",
        "spec.topologyName",
        "spec.fairSharing",
        "spec.podSets[].minCount",
        "spec.podSets[].topologyRequest",
        "spec.maximumExecutionTimeSeconds",
        "spec.preemptionGates",
    ];
    let controllers = gangway_api::names::REFERENCE_CHECK_CONTROLLERS;
    for word in gangway_api::kept_kinds().chain(fields).chain(controllers) {
        assert!(page.contains(word), "docs/from-kueue.md does not name {word}");
    }
}
