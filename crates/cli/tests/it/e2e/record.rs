//! Every version of the Workloads of a scene, in the order in which they were.
//!
//! A state may be over before a scenario comes to look for it. In the record it is found all the same.

use std::cell::RefCell;
use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, pin_mut};
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::objects::read_condition;

pub struct Record {
    seen: watch::Receiver<Seen>,
    /// At which version the last step about somebody found what it looked for: the next looks from there on.
    found_at: RefCell<BTreeMap<String, usize>>,
    watching: AbortHandle,
}

#[derive(Default)]
struct Seen {
    versions: Vec<Value>,
    /// Why versions may be missing from here on.
    gap: Option<String>,
}

impl Record {
    /// Watches from now on. What is there already is the beginning.
    pub async fn begin(api: Api<DynamicObject>) -> Result<Self> {
        let listed = api.list(&ListParams::default()).await.context("list what is recorded")?;
        let from = listed.metadata.resource_version.context("a list has no version")?;
        let versions: Result<_, _> = listed.items.into_iter().map(serde_json::to_value).collect();
        let (sender, seen) = watch::channel(Seen { versions: versions?, gap: None });
        let watching = tokio::spawn(keep(api, from, sender)).abort_handle();
        Ok(Self { seen, found_at: RefCell::default(), watching })
    }

    /// The first version that is as `test` wants it, not before the one that the last step about `who` found.
    pub async fn find(&self, who: &str, test: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut seen = self.seen.clone();
        let mut from = self.found_at.borrow().get(who).copied().unwrap_or(0);
        loop {
            {
                let seen = seen.borrow_and_update();
                let found = seen.versions.iter().skip(from).position(&test);
                if let Some(position) = found {
                    self.found_at.borrow_mut().insert(who.to_owned(), from + position);
                    return Ok(seen.versions[from + position].clone());
                }
                if let Some(gap) = &seen.gap {
                    bail!("versions may be missing: {gap}");
                }
                from = seen.versions.len();
            }
            seen.changed().await.context("nobody records any more")?;
        }
    }

    /// All versions of what is `meant`, one in a line; an arrow marks the one at which the last step about `who` was.
    pub fn tell(&self, who: &str, meant: impl Fn(&Value) -> bool) -> String {
        let found_at = self.found_at.borrow().get(who).copied();
        let seen = self.seen.borrow();
        let versions = seen.versions.iter().enumerate().filter(|(_, version)| meant(version));
        let line = |(at, version): (usize, &Value)| {
            let mark = if Some(at) == found_at { "->" } else { "  " };
            format!("\n      {mark} {}", in_one_line(version))
        };
        versions.map(line).collect()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Records until a version may have been missed. A watch that ends or breaks is taken up where it was.
async fn keep(api: Api<DynamicObject>, mut from: String, seen: watch::Sender<Seen>) {
    loop {
        if let Err(gap) = follow(&api, &mut from, &seen).await {
            return seen.send_modify(|seen| seen.gap = Some(format!("after {from}: {gap:#}")));
        }
    }
}

async fn follow(api: &Api<DynamicObject>, from: &mut String, seen: &watch::Sender<Seen>) -> Result<()> {
    let events = api.watch(&WatchParams::default(), from).await?;
    pin_mut!(events);
    while let Some(Ok(event)) = events.next().await {
        let object = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
            WatchEvent::Deleted(object) => {
                *from = object.metadata.resource_version.context("a deletion has no version")?;
                continue;
            }
            WatchEvent::Bookmark(bookmark) => {
                *from = bookmark.metadata.resource_version;
                continue;
            }
            // 410 above all: what was between is forgotten.
            WatchEvent::Error(status) => bail!("{} {}", status.code, status.message),
        };
        *from = object.metadata.resource_version.clone().context("an object has no version")?;
        let version = serde_json::to_value(object)?;
        seen.send_modify(|seen| seen.versions.push(version));
    }
    Ok(())
}

fn in_one_line(version: &Value) -> String {
    let conditions = version["status"]["conditions"].as_array().into_iter().flatten().map(|raw| {
        let condition = read_condition(raw);
        format!("{}={}/{}", raw["type"].as_str().unwrap_or_default(), condition.status, condition.reason)
    });
    let number = version["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let flavors = &version["status"]["admission"]["podSetAssignments"][0]["flavors"];
    format!("{number} {flavors} {}", conditions.collect::<Vec<_>>().join(" "))
}
