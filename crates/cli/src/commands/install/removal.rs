//! Takes things away: what a new version no longer has, or everything.

use std::collections::BTreeSet;

use clap::Args;
use gangway_api::install::{CONTROLLER, Object, SCHEDULER};
use gangway_api::names::RESOURCE_IN_USE_FINALIZER;
use kube::ResourceExt;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use serde_json::json;

use super::cluster::{Cluster, is_ours, kind};
use super::say;
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};

/// Arguments of `gangway uninstall`.
#[derive(Debug, Args)]
#[command(after_help = "\
Jobs, queues and Workloads stay, and what runs goes on. Jobs that wait stay suspended until somebody
else looks after them.

Examples:
  gangway uninstall                   takes Gangway away
  gangway uninstall --dry-run         says what that would be
  gangway uninstall --purge --yes     with the CustomResourceDefinitions, and so with every queue and Workload")]
pub struct UninstallArgs {
    /// Removes the CustomResourceDefinitions and the namespace too, and so every queue, flavor and Workload; needs --yes.
    #[arg(long)]
    purge: bool,
    /// Says that everything of --purge may go.
    #[arg(long, requires = "purge")]
    yes: bool,
    /// Says what would be done, and does nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Kinds of our objects, in the order in which they go: first what acts on other people's objects.
fn kinds() -> Vec<ApiResource> {
    let rights = "rbac.authorization.k8s.io/v1";
    let admission = "admissionregistration.k8s.io/v1";
    [
        (admission, "MutatingAdmissionPolicyBinding"),
        (admission, "ValidatingAdmissionPolicyBinding"),
        (admission, "MutatingAdmissionPolicy"),
        (admission, "ValidatingAdmissionPolicy"),
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
        ("v1", "Service"),
        ("apps/v1", "Deployment"),
        ("policy/v1", "PodDisruptionBudget"),
        ("v1", "ConfigMap"),
        (rights, "RoleBinding"),
        (rights, "Role"),
        (rights, "ClusterRoleBinding"),
        (rights, "ClusterRole"),
        ("v1", "ServiceAccount"),
    ]
    .map(|(version, name)| kind(version, name))
    .into()
}

/// Deletes what is ours and not wanted any more.
pub async fn prune(cluster: &Cluster, wanted: &[Object]) -> Result<(), Failure> {
    let key = |kind: &str, namespace: Option<&str>, name: &str| {
        (kind.to_owned(), namespace.unwrap_or_default().to_owned(), name.to_owned())
    };
    let wanted: BTreeSet<_> =
        wanted.iter().map(|object| key(object.text("kind"), object.namespace(), object.name())).collect();
    for resource in kinds() {
        for object in cluster.ours(&resource).await? {
            let namespace = object.namespace();
            if !wanted.contains(&key(&resource.kind, namespace.as_deref(), &object.name_any())) {
                say(&cluster.delete(&resource, &object).await?)?;
            }
        }
    }
    Ok(())
}

/// Takes everything away.
pub async fn uninstall(args: UninstallArgs) -> Outcome {
    let client = args.connection.client("uninstall").await?;
    let cluster = Cluster { client, dry_run: args.dry_run };
    let definitions = kind("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let ours = cluster.ours(&definitions).await?;
    if args.purge && !args.yes && !args.dry_run {
        return Err(refuse_purge(&cluster, &ours).await?);
    }
    let mut gone = 0_usize;
    for resource in kinds() {
        for object in cluster.ours(&resource).await? {
            say(&cluster.delete(&resource, &object).await?)?;
            gone += 1;
        }
    }
    gone += remove_leases(&cluster).await?;
    if args.purge {
        gone += purge(&cluster, &definitions, &ours).await?;
    } else if !ours.is_empty() {
        say(
            "CustomResourceDefinitions, queues, Workloads and Jobs stay as they are; `gangway uninstall --purge` removes all but Jobs",
        )?;
    }
    if gone == 0 {
        say("there is nothing of Gangway that could be removed")?;
    }
    Ok(Exit::Success)
}

/// Leases are made by the parts themselves and carry no mark.
async fn remove_leases(cluster: &Cluster) -> Result<usize, Failure> {
    let resource = kind("coordination.k8s.io/v1", "Lease");
    let mut gone = 0;
    for lease in cluster.list(&resource, &ListParams::default()).await? {
        if [CONTROLLER, SCHEDULER].contains(&lease.name_any().as_str()) {
            say(&cluster.delete(&resource, &lease).await?)?;
            gone += 1;
        }
    }
    Ok(gone)
}

/// The kind of objects that a definition defines, in the version in which they are stored.
fn defined(definition: &DynamicObject) -> Option<ApiResource> {
    let spec = &definition.data["spec"];
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let versions = spec["versions"].as_array()?;
    let stored = versions.iter().find(|version| version["storage"] == true)?;
    let (group, version) = (text(&spec["group"])?, text(&stored["name"])?);
    Some(ApiResource {
        api_version: format!("{group}/{version}"),
        group,
        version,
        kind: text(&spec["names"]["kind"])?,
        plural: text(&spec["names"]["plural"])?,
    })
}

async fn refuse_purge(cluster: &Cluster, definitions: &[DynamicObject]) -> Result<Failure, Failure> {
    let mut counts = Vec::new();
    for resource in definitions.iter().filter_map(defined) {
        let count = cluster.list(&resource, &ListParams::default()).await?.len();
        if count > 0 {
            counts.push(format!("{count} {}", resource.plural));
        }
    }
    let what = if counts.is_empty() { "no queues".to_owned() } else { counts.join(", ") };
    let message = format!("--purge deletes what users have made, for good: {what}");
    Ok(Failure::bad_input(message)
        .try_this("gangway uninstall --purge --yes, or without --purge, which leaves all that"))
}

async fn purge(
    cluster: &Cluster,
    resource: &ApiResource,
    definitions: &[DynamicObject],
) -> Result<usize, Failure> {
    let mut gone = 0;
    for definition in definitions {
        let Some(kind) = defined(definition) else { continue };
        // Nobody is left who would take this finalizer off, and with it the definition would never go.
        for object in cluster.list(&kind, &ListParams::default()).await? {
            if object.finalizers().iter().any(|finalizer| finalizer == RESOURCE_IN_USE_FINALIZER) {
                let rest: Vec<&String> =
                    object.finalizers().iter().filter(|other| *other != RESOURCE_IN_USE_FINALIZER).collect();
                cluster.merge(&kind, &object, &json!({"metadata": {"finalizers": rest}})).await?;
            }
        }
        say(&cluster.delete(resource, definition).await?)?;
        gone += 1;
    }
    let namespaces = kind("v1", "Namespace");
    for namespace in cluster.ours(&namespaces).await?.iter().filter(|namespace| is_ours(namespace)) {
        say(&cluster.delete(&namespaces, namespace).await?)?;
        gone += 1;
    }
    Ok(gone)
}
