//! Keeps the admission policies of a cluster as the configuration wants them, and knows whether they are in force.
//!
//! Policies are installed by people. Here they are only watched, and what is there is kept up to date: a controller that
//! created them would bring back what somebody takes away.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

use futures::StreamExt;
use futures::stream::{self, BoxStream, SelectAll};
use gangway_api::config::Configuration;
use gangway_api::install::{MANAGED_BY, VERSION_LABEL};
use gangway_api::policies;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::index::{Index, Seen};
use crate::trouble::{Trouble, Waits};

const GROUP_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Whether queued Jobs are suspended at the moment they are created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They are.
    InForce,
    /// This Kubernetes has no such policies: it is too old, or they are switched off.
    NotServed,
    /// Some are not there, or do not do what they should.
    Missing(Vec<String>),
    /// Nobody here may look.
    Unknown(String),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DEGRADED: &str = "queued Jobs that were created without `suspend: true` are suspended as soon as they are seen (the degraded way)";
        match self {
            Self::InForce => f.write_str(
                "the admission policies are in force: queued Jobs are suspended when they are created",
            ),
            Self::NotServed => write!(
                f,
                "this Kubernetes has no admission policies of {GROUP_VERSION} (1.36 and later have), so {DEGRADED}"
            ),
            Self::Missing(names) => write!(
                f,
                "admission policies are missing ({}), so {DEGRADED}; `gangway install` brings them",
                names.join(", ")
            ),
            Self::Unknown(why) => {
                write!(
                    f,
                    "whether there are admission policies cannot be seen ({why}); if there are none, {DEGRADED}"
                )
            }
        }
    }
}

/// The kind, as an index of [`policies::PLURALS`], and the name.
type Key = (usize, String);

/// Looks after the policies until the future is dropped. `tell` hears how they stand, and again when that changes.
pub async fn keep(client: Client, configuration: Configuration, tell: impl Fn(&Standing)) -> Infallible {
    if !are_served(&client).await {
        tell(&Standing::NotServed);
        return std::future::pending().await;
    }
    let mut news = watch(&client);
    let mut keeper = Keeper::new(client, &configuration);
    let mut told = None;
    while let Some((kind, item)) = news.next().await {
        let standing = match keeper.take(kind, item) {
            Ok(()) if !keeper.knows_all() => continue,
            Ok(()) => {
                keeper.repair().await;
                keeper.standing()
            }
            Err(why) => Standing::Unknown(why),
        };
        // Each kind is refused in words of its own; once is enough.
        let still_unknown = matches!((&told, &standing), (Some(Standing::Unknown(_)), Standing::Unknown(_)));
        if told.as_ref() != Some(&standing) && !still_unknown {
            tell(&standing);
            told = Some(standing);
        }
    }
    std::future::pending().await
}

async fn are_served(client: &Client) -> bool {
    let mut trouble = Trouble::with("asking the API for admission policies");
    let mut waits = Waits::default();
    loop {
        match client.list_api_group_resources(GROUP_VERSION).await {
            Ok(list) => {
                trouble.worked();
                let is_served = |plural: &&str| list.resources.iter().any(|found| found.name == *plural);
                return policies::PLURALS.iter().all(is_served);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return false,
            Err(error) => trouble.failed(&error),
        }
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    }
}

type Item = Result<watcher::Event<DynamicObject>, watcher::Error>;

fn resource(plural: &str) -> ApiResource {
    let (group, version) = GROUP_VERSION.split_once('/').unwrap_or_default();
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: GROUP_VERSION.to_owned(),
        // Requests name the plural; the kind stands in what comes back.
        kind: plural.to_owned(),
        plural: plural.to_owned(),
    }
}

fn watch(client: &Client) -> BoxStream<'static, (usize, Item)> {
    let mut all: SelectAll<BoxStream<'static, (usize, Item)>> = stream::SelectAll::new();
    let ours = watcher::Config::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
    for (kind, plural) in policies::PLURALS.iter().enumerate() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource(plural));
        let items = watcher(api, ours.clone()).backoff(Waits::default());
        all.push(items.map(move |item| (kind, item)).boxed());
    }
    all.boxed()
}

struct Keeper {
    client: Client,
    wanted: BTreeMap<Key, Value>,
    found: BTreeMap<Key, DynamicObject>,
    indexes: Vec<Index<Key>>,
    /// What was written and came back different: an API that makes something else of it is not written to for ever.
    given_up: BTreeMap<Key, Value>,
}

impl Keeper {
    fn new(client: Client, configuration: &Configuration) -> Self {
        let indexes = policies::PLURALS.iter().map(|_| Index::new("watching admission policies")).collect();
        let wanted = wanted(configuration);
        Self { client, wanted, found: BTreeMap::new(), indexes, given_up: BTreeMap::new() }
    }

    fn take(&mut self, kind: usize, item: Item) -> Result<(), String> {
        let seen = self.indexes[kind].take(item, |object: &DynamicObject| (kind, object.name_any()));
        for seen in seen.map_err(|forbidden| forbidden.source.to_string())? {
            match seen {
                Seen::Applied(object) => {
                    self.found.insert((kind, object.name_any()), object);
                }
                Seen::Gone(key) => {
                    self.found.remove(&key);
                }
            }
        }
        Ok(())
    }

    fn knows_all(&self) -> bool {
        self.indexes.iter().all(Index::is_complete)
    }

    fn standing(&self) -> Standing {
        let is_missing = |(key, wanted): &(&Key, &Value)| {
            self.found.get(*key).is_none_or(|found| !is_same(&wanted["spec"], &found.data["spec"]))
        };
        let missing: Vec<String> = self
            .wanted
            .iter()
            .filter(is_missing)
            .map(|((kind, name), _)| format!("{}/{name}", policies::PLURALS[*kind]))
            .collect();
        if missing.is_empty() { Standing::InForce } else { Standing::Missing(missing) }
    }

    /// Policies that differ are written once more. Bindings never change, and who changed one meant it.
    async fn repair(&mut self) {
        for (key, wanted) in &self.wanted {
            let Some(found) = self.found.get(key) else { continue };
            let spec = &found.data["spec"];
            let may = !policies::PLURALS[key.0].ends_with("bindings") && !is_newer(found);
            if !may || is_same(&wanted["spec"], spec) || self.given_up.get(key) == Some(spec) {
                continue;
            }
            let api: Api<DynamicObject> =
                Api::all_with(self.client.clone(), &resource(policies::PLURALS[key.0]));
            let patch = json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": found.resource_version()},
                {"op": "replace", "path": "/spec", "value": wanted["spec"]},
            ]);
            let Ok(patch) = serde_json::from_value(patch) else { continue };
            match api.patch(&key.1, &PatchParams::default(), &Patch::Json::<()>(patch)).await {
                Ok(object) => {
                    tracing::info!(policy = key.1, "the admission policy follows the configuration again");
                    if !is_same(&wanted["spec"], &object.data["spec"]) {
                        self.given_up.insert(key.clone(), object.data["spec"].clone());
                    }
                    self.found.insert(key.clone(), object);
                }
                Err(error) => {
                    tracing::warn!(policy = key.1, %error, "the admission policy cannot be brought up to date");
                }
            }
        }
    }
}

/// What a configuration wants.
fn wanted(configuration: &Configuration) -> BTreeMap<Key, Value> {
    let mut wanted = BTreeMap::new();
    for object in policies::objects(configuration) {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        // The kinds of a policy and of its binding begin alike, up to the last letter of the policy's.
        let is_binding = kind.ends_with("binding");
        let stem = kind.trim_end_matches("binding").trim_end_matches('y');
        let is_plural =
            |plural: &&str| plural.starts_with(stem) && plural.ends_with("bindings") == is_binding;
        let Some(kind) = policies::PLURALS.iter().position(is_plural) else { continue };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        wanted.insert((kind, name), object);
    }
    wanted
}

/// Whether a later version of Gangway wrote it, which knows better.
fn is_newer(object: &DynamicObject) -> bool {
    let numbers =
        |text: &str| -> Vec<u64> { text.split(['.', '-']).map_while(|part| part.parse().ok()).collect() };
    let theirs = object.labels().get(VERSION_LABEL).map_or(Vec::new(), |text| numbers(text));
    theirs > numbers(env!("CARGO_PKG_VERSION"))
}

/// Whether two specs say the same; what is empty says nothing.
fn is_same(wanted: &Value, found: &Value) -> bool {
    said(wanted) == said(found)
}

fn said(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let fields = fields.iter().filter_map(|(key, value)| Some((key.clone(), said(value)?)));
            let fields: serde_json::Map<String, Value> = fields.collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().filter_map(said).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_its_kind() {
        let wanted = wanted(&Configuration::default());
        assert_eq!(wanted.len(), policies::objects(&Configuration::default()).len());
        for (kind, names) in policies::NAMES.iter().enumerate() {
            for name in *names {
                assert!(wanted.contains_key(&(kind, (*name).to_owned())), "{name}");
            }
        }
    }

    #[test]
    fn what_is_empty_says_nothing() {
        let table = [
            (json!({"a": 1, "b": {}}), json!({"a": 1}), true),
            (json!({"a": [{}], "b": null}), json!({"b": {"c": []}}), true),
            (json!({"a": 1}), json!({"a": 1, "b": {"c": "d"}}), false),
            (json!({"a": [1, 2]}), json!({"a": [2, 1]}), false),
        ];
        for (one, other, same) in table {
            assert_eq!(is_same(&one, &other), same, "{one} {other}");
        }
    }

    #[test]
    fn later_versions_are_left_alone() {
        let labelled = |version: &str| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"labels": {VERSION_LABEL: version}}})).unwrap()
        };
        assert!(is_newer(&labelled("1000.0.0")));
        assert!(!is_newer(&labelled(env!("CARGO_PKG_VERSION"))));
        assert!(!is_newer(&labelled("0.0.1")) && !is_newer(&labelled("")));
    }
}
