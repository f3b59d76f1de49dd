//! The stage of one scenario: a namespace of its own in a world, and the moves a user could make.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use futures::{StreamExt, pin_mut};
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use super::audit::{self, Write};
use super::kinds::{Kind, NAMESPACE, POD, WORKLOAD};
use super::record::Record;
use super::world::{Controller, World};

/// Objects of one kind by name, as a watch shows them.
pub type Objects = BTreeMap<String, Value>;

/// Where a scenario runs. Its name is also the name of its namespace, and names of cluster-wide
/// objects begin with it, so that scenarios do not meet.
pub struct Scene {
    client: Client,
    patience: Duration,
    controller: Rc<dyn Controller>,
    kubeconfig: PathBuf,
    audit_log: Option<PathBuf>,
    name: String,
    /// Of its Workloads, if the scenario wanted one.
    record: OnceCell<Record>,
}

impl Scene {
    /// Makes the namespace.
    pub async fn open(world: &World, scenario: &str) -> Result<Self> {
        let scene = Self {
            client: world.client.clone(),
            patience: world.patience,
            controller: world.controller.clone(),
            kubeconfig: world.kubeconfig.clone(),
            audit_log: world.audit_log.clone(),
            name: scenario.replace('_', "-"),
            record: OnceCell::new(),
        };
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": scene.name } });
        scene.create_object(namespace).await?;
        Ok(scene)
    }

    /// The same stage in another namespace, which has to be there.
    pub fn beside(&self, namespace: &str) -> Self {
        Self {
            client: self.client.clone(),
            patience: self.patience,
            controller: self.controller.clone(),
            kubeconfig: self.kubeconfig.clone(),
            audit_log: self.audit_log.clone(),
            name: namespace.to_owned(),
            record: OnceCell::new(),
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The controller of the whole world: only a scenario that runs alone may kill it.
    pub fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// What the controller has asked of the API to change an object of the scene, in order; nothing if the API keeps no
    /// audit log.
    pub fn writes_of_controller(&self, kind: Kind, name: &str) -> Result<Option<Vec<Write>>> {
        let Some(log) = &self.audit_log else { return Ok(None) };
        audit::writes_of(log, "controller", kind, &self.name, name).map(Some)
    }

    /// The bindings that schedulers have sent for a pod of the scene, in order; nothing if the API keeps no audit log.
    pub fn bindings(&self, pod: &str) -> Result<Option<Vec<Write>>> {
        let Some(log) = &self.audit_log else { return Ok(None) };
        let mut writes = audit::writes_of(log, "scheduler", POD, &self.name, pod)?;
        writes.retain(|write| write.uri.split('?').next().is_some_and(|path| path.ends_with("/binding")));
        Ok(Some(writes))
    }

    /// Starts a part of Gangway of its own on the API of the scene.
    pub fn start_gangway(&self, arguments: &[&str]) -> Result<Child> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gangway"));
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().with_context(|| format!("start gangway {}", arguments.join(" ")))
    }

    /// Runs a command in the namespace of the scene: its exit code and what it said.
    pub async fn gangway(&self, arguments: &str) -> Result<(Option<i32>, String, String)> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gangway"));
        command.args(arguments.split_whitespace()).arg("--kubeconfig").arg(&self.kubeconfig);
        // What it speaks to may be served by this thread.
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).context("a command says only text");
        Ok((output.status.code(), text(output.stdout)?, text(output.stderr)?))
    }

    /// The name of a cluster-wide object of this scene.
    pub fn own(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    /// Creates the objects of a YAML text, in which `SCENE` stands for the name of the scene.
    pub async fn create(&self, yaml: &str) -> Result<()> {
        let text = yaml.replace("SCENE", &self.name);
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("not YAML: {text}"))?;
        for object in objects {
            self.create_object(object).await?;
        }
        Ok(())
    }

    /// Creates one object, in the namespace of the scene unless it is cluster-wide.
    pub async fn create_object(&self, object: Value) -> Result<Value> {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let (kind, api_version) = (text(&object["kind"]), text(&object["apiVersion"]));
        let (known, version) =
            Kind::named(&kind, &api_version).with_context(|| format!("unknown kind {kind}"))?;
        let what = format!("create {kind} {}", text(&object["metadata"]["name"]));
        let typed = serde_json::from_value(object).with_context(|| what.clone())?;
        let api = known.in_version(version).api(&self.client, &self.name);
        let created = api.create(&PostParams::default(), &typed).await.with_context(|| what)?;
        Ok(serde_json::to_value(created)?)
    }

    /// The message with which the API refuses to create the objects.
    pub async fn refusal(&self, yaml: &str) -> Result<String> {
        refusal(self.create(yaml).await).with_context(|| format!("this is not valid: {yaml}"))
    }

    /// Merges `change` into an object.
    pub async fn patch(&self, kind: Kind, name: &str, change: Value) -> Result<Value> {
        let api = kind.api(&self.client, &self.name);
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
        Ok(serde_json::to_value(
            patched.with_context(|| format!("patch {} {name} with {change}", kind.kind))?,
        )?)
    }

    /// Puts another spec in the place of the one that an object has.
    pub async fn replace_spec(&self, kind: Kind, name: &str, spec: &Value) -> Result<()> {
        let api = kind.api(&self.client, &self.name);
        let change = serde_json::from_value(json!([{ "op": "replace", "path": "/spec", "value": spec }]))?;
        let patched = api.patch(name, &PatchParams::default(), &Patch::Json::<()>(change)).await;
        patched.with_context(|| format!("replace the spec of {} {name}", kind.kind)).map(|_| ())
    }

    /// Merges `change` into the status of an object.
    pub async fn patch_status(&self, kind: Kind, name: &str, change: Value) -> Result<()> {
        let api = kind.api(&self.client, &self.name);
        let change = json!({ "status": change });
        let patched = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&change)).await;
        patched.with_context(|| format!("patch the status of {} {name} with {change}", kind.kind))?;
        Ok(())
    }

    /// Deletes an object; what it owns goes after it.
    pub async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        self.delete_as(kind, name, &DeleteParams::background()).await
    }

    /// Deletes an object, if it is still there, without waiting for whoever should end it.
    pub async fn delete_at_once(&self, kind: Kind, name: &str) -> Result<()> {
        match self.delete_as(kind, name, &DeleteParams::default().grace_period(0)).await {
            Err(error) if is_missing(&error) => Ok(()),
            deleted => deleted,
        }
    }

    async fn delete_as(&self, kind: Kind, name: &str, how: &DeleteParams) -> Result<()> {
        let deleted = kind.api(&self.client, &self.name).delete(name, how).await;
        deleted.with_context(|| format!("delete {} {name}", kind.kind))?;
        Ok(())
    }

    pub async fn get(&self, kind: Kind, name: &str) -> Result<Value> {
        let object = kind.api(&self.client, &self.name).get(name).await;
        Ok(serde_json::to_value(object.with_context(|| format!("get {} {name}", kind.kind))?)?)
    }

    pub async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        let listed = kind.api(&self.client, &self.name).list(&ListParams::default()).await;
        let objects = listed.with_context(|| format!("list {}", kind.kind))?;
        objects.items.into_iter().map(|object| Ok(serde_json::to_value(object)?)).collect()
    }

    /// Puts a label on the namespace of the scene.
    pub async fn label_namespace(&self, key: &str, value: &str) -> Result<()> {
        let change = json!({ "metadata": { "labels": { key: value } } });
        self.patch(NAMESPACE, &self.name, change).await.map(|_| ())
    }

    /// From now on every version of a Workload counts: who waits for one finds it even if it is over by then, and looks from where
    /// the last step about that Workload was.
    pub async fn record_workloads(&self) -> Result<()> {
        let record = Record::begin(WORKLOAD.api(&self.client, &self.name)).await?;
        ensure!(self.record.set(record).is_ok(), "the Workloads are recorded already");
        Ok(())
    }

    /// The Workload that is `meant`, as soon as it is as `test` wants it: in the record, if there is one, where `who` stands for it.
    pub async fn until_workload(
        &self,
        who: &str,
        what: &str,
        meant: impl Fn(&Value) -> bool,
        test: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let Some(record) = self.record.get() else {
            let look = |workloads: &Objects| {
                workloads.values().find(|workload| meant(workload) && test(workload)).cloned()
            };
            return self.until(WORKLOAD, what, look).await;
        };
        let find = record.find(who, |workload| meant(workload) && test(workload));
        let found = tokio::time::timeout(self.patience, find).await;
        let found = found.unwrap_or_else(|_| Err(anyhow!("waited {} s in vain", self.patience.as_secs())));
        found.map_err(|error| anyhow!("{error:#}: {what}{}", record.tell(who, &meant)))
    }

    /// Watches the objects of a kind until `look` finds what it looks for among them.
    pub async fn until<T>(
        &self,
        kind: Kind,
        what: &str,
        look: impl FnMut(&Objects) -> Option<T>,
    ) -> Result<T> {
        let found = tokio::time::timeout(self.patience, self.watch_until(kind, look)).await;
        found.unwrap_or_else(|_| Err(anyhow!("waited {} s in vain: {what}", self.patience.as_secs())))
    }

    async fn watch_until<T>(&self, kind: Kind, mut look: impl FnMut(&Objects) -> Option<T>) -> Result<T> {
        let api = kind.api(&self.client, &self.name);
        let events = watcher(api, watcher::Config::default()).default_backoff();
        pin_mut!(events);
        let mut objects = Objects::new();
        let mut complete = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => (complete, objects) = (false, Objects::new()),
                Ok(watcher::Event::InitDone) => complete = true,
                Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                    let object = serde_json::to_value(object)?;
                    objects.insert(super::objects::name(&object).to_owned(), object);
                }
                Ok(watcher::Event::Delete(object)) => {
                    objects.remove(object.metadata.name.as_deref().unwrap_or_default());
                }
                // The stream tries again by itself; only the patience of the caller ends it.
                Err(_) => continue,
            }
            if complete && let Some(found) = look(&objects) {
                return Ok(found);
            }
        }
        bail!("the watch of {} ended", kind.kind)
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 404)
}

/// The message with which the API refused a request as bad; an error if it did not.
pub fn refusal<T>(answer: Result<T>) -> Result<String> {
    let Err(error) = answer else { bail!("this was not refused") };
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            Ok(status.message.clone())
        }
        _ => Err(error),
    }
}
