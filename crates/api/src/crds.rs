//! The CustomResourceDefinitions: derived from the types, made structural, one schema for both versions.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::kueue::{
    AdmissionCheck, ClusterQueue, Cohort, GROUP, LocalQueue, OLDER_VERSION, ResourceFlavor, VERSION, Workload,
};

/// Every CustomResourceDefinition, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    // Deriving them takes longer than most simulations of a cluster.
    static DERIVED: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(derive);
    DERIVED.clone()
}

fn derive() -> Vec<CustomResourceDefinition> {
    let mut all = vec![
        finished(AdmissionCheck::crd()),
        finished(ClusterQueue::crd()),
        finished(Cohort::crd()),
        finished(LocalQueue::crd()),
        finished(ResourceFlavor::crd()),
        finished(priority_class_crd()),
        finished(Workload::crd()),
    ];
    all.extend(KEPT.iter().map(|kept| finished(kept_crd(kept))));
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// A kind of the reference that nobody acts on here. Its objects are kept as they are.
struct Kept {
    kind: &'static str,
    plural: &'static str,
    short_name: &'static str,
    has_status: bool,
    description: &'static str,
}

const KEPT: &[Kept] = &[
    Kept {
        kind: "MultiKueueCluster",
        plural: "multikueueclusters",
        short_name: "mkc",
        has_status: true,
        description: "A cluster to which Workloads may be sent. Kept and not acted on.",
    },
    Kept {
        kind: "MultiKueueConfig",
        plural: "multikueueconfigs",
        short_name: "mkconf",
        has_status: false,
        description: "To which clusters Workloads may be sent. Kept and not acted on.",
    },
    Kept {
        kind: "ProvisioningRequestConfig",
        plural: "provisioningrequestconfigs",
        short_name: "prc",
        has_status: false,
        description: "How nodes are asked for. Kept and not acted on.",
    },
    Kept {
        kind: "Topology",
        plural: "topologies",
        short_name: "topo",
        has_status: false,
        description: "How nodes are near each other. Kept and not acted on.",
    },
];

/// The kinds whose objects are kept and not acted on.
pub fn kept_kinds() -> impl Iterator<Item = &'static str> {
    KEPT.iter().map(|kept| kept.kind)
}

/// The definition of a kind into which nobody looks: whatever stands in its objects stays there.
fn kept_crd(kept: &Kept) -> CustomResourceDefinition {
    let Kept { kind, plural, short_name, has_status, description } = kept;
    let opaque = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut properties = json!({"spec": opaque});
    let mut version = json!({"name": VERSION, "served": true, "storage": true});
    if *has_status {
        properties["status"] = opaque;
        version["subresources"] = json!({"status": {}});
    }
    let schema = json!({"type": "object", "description": description, "properties": properties});
    version["schema"] = json!({"openAPIV3Schema": schema});
    let value = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List"), "shortNames": [short_name], "categories": ["kueue"],
            },
            "scope": "Cluster",
            "versions": [version],
        },
    });
    serde_json::from_value(value).expect("the literal above is a CustomResourceDefinition")
}

/// Every CustomResourceDefinition as one YAML file.
pub fn crds_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for crd in crate::install::definitions() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    Ok(text)
}

/// Serves the schema under both versions and removes what schemars says beyond a structural schema.
fn finished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let Some(mut stored) = crd.spec.versions.pop() else { return crd };
    stored.schema = stored.schema.and_then(|schema| {
        let mut value = serde_json::to_value(schema).ok()?;
        if let Some(root) = value.get_mut("openAPIV3Schema") {
            tidy(root, false);
            finish_root(root);
        }
        serde_json::from_value(value).ok()
    });
    let mut older = stored.clone();
    OLDER_VERSION.clone_into(&mut older.name);
    older.storage = false;
    crd.spec.versions = vec![older, stored];
    crd
}

/// `Option` says `nullable`, which would keep a null that the API server otherwise drops; a status has no
/// defaults, since it is patched piece by piece.
fn tidy(schema: &mut Value, in_status: bool) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("nullable");
    if in_status || object.get("default").is_some_and(Value::is_null) {
        let list_key = object.get("default").and_then(Value::as_str) == Some("main");
        if !list_key {
            object.remove("default");
        }
    }
    for (name, child) in object.iter_mut() {
        match name.as_str() {
            "properties" => {
                let Some(properties) = child.as_object_mut() else { continue };
                for (property, inner) in properties {
                    tidy(inner, in_status || property == "status");
                }
            }
            "items" | "additionalProperties" => tidy(child, in_status),
            _ => {}
        }
    }
}

/// The root carries the usual three fields, so that `kubectl explain` shows them. A spec in which nothing is
/// required may be left out of a manifest and is then empty.
fn finish_root(root: &mut Value) {
    let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for field in ["apiVersion", "kind"] {
        properties.entry(field).or_insert_with(|| json!({"type": "string"}));
    }
    properties.insert("metadata".to_owned(), json!({"type": "object"}));
    let Some(spec) = properties.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let description = spec.get("description").cloned();
    let optional = spec.get("required").is_none();
    if optional {
        spec.insert("default".to_owned(), json!({}));
    } else {
        spec.remove("default");
    }
    let Some(root) = root.as_object_mut() else { return };
    root.insert(
        "required".to_owned(),
        if optional { json!(["metadata"]) } else { json!(["metadata", "spec"]) },
    );
    if let Some(description) = description {
        root.insert("description".to_owned(), description);
    }
}

/// The one kind whose fields are not under `spec`, which the derive cannot say.
fn priority_class_crd() -> CustomResourceDefinition {
    let names: Map<String, Value> = [
        ("plural", json!("workloadpriorityclasses")),
        ("singular", json!("workloadpriorityclass")),
        ("kind", json!("WorkloadPriorityClass")),
        ("listKind", json!("WorkloadPriorityClassList")),
        ("shortNames", json!(["wpc"])),
        ("categories", json!(["kueue"])),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    let schema = json!({
        "type": "object",
        "description": "A priority by name, for queueing only.",
        "required": ["value"],
        "properties": {
            "value": {"type": "integer", "format": "int32", "description": "Higher goes first."},
            "description": {"type": "string", "maxLength": 2048, "description": "When to use this class."},
        },
    });
    let value = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("workloadpriorityclasses.{GROUP}")},
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Cluster",
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [{"name": "Value", "type": "integer", "jsonPath": ".value"}],
            }],
        },
    });
    serde_json::from_value(value).expect("the literal above is a CustomResourceDefinition")
}
