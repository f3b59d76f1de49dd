//! Manifest files and their mistakes.

use gangway_api::manifests::parse;

fn error(text: &str) -> String {
    parse("f.yaml", text).unwrap_err().to_string()
}

const QUEUE: &str = "apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: main
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources:
      - name: cpu
        nominalQuota: 4
";

const JOB: &str = "apiVersion: batch/v1
kind: Job
metadata:
  name: hello
  labels:
    kueue.x-k8s.io/queue-name: team
spec:
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: work
        image: host
        resources:
          requests:
            cpu: 1
            memory: 10Mi
";

#[test]
fn objects_know_where_they_stand() {
    let text = format!("# two objects\n{QUEUE}---\n{JOB}");
    let manifests = parse("f.yaml", &text).unwrap();
    let seen: Vec<_> = manifests.iter().map(|m| (m.kind(), m.name(), m.line)).collect();
    assert_eq!(seen, vec![("ClusterQueue", "main", 2), ("Job", "hello", 15)]);
    assert_eq!(manifests[1].line_of("spec.parallelism"), 22);
    let rejected = manifests[1].error("spec.parallelism", "must be less");
    assert_eq!(rejected.to_string(), "f.yaml:22: spec.parallelism: must be less");
}

#[test]
fn a_list_is_its_items() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n\
                - apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: b\n    lables: {x: z}\n";
    assert_eq!(error(list), "f.yaml:11: metadata.lables: unknown field; did you mean \"labels\"?");
    let good = list.replace("lables", "labels");
    let names: Vec<_> =
        parse("f.yaml", &good).unwrap().iter().map(|m| (m.name().to_owned(), m.line)).collect();
    assert_eq!(names, vec![("a".to_owned(), 4), ("b".to_owned(), 7)]);
}

#[test]
fn mistakes_are_found_where_they_are() {
    let table = [
        (
            QUEUE.replace("flavors:", "flavor:"),
            "f.yaml:8: spec.resourceGroups[0].flavor: unknown field; did you mean \"flavors\"?",
        ),
        (
            QUEUE.replace("nominalQuota: 4", "nominalQuota: -4"),
            "f.yaml:12: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: \"-4\" is negative; a quantity here must be 0 or more",
        ),
        (
            QUEUE.replace("nominalQuota: 4", "nominalQuota: 4 cores"),
            "f.yaml:12: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: \"4 cores\" is not a quantity; write a number with an optional suffix, like 500m, 2, 1.5Gi or 1e3",
        ),
        (
            QUEUE.replace("[cpu]", "[cpu, memory]"),
            "f.yaml:10: spec.resourceGroups[0].flavors[0].resources: must name coveredResources in the same order",
        ),
        (
            format!("{QUEUE}  stopPolicy: Pause\n"),
            "f.yaml:13: spec.stopPolicy: \"Pause\" is not one of None, Hold, HoldAndDrain",
        ),
        (
            JOB.replace("parallelism", "paralellism"),
            "f.yaml:8: spec.paralellism: unknown field; did you mean \"parallelism\"?",
        ),
        (
            JOB.replace("parallelism: 2", "parallelism: two"),
            "f.yaml:8: spec.parallelism: invalid type: string \"two\", expected i32",
        ),
        (
            JOB.replace("cpu: 1", "cpu: -1"),
            "f.yaml:17: spec.template.spec.containers[0].resources.requests.cpu: \"-1\" is negative; a quantity here must be 0 or more",
        ),
        (
            JOB.replace("10Mi", "10MB"),
            "f.yaml:18: spec.template.spec.containers[0].resources.requests.memory: \"10MB\" is not a quantity; write a number with an optional suffix, like 500m, 2, 1.5Gi or 1e3",
        ),
        (
            QUEUE.replace("nominalQuota: 4", "nominalQuota: 1e40"),
            "f.yaml:12: spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: \"1e40\" is too large; at most 9223372036854775807 thousandths of cpu can be counted",
        ),
        (
            JOB.replace("10Mi", "10Ei"),
            "f.yaml:18: spec.template.spec.containers[0].resources.requests.memory: \"10Ei\" is too large; at most 9223372036854775807 memory can be counted",
        ),
        (
            JOB.replace("kind: Job", "kind: Jobb"),
            "f.yaml:2: kind: unknown kind \"Jobb\" of batch/v1; did you mean \"Job\"?",
        ),
        (
            JOB.replace("batch/v1", "batch/v2"),
            "f.yaml:1: apiVersion: Job is not served as batch/v2; did you mean \"batch/v1\"?",
        ),
        (JOB.replace("kind: Job\n", ""), "f.yaml:1: kind: is missing, or is not a text"),
        (JOB.replace("apiVersion: batch/v1\n", ""), "f.yaml:1: apiVersion: is missing, or is not a text"),
        (JOB.replace("  name: hello\n", ""), "f.yaml:3: metadata.name: is missing"),
        (
            "just text\n".to_owned(),
            "f.yaml:1: an object with apiVersion, kind and metadata was expected here",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(error(&text), expected, "{text}");
    }
}

#[test]
fn mistakes_about_lending_and_preemption_are_found_where_they_are() {
    let table = [
        (
            QUEUE.replace("nominalQuota: 4", "nominalQuota: 4\n        borrowingLimit: 1"),
            "f.yaml:13: spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: needs a cohort; set spec.cohortName, or leave the limit out",
        ),
        (
            QUEUE.replace(
                "nominalQuota: 4",
                "nominalQuota: 4\n        lendingLimit: 4001m\n  cohortName: all",
            ),
            "f.yaml:13: spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: must be at most nominalQuota",
        ),
        (
            QUEUE.replace("kind: ClusterQueue", "kind: Cohort") + "        lendingLimit: 1\n",
            "f.yaml:13: spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: needs a cohort; set spec.parentName, or leave the limit out",
        ),
        (
            format!("{QUEUE}  preemption: {{withinClusterQueue: Sometimes}}\n"),
            "f.yaml:13: spec.preemption.withinClusterQueue: \"Sometimes\" is not one of Never, LowerPriority, LowerOrNewerEqualPriority, LowerPriorityOnly",
        ),
        (
            format!("{QUEUE}  preemption: {{withinCohort: Always, reclaimWithinCohort: Never}}\n"),
            "f.yaml:13: spec.preemption.withinCohort: differs from spec.preemption.reclaimWithinCohort, which is another spelling of it",
        ),
        (
            format!("{QUEUE}  preemption: {{borrowWithinCohort: {{policy: LowerPriority}}}}\n"),
            "f.yaml:13: spec.preemption.borrowWithinCohort: needs a spec.preemption.reclaimWithinCohort other than Never",
        ),
        (
            format!("{QUEUE}  cohort: a\n  cohortName: b\n"),
            "f.yaml:14: spec.cohortName: differs from spec.cohort, which is another spelling of it",
        ),
        (
            format!("{QUEUE}  flavorFungibility: {{preference: PreemptionOverBorrowing}}\n"),
            "f.yaml:13: spec.flavorFungibility.preference: needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(error(&text), expected, "{text}");
    }
}

#[test]
fn the_largest_amounts_are_those_that_can_be_counted() {
    let good = [("9223372036854775807m", true), ("9223372036854775808m", false), ("1e30", false)];
    for (amount, fits) in good {
        let quota = QUEUE.replace("nominalQuota: 4", &format!("nominalQuota: {amount}"));
        let request = JOB.replace("cpu: 1", &format!("cpu: {amount}"));
        assert_eq!(parse("f.yaml", &quota).is_ok(), fits, "{quota}");
        assert_eq!(parse("f.yaml", &request).is_ok(), fits, "{request}");
    }
}

#[test]
fn text_that_is_not_yaml_has_a_place() {
    let message = error("apiVersion: v1\nkind: [\n");
    assert!(message.starts_with("f.yaml:2:") || message.starts_with("f.yaml:3:"), "{message}");
    let message = error("a: 1\nb:\n\tc: 2\n");
    assert!(message.starts_with("f.yaml:3:"), "{message}");
}

#[test]
fn a_workload_template_is_checked_too() {
    let text = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata: {name: w}\nspec:\n  podSets:\n  - name: main\n    \
                template:\n      spec:\n        containers:\n        - name: c\n          imagee: x\n";
    assert_eq!(
        error(text),
        "f.yaml:11: spec.podSets[0].template.spec.containers[0].imagee: unknown field; did you mean \"image\"?"
    );
}

#[test]
fn kinds_that_the_file_itself_defines_are_known() {
    let text = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: toys.example.com}\n\
                spec:\n  group: example.com\n  names: {kind: Toy, plural: toys}\n  scope: Namespaced\n  versions: []\n\
                ---\napiVersion: example.com/v1\nkind: Toy\nmetadata: {name: ball}\ncolour: red\n";
    assert_eq!(parse("f.yaml", text).unwrap().len(), 2);
}

#[test]
fn empty_files_have_no_objects() {
    for text in ["", "# nothing\n", "---\n---\n"] {
        assert_eq!(parse("f.yaml", text).unwrap(), vec![], "{text:?}");
    }
}
