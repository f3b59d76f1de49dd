//! ResourceFlavors and namespaces.

use gangway_model::constraints::{Taint, TaintEffect};
use gangway_model::queues::{Flavor, Namespace};
use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;

use super::{Read, Reader};
use crate::kueue::ResourceFlavor;
use crate::pods;

/// A ResourceFlavor. A taint that cannot be read keeps pods away; a toleration that cannot be read tolerates nothing.
pub fn flavor(object: &ResourceFlavor) -> Read<Flavor> {
    let name = object.name_any();
    let mut reader = Reader::new(format!("ResourceFlavor/{name}"));
    reader.unsupported(object.spec.topology_name.is_some(), "spec.topologyName");
    let node_taints = object.spec.node_taints.iter().enumerate();
    let node_taints = node_taints.map(|(index, taint)| {
        pods::taint(taint, &format!("spec.nodeTaints[{index}]")).unwrap_or_else(|error| {
            reader.problem(error.path.clone(), error.problem());
            let value = taint.value.clone().unwrap_or_default();
            Taint { key: taint.key.clone(), value, effect: TaintEffect::NoSchedule }
        })
    });
    let node_taints = node_taints.collect();
    let tolerations = pods::tolerations(&object.spec.tolerations).unwrap_or_else(|error| {
        reader.problem(format!("spec.{}", error.path), error.problem());
        Vec::new()
    });
    let node_labels = object.spec.node_labels.clone();
    let topology = object.spec.topology_name.clone();
    reader.finish(Flavor { name: name.into(), node_labels, node_taints, tolerations, topology })
}

/// A Namespace.
pub fn namespace(object: &core::Namespace) -> Namespace {
    Namespace { name: object.name_any().into(), labels: object.metadata.labels.clone().unwrap_or_default() }
}
