//! The rules of this repository that no compiler holds: who may use whom, how long a function and a
//! file may be, and that nothing lies around unused.

mod crates;
mod functions;
mod reachable;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// Longer files are split by question.
const FILE_LINES_MAX: usize = 700;

/// The directory of the workspace.
pub fn workspace_root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace is where this crate was compiled")
}

/// Every file below `directory`, sorted; none if there is no such directory.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.expect("a directory of the workspace can be read").path();
            if path.is_dir() { directories.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

/// Every Rust file of the workspace, in `src` and in `tests`.
fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for crate_directory in crate_directories() {
        for part in ["src", "tests", "benches", "examples"] {
            files.extend(files_below(&crate_directory.join(part)));
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    assert!(files.len() > 8, "the walk found the workspace: {files:?}");
    files
}

fn crate_directories() -> Vec<PathBuf> {
    let crates = workspace_root().join("crates");
    let entries = fs::read_dir(crates).expect("the workspace has crates");
    let mut directories: Vec<_> = entries.map(|entry| entry.expect("can be read").path()).collect();
    directories.retain(|directory| directory.join("Cargo.toml").is_file());
    directories.sort();
    directories
}

/// The path as a reader of the repository writes it.
fn relative(path: &Path) -> String {
    let root = workspace_root();
    path.strip_prefix(&root).unwrap_or(path).display().to_string()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", relative(path)))
}

/// Fails with everything that is wrong, not only with the first.
fn assert_none(rule: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

#[test]
fn no_file_is_too_long() {
    let mut offences = Vec::new();
    for file in rust_files() {
        let lines = read(&file).lines().count();
        if lines > FILE_LINES_MAX {
            offences.push(format!("{}: {lines} lines", relative(&file)));
        }
    }
    assert_none(&format!("no Rust file has more than {FILE_LINES_MAX} lines"), &offences);
}
