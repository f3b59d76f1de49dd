//! What a run says in the end, of Jobs that are out of the ordinary.

use std::process::{Command, Output};

const QUEUES: &str = r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: main, namespace: default}
spec: {clusterQueue: team}
---
"#;

/// A Job in the queue. `metadata` and `spec` are further fields of each.
fn job(metadata: &str, spec: &str, image: &str, command: &str) -> String {
    format!(
        r#"
apiVersion: batch/v1
kind: Job
metadata: {{name: odd, namespace: default, {metadata}}}
spec:
  {spec}
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: {image}
        command: [sh, -c, '{command}']
        resources: {{requests: {{cpu: 100m}}}}
"#
    )
}

const IN_QUEUE: &str = "labels: {kueue.x-k8s.io/queue-name: main}";

fn run(file: &[u8], options: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("jobs.yaml");
    std::fs::write(&path, file).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gangway"));
    command.arg("run").arg(&path).args(options).env_remove("KUBECONFIG").output().expect("gangway runs")
}

/// Runs one Job and returns the exit code and all that was said.
fn outcome(job: &str, options: &[&str]) -> (Option<i32>, String) {
    let output = run(format!("{QUEUES}{job}").as_bytes(), options);
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output.status.code(), said.concat())
}

#[test]
fn output_that_is_no_text_is_shown_with_marks() {
    let (code, said) = outcome(&job(IN_QUEUE, "", "host", r#"printf "before\n\377after\n""#), &["--logs"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("  | before\n") && said.contains("  | \u{fffd}after\n"), "{said}");
    assert!(!said.contains("Next: "), "the hint is about the example: {said}");
}

#[test]
fn a_job_that_is_never_queued_says_why() {
    let class = "labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: missing}";
    let elastic = format!("{IN_QUEUE}, annotations: {{kueue.x-k8s.io/elastic-job: \"true\"}}");
    let table = [
        (job(class, "", "host", "true"), "WorkloadPriorityClassNotFound: WorkloadPriorityClass missing does"),
        (job(&elastic, "", "host", "true"), "UnsupportedJob: kueue.x-k8s.io/elastic-job is not"),
        (job(IN_QUEUE, "parallelism: 0", "host", "true"), "NoPodsWanted: spec.parallelism is 0"),
    ];
    for (job, expected) in table {
        let (code, said) = outcome(&job, &[]);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains(&format!("Job default/odd never started: {expected}")), "{said}");
    }
}

#[test]
fn a_failed_job_says_first_what_went_wrong_in_its_pod() {
    let (code, said) = outcome(&job(IN_QUEUE, "", "busybox", "true"), &[]);
    assert_eq!(code, Some(1), "{said}");
    let story = said.lines().find(|line| line.starts_with("Job default/odd failed: ")).unwrap_or_default();
    assert!(story.contains("image") && !story.contains("BackoffLimitExceeded"), "{said}");
}

#[test]
fn amounts_for_programs_are_quantities() {
    let (code, said) = outcome(&job(IN_QUEUE, "", "host", "true"), &["-o", "json"]);
    assert_eq!(code, Some(0), "{said}");
    let parsed = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let summary = parsed.into_iter().find(|line| line["event"] == "summary").expect("a summary");
    assert_eq!(
        (&summary["quotas"][0]["quota"], &summary["quotas"][0]["peak"]),
        (&"1".into(), &"100m".into())
    );
}

#[test]
fn a_file_that_is_no_text_is_refused_in_a_sentence() {
    for bytes in [b"\xff\xfe\x00".as_slice(), b"a\0b".as_slice()] {
        let output = run(bytes, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("jobs.yaml: is not a text file"), "{said}");
    }
}
