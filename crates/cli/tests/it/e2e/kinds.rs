//! The kinds of objects that the scenarios touch.

use kube::Api;
use kube::Client;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

/// A kind of object, and whether its objects live in namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    group: &'static str,
    version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    namespaced: bool,
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { group, version, kind, plural, namespaced: true }
}

const fn cluster_wide(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { group, version, kind, plural, namespaced: false }
}

const KUEUE: &str = "kueue.x-k8s.io";

pub const CLUSTER_QUEUE: Kind = cluster_wide(KUEUE, "v1beta2", "ClusterQueue", "clusterqueues");
pub const LOCAL_QUEUE: Kind = namespaced(KUEUE, "v1beta2", "LocalQueue", "localqueues");
pub const COHORT: Kind = cluster_wide(KUEUE, "v1beta2", "Cohort", "cohorts");
pub const FLAVOR: Kind = cluster_wide(KUEUE, "v1beta2", "ResourceFlavor", "resourceflavors");
pub const WORKLOAD: Kind = namespaced(KUEUE, "v1beta2", "Workload", "workloads");
pub const JOB: Kind = namespaced("batch", "v1", "Job", "jobs");
pub const POD: Kind = namespaced("", "v1", "Pod", "pods");
pub const EVENT: Kind = namespaced("", "v1", "Event", "events");
pub const NODE: Kind = cluster_wide("", "v1", "Node", "nodes");
pub const LEASE: Kind = namespaced("coordination.k8s.io", "v1", "Lease", "leases");
pub const NAMESPACE: Kind = cluster_wide("", "v1", "Namespace", "namespaces");
pub const CRD: Kind =
    cluster_wide("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");

const WORKLOAD_PRIORITY_CLASS: Kind =
    cluster_wide(KUEUE, "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses");
const PRIORITY_CLASS: Kind = cluster_wide("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses");
const ADMISSION_CHECK: Kind = cluster_wide(KUEUE, "v1beta2", "AdmissionCheck", "admissionchecks");

const ALL: &[Kind] = &[
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    FLAVOR,
    WORKLOAD,
    JOB,
    POD,
    EVENT,
    NAMESPACE,
    CRD,
    NODE,
    PRIORITY_CLASS,
    WORKLOAD_PRIORITY_CLASS,
    COHORT,
    ADMISSION_CHECK,
    LEASE,
];

impl Kind {
    /// The kind with this name, in the version that the object asks for.
    pub fn named(kind: &str, api_version: &str) -> Option<(Self, &'static str)> {
        let known = ALL.iter().find(|known| known.kind == kind)?;
        let version = match api_version.rsplit('/').next() {
            Some("v1beta1") => "v1beta1",
            _ => known.version,
        };
        Some((*known, version))
    }

    pub fn is_cluster_wide(self) -> bool {
        !self.namespaced
    }

    pub fn in_version(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    /// Access to the objects of this kind: in `namespace`, if the kind has namespaces.
    pub fn api(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        }
    }
}
