//! `gangway install`, `upgrade` and `uninstall` on a real API server, and the admission policies at work.
//!
//! Runs when `KUBEBUILDER_ASSETS` names the programs of a control plane.

mod policies;
mod refusals;
mod stage;
mod work;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::e2e::world::block_on;
use stage::{CLUSTER_ROLE, CONFIG_MAP, CRD, DEPLOYMENT, MUTATING, NAMESPACE, Stage, VALIDATING};

#[test]
fn cluster() {
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        println!("install: skipped: KUBEBUILDER_ASSETS is not set");
        return;
    }
    block_on(async {
        let stage = Stage::open().await.expect("the control plane starts");
        if let Err(error) = play(&stage).await {
            panic!("{error:?}\n{}", stage.logs());
        }
    });
}

async fn play(stage: &Stage) -> Result<()> {
    stage.create_namespace("work").await?;
    policies::create_what_was_there_earlier(stage).await?;
    refusals::play(stage).await?;
    for round in ["first", "second"] {
        println!("install: {round} round");
        install(stage).await?;
        policies::play(stage, round).await?;
        work::play(stage, round).await?;
        upgrade(stage).await?;
        uninstall(stage).await?;
    }
    purge(stage).await
}

async fn install(stage: &Stage) -> Result<()> {
    let planned = stage.gangway(&["install", "--dry-run"]).await?.succeeds()?;
    ensure!(planned.contains("Deployment gangway-system/gangway-controller: would be created"), "{planned}");
    ensure!(stage.get(DEPLOYMENT, "gangway-system", "gangway-controller").await?.is_none());
    let said = stage.gangway(&["install", "--with-scheduler"]).await?.succeeds()?;
    ensure!(said.contains("Deployment gangway-system/gangway-controller: created"), "{said}");
    ensure!(said.contains("MutatingAdmissionPolicy gangway-suspend-jobs: created"), "{said}");
    let again = stage.gangway(&["install"]).await?.succeeds()?;
    ensure!(!again.contains(": created") && !again.contains(": changed"), "{again}");
    let monitor = stage.gangway(&["install", "--service-monitor"]).await?.fails_with(2)?;
    ensure!(monitor.contains("try: install the Prometheus operator"), "{monitor}");
    let elsewhere = stage.gangway(&["install", "--namespace", "other"]).await?.fails_with(2)?;
    ensure!(elsewhere.contains("is installed in namespace gangway-system"), "{elsewhere}");
    Ok(())
}

async fn upgrade(stage: &Stage) -> Result<()> {
    let text = "# mine\napiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnamespace: gangway-system\n\
                waitForPodsReady: {enable: false}\nleaderElection: {leaderElect: true}\n\
                health: {healthProbeBindAddress: \":8081\"}\n";
    stage
        .merge(CONFIG_MAP, "gangway-system", "gangway-controller", &json!({"data": {"gangway.yaml": text}}))
        .await?;
    let left_over = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {
        "name": "gangway-of-old", "labels": {"app.kubernetes.io/managed-by": "gangway"}}, "rules": []});
    stage.create(CLUSTER_ROLE, "", left_over).await?;
    let said = stage.gangway(&["upgrade", "--replicas", "3"]).await?.succeeds()?;
    ensure!(said.contains("ConfigMap gangway-system/gangway-controller: kept as it is"), "{said}");
    ensure!(said.contains("ClusterRole gangway-of-old: deleted"), "{said}");
    ensure!(
        said.contains("Service gangway-system/gangway-controller-metrics: deleted"),
        "metrics are off: {said}"
    );
    let deployment = stage.get(DEPLOYMENT, "gangway-system", "gangway-controller").await?.unwrap_or_default();
    ensure!(deployment["spec"]["replicas"] == 3, "{deployment}");
    ensure!(stage.get(DEPLOYMENT, "gangway-system", "gangway-scheduler").await?.is_some(), "it was there");
    let said = stage.gangway(&["upgrade"]).await?.succeeds()?;
    ensure!(!said.contains(": changed"), "three replicas stay three: {said}");
    Ok(())
}

async fn uninstall(stage: &Stage) -> Result<()> {
    let planned = stage.gangway(&["uninstall", "--dry-run"]).await?.succeeds()?;
    ensure!(planned.contains("MutatingAdmissionPolicy gangway-suspend-jobs: would be deleted"), "{planned}");
    let said = stage.gangway(&["uninstall"]).await?.succeeds()?;
    let place = |text: &str| said.find(text).unwrap_or(usize::MAX);
    ensure!(
        place("AdmissionPolicy gangway-job-rules: deleted") < place("Deployment "),
        "policies first: {said}"
    );
    for (kind, name) in [(MUTATING, "gangway-suspend-jobs"), (VALIDATING, "gangway-job-rules")] {
        ensure!(stage.get(kind, "", name).await?.is_none(), "{name} is still there");
    }
    ensure!(stage.get(CRD, "", "clusterqueues.kueue.x-k8s.io").await?.is_some(), "kinds stay");
    let again = stage.gangway(&["uninstall"]).await?.succeeds()?;
    ensure!(again.contains("nothing of Gangway that could be removed"), "{again}");
    let nothing = stage.gangway(&["upgrade"]).await?.fails_with(2)?;
    ensure!(nothing.contains("is not installed") && nothing.contains("try: gangway install"), "{nothing}");
    Ok(())
}

async fn purge(stage: &Stage) -> Result<()> {
    stage.gangway(&["install"]).await?.succeeds()?;
    let refused = stage.gangway(&["uninstall", "--purge"]).await?.fails_with(2)?;
    ensure!(refused.contains("clusterqueues") && refused.contains("--purge --yes"), "{refused}");
    stage.gangway(&["uninstall", "--purge", "--yes"]).await?.succeeds()?;
    stage
        .until("the kinds are gone", async || {
            Ok(stage.get(CRD, "", "clusterqueues.kueue.x-k8s.io").await?.is_none())
        })
        .await?;
    let namespace = stage.get(NAMESPACE, "", "gangway-system").await?;
    ensure!(
        namespace.is_none_or(|namespace| !namespace["metadata"]["deletionTimestamp"].is_null()),
        "the namespace goes"
    );
    Ok(())
}
