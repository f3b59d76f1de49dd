//! From a CustomResourceDefinition to a kind that is served.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use super::{Resource, Rules, SelectableField, Version};
use crate::builtins::{FieldError, FieldErrorKind};
use crate::names::{is_dns_label, is_dns_subdomain};
use crate::schema::Schema;
use crate::store::{TableId, WirePrefix};

/// Why a CRD cannot be served.
pub(crate) type CrdError = Vec<FieldError>;

fn error(path: impl Into<String>, kind: FieldErrorKind, message: impl Into<String>) -> FieldError {
    FieldError { path: path.into(), kind, message: message.into() }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The kind that `crd` describes, its objects in `table`.
pub(crate) fn resource_of_crd(crd: &Value, table: TableId) -> Result<Resource, CrdError> {
    let spec = &crd["spec"];
    let names = &spec["names"];
    let (group, plural, kind) = (text(spec, "group"), text(names, "plural"), text(names, "kind"));
    let mut errors = check_names(crd, group, plural, kind);
    let namespaced = match text(spec, "scope") {
        "Namespaced" => true,
        "Cluster" => false,
        other => {
            let message = format!("{other:?}: supported values: \"Cluster\", \"Namespaced\"");
            errors.push(error("spec.scope", FieldErrorKind::NotSupported, message));
            false
        }
    };
    let (versions, selectable) = versions_of(spec, group, kind, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let or = |key: &str, default: String| match text(names, key) {
        "" => default,
        given => given.to_owned(),
    };
    Ok(Resource {
        group: group.to_owned(),
        plural: plural.to_owned(),
        singular: or("singular", kind.to_ascii_lowercase()),
        kind: kind.to_owned(),
        list_kind: or("listKind", format!("{kind}List")),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced,
        versions,
        table,
        selectable,
        tracks_generation: true,
        to_stored: None,
        subresources: &[],
    })
}

fn check_names(crd: &Value, group: &str, plural: &str, kind: &str) -> CrdError {
    let mut errors = Vec::new();
    if !is_dns_subdomain(group) || !group.contains('.') {
        let message = format!("{group:?}: should be a domain with at least one dot");
        errors.push(error("spec.group", FieldErrorKind::Invalid, message));
    }
    if !is_dns_label(plural) {
        let message = format!("{plural:?}: must be a lowercase RFC 1123 label");
        errors.push(error("spec.names.plural", FieldErrorKind::Invalid, message));
    }
    if kind.is_empty() {
        errors.push(error("spec.names.kind", FieldErrorKind::Required, ""));
    }
    let name = text(&crd["metadata"], "name");
    if name != format!("{plural}.{group}") {
        let message = format!("{name:?}: must be spec.names.plural+\".\"+spec.group");
        errors.push(error("metadata.name", FieldErrorKind::Invalid, message));
    }
    errors
}

/// Served versions, the one objects are stored as first, and the fields any of them selects by.
fn versions_of(
    spec: &Value,
    group: &str,
    kind: &str,
    errors: &mut CrdError,
) -> (Vec<Version>, Vec<SelectableField>) {
    let mut versions = Vec::new();
    let mut selectable: Vec<SelectableField> = Vec::new();
    let mut storage = 0;
    for (index, version) in spec["versions"].as_array().into_iter().flatten().enumerate() {
        let is_storage = version["storage"] == Value::Bool(true);
        storage += usize::from(is_storage);
        let schema = match schema_of(version) {
            Ok(schema) => schema,
            Err((kind, message)) => {
                let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
                errors.push(error(path, kind, message));
                continue;
            }
        };
        for field in version["selectableFields"].as_array().into_iter().flatten() {
            let field = SelectableField::new(text(field, "jsonPath"));
            if !selectable.contains(&field) {
                selectable.push(field);
            }
        }
        if version["served"] != Value::Bool(true) {
            continue;
        }
        let name = text(version, "name").to_owned();
        let served = Version {
            prefix: WirePrefix::new(&format!("{group}/{name}"), kind),
            name,
            has_status: version["subresources"]["status"].is_object(),
            rules: Rules::Schema(schema),
        };
        let position = if is_storage { 0 } else { versions.len() };
        versions.insert(position, served);
    }
    if storage != 1 {
        let message = "must have exactly one version marked as storage version";
        errors.push(error("spec.versions", FieldErrorKind::Invalid, message));
    }
    (versions, selectable)
}

thread_local! {
    /// What was compiled last. Servers that are made one after the other mostly serve the same kinds, and compiling
    /// takes much longer than comparing.
    static COMPILED: RefCell<VecDeque<(Value, Arc<Schema>)>> = const { RefCell::new(VecDeque::new()) };
}

/// So many schemas are remembered.
const REMEMBERED: usize = 16;

/// The compiled schema of a version; versions with the same schema share it.
fn schema_of(version: &Value) -> Result<Arc<Schema>, (FieldErrorKind, String)> {
    let source = &version["schema"]["openAPIV3Schema"];
    if !source.is_object() {
        return Err((FieldErrorKind::Required, "schemas are required".to_owned()));
    }
    COMPILED.with_borrow_mut(|compiled| {
        if let Some((_, schema)) = compiled.iter().find(|(known, _)| known == source) {
            return Ok(schema.clone());
        }
        let schema = Schema::compile(source).map_err(|error| (FieldErrorKind::Invalid, error.to_string()))?;
        let schema = Arc::new(schema);
        if compiled.len() == REMEMBERED {
            compiled.pop_front();
        }
        compiled.push_back((source.clone(), schema.clone()));
        Ok(schema)
    })
}
