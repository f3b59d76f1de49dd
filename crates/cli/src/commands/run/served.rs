//! The kinds that a file may hold, and the order in which they are applied.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// A kind that the embedded API serves.
struct Served {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
}

const fn served(group: &'static str, kind: &'static str, plural: &'static str, namespaced: bool) -> Served {
    Served { group, kind, plural, namespaced }
}

const KUEUE: &str = gangway_api::kueue::GROUP;

/// In the order in which they are applied: what is named comes before what names it, Jobs last.
const SERVED: &[Served] = &[
    served("", "Namespace", "namespaces", false),
    served("scheduling.k8s.io", "PriorityClass", "priorityclasses", false),
    served(KUEUE, "WorkloadPriorityClass", "workloadpriorityclasses", false),
    served(KUEUE, "ResourceFlavor", "resourceflavors", false),
    served(KUEUE, "AdmissionCheck", "admissionchecks", false),
    served(KUEUE, "Cohort", "cohorts", false),
    served(KUEUE, "ClusterQueue", "clusterqueues", false),
    served(KUEUE, "LocalQueue", "localqueues", true),
    served("", "ServiceAccount", "serviceaccounts", true),
    served("", "ConfigMap", "configmaps", true),
    served("", "Secret", "secrets", true),
    served("", "Pod", "pods", true),
    served("batch", "Job", "jobs", true),
];

/// Where an object goes.
#[derive(Clone, Debug)]
pub struct Place {
    /// Objects are applied in this order.
    pub rank: usize,
    pub namespaced: bool,
    pub resource: ApiResource,
}

/// Where `object` goes; none if its kind cannot be run on one machine.
pub fn place(object: &Value) -> Option<Place> {
    let api_version = object["apiVersion"].as_str()?;
    let kind = object["kind"].as_str()?;
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let rank = SERVED.iter().position(|served| served.group == group && served.kind == kind)?;
    let served = &SERVED[rank];
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, served.plural);
    Some(Place { rank, namespaced: served.namespaced, resource })
}

/// The kinds, for a message.
pub fn kinds() -> String {
    SERVED.iter().map(|served| served.kind).collect::<Vec<_>>().join(", ")
}
