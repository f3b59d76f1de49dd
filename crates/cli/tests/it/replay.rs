//! What `gangway replay` answers, and how it refuses.

mod fallback;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::tidy::workspace_root;

fn replay(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gangway"));
    command.arg("replay").args(arguments).env_remove("KUBECONFIG").output().expect("gangway runs")
}

/// Replays a text that stands in `scenario.yaml`. Returns the exit code, and what was said on both streams.
fn replay_text(text: &[u8], options: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("scenario.yaml");
    std::fs::write(&path, text).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gangway"));
    let command = command.args(["replay", "scenario.yaml"]).args(options).current_dir(directory.path());
    let output = command.env_remove("KUBECONFIG").output().expect("gangway runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), said(&output.stdout), said(&output.stderr))
}

const PROTOCOL: &[&str] = &["--protocol", "reference", "-o", "json"];

fn answer(file: &Path, options: &[&str]) -> Value {
    let output = replay(&[&[file.to_str().expect("a path")], options].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", file.display());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The files below a directory of the reference material, which not everybody has beside the repository.
fn shared_files(directory: &str) -> Vec<PathBuf> {
    let directory = workspace_root().join("../shared").join(directory);
    let Ok(entries) = std::fs::read_dir(&directory) else {
        eprintln!("skipped: {} is not there", directory.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "yaml"));
    files.sort();
    assert!(!files.is_empty(), "{} holds scenarios", directory.display());
    files
}

const SAMPLES: &str = "spec/replay-samples";

#[test]
fn samples_are_answered_as_by_the_reference() {
    for file in shared_files(SAMPLES) {
        let name = file.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let expected = file.with_file_name("expected").join(format!("{name}.json"));
        let expected = std::fs::read_to_string(expected).expect("an expected answer");
        let expected: Value = serde_json::from_str(&expected).expect("JSON");
        let found = answer(&file, PROTOCOL);
        assert_eq!(end_of(&found), end_of(&expected), "{name}");
        assert_eq!(decisions(&found), decisions(&expected), "{name}");
        for field in ["scenario", "outcome", "roots"] {
            assert_eq!(found[field], expected[field], "{name}: {field}");
        }
    }
}

#[test]
fn what_the_reference_never_ends_comes_to_rest() {
    for file in shared_files("spec/replay-samples/loops") {
        let path = file.to_str().expect("a path");
        let compared = replay(&[path, "--protocol", "reference", "-o", "json"]);
        let said = String::from_utf8_lossy(&compared.stderr).into_owned();
        assert!(said.contains("under the reference's rules this does not come to rest"), "{path}: {said}");
        let found = answer(&file, &["-o", "json"]);
        assert_eq!(serde_json::from_slice::<Value>(&compared.stdout).expect("JSON"), found);
        let name = file.display();
        assert_eq!(found["outcome"], "quiescent", "{name}");
        let mut seen = BTreeSet::new();
        for entry in items(&found, "preempted") {
            let pair = (entry["preemptor"].to_string(), entry["workload"].to_string());
            assert!(seen.insert(pair.clone()), "{name}: twice: {pair:?}");
        }
    }
}

#[test]
fn the_dump_of_an_installation_is_at_rest() {
    let files = shared_files("data/kueue-dump");
    if files.is_empty() {
        return;
    }
    let arguments: Vec<&str> = files.iter().map(|file| file.to_str().expect("a path")).collect();
    let output = replay(&[arguments, vec!["-o", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("were skipped: 23 Job, 7 Node, 34 Pod"), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["cycles"].as_array().map(Vec::len), Some(0), "{found:#}");
    let workload = |name: &str| found["final"]["workloads"][name].clone();
    assert_eq!(workload("team-nlp/job-huge-dcd2a")["reason"], "ExceedsMaxQuota");
    assert_eq!(workload("platform/job-invoice-45845")["state"], "reserved");
    assert_eq!(workload("platform/job-etl-next-e0424")["reason"], "Suspended");
}

/// All entries of a kind, cycle by cycle.
fn items<'a>(answer: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let cycles = answer["cycles"].as_array().into_iter().flatten();
    cycles.flat_map(move |cycle| cycle[kind].as_array().into_iter().flatten())
}

/// The final state in the form in which answers are compared.
fn end_of(answer: &Value) -> BTreeMap<String, String> {
    let mut end = BTreeMap::new();
    for (name, workload) in answer["final"]["workloads"].as_object().into_iter().flatten() {
        let fields = ["state", "clusterQueue", "podSets"].map(|field| workload[field].to_string());
        end.insert(format!("workload {name}"), fields.join(" "));
    }
    for (queue, flavors) in answer["final"]["clusterQueues"].as_object().into_iter().flatten() {
        for (flavor, resources) in flavors.as_object().into_iter().flatten() {
            let used = resources.as_object().into_iter().flatten().filter(|(_, amount)| **amount != 0);
            end.extend(used.map(|(resource, amount)| {
                (format!("usage {queue} {flavor} {resource}"), amount.to_string())
            }));
        }
    }
    end
}

/// Round and root.
type Scope = (u64, String);
/// A decision: its number in the cycle, then what it is.
type Numbered = BTreeMap<(u64, String), Vec<String>>;

/// The decisions of each round and tree in order, cycles put one after the other.
fn decisions(answer: &Value) -> BTreeMap<Scope, Vec<String>> {
    let mut all: BTreeMap<Scope, Vec<String>> = BTreeMap::new();
    for cycle in answer["cycles"].as_array().into_iter().flatten() {
        let round = cycle["round"].as_u64().unwrap_or(0);
        let mut here: BTreeMap<Scope, Numbered> = BTreeMap::new();
        for kind in ["evicted", "admitted", "preempted"] {
            for entry in cycle[kind].as_array().into_iter().flatten() {
                let root = &answer["roots"][entry["clusterQueue"].as_str().unwrap_or_default()];
                // The victims of one preemptor are one decision.
                let whose = if kind == "preempted" { &entry["preemptor"] } else { &entry["workload"] };
                let number = (entry["order"].as_u64().unwrap_or(0), format!("{kind} {whose}"));
                let fields =
                    ["workload", "clusterQueue", "podSets", "reason"].map(|field| entry[field].to_string());
                let decisions = here.entry((round, root.to_string())).or_default();
                decisions.entry(number).or_default().push(fields.join(" "));
            }
        }
        for (scope, numbered) in here {
            let sequence = all.entry(scope).or_default();
            for ((_, what), mut fields) in numbered {
                fields.sort();
                sequence.push(format!("{what}: {}", fields.join(", ")));
            }
        }
    }
    all
}

/// Two teams that share what they own: small enough to read, and somebody is preempted.
const TEAMS: &str = r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  namespaceSelector: {}
  cohortName: research
  preemption: {reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: speech}
spec:
  namespaceSelector: {}
  cohortName: research
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: vision, namespace: lab}
spec: {clusterQueue: vision}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: speech, namespace: lab}
spec: {clusterQueue: speech}
---
"#;

fn workload(name: &str, queue: &str, cpus: i32, created: &str) -> String {
    format!(
        r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {{name: {name}, namespace: lab, creationTimestamp: "2026-03-01T{created}Z"}}
spec:
  queueName: {queue}
  podSets:
  - name: main
    count: {cpus}
    template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}
"#
    )
}

fn running(name: &str, queue: &str, cpus: i32, created: &str) -> String {
    let condition = |kind: &str| {
        format!(
            r#"{{type: {kind}, status: "True", reason: {kind}, message: "", lastTransitionTime: "2026-03-01T{created}Z"}}"#
        )
    };
    format!(
        r#"{}status:
  admission:
    clusterQueue: {queue}
    podSetAssignments: [{{name: main, count: {cpus}, flavors: {{cpu: default}}, resourceUsage: {{cpu: {cpus}}}}}]
  conditions: [{}, {}]
"#,
        workload(name, queue, cpus, created),
        condition("QuotaReserved"),
        condition("Admitted"),
    )
}

/// A running borrower, and one who takes the room back.
fn scenario() -> String {
    let workloads = [
        running("large", "speech", 6, "08:00:00"),
        workload("train", "vision", 3, "09:00:00"),
        workload("huge", "speech", 20, "09:30:00"),
    ];
    format!("{TEAMS}{}", workloads.join("---"))
}

#[test]
fn a_person_sees_what_is_decided_and_who_waits_for_what() {
    let (code, said, _) = replay_text(scenario().as_bytes(), &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, SCREEN);
}

const SCREEN: &str = "\
CYCLE  WHAT     WORKLOAD   QUEUE   FLAVORS  FOR WHOM, OR WHY
1      preempt  lab/large  speech           for lab/train: InCohortReclamation
2      admit    lab/train  vision  default

WORKLOAD   STATE     QUEUE   FLAVORS  WHY IT WAITS
lab/huge   pending                    ExceedsMaxQuota: cpu in flavor default: 20 needed, the quota is 4 and 4 can be borrowed
lab/large  pending                    WaitingForQuota: cpu in flavor default: 6 needed, 5 free of 8
lab/train  admitted  vision  default

At rest after 3 cycles: 1 admitted, 2 pending.
";

#[test]
fn a_list_and_several_files_are_the_same_as_documents() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = scenario();
    let documents: Vec<&str> = text.split("---\n").collect();
    let indented = |document: &&str| {
        let lines = document.lines().filter(|line| !line.is_empty()).map(|line| format!("  {line}\n"));
        lines.collect::<String>().replacen("  ", "- ", 1)
    };
    let list = |part: &[&str]| {
        format!("apiVersion: v1\nkind: List\nitems:\n{}", part.iter().map(indented).collect::<String>())
    };
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nspec: {}\n";
    let (queues, workloads) = documents.split_at(4);
    let files = [("a.yaml", list(&[queues, &[node]].concat())), ("b.yaml", list(workloads))];
    let mut arguments = Vec::new();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        arguments.push(path.to_str().expect("a path").to_owned());
    }
    let output = replay(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(String::from_utf8_lossy(&output.stdout), SCREEN);
    assert!(String::from_utf8_lossy(&output.stderr).contains("skipped: 1 Node"), "{output:?}");
}

#[test]
fn bad_input_is_refused_with_its_place() {
    let good = scenario();
    let replay = "---\napiVersion: replay.gangway.dev/v1alpha1\nkind: Replay\nmetadata: {name: x}\nspec: ";
    let with = |spec: &str| format!("{good}{replay}{spec}\n");
    let twice = format!("{good}---{}", workload("train", "vision", 1, "10:00:00"));
    let same_uid =
        good.replace("name: train,", "name: train, uid: u,").replace("name: huge,", "name: huge, uid: u,");
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n";
    let table = [
        (good.replace("count: 3", "count: -3"), "scenario.yaml:60: spec.podSets[0].count: must be 0 or more"),
        (
            good.replace(", creationTimestamp: \"2026-03-01T09:00:00Z\"", ""),
            "scenario.yaml:55: metadata.creationTimestamp: is missing; it decides who goes first",
        ),
        (twice, "Workload lab/train was defined at scenario.yaml:53 already"),
        (same_uid, "metadata.uid: is also the uid of the Workload at scenario.yaml:53"),
        (good.replace("nominalQuota: 4", "nominalQuota: many"), "nominalQuota"),
        (good.replace("cohortName", "cohortNmae"), "unknown field; did you mean \"cohortName\"?"),
        (good.replace("kind: LocalQueue", "kind: [LocalQueue"), "scenario.yaml:"),
        (deployment.to_owned(), "there is nothing to replay; there is only 1 Deployment"),
        (String::new(), "there is nothing to replay"),
        ("{\"a\": [1, 2]}".to_owned(), "scenario.yaml:1: apiVersion: is missing"),
        (
            "just words".to_owned(),
            "scenario.yaml:1: an object with apiVersion, kind and metadata was expected here",
        ),
        (with("{nwo: 1}"), "scenario.yaml:76: Replay: unknown field `nwo`"),
        (with("{now: yesterday}"), "spec.now: \"yesterday\" is not a time"),
        (with("{cycles: 0}"), "spec.cycles: must be at least 1"),
        (with("{finish: [{workload: lab/large}]}"), "spec.finish: an entry has either a round or a cycle"),
        (with("{finish: [{round: 0, workload: lab/large}]}"), "spec.finish: round must be from 1 to 10000"),
        (
            format!("{}{replay}{{}}\n", with("{}")),
            "scenario.yaml:78: a second Replay; the first is at scenario.yaml:73",
        ),
        (
            good.replace("name: train,", "name: train, annotations: {replay.gangway.dev/round: soon},"),
            "metadata.annotations: replay.gangway.dev/round must be a number",
        ),
    ];
    for (text, expected) in table {
        let (code, _, said) = replay_text(text.as_bytes(), &[]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "expected {expected:?}: {said}");
    }
    for bytes in [b"\xff\xfe\x00".as_slice(), b"\x7fELF\x00\x01".as_slice()] {
        let (code, _, said) = replay_text(bytes, &[]);
        assert_eq!((code, said.contains("scenario.yaml: is not a text file")), (Some(2), true), "{said}");
    }
}

#[test]
fn a_file_that_is_not_there_is_refused() {
    let output = replay(&["missing.yaml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("missing.yaml: cannot be read"), "{said}");
}

#[test]
fn the_protocol_refuses_what_it_does_not_know() {
    let good = scenario();
    let replay = "---\napiVersion: replay.gangway.dev/v1alpha1\nkind: Replay\nspec: ";
    let with = |config: &str| format!("{good}{replay}{{config: {config}}}\n");
    let half = good.replace("{type: Admitted, status: \"True\"", "{type: Admitted, status: \"False\"");
    let table = [
        (with("{fairSharing: {preemptionStrategies: [LessThanInitialShare]}}"), 4, "spec.config.fairSharing"),
        (with("{featureGates: {Nonsense: true}}"), 4, "spec.config.featureGates.Nonsense"),
        (with("{resources: {transformations: [{input: a}]}}"), 4, "spec.config.resources.transformations"),
        (with("{waitForPodsReady: {}}"), 2, "unknown field `waitForPodsReady`"),
        (good.replace("count: 3", "minCount: 1\n    count: 3"), 4, "spec.podSets[].minCount"),
        (good.replace("cohortName:", "fairSharing: {weight: 2}\n  cohortName:"), 4, "spec.fairSharing"),
        (
            good.replace(
                "cohortName:",
                "admissionChecksStrategy: {admissionChecks: [{name: x}]}\n  cohortName:",
            ),
            4,
            "spec.admissionChecksStrategy",
        ),
        (
            format!("{good}---\napiVersion: v1\nkind: Node\nmetadata: {{name: n}}\n"),
            2,
            "kind \"Node\" of v1 is not part",
        ),
        (good.replace("v1beta2", "v1beta1"), 2, "is not part of the protocol"),
        (
            half,
            2,
            "status: admission and the conditions QuotaReserved=True and Admitted=True must come together",
        ),
    ];
    for (text, exit_code, expected) in table {
        let (code, _, said) = replay_text(text.as_bytes(), PROTOCOL);
        assert_eq!(code, Some(exit_code), "{said}");
        assert!(said.contains(expected), "expected {expected:?}: {said}");
    }
    let fine = with(
        "{featureGates: {FlavorFungibilityPreserveScanProgress: false}, resources: {excludeResourcePrefixes: [x.io/]}}",
    );
    assert_eq!(replay_text(fine.as_bytes(), PROTOCOL).0, Some(0));
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_answered_or_refused() {
    let mut texts = vec![scenario()];
    let samples = shared_files(SAMPLES);
    texts.extend(samples.iter().take(2).map(|file| std::fs::read_to_string(file).expect("a sample")));
    for text in texts {
        for end in (0..text.len()).step_by(50).filter(|end| text.is_char_boundary(*end)) {
            let (code, _, said) = replay_text(&text.as_bytes()[..end], PROTOCOL);
            assert!(matches!(code, Some(0 | 2)), "cut at {end}: {code:?}: {said}");
            assert!(!said.contains("panicked"), "cut at {end}: {said}");
            assert_eq!(code == Some(2), said.contains("gangway: "), "cut at {end}: {said}");
        }
    }
}

/// The page shows a scenario, the command and what it prints.
#[test]
fn the_example_of_the_page_is_true() {
    let page = std::fs::read_to_string(workspace_root().join("docs/replay.md")).expect("the page");
    let block = |language: &str| {
        let start = page.split_once(&format!("```{language}\n")).expect("a block").1;
        start.split_once("```").expect("its end").0
    };
    let (code, said, _) = replay_text(block("yaml").as_bytes(), &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(format!("$ gangway replay scenario.yaml\n{said}"), block("text"));
}

/// `holder` ends in the second round, in a LocalQueue on hold, which wakes nobody. What the reference tells the inactive `idle` of a
/// stopped queue then does.
#[test]
fn the_reference_is_woken_by_what_it_tells_the_inactive() {
    const HEAD: &str = "apiVersion: kueue.x-k8s.io/v1beta2\nkind";
    let queue = |name: &str, quota: &str, stop: &str| {
        format!(
            "{HEAD}: ClusterQueue\nmetadata: {{name: {name}}}\nspec: {{namespaceSelector: {{}}, cohortName: t, stopPolicy: {stop}, resourceGroups: \
             [{{coveredResources: [cpu], flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: {quota}, lendingLimit: {quota}}}]}}]}}]}}\n---\n"
        )
    };
    let local = |name: &str, queue: &str, stop: &str| {
        format!(
            "{HEAD}: LocalQueue\nmetadata: {{name: {name}, namespace: ns}}\nspec: {{clusterQueue: {queue}, stopPolicy: {stop}}}\n---\n"
        )
    };
    let workload = |name: &str, queue: &str, active: bool, status: &str| {
        format!(
            "{HEAD}: Workload\nmetadata: {{name: {name}, namespace: ns, uid: {name}, creationTimestamp: '2026-01-01T11:00:01Z'}}\nspec: {{queueName: \
             {queue}, active: {active}, podSets: [{{name: main, count: 1, template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}]}}\n{status}---\n"
        )
    };
    let condition = |kind: &str| {
        format!(
            "{{type: {kind}, status: 'True', reason: {kind}, message: '', lastTransitionTime: '2026-01-01T10:00:00Z'}}"
        )
    };
    let holds = format!(
        "status: {{admission: {{clusterQueue: open, podSetAssignments: [{{name: main, count: 1, flavors: {{cpu: f}}, resourceUsage: {{cpu: 1}}}}]}}, \
         conditions: [{}, {}]}}\n",
        condition("QuotaReserved"),
        condition("Admitted")
    );
    let text = [
        "apiVersion: replay.gangway.dev/v1alpha1\nkind: Replay\nmetadata: {name: told}\nspec: {finish: [{round: 1, workload: ns/holder}]}\n---\n".to_owned(),
        format!("{HEAD}: ResourceFlavor\nmetadata: {{name: f}}\n---\n"),
        queue("open", "1", "None"),
        queue("stopped", "0", "Hold"),
        local("open", "open", "None"),
        local("held", "open", "Hold"),
        local("stopped", "stopped", "None"),
        workload("holder", "held", true, &holds),
        workload("waits", "open", true, ""),
    ]
    .concat();
    let admitted = |text: &str| {
        let (code, said, complaint) = replay_text(text.as_bytes(), PROTOCOL);
        assert_eq!(code, Some(0), "{said}{complaint}");
        let answer: Value = serde_json::from_str(&said).expect("JSON");
        answer["cycles"].to_string().contains("ns/waits")
    };
    assert!(!admitted(&text), "nobody is woken");
    assert!(admitted(&format!("{text}{}", workload("idle", "stopped", false, ""))));
}
