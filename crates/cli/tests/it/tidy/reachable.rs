//! Nothing lies around unused: every source file belongs to a crate, every page and example is known.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{assert_none, crate_directories, files_below, read, relative, rust_files, workspace_root};

/// Where the compiler starts to read a crate. One integration-test binary per crate.
const ROOTS: &[&str] = &["src/lib.rs", "src/main.rs", "tests/it/main.rs"];

#[test]
fn every_source_file_belongs_to_a_crate() {
    let mut reached = BTreeSet::new();
    for directory in crate_directories() {
        for root in ROOTS.iter().map(|root| directory.join(root)).filter(|root| root.is_file()) {
            reach(&root, &mut reached);
        }
    }
    let all: BTreeSet<PathBuf> = rust_files().into_iter().collect();
    let dead: Vec<String> = all.difference(&reached).map(|file| relative(file)).collect();
    assert_none("every Rust file is reached from lib.rs, main.rs or tests/it/main.rs", &dead);
}

#[test]
fn every_page_and_example_is_mentioned() {
    let root = workspace_root();
    let pages = files_below(&root.join("docs"));
    let mut readers =
        vec![root.join("README.md"), root.join("ARCHITECTURE.md"), root.join("CONTRIBUTING.md")];
    readers.extend(pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")).cloned());
    readers.extend(rust_files());
    let readers: Vec<(PathBuf, String)> =
        readers.into_iter().filter(|file| file.is_file()).map(|file| (file.clone(), read(&file))).collect();

    let mut offences = Vec::new();
    for file in pages.into_iter().chain(files_below(&root.join("examples"))) {
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if !readers.iter().any(|(reader, text)| *reader != file && text.contains(&name)) {
            offences.push(relative(&file));
        }
    }
    assert_none("every file of docs and examples is mentioned by a page or used by a test", &offences);
}

/// Adds `file` and every file that it declares as a module, and so on.
fn reach(file: &Path, reached: &mut BTreeSet<PathBuf>) {
    if !reached.insert(file.to_owned()) {
        return;
    }
    let syntax = syn::parse_file(&read(file)).unwrap_or_else(|error| panic!("{}: {error}", relative(file)));
    reach_items(&syntax.items, &children_directory(file), file, reached);
}

/// Where the modules of `file` are looked for.
fn children_directory(file: &Path) -> PathBuf {
    let parent = file.parent().expect("a source file is in a directory");
    match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => parent.to_owned(),
        _ => file.with_extension(""),
    }
}

fn reach_items(items: &[syn::Item], directory: &Path, file: &Path, reached: &mut BTreeSet<PathBuf>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        if let Some((_, items)) = &module.content {
            reach_items(items, &directory.join(&name), file, reached);
            continue;
        }
        let place = match explicit_path(module) {
            Some(path) => file.parent().expect("a source file is in a directory").join(path),
            None if directory.join(format!("{name}.rs")).is_file() => directory.join(format!("{name}.rs")),
            None => directory.join(name).join("mod.rs"),
        };
        reach(&place.canonicalize().unwrap_or(place), reached);
    }
}

/// The `#[path = "…"]` of a module.
fn explicit_path(module: &syn::ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = &pair.value else { return None };
        pair.path.is_ident("path").then(|| path.value())
    })
}
