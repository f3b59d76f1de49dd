//! GET of a pod's `log`: the file of one of its containers.

use std::convert::Infallible;
use std::io::{ErrorKind, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::write::{parse_current, parse_stored};
use super::{Answer, Target};
use crate::error::ApiError;
use crate::query::Query;
use crate::registry::Resource;
use crate::service::{Inner, full_body};
use crate::store::Key;

const CHUNK_BYTES: usize = 64 * 1024;
/// How often a followed file is looked at: the writer is another process that does not tell.
const POLL_PERIOD: Duration = Duration::from_millis(100);

pub(super) async fn answer(server: &Arc<Inner>, target: &Target<'_>, query: &Query<'_>) -> Answer {
    if query.flag("previous") {
        return Err(ApiError::bad_request("previous logs are not kept apart: the log has all restarts"));
    }
    let (resource, key) = (&target.resource, target.key()?);
    let stored = server.store.get(resource.table, &key).ok_or_else(|| target.not_found())?;
    let pod = parse_current(&stored, target.version())?;
    let container = container_name(&pod, &key.name, query.get("container"))?;
    let directory = server.log_directory.as_ref();
    let directory = directory.ok_or_else(|| ApiError::bad_request("this server has no log directory"))?;
    let file = directory
        .join(format!("{}_{}_{}", key.namespace, key.name, stored.header.uid))
        .join(format!("{container}.log"));
    let tail: Option<usize> = query.number("tailLines")?;
    let limit: Option<u64> = query.number("limitBytes")?;
    let start = start_of(&file, tail).await?;
    let mut response = if query.flag("follow") {
        let (resource, uid) = (resource.clone(), stored.header.uid.clone());
        let container = container.to_owned();
        follow(Follow {
            server: server.clone(),
            resource,
            key,
            uid,
            container,
            file,
            position: start,
            ending: false,
        })
    } else {
        Response::new(full_body(read_from(&file, start, limit.unwrap_or(u64::MAX)).await?))
    };
    let text = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    Ok(response)
}

fn container_name<'a>(pod: &'a Value, name: &str, wanted: Option<&'a str>) -> Result<&'a str, ApiError> {
    let list = |key: &str| pod["spec"][key].as_array().into_iter().flatten();
    let all = || {
        list("containers").chain(list("initContainers")).filter_map(|container| container["name"].as_str())
    };
    match wanted {
        Some(wanted) => all()
            .find(|name| *name == wanted)
            .ok_or_else(|| ApiError::bad_request(format!("container {wanted} is not valid for pod {name}"))),
        None => {
            let mut main = list("containers").filter_map(|container| container["name"].as_str());
            match (main.next(), main.next()) {
                (Some(only), None) => Ok(only),
                _ => {
                    let names: Vec<&str> =
                        list("containers").filter_map(|one| one["name"].as_str()).collect();
                    let message = format!(
                        "a container name must be specified for pod {name}, choose one of: [{}]",
                        names.join(" ")
                    );
                    Err(ApiError::bad_request(message))
                }
            }
        }
    }
}

fn unreadable(error: &std::io::Error) -> ApiError {
    ApiError::internal(format!("the log cannot be read: {error}"))
}

/// What is in the file from `start` on; nothing if the container has not written yet.
async fn read_from(file: &Path, start: u64, limit: u64) -> Result<Bytes, ApiError> {
    let mut file = match File::open(file).await {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Bytes::new()),
        Err(error) => return Err(unreadable(&error)),
    };
    file.seek(SeekFrom::Start(start)).await.map_err(|error| unreadable(&error))?;
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content).await.map_err(|error| unreadable(&error))?;
    Ok(Bytes::from(content))
}

/// Where the last `lines` lines begin, found by reading backwards.
async fn start_of(file: &Path, lines: Option<usize>) -> Result<u64, ApiError> {
    let Some(lines) = lines else { return Ok(0) };
    let mut file = match File::open(file).await {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(unreadable(&error)),
    };
    let length = file.seek(SeekFrom::End(0)).await.map_err(|error| unreadable(&error))?;
    let mut end = length;
    let mut missing = lines;
    let mut chunk = vec![0; CHUNK_BYTES];
    while end > 0 {
        let size = end.min(CHUNK_BYTES as u64);
        let part = &mut chunk[..size as usize];
        file.seek(SeekFrom::Start(end - size)).await.map_err(|error| unreadable(&error))?;
        file.read_exact(part).await.map_err(|error| unreadable(&error))?;
        for (offset, byte) in part.iter().enumerate().rev() {
            let position = end - size + offset as u64;
            // The newline that ends the file ends the last line, it does not begin another.
            if *byte == b'\n' && position + 1 != length {
                if missing <= 1 {
                    return Ok(if lines == 0 { length } else { position + 1 });
                }
                missing -= 1;
            }
        }
        end -= size;
    }
    Ok(if lines == 0 { length } else { 0 })
}

/// A reader that stays at the end of the file until the container has ended.
struct Follow {
    server: Arc<Inner>,
    resource: Arc<Resource>,
    key: Key,
    uid: String,
    container: String,
    file: PathBuf,
    position: u64,
    /// The container had ended before the last look at the file.
    ending: bool,
}

fn follow(follow: Follow) -> Response<crate::ResponseBody> {
    let frames = stream::unfold(follow, |mut follow| async move {
        let chunk = follow.next_chunk().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), follow))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

impl Follow {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            let chunk = read_from(&self.file, self.position, CHUNK_BYTES as u64).await.ok()?;
            if !chunk.is_empty() {
                self.position += chunk.len() as u64;
                return Some(chunk);
            }
            if self.ending {
                return None;
            }
            // One more look after the end, for what was written just before it.
            self.ending = self.has_ended();
            if !self.ending {
                tokio::time::sleep(POLL_PERIOD).await;
            }
        }
    }

    fn has_ended(&self) -> bool {
        let stored = self.server.store.get(self.resource.table, &self.key);
        let Some(stored) = stored.filter(|stored| stored.header.uid == self.uid) else { return true };
        let Some(version) = self.resource.versions.first() else { return true };
        let Ok(pod) = parse_stored(&stored, version) else { return true };
        if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            return true;
        }
        let list = |key: &str| pod["status"][key].as_array().into_iter().flatten();
        let restarts = pod["spec"]["restartPolicy"] != "Never";
        list("containerStatuses").chain(list("initContainerStatuses")).any(|status| {
            status["name"] == self.container.as_str()
                && status["state"]["terminated"].is_object()
                && !restarts
        })
    }
}
