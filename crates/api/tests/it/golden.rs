//! The golden manifests: what is valid passes, what is not is refused with its message.
//!
//! The end-to-end suite replays the same files on real API servers.

use std::path::PathBuf;

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
