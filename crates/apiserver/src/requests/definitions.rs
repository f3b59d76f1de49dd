//! CustomResourceDefinitions: writing one changes what the server serves.

use std::sync::Arc;

use serde_json::{Value, json};

use super::containers;
use super::delete::{Deleted, Options, delete_object};
use super::write::{body_of, format_time, parse_stored};
use crate::error::ApiError;
use crate::registry::builtin::{CRD_GROUP, CRD_PLURAL};
use crate::registry::{Resource, resource_of_crd};
use crate::service::Inner;
use crate::store::{Expect, Key, Write};

pub(super) fn is_definition(resource: &Resource) -> bool {
    resource.is(CRD_GROUP, CRD_PLURAL)
}

/// Fills in what follows from the rest of a definition.
fn complete(crd: &mut Value) {
    let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let Some(names) = crd["spec"]["names"].as_object_mut() else { return };
    for (key, value) in [("listKind", format!("{kind}List")), ("singular", kind.to_ascii_lowercase())] {
        if names.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
            names.insert(key.to_owned(), value.into());
        }
    }
    if crd["spec"].get("conversion").is_none() {
        crd["spec"]["conversion"] = json!({"strategy": "None"});
    }
}

/// Checks a new definition and makes a kind of it. It is served, and says so, from its first moment.
pub(super) fn prepare_new(
    server: &Inner,
    resource: &Resource,
    object: &mut Value,
) -> Result<Option<Resource>, ApiError> {
    if !is_definition(resource) {
        return Ok(None);
    }
    complete(object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let (group, plural) = names_of(object);
    if server.registry.find(&group, &plural).is_some() {
        return Err(ApiError::already_exists(resource, &name));
    }
    let table = server.store.create_table();
    match resource_of_crd(object, table) {
        Ok(kind) => {
            object["status"] = established(server, object, &[]);
            Ok(Some(kind))
        }
        Err(errors) => {
            server.store.drop_table(table);
            Err(ApiError::invalid(resource, &name, errors))
        }
    }
}

/// The same for a changed definition, whose objects stay where they are.
pub(super) fn prepare_changed(
    server: &Inner,
    resource: &Resource,
    old: &Value,
    new: &mut Value,
) -> Result<Option<Resource>, ApiError> {
    if !is_definition(resource) || old["spec"] == new["spec"] {
        return Ok(None);
    }
    complete(new);
    let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let (group, plural) = names_of(new);
    let served = server.registry.find(&group, &plural).ok_or_else(|| ApiError::not_found(resource, &name))?;
    let kind =
        resource_of_crd(new, served.table).map_err(|errors| ApiError::invalid(resource, &name, errors))?;
    let stored = old["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    new["status"] = established(server, new, &stored);
    Ok(Some(kind))
}

fn names_of(crd: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"]))
}

fn established(server: &Inner, crd: &Value, stored_before: &[Value]) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        let transition = crd["status"]["conditions"]
            .as_array()
            .and_then(|conditions| conditions.iter().find(|condition| condition["type"] == kind))
            .map(|condition| condition["lastTransitionTime"].clone());
        let now = || format_time(server.clock.now()).into();
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": transition.unwrap_or_else(now),
        })
    };
    let storage = crd["spec"]["versions"].as_array().into_iter().flatten();
    let storage = storage.filter(|version| version["storage"] == Value::Bool(true));
    let mut stored_versions = stored_before.to_vec();
    for name in storage.map(|version| version["name"].clone()) {
        if !stored_versions.contains(&name) {
            stored_versions.push(name);
        }
    }
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": stored_versions,
    })
}

/// Serves a changed kind. Where the fields to select by have changed, its objects are written again,
/// because the store keeps those fields beside each object.
pub(super) async fn replace(server: &Arc<Inner>, kind: Resource) {
    let kind = Arc::new(kind);
    let before = server.registry.find(&kind.group, &kind.plural);
    server.registry.put(kind.clone());
    if before.is_some_and(|before| before.selectable == kind.selectable) {
        return;
    }
    let Some(version) = kind.versions.first() else { return };
    for (key, _) in server.store.all(kind.table, None) {
        while let Some(current) = server.store.get(kind.table, &key) {
            let Ok(object) = parse_stored(&current, version) else { break };
            let Ok(body) = body_of(&kind, &object) else { break };
            let expect = Expect::Version(current.version);
            if server.store.commit(kind.table, key.clone(), expect, Write::Put(body), None).await.is_ok() {
                break;
            }
        }
    }
}

/// A definition is on its way out: deletes its objects, then the definition if none is left.
pub(super) async fn remove_objects(server: &Arc<Inner>, definition: &str) {
    let Some((plural, group)) = definition.split_once('.') else { return };
    let Some(kind) = server.registry.find(group, plural) else { return };
    for (key, _) in server.store.all(kind.table, None) {
        let deleted = delete_object(server, &kind, &key, &Options::default()).await;
        if kind.namespaced && matches!(deleted, Ok(Deleted::Gone(_))) {
            containers::finish_namespace(server, &key.namespace).await;
        }
    }
    finish_if_empty(server, &kind).await;
}

/// The definition has changed: it may have lost the last finalizer that held it.
pub(super) async fn finish(server: &Arc<Inner>, definition: &str) {
    let Some((plural, group)) = definition.split_once('.') else { return };
    if let Some(kind) = server.registry.find(group, plural) {
        finish_if_empty(server, &kind).await;
    }
}

/// Removes a kind's definition if that is on its way out and no object of the kind is left.
pub(super) async fn finish_if_empty(server: &Arc<Inner>, kind: &Arc<Resource>) {
    let Some(definitions) = server.registry.find(CRD_GROUP, CRD_PLURAL) else { return };
    let key = Key::new("", &format!("{}.{}", kind.plural, kind.group));
    while let Some(current) = server.store.get(definitions.table, &key) {
        let held = !current.header.finalizers.is_empty() || current.header.deletion.is_none();
        if held || server.store.count(kind.table, None) > 0 {
            return;
        }
        let expect = Expect::Version(current.version);
        let committed =
            server.store.commit(definitions.table, key.clone(), expect, Write::Delete, None).await;
        if committed.is_ok() {
            server.registry.remove(&kind.group, &kind.plural);
            server.store.drop_table(kind.table);
            return;
        }
    }
}
