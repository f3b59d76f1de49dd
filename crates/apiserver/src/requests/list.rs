//! GET of a collection.

use bytes::{BufMut, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Target, json_response};
use crate::error::ApiError;
use crate::query::Query;
use crate::selectors::Selector;
use crate::service::Inner;
use crate::store::{Key, Page};

/// Where a list goes on: the version of its first page, and the last key it delivered.
struct Continue {
    version: u64,
    after: Key,
}

impl Continue {
    fn encode(&self) -> String {
        format!("{}/{}/{}", self.version, self.after.namespace, self.after.name)
    }

    fn decode(token: &str) -> Result<Self, ApiError> {
        let mut parts = token.splitn(3, '/');
        let (version, namespace, name) = (parts.next(), parts.next(), parts.next());
        match (version.and_then(|version| version.parse().ok()), namespace, name) {
            (Some(version), Some(namespace), Some(name)) => {
                Ok(Self { version, after: Key::new(namespace, name) })
            }
            _ => Err(ApiError::bad_request("continue key is not valid")),
        }
    }
}

pub(super) fn answer(server: &Inner, target: &Target<'_>, query: &Query<'_>) -> Answer {
    let selector = Selector::parse(&target.resource, query.get("labelSelector"), query.get("fieldSelector"))?;
    let limit = query.number::<usize>("limit")?.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let start = query.get("continue").map(Continue::decode).transpose()?;
    let after = start.as_ref().map(|start| &start.after);
    let keep = |key: &Key, object: &crate::store::Stored| selector.matches(key, object);
    let mut page = server.store.page(target.resource.table, target.namespace, after, limit, &keep);
    if let Some(start) = start {
        // Later pages show newer objects; a watch from the first page's version sees what changed.
        page.version = start.version.min(page.version);
    }
    Ok(json_response(StatusCode::OK, render(target, &page)))
}

fn render(target: &Target<'_>, page: &Page) -> bytes::Bytes {
    let resource = &target.resource;
    let version = target.version();
    let mut metadata = json!({"resourceVersion": page.version.to_string()});
    if page.more
        && let Some((last, _)) = page.objects.last()
    {
        let token = Continue { version: page.version, after: last.clone() };
        metadata["continue"] = token.encode().into();
    }
    let head = format!(
        "{{\"apiVersion\":{},\"kind\":{},\"metadata\":{metadata},\"items\":[",
        Value::from(resource.api_version(&version.name)),
        Value::from(resource.list_kind.as_str()),
    );
    let mut out = BytesMut::with_capacity(head.len() + page.objects.len() * 512);
    out.put_slice(head.as_bytes());
    for (position, (_, object)) in page.objects.iter().enumerate() {
        if position > 0 {
            out.put_u8(b',');
        }
        object.render_into(&version.prefix, &mut out);
    }
    out.put_slice(b"]}");
    out.freeze()
}
