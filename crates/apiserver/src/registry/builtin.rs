//! The kinds every server has.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event as SeriesEvent;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::{Resource, Rules, SelectableField, Subresource, Version, events};
use crate::decode::{TypedCheck, typed_check};
use crate::store::{Store, TableId, WirePrefix};

pub(crate) const CRD_GROUP: &str = "apiextensions.k8s.io";
pub(crate) const CRD_PLURAL: &str = "customresourcedefinitions";

/// A built-in kind in one line; see [`Builtin::build`] for what follows from it.
struct Builtin {
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    namespaced: bool,
    has_status: bool,
    tracks_generation: bool,
    selectable: &'static [&'static str],
    check: TypedCheck,
}

impl Builtin {
    fn new(group: &'static str, plural: &'static str, kind: &'static str, check: TypedCheck) -> Self {
        Self {
            group,
            plural,
            singular: "",
            kind,
            short_names: &[],
            namespaced: true,
            has_status: false,
            tracks_generation: false,
            selectable: &[],
            check,
        }
    }

    fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn with_status(mut self) -> Self {
        self.has_status = true;
        self
    }

    fn with_generation(mut self) -> Self {
        self.tracks_generation = true;
        self
    }

    fn selectable(mut self, fields: &'static [&'static str]) -> Self {
        self.selectable = fields;
        self
    }

    fn build(self, table: TableId) -> Resource {
        let api_version = if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) };
        let version = Version {
            name: "v1".to_owned(),
            prefix: WirePrefix::new(&api_version, self.kind),
            has_status: self.has_status,
            rules: Rules::Typed(self.check),
        };
        let singular =
            if self.singular.is_empty() { self.kind.to_ascii_lowercase() } else { self.singular.to_owned() };
        let is_pod = self.group.is_empty() && self.plural == "pods";
        Resource {
            group: self.group.to_owned(),
            plural: self.plural.to_owned(),
            singular,
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            short_names: self.short_names.iter().map(|name| (*name).to_owned()).collect(),
            categories: if is_pod || self.plural == "jobs" { vec!["all".to_owned()] } else { Vec::new() },
            namespaced: self.namespaced,
            versions: vec![version],
            table,
            selectable: self.selectable.iter().map(|path| SelectableField::new(path)).collect(),
            tracks_generation: self.tracks_generation,
            to_stored: None,
            subresources: if is_pod { &[Subresource::Binding, Subresource::Log] } else { &[] },
        }
    }
}

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

pub(super) fn resources(store: &Store, namespaces: TableId) -> Vec<Resource> {
    let core = |plural, kind, check| Builtin::new("", plural, kind, check);
    let namespace = core("namespaces", "Namespace", typed_check::<Namespace>)
        .short(&["ns"])
        .cluster_scoped()
        .with_status()
        .selectable(&["status.phase"]);
    let kinds = [
        core("pods", "Pod", typed_check::<Pod>)
            .short(&["po"])
            .with_status()
            .with_generation()
            .selectable(POD_FIELDS),
        core("nodes", "Node", typed_check::<Node>)
            .short(&["no"])
            .cluster_scoped()
            .with_status()
            .selectable(&["spec.unschedulable"]),
        core("configmaps", "ConfigMap", typed_check::<ConfigMap>).short(&["cm"]),
        core("secrets", "Secret", typed_check::<Secret>).selectable(&["type"]),
        core("serviceaccounts", "ServiceAccount", typed_check::<ServiceAccount>).short(&["sa"]),
        Builtin::new("batch", "jobs", "Job", typed_check::<Job>)
            .with_status()
            .with_generation()
            .selectable(&["status.successful"]),
        Builtin::new(
            "policy",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            typed_check::<PodDisruptionBudget>,
        )
        .short(&["pdb"])
        .with_status()
        .with_generation(),
        Builtin::new("coordination.k8s.io", "leases", "Lease", typed_check::<Lease>),
        Builtin::new("scheduling.k8s.io", "priorityclasses", "PriorityClass", typed_check::<PriorityClass>)
            .short(&["pc"])
            .cluster_scoped()
            .with_generation(),
        Builtin::new(
            CRD_GROUP,
            CRD_PLURAL,
            "CustomResourceDefinition",
            typed_check::<CustomResourceDefinition>,
        )
        .short(&["crd", "crds"])
        .cluster_scoped()
        .with_status()
        .with_generation(),
    ];
    let event = core("events", "Event", typed_check::<Event>).short(&["ev"]).build(store.create_table());
    let series = Builtin::new("events.k8s.io", "events", "Event", typed_check::<SeriesEvent>)
        .short(&["ev"])
        .build(event.table);
    let mut resources = vec![namespace.build(namespaces), events::core(event), events::series(series)];
    resources.extend(kinds.into_iter().map(|kind| kind.build(store.create_table())));
    resources
}
