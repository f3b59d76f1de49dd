//! GET with `watch=true`: the changes of a collection as they happen.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use super::{Answer, Target};
use crate::error::ApiError;
use crate::query::Query;
use crate::registry::{Resource, Version};
use crate::selectors::Selector;
use crate::service::Inner;
use crate::store::{Change, ChangeKind, Doorbell, Key, LogRead, Stored};

/// Changes that one frame carries at most.
const FRAME_CHANGES: usize = 1024;
/// Objects that one frame of the initial state carries at most.
const FRAME_OBJECTS: usize = 512;
/// How often a watcher that asked for bookmarks gets one.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// What a watcher still has to be told before changes.
struct Initial {
    objects: VecDeque<(Key, Arc<Stored>)>,
    /// Whether a bookmark marks the end.
    bookmark: bool,
}

/// One watch: where it is in the log and what it wants to see.
struct Watch {
    server: Arc<Inner>,
    resource: Arc<Resource>,
    version_index: usize,
    namespace: Option<String>,
    selector: Selector,
    doorbell: Doorbell,
    /// Changes up to this version have been delivered.
    cursor: u64,
    initial: Option<Initial>,
    ends_at: Option<Instant>,
    bookmarks: bool,
    next_bookmark: Instant,
    ended: bool,
}

pub(super) fn answer(server: &Arc<Inner>, target: &Target<'_>, query: &Query<'_>) -> Answer {
    let watch = Watch::start(server, target, query)?;
    let frames = stream::unfold(watch, |mut watch| async move {
        let frame = watch.next_frame().await?;
        Some((Ok::<_, Infallible>(Frame::data(frame)), watch))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

impl Watch {
    fn start(server: &Arc<Inner>, target: &Target<'_>, query: &Query<'_>) -> Result<Self, ApiError> {
        let resource = target.resource.clone();
        let selector = Selector::parse(&resource, query.get("labelSelector"), query.get("fieldSelector"))?;
        // Before anything is read, so that no change falls between reading and listening.
        let doorbell = server.store.doorbell(resource.table).ok_or_else(ApiError::no_such_path)?;
        let version: u64 = query.number("resourceVersion")?.unwrap_or(0);
        let (initial, cursor) = match query.get("sendInitialEvents") {
            Some("true") => Self::initial(server, target, &selector, true),
            Some(_) if version == 0 => (None, server.store.version()),
            None if version == 0 => Self::initial(server, target, &selector, false),
            _ => (None, version),
        };
        let now = Instant::now();
        let timeout: Option<u64> = query.number("timeoutSeconds")?;
        Ok(Self {
            server: server.clone(),
            version_index: target.version_index,
            namespace: target.namespace.map(str::to_owned),
            selector,
            doorbell,
            cursor,
            initial,
            ends_at: timeout.and_then(|seconds| now.checked_add(Duration::from_secs(seconds))),
            bookmarks: query.flag("allowWatchBookmarks"),
            next_bookmark: now + BOOKMARK_PERIOD,
            ended: false,
            resource,
        })
    }

    fn initial(
        server: &Inner,
        target: &Target<'_>,
        selector: &Selector,
        bookmark: bool,
    ) -> (Option<Initial>, u64) {
        let keep = |key: &Key, object: &Stored| selector.matches(key, object);
        let page = server.store.page(target.resource.table, target.namespace, None, usize::MAX, &keep);
        (Some(Initial { objects: page.objects.into(), bookmark }), page.version)
    }

    fn version(&self) -> &Version {
        &self.resource.versions[self.version_index]
    }

    /// Waits for something to tell; `None` when the watch is over.
    async fn next_frame(&mut self) -> Option<Bytes> {
        let doorbell = self.doorbell.clone();
        loop {
            if self.ended {
                return None;
            }
            if let Some(frame) = self.initial_frame() {
                return Some(frame);
            }
            // Before anything is read, so that no change falls between reading and waiting.
            let mut ring = pin!(doorbell.notified());
            ring.as_mut().enable();
            match self.server.store.changes(self.resource.table, self.cursor, FRAME_CHANGES) {
                LogRead::Changes(changes) => {
                    let frame = self.render(&changes);
                    if !frame.is_empty() {
                        return Some(frame);
                    }
                    continue;
                }
                LogRead::UpToDate(version) => self.cursor = version,
                LogRead::TooOld => return Some(self.expired()),
                LogRead::NoTable => return None,
            }
            if let Some(frame) = self.wait(ring).await {
                return Some(frame);
            }
        }
    }

    /// Sleeps until a change, the end, or a bookmark that is due.
    async fn wait(&mut self, ring: Pin<&mut Notified<'_>>) -> Option<Bytes> {
        let deadline = match (self.ends_at, self.bookmarks) {
            (Some(end), true) => Some(end.min(self.next_bookmark)),
            (None, true) => Some(self.next_bookmark),
            (end, false) => end,
        };
        let due = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = ring => None,
            () = due => {
                let now = Instant::now();
                self.ended = self.ends_at.is_some_and(|end| end <= now);
                self.next_bookmark = now + BOOKMARK_PERIOD;
                self.bookmarks.then(|| self.bookmark(false))
            }
        }
    }

    fn initial_frame(&mut self) -> Option<Bytes> {
        let initial = self.initial.as_mut()?;
        let count = initial.objects.len().min(FRAME_OBJECTS);
        let objects: Vec<_> = initial.objects.drain(..count).collect();
        let done = initial.objects.is_empty();
        let bookmark = done && initial.bookmark;
        if done {
            self.initial = None;
        }
        let mut frame = BytesMut::new();
        for (_, object) in &objects {
            object.render_event("ADDED", &self.version().prefix, &mut frame);
        }
        if bookmark {
            frame.put_slice(&self.bookmark(true));
        }
        (!frame.is_empty()).then(|| frame.freeze())
    }

    fn render(&mut self, changes: &[Arc<Change>]) -> Bytes {
        let mut frame = BytesMut::new();
        for change in changes {
            self.cursor = change.object.version;
            if self.namespace.as_ref().is_some_and(|namespace| *namespace != change.key.namespace) {
                continue;
            }
            self.render_change(change, &mut frame);
        }
        frame.freeze()
    }

    /// A change as this watcher sees it: an object that enters the selection is added, one that
    /// leaves it is deleted.
    fn render_change(&self, change: &Change, frame: &mut BytesMut) {
        let kind = if self.selector.is_everything() {
            change.kind
        } else {
            let wants = |object: &Stored| self.selector.matches(&change.key, object);
            let before = change.previous.as_ref().is_some_and(|previous| wants(previous));
            let after = change.kind != ChangeKind::Deleted && wants(&change.object);
            match (before, after) {
                (false, false) => return,
                (false, true) => ChangeKind::Added,
                (true, true) => ChangeKind::Modified,
                (true, false) => ChangeKind::Deleted,
            }
        };
        let version = self.version();
        if kind == change.kind && self.version_index == 0 && version.prefix.is_verbatim() {
            change.write_shared_line(&version.prefix, frame);
        } else {
            change.object.render_event(kind.as_str(), &version.prefix, frame);
        }
    }

    fn bookmark(&self, ends_initial: bool) -> Bytes {
        let version = self.version();
        let mut metadata = json!({"resourceVersion": self.cursor.to_string(), "creationTimestamp": null});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({
            "apiVersion": self.resource.api_version(&version.name),
            "kind": self.resource.kind,
            "metadata": metadata,
        });
        Bytes::from(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"))
    }

    fn expired(&mut self) -> Bytes {
        self.ended = true;
        let message = format!("too old resource version: {} ({})", self.cursor, self.server.store.version());
        let status = ApiError::expired(message).to_status();
        Bytes::from(format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n"))
    }
}
