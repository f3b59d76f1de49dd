//! What the files ask for: checked as a whole before anything is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;

use gangway_api::kueue::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor};
use gangway_api::manifests::{self, Manifest};
use gangway_api::names::{DEFAULT_NAME, QUEUE_NAME_LABEL};
use gangway_node::fake::FakeNode;
use serde_json::{Value, json};

use super::machines::{fake_nodes, machines};
use super::quota_watch::QuotaLine;
use super::quotas::quota_lines;
use super::served::{self, Place};
use super::unsupported::{unsupported, unsupported_kind};
use crate::embedded::Machine;
use crate::exit::Failure;

/// An object of a file.
#[derive(Clone, Debug)]
pub struct Planned {
    /// `file:line`; empty for what the files only imply.
    pub at: String,
    pub object: Value,
    pub place: Place,
}

impl Planned {
    fn name(&self) -> &str {
        let metadata = &self.object["metadata"];
        metadata["name"].as_str().or_else(|| metadata["generateName"].as_str()).unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.object["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    fn is(&self, kind: &str) -> bool {
        self.object["kind"] == kind
    }

    /// `Job vision/train`.
    pub fn title(&self) -> String {
        let kind = self.object["kind"].as_str().unwrap_or_default();
        match self.namespace() {
            "" => format!("{kind} {}", self.name()),
            namespace => format!("{kind} {namespace}/{}", self.name()),
        }
    }
}

const FIRST_EXAMPLE: &str = "examples/quickstart.yaml";

/// Everything that is needed to run the files.
#[derive(Debug)]
pub struct Plan {
    /// In the order in which they are applied.
    pub objects: Vec<Planned>,
    /// Namespaces that the files use and do not define.
    pub namespaces_added: Vec<String>,
    pub quotas: Vec<QuotaLine>,
    pub machines: Vec<Machine>,
    /// Nodes that pretend.
    pub fake_nodes: Vec<FakeNode>,
    /// The ClusterQueue of each LocalQueue, by namespace and name.
    pub cluster_queues: BTreeMap<(String, String), String>,
    /// It is the example that people begin with.
    pub is_first_example: bool,
}

/// Reads the files. Every error of every file is in the failure.
pub fn read(files: &[PathBuf]) -> Result<Plan, Failure> {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for file in files {
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                errors.push(format!("{name}: is not a text file"));
            }
            Ok(text) if text.contains('\0') => errors.push(format!("{name}: is not a text file")),
            Err(error) => errors.push(format!("{name}: cannot be read: {error}")),
            Ok(text) => match manifests::parse(&name, &text) {
                Ok(manifests) => found.extend(manifests),
                Err(error) => errors.push(error.to_string()),
            },
        }
    }
    if !errors.is_empty() {
        return Err(refused(&errors));
    }
    let is_first_example = files.len() == 1 && files[0].ends_with(FIRST_EXAMPLE);
    Ok(Plan { is_first_example, ..plan(found)? })
}

fn refused(errors: &[String]) -> Failure {
    Failure::bad_input(format!("nothing was applied\n{}", errors.join("\n")))
}

/// Plans objects that were read.
fn plan(manifests: Vec<Manifest>) -> Result<Plan, Failure> {
    let mut objects = placed(manifests)?;
    let mut errors = duplicates(&objects);
    errors.extend(jobs_without_queue(&objects));
    if !errors.is_empty() {
        return Err(refused(&errors));
    }
    if !objects.iter().any(|planned| planned.is("Job")) {
        return Err(Failure::bad_input("the files hold no Job, so there is nothing to run")
            .try_this(format!("gangway run {FIRST_EXAMPLE}")));
    }
    let namespaces_added = missing_namespaces(&objects);
    objects.extend(namespaces_added.iter().filter_map(|name| {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let place = served::place(&object)?;
        Some(Planned { at: String::new(), object, place })
    }));
    objects.sort_by_key(|planned| planned.place.rank);

    let flavors: Vec<ResourceFlavor> = typed(&objects, "ResourceFlavor");
    let queues: Vec<ClusterQueue> = typed(&objects, "ClusterQueue");
    let cohorts: Vec<Cohort> = typed(&objects, "Cohort");
    let quotas = quota_lines(&queues, &cohorts, &flavors);
    let machines = machines(&flavors, &quotas);
    let fake_nodes = fake_nodes(&flavors).map_err(|wrong| refused(&[wrong]))?;
    let local_queues: Vec<LocalQueue> = typed(&objects, "LocalQueue");
    let cluster_queues = local_queues.into_iter().filter_map(|queue| {
        let name = (queue.metadata.namespace?, queue.metadata.name?);
        Some((name, queue.spec.cluster_queue?))
    });
    let cluster_queues = cluster_queues.collect();
    let is_first_example = false;
    Ok(Plan { namespaces_added, quotas, machines, fake_nodes, cluster_queues, objects, is_first_example })
}

/// Finds the place of each object and fills in the namespace.
fn placed(manifests: Vec<Manifest>) -> Result<Vec<Planned>, Failure> {
    let mut objects = Vec::new();
    let mut refused: Vec<String> = Vec::new();
    let mut all_kinds_served = true;
    for manifest in manifests {
        let at = format!("{}:{}", manifest.file, manifest.line);
        refused.extend(unsupported(&manifest).iter().map(ToString::to_string));
        let Some(place) = served::place(&manifest.value) else {
            refused.push(unsupported_kind(&manifest).to_string());
            all_kinds_served = false;
            continue;
        };
        let mut object = manifest.value;
        let metadata = &mut object["metadata"];
        if place.namespaced && metadata["namespace"].as_str().unwrap_or_default().is_empty() {
            metadata["namespace"] = json!("default");
        }
        objects.push(Planned { at, object, place });
    }
    if refused.is_empty() {
        return Ok(objects);
    }
    let failure = Failure::unsupported(format!("nothing was applied\n{}", refused.join("\n")));
    Err(match all_kinds_served {
        true => failure,
        false => failure.try_this(format!("use only these kinds: {}", served::kinds())),
    })
}

fn typed<K: serde::de::DeserializeOwned>(objects: &[Planned], kind: &str) -> Vec<K> {
    let of_kind = objects.iter().filter(|planned| planned.is(kind));
    of_kind.filter_map(|planned| serde_json::from_value(planned.object.clone()).ok()).collect()
}

fn duplicates(objects: &[Planned]) -> Vec<String> {
    let mut seen: BTreeMap<(usize, &str, &str), &Planned> = BTreeMap::new();
    let mut errors = Vec::new();
    for planned in objects.iter().filter(|planned| planned.object["metadata"]["name"].is_string()) {
        let key = (planned.place.rank, planned.namespace(), planned.name());
        if let Some(first) = seen.insert(key, planned) {
            errors.push(format!("{}: {} was defined at {} already", planned.at, planned.title(), first.at));
        }
    }
    errors
}

/// A Job without a queue would run outside every quota.
fn jobs_without_queue(objects: &[Planned]) -> Vec<String> {
    let queues_of = |namespace: &str| -> Vec<&str> {
        let queues = objects.iter().filter(|queue| queue.is("LocalQueue") && queue.namespace() == namespace);
        queues.map(Planned::name).collect()
    };
    let mut errors = Vec::new();
    for job in objects.iter().filter(|planned| planned.is("Job")) {
        let queue = job.object["metadata"]["labels"][QUEUE_NAME_LABEL].as_str().unwrap_or_default();
        let queues = queues_of(job.namespace());
        if queue.is_empty() && !queues.contains(&DEFAULT_NAME) {
            let known = match queues.as_slice() {
                [] => format!("a LocalQueue, of which namespace {} has none", job.namespace()),
                names => format!("one of {}", names.join(", ")),
            };
            errors.push(format!(
                "{}: metadata.labels: {} names no queue and would run outside every quota; add the label {QUEUE_NAME_LABEL} \
                 with the name of {known}",
                job.at,
                job.title(),
            ));
        }
    }
    errors
}

fn missing_namespaces(objects: &[Planned]) -> Vec<String> {
    let used: BTreeSet<&str> =
        objects.iter().map(Planned::namespace).filter(|name| !name.is_empty()).collect();
    let defined: BTreeSet<&str> =
        objects.iter().filter(|planned| planned.is("Namespace")).map(Planned::name).collect();
    let built_in = ["default", "kube-system"];
    let missing = used.into_iter().filter(|name| !defined.contains(name) && !built_in.contains(name));
    missing.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: &str = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\n";

    fn job(name: &str, labels: &str) -> String {
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, namespace: lab, labels: {{{labels}}}}}\n\
             spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: host}}]}}}}}}\n---\n"
        )
    }

    fn queue(name: &str) -> String {
        format!("{QUEUE}metadata: {{name: {name}, namespace: lab}}\nspec: {{clusterQueue: team}}\n---\n")
    }

    fn planned(text: &str) -> Result<Plan, Failure> {
        plan(manifests::parse("jobs.yaml", text).unwrap())
    }

    #[test]
    fn what_is_named_is_applied_before_what_names_it() {
        let named = job("a", "kueue.x-k8s.io/queue-name: main");
        let plan = planned(&format!("{named}{}", queue("main"))).unwrap();
        let titles: Vec<String> = plan.objects.iter().map(Planned::title).collect();
        assert_eq!(titles, ["Namespace lab", "LocalQueue lab/main", "Job lab/a"]);
        assert_eq!(plan.namespaces_added, ["lab"]);
        assert_eq!(plan.cluster_queues[&("lab".to_owned(), "main".to_owned())], "team");
    }

    #[test]
    fn a_job_without_a_queue_is_refused_unless_there_is_a_default() {
        let refused = planned(&format!("{}{}", queue("main"), job("a", ""))).unwrap_err();
        assert_eq!(refused.exit.code(), 2);
        assert!(
            refused.message.contains("jobs.yaml:6: ") && refused.message.contains("one of main"),
            "{refused}"
        );
        assert!(planned(&format!("{}{}", queue("default"), job("a", ""))).is_ok());
    }

    #[test]
    fn an_object_that_is_defined_twice_is_refused_with_both_places() {
        let twice = job("a", "kueue.x-k8s.io/queue-name: main").repeat(2);
        let refused = planned(&twice).unwrap_err();
        assert!(
            refused.message.contains("jobs.yaml:6: Job lab/a was defined at jobs.yaml:1 already"),
            "{refused}"
        );
    }

    #[test]
    fn what_run_does_not_do_is_refused_with_its_place() {
        let job = job("a", "kueue.x-k8s.io/queue-name: main");
        let table = [
            ("spec: {", "spec: {successPolicy: {}, ", "jobs.yaml:4: spec.successPolicy: is not"),
            (
                "spec: {",
                "spec: {managedBy: x.io/y, ",
                "jobs.yaml:4: spec.managedBy: \"x.io/y\" is not supported by run",
            ),
            (
                "apiVersion: batch/v1\nkind: Job",
                "apiVersion: storage.k8s.io/v1\nkind: StorageClass",
                "jobs.yaml:2: kind: StorageClass of storage.k8s.io/v1 is not supported by run",
            ),
        ];
        for (from, to, expected) in table {
            let text = match to.contains("kind") {
                true => format!("{to}\nmetadata: {{name: a}}\nprovisioner: x.io/y\n"),
                false => job.replacen(from, to, 1),
            };
            let refused = planned(&text).unwrap_err();
            assert_eq!(refused.exit.code(), 4);
            assert!(refused.message.contains(expected), "{refused}");
        }
        let ours = job.replacen("spec: {", "spec: {managedBy: kubernetes.io/job-controller, ", 1);
        assert!(planned(&ours).is_ok());
    }

    #[test]
    fn files_without_a_job_have_nothing_to_run() {
        assert_eq!(planned(&queue("main")).unwrap_err().exit.code(), 2);
    }
}
