//! Events have two faces, core/v1 and events.k8s.io/v1, which name the same fields differently.
//! They are stored as core/v1.

use serde_json::{Map, Value};

use super::{Resource, SelectableField};

/// Fields that selectors may name: in core/v1, in events.k8s.io/v1.
const SELECTABLE: [(&str, &str); 8] = [
    ("involvedObject.kind", "regarding.kind"),
    ("involvedObject.namespace", "regarding.namespace"),
    ("involvedObject.name", "regarding.name"),
    ("involvedObject.uid", "regarding.uid"),
    ("reason", "reason"),
    ("reportingComponent", "reportingController"),
    ("source.component", "deprecatedSource.component"),
    ("type", "type"),
];

/// Names of the same field: in core/v1, in events.k8s.io/v1.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// The core/v1 face.
pub(super) fn core(mut resource: Resource) -> Resource {
    resource.selectable = SELECTABLE.iter().map(|(core, _)| SelectableField::new(core)).collect();
    resource
}

/// The events.k8s.io/v1 face of the same table.
pub(super) fn series(mut resource: Resource) -> Resource {
    resource.selectable =
        SELECTABLE.iter().map(|(core, series)| SelectableField::stored_as(series, core)).collect();
    resource.to_stored = Some(to_core);
    for version in &mut resource.versions {
        version.prefix = version.prefix.clone().translated(to_series);
    }
    resource
}

fn to_core(event: &mut Map<String, Value>) {
    rename(event, NAMES.iter().map(|(core, series)| (*series, *core)));
}

fn to_series(event: &mut Map<String, Value>) {
    rename(event, NAMES.iter().copied());
}

fn rename(event: &mut Map<String, Value>, names: impl Iterator<Item = (&'static str, &'static str)>) {
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.to_owned(), value);
        }
    }
}
