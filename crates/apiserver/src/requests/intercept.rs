//! Asks the interceptors about an object on its way in.

use serde_json::Value;

use super::Target;
use crate::error::ApiError;
use crate::intercept::{Interceptor, ObjectRequest, ReadView, Rejection, StoreView};
use crate::service::Inner;

/// Lets them change or refuse a new object.
pub(super) fn creation(server: &Inner, target: &Target<'_>, object: &mut Value) -> Result<(), ApiError> {
    let name = name_of(object);
    ask(server, target, &name, &mut |interceptor, view, request| {
        interceptor.before_create(view, request, object)
    })
}

/// Lets them refuse a change.
pub(super) fn change(server: &Inner, target: &Target<'_>, old: &Value, new: &Value) -> Result<(), ApiError> {
    let name = name_of(new);
    ask(server, target, &name, &mut |interceptor, view, request| {
        interceptor.before_update(view, request, old, new)
    })
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

type Question<'q> =
    dyn FnMut(&dyn Interceptor, &dyn ReadView, &ObjectRequest<'_>) -> Result<(), Rejection> + 'q;

fn ask(server: &Inner, target: &Target<'_>, name: &str, question: &mut Question<'_>) -> Result<(), ApiError> {
    if server.interceptors.is_empty() {
        return Ok(());
    }
    let resource = &target.resource;
    let view = StoreView { store: &server.store, registry: &server.registry };
    let request = ObjectRequest {
        group: &resource.group,
        version: &target.version().name,
        plural: &resource.plural,
        kind: &resource.kind,
        namespace: target.namespace.unwrap_or_default(),
        name,
    };
    for interceptor in &server.interceptors {
        let verdict = question(interceptor.as_ref(), &view, &request);
        verdict.map_err(|rejection| ApiError::forbidden(resource, name, &rejection.message))?;
    }
    Ok(())
}
