//! What a Job may ask for elsewhere and not here: refused before anything is applied.

use gangway_api::manifests::{Manifest, ManifestError};
use serde_json::Value;

/// Who looks after Jobs that name nobody.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";
/// Settings of a Job that nobody acts on here.
const SETTINGS: &[&str] = &["podFailurePolicy", "successPolicy"];

/// The settings of a Job that `run` does not do.
pub fn unsupported(manifest: &Manifest) -> Vec<ManifestError> {
    if manifest.kind() != "Job" {
        return Vec::new();
    }
    let spec = &manifest.value["spec"];
    let used = SETTINGS.iter().filter(|setting| !spec[**setting].is_null());
    let mut errors: Vec<ManifestError> =
        used.map(|setting| manifest.error(&format!("spec.{setting}"), "is not supported by run")).collect();
    if let Some(manager) = spec["managedBy"].as_str().filter(|manager| *manager != JOB_CONTROLLER) {
        let message =
            format!("{manager:?} is not supported by run: only {JOB_CONTROLLER} looks after Jobs here");
        errors.push(manifest.error("spec.managedBy", message));
    }
    errors
}

/// Says that a kind is nothing for `run`.
pub fn unsupported_kind(manifest: &Manifest) -> ManifestError {
    let text = |field: &str| manifest.value.get(field).and_then(Value::as_str).unwrap_or_default();
    let message = format!("{} of {} is not supported by run", text("kind"), text("apiVersion"));
    manifest.error("kind", message)
}
