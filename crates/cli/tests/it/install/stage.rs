//! A control plane without Gangway, and what a test does on it.

use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::e2e::cluster::Cluster;

const GANGWAY: &str = env!("CARGO_BIN_EXE_gangway");
const PATIENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_millis(100);

/// Group and version, and the kind.
pub type Kind = (&'static str, &'static str);
pub const JOB: Kind = ("batch/v1", "Job");
pub const NAMESPACE: Kind = ("v1", "Namespace");
pub const CONFIG_MAP: Kind = ("v1", "ConfigMap");
pub const LEASE: Kind = ("coordination.k8s.io/v1", "Lease");
pub const CRD: Kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
pub const DEPLOYMENT: Kind = ("apps/v1", "Deployment");
pub const CLUSTER_ROLE: Kind = ("rbac.authorization.k8s.io/v1", "ClusterRole");
pub const MUTATING: Kind = ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy");
pub const VALIDATING: Kind = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy");
pub const WEBHOOKS: Kind = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
pub const CLUSTER_QUEUE: Kind = ("kueue.x-k8s.io/v1beta2", "ClusterQueue");
pub const LOCAL_QUEUE: Kind = ("kueue.x-k8s.io/v1beta2", "LocalQueue");
pub const FLAVOR: Kind = ("kueue.x-k8s.io/v1beta2", "ResourceFlavor");
pub const WORKLOAD: Kind = ("kueue.x-k8s.io/v1beta2", "Workload");

pub struct Stage {
    cluster: Cluster,
    pub client: Client,
    /// Parts that run, with their names; they end with the stage.
    parts: RefCell<Vec<(String, Child)>>,
}

/// What a command said, and how it ended.
pub struct Ended(Output);

impl Ended {
    fn said(&self) -> String {
        let Output { stdout, stderr, .. } = &self.0;
        format!("{}{}", String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr))
    }

    pub fn succeeds(self) -> Result<String> {
        self.fails_with(0)
    }

    pub fn fails_with(self, code: i32) -> Result<String> {
        let said = self.said();
        ensure!(
            self.0.status.code() == Some(code),
            "ended with {} instead of {code}:\n{said}",
            self.0.status
        );
        Ok(said)
    }
}

impl Stage {
    pub async fn open() -> Result<Self> {
        // As OpenShift has it: who blocks the deletion of an owner needs a right for that.
        let plugins =
            "--apiserver-arg=--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement";
        let cluster = Cluster::start_with(&[plugins])?;
        let client = cluster.client().await?;
        Ok(Self { cluster, client, parts: RefCell::default() })
    }

    /// Runs a command as the cluster's administrator.
    pub async fn gangway(&self, arguments: &[&str]) -> Result<Ended> {
        let mut command = Command::new(GANGWAY);
        command.args(arguments).arg("--kubeconfig").arg(self.cluster.kubeconfig());
        let output = tokio::task::spawn_blocking(move || command.output()).await?;
        Ok(Ended(output.context("run gangway")?))
    }

    /// Starts a part as another user than the administrator, or as that.
    pub fn start(&self, name: &str, arguments: &[&str], kubeconfig: Option<&PathBuf>) -> Result<()> {
        let log = File::create(self.log(name))?;
        let part = Command::new(GANGWAY)
            .args(arguments)
            .arg("--kubeconfig")
            .arg(kubeconfig.unwrap_or(self.cluster.kubeconfig()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start gangway {name}"))?;
        self.parts.borrow_mut().push((name.to_owned(), part));
        Ok(())
    }

    /// Ends every part.
    pub fn stop_parts(&self) -> Result<()> {
        for (_, mut part) in self.parts.borrow_mut().drain(..) {
            part.kill()?;
            part.wait()?;
        }
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.cluster.directory().join(format!("{name}.log"))
    }

    /// What a part has said.
    pub fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    pub fn logs(&self) -> String {
        let parts = self.parts.borrow();
        parts.iter().map(|(name, _)| format!("--- {name}\n{}", self.said(name))).collect()
    }

    /// A file of this test.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.cluster.directory().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// A kubeconfig of a part's account.
    pub async fn give_account(&self, account: &str) -> Result<PathBuf> {
        self.cluster.give_account(&self.client, account).await
    }

    pub fn audit_log(&self) -> PathBuf {
        self.cluster.directory().join("audit.log")
    }

    pub fn api(&self, (api_version, kind): Kind, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>> {
        let found = match self.api(kind, namespace).get_opt(name).await {
            // Nor is its kind.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            found => found?,
        };
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    pub async fn create(&self, kind: Kind, namespace: &str, object: Value) -> Result<Value, kube::Error> {
        let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let created = self.api(kind, namespace).create(&PostParams::default(), &object).await?;
        serde_json::to_value(created).map_err(kube::Error::SerdeError)
    }

    pub async fn merge(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, kube::Error> {
        let api = self.api(kind, namespace);
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        serde_json::to_value(patched).map_err(kube::Error::SerdeError)
    }

    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str) -> Result<()> {
        self.api(kind, namespace).delete(name, &Default::default()).await?;
        Ok(())
    }

    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.create(NAMESPACE, "", object).await?;
        Ok(())
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while !holds().await? {
            ensure!(began.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed; nothing else can go wrong here.
        let _ = self.stop_parts();
    }
}
