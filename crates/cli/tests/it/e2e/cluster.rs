//! The world of a real control plane: etcd, kube-apiserver and kube-controller-manager, with Gangway installed on it, and
//! Gangway's parts beside them as a cluster would run them, each in a process of its own and with the rights that were
//! installed for it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gangway_api::install::{CONFIGURATION_KEY, CONTROLLER, DEFAULT_NAMESPACE, SCHEDULER};
use gangway_controller::workloads;
use gangway_model::Clock;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::AbortHandle;

use super::world::{Controller, FAKE_NODES, World};
use crate::tidy::workspace_root;

const GANGWAY: &str = env!("CARGO_BIN_EXE_gangway");

/// Gangway's parts on a cluster. The node is not one that is installed: it plays machines, as the administrator.
const PARTS: &[(&str, &[&str])] = &[
    (CONTROLLER, &["controller"]),
    (SCHEDULER, &["scheduler"]),
    ("gangway-node", &["node", "--fake", FAKE_NODES]),
];

/// How long a scenario waits for any one thing. The garbage collector of a real control plane takes up to
/// 30 s to notice that there is a new kind of object, and deletes none of that kind before.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lines of each part's log that a failure shows.
const LOG_LINES: usize = 60;

/// A running control plane and what runs on it. Everything ends when it is dropped.
pub struct Cluster {
    directory: TempDir,
    parts: Rc<Parts>,
}

/// Gangway's parts as processes.
struct Parts {
    /// Where their logs are.
    directory: PathBuf,
    kubeconfig: PathBuf,
    running: RefCell<Vec<(&'static str, Child)>>,
    /// With which the controller is started; without it, the defaults hold.
    config: RefCell<Option<PathBuf>>,
    /// The controller while it runs by another clock than that of the machine: in this process.
    by_other_clock: RefCell<Option<AbortHandle>>,
    /// With which it does.
    client: RefCell<Option<Client>>,
}

impl Cluster {
    /// Starts the control plane alone.
    pub fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    /// The same with more options.
    pub fn start_with(options: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir().context("make a directory for the control plane")?;
        let output = Command::new(control_plane())
            .arg("start")
            .arg(directory.path())
            .arg("--audit")
            .args(options)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("run {}", control_plane().display()))?;
        let kubeconfig = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let parts = Parts {
            directory: directory.path().to_owned(),
            kubeconfig,
            running: RefCell::default(),
            config: RefCell::default(),
            by_other_clock: RefCell::default(),
            client: RefCell::default(),
        };
        let cluster = Self { directory, parts: Rc::new(parts) };
        ensure!(output.status.success(), "the control plane did not start: {}", output.status);
        Ok(cluster)
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// With which its administrator reaches it.
    pub fn kubeconfig(&self) -> &PathBuf {
        &self.parts.kubeconfig
    }

    /// A client of its administrator.
    pub async fn client(&self) -> Result<Client> {
        let config = Kubeconfig::read_from(&self.parts.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// Installs Gangway and starts its parts.
    pub async fn open(&self) -> Result<World> {
        let client = self.client().await?;
        self.install()?;
        for account in [CONTROLLER, SCHEDULER] {
            self.give_account(&client, account).await?;
        }
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
        let map = maps.get(SCHEDULER).await?.data.unwrap_or_default();
        let text = map.get(CONFIGURATION_KEY).context("the scheduler has a configuration")?;
        fs::write(self.parts.config_of(SCHEDULER), text)?;
        *self.parts.client.borrow_mut() = Some(client.clone());
        for (name, _) in PARTS {
            self.parts.start_part(name)?;
        }
        let (controller, kubeconfig) = (self.parts.clone(), self.parts.kubeconfig.clone());
        let audit_log = Some(self.directory.path().join("audit.log"));
        Ok(World { client, api: "a real API server", patience: PATIENCE, controller, kubeconfig, audit_log })
    }

    fn install(&self) -> Result<()> {
        let mut command = Command::new(GANGWAY);
        command.args(["install", "--with-scheduler", "--kubeconfig"]).arg(self.kubeconfig());
        let output = command.output().context("run gangway install")?;
        ensure!(output.status.success(), "gangway install: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Writes a kubeconfig with nothing but the token of a service account of the installation.
    pub async fn give_account(&self, client: &Client, account: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(7200), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        let token = answer.status.context("a token")?.token;
        let mut config = serde_json::to_value(Kubeconfig::read_from(self.kubeconfig())?)?;
        for user in config["users"].as_array_mut().into_iter().flatten() {
            user["user"] = json!({ "token": token });
        }
        let path = self.parts.kubeconfig_of(account);
        fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// What Gangway's parts were not allowed to do, as they tell it.
    pub fn missing_rights(&self) -> Vec<String> {
        let logs = PARTS.iter().map(|(name, _)| fs::read_to_string(self.parts.log(name)).unwrap_or_default());
        let refused = |line: &&str| line.contains("forbidden: User");
        logs.flat_map(|log| log.lines().filter(refused).map(str::to_owned).collect::<Vec<_>>()).collect()
    }

    /// How Gangway's parts fare, and the end of what each has written.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for (name, part) in self.parts.running.borrow_mut().iter_mut() {
            let fate = match part.try_wait() {
                Ok(Some(status)) => format!("ended: {status}"),
                _ => "is running".to_owned(),
            };
            let log = fs::read_to_string(self.parts.log(name)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
            text.push_str(&format!("{name} {fate}; the end of its log:\n  {last}\n"));
        }
        text
    }
}

impl Parts {
    fn start_part(&self, name: &str) -> Result<()> {
        let known = PARTS.iter().find(|(known, _)| *known == name);
        let (name, arguments) = known.with_context(|| format!("there is no part {name}"))?;
        let log = OpenOptions::new().create(true).append(true).open(self.log(name))?;
        let configured = self.config.borrow().clone().filter(|_| *name == CONTROLLER);
        let config = configured.or(Some(self.config_of(SCHEDULER)).filter(|_| *name == SCHEDULER));
        let part = Command::new(GANGWAY)
            .args(*arguments)
            .args(config.iter().flat_map(|file| [OsStr::new("--config"), file.as_os_str()]))
            .arg("--kubeconfig")
            .arg(self.kubeconfig_of(name))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        self.running.borrow_mut().push((name, part));
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.log"))
    }

    fn config_of(&self, part: &str) -> PathBuf {
        self.directory.join(format!("{part}.yaml"))
    }

    /// That of its account, or where it has none the administrator's.
    fn kubeconfig_of(&self, part: &str) -> PathBuf {
        if part == CONTROLLER || part == SCHEDULER {
            return self.directory.join(format!("{part}.kubeconfig"));
        }
        self.kubeconfig.clone()
    }
}

impl Controller for Parts {
    fn kill(&self) -> Result<()> {
        if let Some(controller) = self.by_other_clock.take() {
            controller.abort();
            return Ok(());
        }
        let mut running = self.running.borrow_mut();
        let index = running.iter().position(|(name, _)| *name == CONTROLLER);
        let (_, mut controller) = running.remove(index.context("the controller does not run")?);
        controller.kill().context("kill gangway controller")?;
        controller.wait().context("wait for gangway controller to end").map(|_| ())
    }

    fn start(&self) -> Result<()> {
        self.start_part(CONTROLLER)
    }

    fn start_by(&self, clock: Arc<dyn Clock>) -> Result<()> {
        let client = self.client.borrow().clone().context("the parts were not started")?;
        let file = self.config.borrow().as_ref().map(fs::read_to_string).transpose()?;
        let config = file.map(|text| gangway_api::config::load("configuration", &text)).transpose()?;
        let options =
            workloads::Options { config: config.unwrap_or_default(), ..workloads::Options::default() };
        let controller = tokio::spawn(async move {
            let ended = workloads::run(client, clock, options).await;
            eprintln!("the controller ended by itself: {ended:?}");
        });
        *self.by_other_clock.borrow_mut() = Some(controller.abort_handle());
        Ok(())
    }

    fn configure(&self, config: &str) -> Result<()> {
        let file = self.directory.join("gangway-configuration.yaml");
        fs::write(&file, config)?;
        *self.config.borrow_mut() = Some(file);
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, part) in self.parts.running.borrow_mut().iter_mut() {
            // One that has ended by itself cannot be killed; nothing else can go wrong here.
            let _ = part.kill();
            let _ = part.wait();
        }
        let stopped = Command::new(control_plane()).arg("stop").arg(self.directory.path()).status();
        if !stopped.as_ref().is_ok_and(|status| status.success()) {
            eprintln!("the control plane in {} did not stop: {stopped:?}", self.directory.path().display());
        }
    }
}

fn control_plane() -> PathBuf {
    workspace_root().join(Path::new("../shared/cluster/control-plane"))
}
