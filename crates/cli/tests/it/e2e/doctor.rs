//! `gangway doctor` in a world of its own, since it looks at everything: healthy, then with something wrong of every sort, then
//! mended with the lines that it prints.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::kinds::{CLUSTER_QUEUE, CRD, LEASE, WORKLOAD};
use super::objects::{Job, name};
use super::scene::Scene;
use super::world::{self, World};
use super::{cluster, embedded};

#[test]
fn on_the_embedded_api() {
    world::block_on(async {
        let (world, stack, serving) = embedded::start().await.expect("the embedded world starts");
        play(&world, None).await.expect("the doctor finds what is wrong on the embedded API");
        drop((world, serving));
        Rc::into_inner(stack).expect("nothing else uses it").into_inner().stop().await;
    });
}

#[test]
fn on_a_cluster() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
        println!("doctor: skipped on a real API server: KUBEBUILDER_ASSETS is not set");
        return;
    };
    let cluster = cluster::Cluster::start().expect("the control plane starts");
    world::block_on(async {
        let world = cluster.open().await.expect("gangway's processes start on the control plane");
        play(&world, Some(&assets)).await.expect("the doctor finds what is wrong on a real API server");
    });
}

/// What a run of the doctor said.
struct Report {
    code: Option<i32>,
    findings: Vec<Value>,
    text: String,
}

impl Report {
    async fn of(scene: &Scene, arguments: &str) -> Result<Self> {
        let (code, said, complaint) = scene.gangway(&format!("doctor {arguments} -o json")).await?;
        let answer: Value =
            serde_json::from_str(&said).with_context(|| format!("{code:?}: {said}{complaint}"))?;
        let findings = answer["findings"].as_array().context("a list of findings")?.clone();
        Ok(Self { code, findings, text: said })
    }

    /// The one finding of a level about a place.
    fn find(&self, level: &str, area: &str, place: &str) -> Result<&Value> {
        let is_meant = |finding: &&Value| {
            finding["level"] == level
                && finding["area"] == area
                && finding["where"].as_str().unwrap_or_default().contains(place)
        };
        let found: Vec<&Value> = self.findings.iter().filter(is_meant).collect();
        ensure!(found.len() == 1, "{level}, {area}, {place}: {} findings in {}", found.len(), self.text);
        Ok(found[0])
    }

    fn fixes(&self, level: &str) -> Vec<String> {
        let of_level = self.findings.iter().filter(|finding| finding["level"] == level);
        of_level.filter_map(|finding| finding["fix"].as_str().map(str::to_owned)).collect()
    }
}

async fn play(world: &World, assets: Option<&Path>) -> Result<()> {
    let scene = Scene::open(world, "healthy").await?;
    healthy(&scene, assets.is_some()).await?;
    unreachable_api(&scene).await?;
    let scene = Scene::open(world, "sick").await?;
    plant(&scene).await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("gangway.yaml");
    std::fs::write(&file, CONFIGURATION)?;
    let arguments = format!("--config {}", file.display());
    let renewing = other_system(&world.client, &scene).await?;
    // It counts as late after a second.
    let sick = until(world.patience, &scene, &arguments, |report| {
        report.find("problem", "workloads", "Workload sick/job-stuck").is_ok()
    })
    .await?;
    all_is_found(&sick)?;
    rights(&scene, assets.is_some()).await?;
    renewing.abort();
    let Some(assets) = assets else { return Ok(()) };
    LEASE.api(&world.client, scene.name()).delete(OTHER_LEASE, &DeleteParams::default()).await?;
    mend(world, &sick, assets)?;
    let mended = until(world.patience, &scene, &arguments, |report| report.code == Some(0)).await?;
    ensure!(mended.fixes("problem").is_empty(), "{}", mended.text);
    Ok(())
}

/// Looks until what is seen is as it is waited for.
async fn until(
    patience: Duration,
    scene: &Scene,
    arguments: &str,
    test: impl Fn(&Report) -> bool,
) -> Result<Report> {
    let mut last = String::new();
    let looked = async {
        loop {
            let report = Report::of(scene, arguments).await?;
            if test(&report) {
                return anyhow::Ok(report);
            }
            last = report.text;
        }
    };
    let found = tokio::time::timeout(patience, looked).await;
    found.unwrap_or_else(|_| Err(anyhow::anyhow!("waited in vain, the doctor says {last}")))
}

async fn healthy(scene: &Scene, is_cluster: bool) -> Result<()> {
    scene.queue("2").await?;
    scene.submit_and_start(Job::new("runs")).await?;
    scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "True", "Ready")).await?;
    let (code, said, complaint) = scene.gangway("doctor").await?;
    ensure!(code == Some(0), "ended with {code:?}: {said}{complaint}");
    ensure!(said.contains("\n0 problems, ") && !said.contains("problem  "), "{said}");
    for area in ["versions", "clocks", "definitions", "flavors", "queues", "workloads"] {
        ensure!(said.contains(&format!("ok       {area}")), "{area}: {said}");
    }
    let (rights, policies) = match is_cluster {
        true => ("ok       rights", "policies"),
        false => ("skipped  rights", "skipped  policies"),
    };
    ensure!(said.contains(rights) && said.contains(policies), "{said}");
    Ok(())
}

async fn unreachable_api(scene: &Scene) -> Result<()> {
    let (code, said, complaint) = scene.gangway("doctor --context nowhere").await?;
    ensure!(code == Some(2) && said.is_empty() && !complaint.is_empty(), "{code:?}: {said}{complaint}");
    Ok(())
}

const CONFIGURATION: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
evictionReportSeconds: 1
waitForPodsReady:
  enable: true
  blockAdmission: false
  requeuingStrategy: {timestamp: Creation}
";

const CHECK: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: SCENE-check}
spec: {controllerName: example.com/nobody}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: SCENE-far}
spec: {nodeLabels: {example.com/far: away}}
";

/// Something wrong of every sort.
async fn plant(scene: &Scene) -> Result<()> {
    scene.queue("2").await?;
    scene.create(CHECK).await?;
    let any = [("SCENE-standard", "2")];
    let demands =
        "namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: SCENE-check}]}";
    scene.cluster_queue_named("SCENE-checked", &any, demands).await?;
    scene.cluster_queue_named("SCENE-far", &[("SCENE-far", "2")], "namespaceSelector: {}").await?;
    scene.cluster_queue_named("SCENE-flavorless", &[("SCENE-gone", "2")], "namespaceSelector: {}").await?;
    scene
        .cluster_queue_named("SCENE-strict", &any, "namespaceSelector: {}\n  queueingStrategy: StrictFIFO")
        .await?;
    scene.local_queue_of("nowhere", "SCENE-nowhere").await?;
    scene.submit_and_start(Job::new("stuck").stuck()).await?;
    scene.submit(Job::new("large").cpu("5")).await?;
    scene.waits("large", "ExceedsMaxQuota").await?;
    scene.submit(Job::new("lost").queue("missing")).await?;
    scene.waits("lost", "Misconfigured").await?;
    scene.submit(Job::new("off")).await?;
    for job in ["off", "stuck"] {
        let workload = scene.workload(job).await?;
        scene.patch(WORKLOAD, name(&workload), json!({ "spec": { "active": false } })).await?;
    }
    scene.workload_has("stuck", ("Evicted", "True", "Deactivated")).await?;
    scene.waits("off", "Deactivated").await?;
    // A field that ours has, gone from both versions.
    let crd = "clusterqueues.kueue.x-k8s.io";
    let definition = scene.get(CRD, crd).await?;
    let mut versions = definition["spec"]["versions"].clone();
    for version in versions.as_array_mut().context("versions")? {
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        spec.as_object_mut().context("fields")?.remove("waitForPodsReady").context("the field was there")?;
    }
    scene.patch(CRD, crd, json!({ "spec": { "versions": versions } })).await.map(|_| ())
}

const OTHER_LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

/// Another system at work: somebody who renews its Lease.
async fn other_system(client: &Client, scene: &Scene) -> Result<tokio::task::JoinHandle<()>> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": OTHER_LEASE },
        "spec": { "holderIdentity": "somebody-else", "leaseDurationSeconds": 15 },
    });
    scene.create_object(lease).await?;
    let leases = LEASE.api(client, scene.name());
    Ok(tokio::task::spawn_local(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(300));
        for transitions in 1.. {
            ticks.tick().await;
            let renewed = Patch::Merge(json!({ "spec": { "leaseTransitions": transitions } }));
            if let Err(error) = leases.patch(OTHER_LEASE, &PatchParams::default(), &renewed).await {
                println!("the Lease of the other system is not renewed: {error}");
            }
        }
    }))
}

fn all_is_found(sick: &Report) -> Result<()> {
    ensure!(sick.code == Some(6), "ended with {:?}: {}", sick.code, sick.text);
    let table = [
        (
            "problem",
            "definitions",
            "clusterqueues.kueue.x-k8s.io",
            "gangway crds | kubectl apply --server-side",
        ),
        (
            "problem",
            "election",
            OTHER_LEASE,
            "kubectl -n sick scale deployment kueue-controller-manager --replicas=0",
        ),
        ("problem", "flavors", "ClusterQueue sick-far", "--overwrite example.com/far=away"),
        ("problem", "queues", "ClusterQueue sick-flavorless", r#""name":"sick-gone""#),
        (
            "problem",
            "queues",
            "ClusterQueue sick-checked",
            "kubectl delete admissioncheck sick-check && echo",
        ),
        ("problem", "queues", "LocalQueue sick/nowhere", r#""name":"sick-nowhere""#),
        ("warning", "queues", "ClusterQueue sick-strict", r#"{"queueingStrategy":"BestEffortFIFO"}"#),
        ("problem", "checks", "AdmissionCheck sick-check", r#""controllerName":"gangway.dev/manual""#),
        ("problem", "workloads", "LocalQueue sick/missing", r#"{"name":"missing","namespace":"sick"}"#),
        ("problem", "queues", "ClusterQueue sick", r#"/resources/0/nominalQuota","value":"5""#),
        ("warning", "workloads", "Workload sick/job-off", r#"{"spec":{"active":true}}"#),
        ("problem", "workloads", "Workload sick/job-stuck", "-l batch.kubernetes.io/job-name=stuck --force"),
        ("warning", "configuration", "requeuingStrategy.timestamp", "gangway config check"),
    ];
    for (level, area, place, fix) in table {
        let found = match place {
            // The names of other queues begin so too.
            "ClusterQueue sick" => {
                let exact = sick.findings.iter().find(|finding| finding["where"] == place);
                exact.with_context(|| format!("{place} is not told: {}", sick.text))?
            }
            _ => sick.find(level, area, place)?,
        };
        ensure!(found["level"] == level && found["area"] == area, "{found}");
        ensure!(found["fix"].as_str().unwrap_or_default().contains(fix), "{fix} is not in {found}");
        ensure!(found["why"].is_string() || area == "configuration", "{found}");
    }
    Ok(())
}

/// An account that nobody gave anything lacks every right; the embedded API asks nobody for rights.
async fn rights(scene: &Scene, is_cluster: bool) -> Result<()> {
    let told = Report::of(scene, "--as system:serviceaccount:sick:nobody").await?;
    let of_rights: Vec<&Value> = told.findings.iter().filter(|finding| finding["area"] == "rights").collect();
    if !is_cluster {
        ensure!(of_rights.len() == 1 && of_rights[0]["level"] == "skipped", "{}", told.text);
        return Ok(());
    }
    ensure!(
        of_rights.len() > 4 && of_rights.iter().all(|finding| finding["level"] == "problem"),
        "{}",
        told.text
    );
    let watch =
        of_rights.iter().find(|finding| finding["what"].to_string().contains("workloads.kueue.x-k8s.io"));
    let fix = watch.and_then(|finding| finding["fix"].as_str()).unwrap_or_default();
    ensure!(fix.contains("--user=system:serviceaccount:sick:nobody"), "{fix}");
    Ok(())
}

/// Pastes the lines into a shell.
fn mend(world: &World, sick: &Report, assets: &Path) -> Result<()> {
    let gangway = Path::new(env!("CARGO_BIN_EXE_gangway")).parent().context("a directory")?;
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        [assets.to_owned(), gangway.to_owned()].into_iter().chain(std::env::split_paths(&usual)),
    )?;
    let mut has_check = false;
    for fix in sick.fixes("problem") {
        // What is not there cannot be stopped, and both findings about the check give the same line.
        let is_check = fix.starts_with("kubectl delete admissioncheck");
        if fix.contains("kueue-controller-manager") || is_check && std::mem::replace(&mut has_check, true) {
            continue;
        }
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&fix).env("PATH", &path).env("KUBECONFIG", &world.kubeconfig);
        let output = shell.output()?;
        ensure!(output.status.success(), "{fix}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
