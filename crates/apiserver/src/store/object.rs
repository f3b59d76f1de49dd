//! One stored object: its bytes, and what the API needs to know without parsing them.

use std::sync::OnceLock;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value};

use crate::registry::SelectableField;

/// What requests ask about an object without parsing it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) owners: Vec<String>,
    pub(crate) finalizers: Vec<String>,
    /// `metadata.deletionTimestamp`, as written.
    pub(crate) deletion: Option<String>,
    /// Fields beyond name and namespace that field selectors may name, in the order of the
    /// kind's declaration; empty where the object has none.
    pub(crate) fields: Vec<String>,
}

impl Header {
    pub(crate) fn of(object: &Value, selectable: &[SelectableField]) -> Self {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        Self {
            uid: text(&metadata["uid"]),
            generation: metadata["generation"].as_i64(),
            labels: metadata["labels"]
                .as_object()
                .map(|labels| labels.iter().map(|(key, value)| (key.clone(), text(value))).collect())
                .unwrap_or_default(),
            owners: list(&metadata["ownerReferences"]).iter().map(|owner| text(&owner["uid"])).collect(),
            finalizers: list(&metadata["finalizers"]).iter().map(text).collect(),
            deletion: metadata["deletionTimestamp"].as_str().map(str::to_owned),
            fields: selectable.iter().map(|field| field.read(object)).collect(),
        }
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// An object ready to be stored: everything of it but the parts that depend on the version it is
/// read as and on the version number of the commit.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) header: Header,
    /// The JSON text after `"resourceVersion":"…"`, which rendering puts first in the metadata.
    pub(crate) tail: Bytes,
}

impl Body {
    pub(crate) fn of(object: &Map<String, Value>, header: Header) -> Result<Self, serde_json::Error> {
        let mut tail = Vec::with_capacity(512);
        let empty = Map::new();
        let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        write_fields(&mut tail, metadata, &["resourceVersion"])?;
        tail.push(b'}');
        write_fields(&mut tail, object, &["apiVersion", "kind", "metadata"])?;
        tail.push(b'}');
        Ok(Self { header, tail: Bytes::from(tail) })
    }
}

fn write_fields(
    out: &mut Vec<u8>,
    object: &Map<String, Value>,
    except: &[&str],
) -> Result<(), serde_json::Error> {
    for (key, value) in object {
        if except.contains(&key.as_str()) {
            continue;
        }
        out.push(b',');
        serde_json::to_writer(&mut *out, key)?;
        out.push(b':');
        serde_json::to_writer(&mut *out, value)?;
    }
    Ok(())
}

/// How an object of one API version is written: how it begins,
/// `{"apiVersion":…,"kind":…,"metadata":{"resourceVersion":"`, and whether the rest is translated.
#[derive(Debug, Clone)]
pub(crate) struct WirePrefix {
    head: Bytes,
    translate: Option<fn(&mut Map<String, Value>)>,
}

impl WirePrefix {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let text = format!(
            "{{\"apiVersion\":{},\"kind\":{},\"metadata\":{{\"resourceVersion\":\"",
            Value::from(api_version),
            Value::from(kind)
        );
        Self { head: Bytes::from(text), translate: None }
    }

    /// For a version whose fields have other names than the stored ones.
    pub(crate) fn translated(mut self, translate: fn(&mut Map<String, Value>)) -> Self {
        self.translate = Some(translate);
        self
    }

    /// Whether objects are written as they are stored.
    pub(crate) fn is_verbatim(&self) -> bool {
        self.translate.is_none()
    }

    fn write(&self, out: &mut BytesMut, stored: &Stored) {
        let start = out.len();
        out.put_slice(&self.head);
        out.put_slice(stored.version.to_string().as_bytes());
        out.put_u8(b'"');
        out.put_slice(&stored.tail);
        if let Some(translate) = self.translate
            && let Ok(mut object) = serde_json::from_slice(&out[start..])
        {
            translate(&mut object);
            out.truncate(start);
            out.put_slice(Value::Object(object).to_string().as_bytes());
        }
    }
}

/// An object as it was committed.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) version: u64,
    pub(crate) header: Header,
    pub(crate) tail: Bytes,
}

/// Digits of the largest version, and the closing quote.
const VERSION_ROOM: usize = 21;

impl Stored {
    fn rendered_len(&self, prefix: &WirePrefix) -> usize {
        prefix.head.len() + self.tail.len() + VERSION_ROOM
    }

    /// The object as JSON of one API version.
    pub(crate) fn render(&self, prefix: &WirePrefix) -> Bytes {
        let mut out = BytesMut::with_capacity(self.rendered_len(prefix));
        prefix.write(&mut out, self);
        out.freeze()
    }

    pub(crate) fn render_into(&self, prefix: &WirePrefix, out: &mut BytesMut) {
        out.reserve(self.rendered_len(prefix));
        prefix.write(out, self);
    }

    /// The watch line of this object.
    pub(crate) fn render_event(&self, kind: &str, prefix: &WirePrefix, out: &mut BytesMut) {
        out.reserve(self.rendered_len(prefix) + kind.len() + 32);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
        prefix.write(out, self);
        out.put_slice(b"}\n");
    }
}

/// A watch line, rendered by the first watcher that needs it and shared by the others.
#[derive(Debug, Default)]
pub(super) struct SharedLine(OnceLock<Bytes>);

impl SharedLine {
    pub(super) fn get(&self, stored: &Stored, kind: &str, prefix: &WirePrefix) -> &Bytes {
        self.0.get_or_init(|| {
            let mut line = BytesMut::new();
            stored.render_event(kind, prefix, &mut line);
            line.freeze()
        })
    }
}
