//! The pages tell the truth: every command block that needs no cluster is run, and what is generated is current.
//!
//! A block marked `console` holds commands that begin with `$ gangway`, each followed by lines that its output
//! must contain. A comment `# exits with N` after a command says its exit code; otherwise it is 0.

use std::path::Path;
use std::process::Command;

use crate::tidy::{files_below, workspace_root};

struct Example {
    page: String,
    arguments: Vec<String>,
    exit_code: i32,
    expected: Vec<String>,
}

#[test]
fn every_command_block_does_what_the_page_says() {
    let examples = examples();
    assert!(examples.len() >= 6, "the pages have command blocks");
    let directory = tempfile::tempdir().unwrap();
    copy_examples(directory.path());
    let wrong: Vec<String> =
        examples.iter().filter_map(|example| try_out(example, directory.path()).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_page_of_reasons_is_current() {
    let page = std::fs::read_to_string(workspace_root().join("docs/reasons.md")).unwrap();
    let hint = "run `gangway reasons > docs/reasons.md`";
    assert_eq!(page, gangway_cli::commands::reasons::page(), "docs/reasons.md differs from the code: {hint}");
}

#[test]
fn the_page_of_rights_is_current() {
    let page = std::fs::read_to_string(workspace_root().join("docs/rights.md")).unwrap();
    let hint = "run `gangway rights > docs/rights.md`";
    assert_eq!(page, gangway_cli::commands::rights::page(), "docs/rights.md differs from the code: {hint}");
}

#[test]
fn the_page_of_metrics_is_current() {
    let page = std::fs::read_to_string(workspace_root().join("docs/metrics.md")).unwrap_or_default();
    let hint = "run `gangway metrics > docs/metrics.md`";
    assert_eq!(page, gangway_cli::commands::metrics::page(), "docs/metrics.md differs from the code: {hint}");
}

fn try_out(example: &Example, directory: &Path) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_gangway"))
        .args(&example.arguments)
        .current_dir(directory)
        .env_remove("KUBECONFIG")
        .output()
        .map_err(|error| error.to_string())?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let title = format!("{}: gangway {}", example.page, example.arguments.join(" "));
    if output.status.code() != Some(example.exit_code) {
        return Err(format!(
            "{title}\nended with {} instead of {}:\n{said}",
            output.status, example.exit_code
        ));
    }
    match example.expected.iter().find(|line| !said.contains(line.as_str())) {
        Some(missing) => Err(format!("{title}\ndid not say {missing:?}:\n{said}")),
        None => Ok(()),
    }
}

fn examples() -> Vec<Example> {
    let root = workspace_root();
    let mut pages = files_below(&root.join("docs"));
    pages.push(root.join("README.md"));
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    pages.iter().flat_map(|page| examples_of(page)).collect()
}

fn examples_of(page: &Path) -> Vec<Example> {
    let text = std::fs::read_to_string(page).expect("a page can be read");
    let mut examples: Vec<Example> = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        match line.trim() {
            "```console" => in_block = true,
            "```" => in_block = false,
            _ if !in_block => {}
            line => match line.strip_prefix("$ gangway ") {
                Some(command) => examples.push(example(page, command)),
                None => {
                    let last = examples.last_mut().expect("a console block begins with a command");
                    last.expected.push(line.to_owned());
                }
            },
        }
    }
    examples
}

fn example(page: &Path, command: &str) -> Example {
    let (command, comment) = command.split_once('#').unwrap_or((command, ""));
    let exit_code =
        comment.trim().strip_prefix("exits with ").map_or(0, |code| code.trim().parse().expect("a number"));
    Example {
        page: page.file_name().expect("a page has a name").to_string_lossy().into_owned(),
        arguments: command.split_whitespace().map(str::to_owned).collect(),
        exit_code,
        expected: Vec::new(),
    }
}

fn copy_examples(directory: &Path) {
    let copies = directory.join("examples");
    std::fs::create_dir(&copies).expect("a fresh directory can be written");
    for file in files_below(&workspace_root().join("examples")) {
        let name = file.file_name().expect("an example has a name");
        std::fs::copy(&file, copies.join(name)).expect("an example can be copied");
    }
}
