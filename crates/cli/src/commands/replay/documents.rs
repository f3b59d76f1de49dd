//! The objects of the files, each with the place that messages name.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use gangway_api::kueue;
use gangway_api::manifests::{self, Manifest, ManifestError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::settings;
use crate::exit::Failure;

/// How to get a file that can be replayed.
pub const HOW_TO_DUMP: &str = "kubectl get namespaces,resourceflavors,cohorts,admissionchecks,clusterqueues,localqueues,workloads -A -o yaml > dump.yaml";

/// The kinds that a replay is made of, besides the Replay itself.
const KINDS: &[&str] =
    &["Namespace", "ResourceFlavor", "Cohort", "AdmissionCheck", "ClusterQueue", "LocalQueue", "Workload"];
/// The version that the protocol speaks of; other versions of the group are for the reader of manifests to judge.
const PROTOCOL_VERSION: &str = "v1beta2";

/// An object that the replay needs.
#[derive(Debug)]
pub struct Object {
    manifest: Manifest,
    /// Lines of the file before the text that the manifest was read from.
    lines_before: u64,
}

impl Object {
    /// Its kind.
    pub fn kind(&self) -> &str {
        self.manifest.kind()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.manifest.name()
    }

    /// Its namespace; the one called `default` where it says none.
    pub fn namespace(&self) -> &str {
        self.manifest.namespace().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
    }

    /// Where it begins, as `file:line`.
    pub fn at(&self) -> String {
        format!("{}:{}", self.manifest.file, self.manifest.line + self.lines_before)
    }

    /// What is wrong with one of its fields.
    pub fn error(&self, path: &str, message: impl Into<String>) -> Failure {
        bad_input(moved(self.manifest.error(path, message), self.lines_before))
    }

    /// The object with its type. A spec may be left out where the API server puts an empty one in its place.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let mut value = self.manifest.value.clone();
        if let Some(fields) = value.as_object_mut() {
            fields.entry("spec").or_insert_with(|| Value::Object(Map::new()));
        }
        serde_json::from_value(value).map_err(|error| self.error("", error.to_string()))
    }
}

/// What the files hold.
#[derive(Debug, Default)]
pub struct Documents {
    /// The objects, in the order of the files.
    pub objects: Vec<Object>,
    /// The Replay document, if there is one.
    pub replay: Option<settings::Located>,
    /// How many objects of each kind are of no use for a replay.
    pub skipped: BTreeMap<String, usize>,
}

/// Reads the files. Kinds that a replay does not need are refused if `is_strict`, and counted otherwise.
pub fn read(files: &[impl AsRef<Path>], is_strict: bool) -> Result<Documents, Failure> {
    let mut documents = Documents::default();
    for file in files {
        let name = file.as_ref().display().to_string();
        let text = read_text(file.as_ref(), &name)?;
        for part in parts(&text) {
            documents.add(&name, &part, is_strict)?;
        }
    }
    Ok(documents)
}

fn read_text(file: &Path, name: &str) -> Result<String, Failure> {
    match std::fs::read_to_string(file) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Err(error) if error.kind() != ErrorKind::InvalidData => {
            Err(Failure::bad_input(format!("{name}: cannot be read: {error}")))
        }
        _ => Err(Failure::bad_input(format!("{name}: is not a text file")).try_this(HOW_TO_DUMP)),
    }
}

/// The text of one document.
struct Part<'t> {
    text: &'t str,
    lines_before: u64,
}

/// The documents of a file. A line that begins with the separator always begins one, whatever stands around it.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut end, mut lines_before) = (0, 0, 0);
    for (line_number, line) in (0_u64..).zip(text.split_inclusive('\n')) {
        let after = line.strip_prefix("---");
        if after.is_some_and(|after| after.is_empty() || after.starts_with(char::is_whitespace)) {
            parts.push(Part { text: &text[start..end], lines_before });
            (start, lines_before) = (end, line_number);
        }
        end += line.len();
    }
    parts.push(Part { text: &text[start..], lines_before });
    parts
}

/// What a document says of itself before it is read in full.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    #[serde(default)]
    api_version: Value,
    #[serde(default)]
    kind: Value,
    #[serde(default)]
    metadata: HeadMetadata,
    #[serde(default)]
    items: Option<Vec<Spanned<Value>>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct HeadMetadata {
    uid: Option<Spanned<String>>,
}

/// The text with its uid in quotes, if that looks like a number: a uid is a text all the same.
fn with_uid_as_text(text: &str, uid: &Spanned<String>) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if uid.value.is_empty() || !uid.value.chars().all(is_plain) {
        return None;
    }
    let line = usize::try_from(uid.referenced.line()).ok()?.checked_sub(1)?;
    let column = usize::try_from(uid.referenced.column()).ok()?.checked_sub(1)?;
    let lines_before: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let in_line = text[lines_before..].char_indices().nth(column)?.0;
    let (before, after) = text.split_at(lines_before + in_line);
    let after = after.strip_prefix(uid.value.as_str())?;
    Some(format!("{before}\"{}\"{after}", uid.value))
}

impl Documents {
    fn add(&mut self, file: &str, part: &Part<'_>, is_strict: bool) -> Result<(), Failure> {
        // What has no head is empty, or not an object: the reader of manifests says so.
        let head: Option<Head> = serde_saphyr::from_str(part.text).ok();
        let Some(head) = head else { return self.add_object(file, part) };
        let (api_version, kind) = (text(&head.api_version), text(&head.kind));
        match (api_version, kind, head.items) {
            ("v1", "List", Some(items)) => {
                for item in items {
                    let lines_before = part.lines_before + item.referenced.line().saturating_sub(1);
                    let (api_version, kind) = (field(&item.value, "apiVersion"), field(&item.value, "kind"));
                    let text = item.value.to_string();
                    self.add_of_kind(
                        (file, api_version, kind),
                        &Part { text: &text, lines_before },
                        is_strict,
                    )?;
                }
                Ok(())
            }
            _ => {
                let quoted = head.metadata.uid.and_then(|uid| with_uid_as_text(part.text, &uid));
                let part = Part { text: quoted.as_deref().unwrap_or(part.text), ..*part };
                self.add_of_kind((file, api_version, kind), &part, is_strict)
            }
        }
    }

    fn add_of_kind(
        &mut self,
        (file, api_version, kind): (&str, &str, &str),
        part: &Part<'_>,
        is_strict: bool,
    ) -> Result<(), Failure> {
        let version = api_version.strip_prefix(kueue::GROUP).and_then(|rest| rest.strip_prefix('/'));
        let is_ours = match version {
            Some(version) => !is_strict || version == PROTOCOL_VERSION,
            None => kind == "Namespace" && api_version == "v1",
        };
        if kind == settings::KIND && api_version.starts_with(settings::GROUP) {
            let read = settings::read(file, part.text, part.lines_before)?;
            if let Some(first) = &self.replay {
                let message = format!("{}: a second Replay; the first is at {}", read.at(), first.at());
                return Err(Failure::bad_input(message).try_this("keep one of them"));
            }
            self.replay = Some(read);
            Ok(())
        } else if KINDS.contains(&kind) && is_ours || kind.is_empty() || api_version.is_empty() {
            self.add_object(file, part)
        } else if is_strict {
            let line = part.lines_before + 1;
            let message =
                format!("{file}:{line}: kind {kind:?} of {api_version} is not part of the protocol");
            Err(Failure::bad_input(message).try_this("leave --protocol out: then such objects are skipped"))
        } else {
            *self.skipped.entry(kind.to_owned()).or_default() += 1;
            Ok(())
        }
    }

    /// Adds what the reader of manifests makes of a text, which is nothing for one that is empty.
    fn add_object(&mut self, file: &str, part: &Part<'_>) -> Result<(), Failure> {
        let lines_before = part.lines_before;
        let manifests = manifests::parse(file, part.text)
            .map_err(|error| bad_input(moved(error, lines_before)).try_this(HOW_TO_DUMP))?;
        self.objects.extend(manifests.into_iter().map(|manifest| Object { manifest, lines_before }));
        Ok(())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn field<'v>(object: &'v Value, name: &str) -> &'v str {
    object.get(name).map_or("", text)
}

fn moved(error: ManifestError, lines_before: u64) -> ManifestError {
    let line = if error.line > 0 { error.line + lines_before } else { lines_before + 1 };
    ManifestError { line, ..error }
}

fn bad_input(error: ManifestError) -> Failure {
    Failure::bad_input(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_know_where_they_begin() {
        let text = "a: 1\n---\nb: |\n  ---\n--- # third\nc: 3\n----\n";
        let found: Vec<(&str, u64)> = parts(text).iter().map(|part| (part.text, part.lines_before)).collect();
        assert_eq!(found, [("a: 1\n", 0), ("---\nb: |\n  ---\n", 1), ("--- # third\nc: 3\n----\n", 4)]);
    }

    #[test]
    fn a_uid_is_a_text() {
        for uid in ["09493151", "49e52636", "8073e134", "true"] {
            let text = format!("kind: é\nmetadata: {{name: é, uid: {uid}, x: 1}}\n");
            let head: Head = serde_saphyr::from_str(&text).unwrap();
            let quoted = with_uid_as_text(&text, &head.metadata.uid.unwrap());
            assert_eq!(quoted, Some(text.replace(uid, &format!("{uid:?}"))));
        }
        let head: Head = serde_saphyr::from_str("metadata: {uid: '12'}").unwrap();
        assert_eq!(with_uid_as_text("metadata: {uid: '12'}", &head.metadata.uid.unwrap()), None);
    }
}
