//! Admission policies: whether queued Jobs are suspended at the moment they are created.

use std::collections::BTreeSet;

use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};

use super::finding::{Area, Finding};
use super::server::Server;
use super::{is_not_served, unreadable};

/// The first Kubernetes that serves mutating policies as `v1`.
const FIRST_MINOR: u32 = 36;
/// The policies that suspend queued Jobs and apply the `default` LocalQueue.
const MUTATING: &[&str] = &["gangway-default-queue", "gangway-suspend-jobs"];

const DEGRADED: &str = "Queued Jobs that were created without `suspend: true` are suspended as soon as they are seen (the degraded \
                        way); write it into Jobs that you queue.";

/// Looks for the policies and their bindings.
pub(super) async fn examine(client: &Client, server: &Server) -> Finding {
    if server.is_embedded {
        return Finding::skipped(Area::Policies, "this API suspends queued Jobs by itself");
    }
    if let Some(minor) = server.minor.filter(|minor| *minor < FIRST_MINOR) {
        return degraded(format!("Kubernetes 1.{minor} has none; 1.{FIRST_MINOR} and later have"));
    }
    let mut found = BTreeSet::new();
    for kind in ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"] {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match api.list_metadata(&ListParams::default()).await {
            Ok(list) => found.extend(list.items.iter().map(|object| (kind, object.name_any()))),
            Err(error) if is_not_served(&error) => {
                return degraded("this API server has none switched on".to_owned());
            }
            Err(error) => return unreadable(Area::Policies, &resource.plural, &error),
        }
    }
    judge(&found)
}

fn judge(found: &BTreeSet<(&str, String)>) -> Finding {
    let is_missing = |name: &&&str| {
        ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]
            .iter()
            .any(|kind| !found.contains(&(*kind, (**name).to_string())))
    };
    let missing: Vec<&str> = MUTATING.iter().filter(is_missing).copied().collect();
    if missing.is_empty() {
        return Finding::ok(Area::Policies, "queued Jobs are suspended at the moment they are created");
    }
    degraded(format!("these or their bindings are not there: {}", missing.join(", ")))
}

/// It works, with pods that live for a moment.
fn degraded(what: String) -> Finding {
    let fix = format!("kubectl get jobs -A -l {}", gangway_api::names::QUEUE_NAME_LABEL);
    Finding::warning(Area::Policies, "admission policies", what, fix)
        .because(format!("{DEGRADED} The line lists the Jobs that name a queue."))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_policy_without_its_binding_does_nothing() {
        let mut found = BTreeSet::new();
        assert_eq!(judge(&found).level, Level::Warning);
        for name in MUTATING {
            found.insert(("MutatingAdmissionPolicy", (*name).to_owned()));
        }
        found.insert(("MutatingAdmissionPolicyBinding", MUTATING[0].to_owned()));
        let half = judge(&found);
        assert_eq!(half.what, "these or their bindings are not there: gangway-suspend-jobs");
        assert!(half.fix.is_some());
        found.insert(("MutatingAdmissionPolicyBinding", MUTATING[1].to_owned()));
        assert_eq!(judge(&found).level, Level::Ok);
    }
}
