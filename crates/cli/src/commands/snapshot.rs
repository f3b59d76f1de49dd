//! `gangway snapshot`: the dump that `gangway replay` reads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use gangway_api::kueue::GROUP as KUEUE;
use gangway_model::Clock;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::replay::replay_document;
use super::{api_failure, config, print};
use crate::clock::SystemClock;
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};

/// Arguments of `gangway snapshot`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway snapshot -o dump.yaml && gangway replay dump.yaml   what would be decided next
  gangway snapshot > dump.yaml                                the same file

It holds the pod templates of all Workloads, with the values of their environment: look
through it before you pass it on.")]
pub struct SnapshotArgs {
    /// The file to write; otherwise standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The configuration file of the controller.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

/// What a replay understands: group, version, kind, plural. What is named comes before what names it.
const KINDS: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "Namespace", "namespaces"),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
    (KUEUE, "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses"),
    (KUEUE, "v1beta2", "ResourceFlavor", "resourceflavors"),
    (KUEUE, "v1beta2", "Cohort", "cohorts"),
    (KUEUE, "v1beta2", "AdmissionCheck", "admissionchecks"),
    (KUEUE, "v1beta2", "ClusterQueue", "clusterqueues"),
    (KUEUE, "v1beta2", "LocalQueue", "localqueues"),
    (KUEUE, "v1beta2", "Workload", "workloads"),
];

/// Writes the snapshot.
pub async fn run(args: SnapshotArgs) -> Outcome {
    let config = config::load(args.config.as_deref())?;
    let client = args.connection.client("snapshot").await?;
    let now = SystemClock.now();
    let mut objects = vec![replay_document("snapshot", now, &config)];
    for (group, version, kind, plural) in KINDS {
        let kind = GroupVersionKind::gvk(group, version, kind);
        objects.extend(list(&client, &ApiResource::from_gvk_with_plural(&kind, plural)).await?);
    }
    let text = documents(&objects)?;
    let Some(file) = &args.output else {
        print(&text)?;
        return Ok(Exit::Success);
    };
    std::fs::write(file, text)
        .map_err(|error| Failure::bad_input(format!("{}: cannot be written: {error}", file.display())))?;
    eprintln!("gangway: {}: {}", file.display(), counted(&objects));
    Ok(Exit::Success)
}

/// The objects of a kind as they are stored, in the order of their names.
async fn list(client: &Client, resource: &ApiResource) -> Result<Vec<Value>, Failure> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let listed = api.list(&ListParams::default()).await;
    let mut items = listed.map_err(|error| api_failure(&format!("list {}", resource.plural), &error))?.items;
    items.sort_by_key(|object| (object.namespace(), object.name_any()));
    items.into_iter().map(|object| stored(object, resource)).collect()
}

/// An object as a file holds it: with its type, and without who wrote which field.
fn stored(mut object: DynamicObject, resource: &ApiResource) -> Result<Value, Failure> {
    object.metadata.managed_fields = None;
    let mut value = serde_json::to_value(object)
        .map_err(|error| Failure::broken(format!("an object of the API is no JSON: {error}")))?;
    value["apiVersion"] = json!(resource.api_version);
    value["kind"] = json!(resource.kind);
    Ok(value)
}

fn documents(objects: &[Value]) -> Result<String, Failure> {
    let mut text = String::new();
    for object in objects {
        let document = serde_saphyr::to_string(object)
            .map_err(|error| Failure::broken(format!("cannot write YAML: {error}")))?;
        text.push_str("---\n");
        text.push_str(document.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// `3 Namespaces, 1 Cohort` without the document of the replay itself.
fn counted(objects: &[Value]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for object in &objects[1..] {
        *counts.entry(object["kind"].as_str().unwrap_or_default()).or_default() += 1;
    }
    let one = |(kind, count): (&&str, &usize)| match count {
        1 => format!("1 {kind}"),
        count => format!("{count} {}", plural(kind)),
    };
    counts.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn plural(kind: &str) -> String {
    if kind.ends_with('s') { format!("{kind}es") } else { format!("{kind}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        let texts = [
            "true",
            "null",
            "~",
            "12",
            "1e3",
            "8073e134",
            "0x1f",
            "on",
            "",
            " a ",
            "a: b",
            "# c",
            "- d",
            "a\n---\nb\n",
            "2026-01-01T00:00:00Z",
            "é\t\u{7f}",
            "{x}",
            "*a",
            "&a",
            "!t",
            "%",
            "@",
            "`",
        ];
        let object =
            json!({"kind": "Workload", "metadata": {"name": "w"}, "texts": texts, "number": 5, "no": null});
        let text = documents(&[object.clone(), object.clone()]).unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        assert_eq!(read, [object.clone(), object], "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("---")).count(), 2, "{text}");
    }

    #[test]
    fn what_was_written_is_counted() {
        let of = |kind: &str| json!({"kind": kind});
        let objects = [of("Replay"), of("Workload"), of("PriorityClass"), of("PriorityClass")];
        assert_eq!(counted(&objects), "2 PriorityClasses, 1 Workload");
    }
}
