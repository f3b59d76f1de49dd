//! The files of `deploy/` are what `gangway install` applies.

use std::collections::BTreeSet;
use std::process::Command;

use gangway_api::install::{DEFAULT_NAMESPACE, Settings, files};

use crate::tidy::{files_below, workspace_root};

/// Set, it has the files written instead of compared.
const REGENERATE: &str = "GANGWAY_REGENERATE";

/// What they ask for is compared with the metrics that there are.
const WRITTEN_BY_HAND: [&str; 2] = ["alerts.yaml", "grafana/gangway.json"];

#[test]
fn the_files_are_current() {
    let directory = workspace_root().join("deploy");
    let settings = Settings::new(DEFAULT_NAMESPACE).unwrap();
    let files = files(&settings).unwrap();
    let expected: BTreeSet<_> = files.iter().map(|(name, _)| directory.join(name)).collect();
    for (name, text) in &files {
        let path = directory.join(name);
        if std::env::var_os(REGENERATE).is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == *text,
            "deploy/{name} differs from the code: run `{REGENERATE}=1 cargo test -p gangway-cli --test it deploy`"
        );
    }
    let is_written_by_hand =
        |path: &std::path::PathBuf| WRITTEN_BY_HAND.iter().any(|by_hand| *path == directory.join(by_hand));
    let found: BTreeSet<_> =
        files_below(&directory).into_iter().filter(|path| !is_written_by_hand(path)).collect();
    assert_eq!(found, expected, "nothing else lies there");
}

#[test]
fn the_command_prints_what_the_file_says() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_gangway")).args(["install", "-o", "yaml"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = std::fs::read_to_string(workspace_root().join("deploy/install.yaml")).unwrap();
    let (_, objects) = file.split_once('\n').unwrap();
    assert!(String::from_utf8(output.stdout).unwrap() == objects, "they differ");
}
