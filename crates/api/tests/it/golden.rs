//! The golden manifests: what is valid passes, what is not is refused with its message.
//!
//! The end-to-end suite replays the same files on real API servers.

use std::path::PathBuf;

use gangway_model::queues::{PreemptionPolicy, ReclaimWithinCohort, WithinClusterQueue};
use serde_json::Value;

use crate::schema::violations;

fn files(directory: &str) -> Vec<(String, String)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/manifests").join(directory);
    let mut files: Vec<(String, String)> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    assert!(files.len() > 10, "{directory} has its files");
    files
}

fn expected(text: &str) -> &str {
    text.lines().next().unwrap().strip_prefix("# expected: ").unwrap()
}

fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[test]
fn valid_manifests_pass() {
    for (name, text) in files("valid") {
        assert_eq!(violations(&objects(&text)[0], None), Vec::<String>::new(), "{name}");
        let parsed = gangway_api::manifests::parse(&name, &text);
        assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    }
}

/// The configuration of KEP-83's first story, in the words of the document and in those of the reference.
#[test]
fn the_preemption_story_applies_in_both_spellings_and_versions() {
    let document = "withinCohort: Always\n    withinClusterQueue: LowerPriorityOnly\n";
    let reference = "reclaimWithinCohort: Any\n    withinClusterQueue: LowerPriority\n";
    let mut records = Vec::new();
    for version in ["v1beta1", "v1beta2"] {
        for policies in [document, reference] {
            let text = format!(
                "apiVersion: kueue.x-k8s.io/{version}\nkind: ClusterQueue\nmetadata:\n  name: cluster-total\n\
                 spec:\n  preemption:\n    {policies}"
            );
            let parsed = gangway_api::manifests::parse("story.yaml", &text);
            let object = parsed.unwrap_or_else(|error| panic!("{error}")).remove(0).value;
            assert_eq!(violations(&object, None), Vec::<String>::new(), "{text}");
            let read = gangway_api::records::cluster_queue(&serde_json::from_value(object).unwrap());
            assert_eq!((read.problems, read.unsupported), (vec![], vec![]), "{text}");
            records.push(read.record);
        }
    }
    assert!(records.iter().all(|record| *record == records[0]), "{records:?}");
    let policy = PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::Any,
        ..PreemptionPolicy::default()
    };
    assert_eq!((records[0].preemption, &records[0].invalid), (policy, &None));
}

#[test]
fn invalid_manifests_are_refused_with_their_message() {
    for (name, text) in files("invalid") {
        let found = violations(&objects(&text)[0], None);
        assert!(found.iter().any(|message| message.contains(expected(&text))), "{name}: {found:?}");
    }
}

#[test]
fn invalid_updates_are_refused_with_their_message() {
    for (name, text) in files("updates") {
        let [old, new] = objects(&text).try_into().unwrap();
        assert_eq!(violations(&old, None), Vec::<String>::new(), "{name}: the first is valid");
        let found = violations(&new, Some(&old));
        assert!(found.iter().any(|message| message.contains(expected(&text))), "{name}: {found:?}");
        assert_eq!(violations(&old, Some(&old)), Vec::<String>::new(), "{name}: no change is valid");
    }
}
