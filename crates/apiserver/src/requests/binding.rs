//! POST of a pod's `binding`: a scheduler says where the pod goes.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};

use super::write::{body_of, decode_object, format_time, metadata_mut, parse_current};
use super::{Answer, Target, value_response};
use crate::error::ApiError;
use crate::query::Query;
use crate::service::Inner;
use crate::store::{CommitError, Expect, Write};

pub(super) async fn answer(
    server: &Arc<Inner>,
    target: &Target<'_>,
    query: &Query<'_>,
    parts: &Parts,
    body: Bytes,
) -> Answer {
    let dry_run = query.dry_run()?;
    let binding = decode_object(parts, &body)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    let kind = binding["target"]["kind"].as_str().unwrap_or("Node");
    if node.is_empty() || !matches!(kind, "" | "Node") {
        return Err(ApiError::bad_request("a binding needs a target of kind Node with a name"));
    }
    let (resource, key) = (&target.resource, target.key()?);
    loop {
        let current = server.store.get(resource.table, &key).ok_or_else(|| target.not_found())?;
        let mut pod = parse_current(&current, target.version())?;
        check(target, &pod, &binding)?;
        bind(server, &mut pod, &binding, node)?;
        if dry_run {
            break;
        }
        let (expect, write) = (Expect::Version(current.version), Write::Put(body_of(resource, &pod)?));
        match server.store.commit(resource.table, key.clone(), expect, write, None).await {
            Ok(_) => break,
            Err(CommitError::Changed) => {}
            Err(_) => return Err(target.not_found()),
        }
    }
    let success =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(value_response(StatusCode::CREATED, &success))
}

/// Whether this pod can still be bound.
fn check(target: &Target<'_>, pod: &Value, binding: &Value) -> Result<(), ApiError> {
    let name = target.name.unwrap_or_default();
    let conflict = |why: &str| Err(ApiError::conflict(&target.resource, name, why));
    let given = |field: &str| binding["metadata"][field].as_str().filter(|text| !text.is_empty());
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        if let Some(wanted) = given(field)
            && pod["metadata"][field] != wanted
        {
            let actual = pod["metadata"][field].as_str().unwrap_or_default();
            return conflict(&format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
            ));
        }
    }
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return conflict(&format!("pod {name} is already assigned to node \"{node}\""));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

fn bind(server: &Inner, pod: &mut Value, binding: &Value, node: &str) -> Result<(), ApiError> {
    let malformed = || ApiError::internal("the stored pod is malformed");
    let spec = pod["spec"].as_object_mut().ok_or_else(malformed)?;
    spec.insert("nodeName".into(), node.into());
    if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
        let slot = metadata_mut(pod)?.entry("annotations").or_insert_with(|| json!({}));
        let slot = slot.as_object_mut().ok_or_else(malformed)?;
        slot.extend(annotations.clone());
    }
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": format_time(server.clock.now()),
    });
    let fields = pod.as_object_mut().ok_or_else(malformed)?;
    let status = fields.entry("status").or_insert_with(|| json!({}));
    let status = status.as_object_mut().ok_or_else(malformed)?;
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let conditions = conditions.as_array_mut().ok_or_else(malformed)?;
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(scheduled);
    Ok(())
}
