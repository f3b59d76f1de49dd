//! Manifest files: YAML in, objects out, or one message that says where the mistake is.

mod kinds;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::strict::{Finding, closest, item_path};
use crate::yaml::{Document, documents};

/// An object of a manifest file.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The object as it was written.
    pub value: Value,
    /// The file.
    pub file: Arc<str>,
    /// The line on which the object begins.
    pub line: u64,
    document: Arc<Document>,
    /// Where the object is in its document: empty, or `items[3]` in a List.
    prefix: String,
}

impl Manifest {
    /// Its kind.
    pub fn kind(&self) -> &str {
        text(&self.value, "kind")
    }

    /// Its API group and version.
    pub fn api_version(&self) -> &str {
        text(&self.value, "apiVersion")
    }

    /// Its name; empty if the API server makes one.
    pub fn name(&self) -> &str {
        self.value.get("metadata").map_or("", |metadata| text(metadata, "name"))
    }

    /// Its namespace, if it says one.
    pub fn namespace(&self) -> Option<&str> {
        self.value.get("metadata")?.get("namespace")?.as_str()
    }

    /// The line of one of its fields, or of the closest one around it.
    pub fn line_of(&self, path: &str) -> u64 {
        let separator =
            if self.prefix.is_empty() || path.is_empty() || path.starts_with('[') { "" } else { "." };
        let line = self.document.line_of(&format!("{}{separator}{path}", self.prefix));
        if path.is_empty() { self.line } else { line }
    }

    /// An error about one of its fields, for instance one that the API server found.
    pub fn error(&self, path: &str, message: impl Into<String>) -> ManifestError {
        ManifestError {
            file: self.file.to_string(),
            line: self.line_of(path),
            column: None,
            path: path.to_owned(),
            message: message.into(),
        }
    }
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

/// What is wrong with a manifest file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestError {
    /// The file.
    pub file: String,
    /// The line, counted from 1; 0 if it is not known.
    pub line: u64,
    /// The column, for text that is not YAML.
    pub column: Option<u64>,
    /// The field, such as `spec.resourceGroups[0].flavor`; empty for the whole object.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ManifestError {}

/// The objects of a file. Every field of every object is known to its kind, and every quantity is one;
/// the first mistake in the file is the error.
pub fn parse(file: &str, text: &str) -> Result<Vec<Manifest>, ManifestError> {
    let documents = documents(text).map_err(|error| ManifestError {
        file: file.to_owned(),
        line: error.line,
        column: Some(error.column),
        path: String::new(),
        message: error.message,
    })?;
    let file: Arc<str> = file.into();
    let mut manifests = Vec::new();
    for document in documents {
        if !document.value.is_null() {
            expand(&file, document, &mut manifests);
        }
    }
    let custom = custom_kinds(&manifests);
    for manifest in &manifests {
        check(manifest, &custom)?;
    }
    Ok(manifests)
}

/// One manifest per object; a List is as many as it has items.
fn expand(file: &Arc<str>, document: Document, manifests: &mut Vec<Manifest>) {
    let document = Arc::new(document);
    let is_list = text(&document.value, "kind") == "List" && text(&document.value, "apiVersion") == "v1";
    let items = document.value.get("items").and_then(Value::as_array).filter(|_| is_list);
    let manifest = |value: &Value, prefix: String| Manifest {
        value: value.clone(),
        file: Arc::clone(file),
        line: if prefix.is_empty() { document.line } else { document.line_of(&prefix) },
        document: Arc::clone(&document),
        prefix,
    };
    match items {
        Some(items) => {
            let items = items.iter().enumerate();
            manifests.extend(items.map(|(index, item)| manifest(item, item_path("items", index))));
        }
        None => manifests.push(manifest(&document.value, String::new())),
    }
}

/// Kinds that CustomResourceDefinitions of the same file bring along, as `group/kind`.
fn custom_kinds(manifests: &[Manifest]) -> BTreeSet<String> {
    let definitions = manifests.iter().filter(|manifest| manifest.kind() == "CustomResourceDefinition");
    definitions
        .filter_map(|manifest| {
            let spec = manifest.value.get("spec")?;
            Some(format!("{}/{}", text(spec, "group"), text(spec.get("names")?, "kind")))
        })
        .collect()
}

fn check(manifest: &Manifest, custom: &BTreeSet<String>) -> Result<(), ManifestError> {
    if !manifest.value.is_object() {
        return Err(manifest.error("", "an object with apiVersion, kind and metadata was expected here"));
    }
    for field in ["apiVersion", "kind"] {
        if text(&manifest.value, field).is_empty() {
            return Err(manifest.error(field, "is missing, or is not a text"));
        }
    }
    let group = manifest.api_version().split_once('/').map_or("", |(group, _)| group);
    if !custom.contains(&format!("{group}/{}", manifest.kind())) {
        let findings = match kinds::find(manifest.api_version(), manifest.kind()) {
            Some(kind) => kind.check(&manifest.value),
            None => return Err(unknown_kind(manifest)),
        };
        if let Some(finding) = first(manifest, findings) {
            return Err(manifest.error(&finding.path, finding.message));
        }
    }
    let metadata = manifest.value.get("metadata").unwrap_or(&Value::Null);
    if manifest.name().is_empty() && text(metadata, "generateName").is_empty() {
        return Err(manifest.error("metadata.name", "is missing"));
    }
    Ok(())
}

/// The finding that stands first in the file.
fn first(manifest: &Manifest, findings: Vec<Finding>) -> Option<Finding> {
    findings.into_iter().min_by_key(|finding| manifest.line_of(&finding.path))
}

fn unknown_kind(manifest: &Manifest) -> ManifestError {
    let (api_version, kind) = (manifest.api_version(), manifest.kind());
    if let Some(right) = kinds::api_versions(kind).first() {
        let message = format!("{kind} is not served as {api_version}; did you mean {right:?}?");
        return manifest.error("apiVersion", message);
    }
    let known = kinds::names();
    let guess = closest(kind, &known).map(|kind| format!("; did you mean {kind:?}?")).unwrap_or_default();
    manifest.error("kind", format!("unknown kind {kind:?} of {api_version}{guess}"))
}
