//! Controllers in processes of their own that follow one another: stopped, standing still, and going on.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::e2e::kinds::{JOB, LEASE};
use crate::e2e::objects::Job;
use crate::e2e::scene::{Objects, Scene};

use super::order::CLASSES;

/// The controller of the whole world is away until this is dropped.
struct Away<'s>(&'s Scene);

impl<'s> Away<'s> {
    fn of(scene: &'s Scene) -> Result<Self> {
        scene.controller().kill()?;
        Ok(Self(scene))
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.controller().start() {
            eprintln!("the controller of the world does not start again: {error:#}");
        }
    }
}

/// A `gangway controller` that stands for election. It is killed when this is dropped.
struct Deputy {
    child: Child,
    /// Where it tells of itself.
    port: u16,
    _directory: TempDir,
}

impl Deputy {
    fn start(scene: &Scene) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("controller.yaml");
        let configuration = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta1",
            "kind": "Configuration",
            "leaderElection": {
                "leaderElect": true, "resourceName": "controller", "resourceNamespace": scene.name(),
                "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms",
            },
        });
        fs::write(&file, configuration.to_string())?;
        let file = file.to_str().context("a path of text")?;
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = format!("127.0.0.1:{port}");
        let flags = ["controller", "--config", file, "--health-probe-bind-address", &address];
        let child = scene.start_gangway(&flags)?;
        Ok(Self { child, port, _directory: directory })
    }

    /// Returns when it listens, which it does before it stands for election. What else happens takes its time.
    async fn listens(&self, scene: &Scene) -> Result<()> {
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            scene.later().await?;
        }
        Ok(())
    }

    /// What it answers to a request: the head and the body.
    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    async fn says(&self, path: &str, expected: &str) -> Result<()> {
        let answer = self.ask("GET", path, "").await?;
        ensure!(answer.starts_with("HTTP/1.1 200") && answer.contains(expected), "{path}: {answer}");
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("send {signal} to a controller"))
    }
}

impl Drop for Deputy {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed; nothing else can go wrong here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who has the Lease of the scene's controllers.
async fn leader(scene: &Scene, other_than: Option<&str>) -> Result<String> {
    let held = |leases: &Objects| {
        let holder = leases.get("controller")?["spec"]["holderIdentity"].as_str()?;
        (!holder.is_empty() && Some(holder) != other_than).then(|| holder.to_owned())
    };
    scene.until(LEASE, "another controller has the Lease", held).await
}

/// The one that leads stands still, another takes over, and the first one goes on: it starts nothing any more, although it
/// last knew of a quota that somebody else has given away since.
pub async fn controller_that_stood_still_starts_nothing(scene: &Scene) -> Result<()> {
    let _away = Away::of(scene)?;
    let first = Deputy::start(scene)?;
    let deposed = leader(scene, None).await?;
    scene.create(CLASSES).await?;
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a")).await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    first.signal(Signal::SIGSTOP)?;
    let _second = Deputy::start(scene)?;
    let heir = leader(scene, Some(&deposed)).await?;
    scene.succeed("a").await?;
    scene.started("b").await?;
    // Times of objects are whole seconds: it takes a priority to say for sure that this one goes before the next.
    scene.submit(Job::new("c").priority_class(&scene.own("high"))).await?;
    scene.waits("c", "WaitingForQuota").await?;
    // What it knew: a runs, and nobody else has quota. What it learns next may come in any order.
    first.signal(Signal::SIGCONT)?;
    scene.submit(Job::new("d")).await?;
    scene.waits("d", "WaitingForQuota").await?;
    for job in ["c", "d"] {
        scene.not_started(job).await?;
    }
    for (ends, follows) in [("b", "c"), ("c", "d")] {
        scene.succeed(ends).await?;
        scene.started(follows).await?;
    }
    scene.succeed("d").await?;
    ensure!(leader(scene, Some(&deposed)).await? == heir, "it keeps the Lease");
    for job in ["b", "c", "d"] {
        if let Some(writes) = scene.writes_of_controller(JOB, job)? {
            let landed = writes.iter().filter(|write| write.code < 300).count();
            ensure!(landed == 1, "{job} was started once: {writes:?}");
        }
    }
    Ok(())
}

/// A controller that waits for its turn takes over within two seconds when the other one stops.
pub async fn controller_hands_over_at_once(scene: &Scene) -> Result<()> {
    let _away = Away::of(scene)?;
    let first = Deputy::start(scene)?;
    let one = leader(scene, None).await?;
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a")).await?;
    let second = Deputy::start(scene)?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    second.listens(scene).await?;
    first.says("/readyz", "ok").await?;
    first.says("/metrics", "gangway_leader 1").await?;
    first.says("/metrics", "replica_role=\"leader\"").await?;
    second.says("/readyz", "ok").await?;
    second.says("/healthz", "ok").await?;
    second.says("/metrics", "gangway_leader 0").await?;
    let changed = second.ask("PUT", "/loglevel", "debug").await?;
    ensure!(changed.starts_with("HTTP/1.1 200"), "{changed}");
    first.signal(Signal::SIGTERM)?;
    let stopped = Instant::now();
    leader(scene, Some(&one)).await?;
    let took = stopped.elapsed();
    ensure!(took <= Duration::from_secs(2), "it took {took:?}");
    scene.succeed("a").await?;
    scene.started("b").await?;
    scene.succeed("b").await?;
    second.says("/metrics", "gangway_leader 1").await?;
    second.says("/metrics", "kueue_admitted_workloads_total{").await
}
