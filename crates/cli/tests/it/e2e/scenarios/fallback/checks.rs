//! What checks say of a flavor: yes, no, later, or nothing at all.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::super::commands::answers;
use super::queue::Queue;
use super::stage::{Stage, evictions, timeouts};
use crate::e2e::kinds::CLUSTER_QUEUE;
use crate::e2e::objects::{Job, changed_at, condition};
use crate::e2e::scene::{Scene, refusal};

const TWO: [&str; 2] = ["first", "second"];

fn its_check(workload: &Value) -> &Value {
    &workload["status"]["admissionChecks"][0]
}

/// Whether a Workload that had to leave because the check asked to retry has quota again.
fn is_asked_again(workload: &Value) -> bool {
    let is_back = condition(workload, "Evicted").status != "True";
    is_back && its_check(workload)["retryCount"] == 1 && condition(workload, "QuotaReserved").status == "True"
}

/// Quota is reserved, and the Job starts when the check agrees. A check that asks to retry gives the quota back first.
pub async fn starts_when_the_check_agrees(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&["on-demand"], &[]).await?;
    stage.check().await?;
    stage.queue(&Queue::of(&["on-demand"]).checked()).await?;
    stage.submit(Job::new("a")).await?;
    let reserved = stage.workload_has("a", ("QuotaReserved", "True", "QuotaReserved")).await?;
    ensure!(condition(&reserved, "Admitted").is("False", "UnsatisfiedAdmissionChecks"), "{reserved}");
    ensure!(its_check(&reserved)["state"] == "Pending", "{reserved}");
    stage.is_told(&reserved, "QuotaReserved").await?;
    stage.interrupt()?;
    let told = answers(&stage, "explain job/a").await?;
    ensure!(told["situation"] == "QuotaReserved" && told["checks"][0]["state"] == "Pending", "{told}");
    stage.submit(Job::new("b")).await?;
    stage.waits("b", "WaitingForQuota").await?;
    stage.not_started("a").await?;

    stage.say("retry", "a", "--after 6s").await?;
    stage.workload_that("b", "has the quota", |w| condition(w, "QuotaReserved").status == "True").await?;
    stage.say("approve", "b", "").await?;
    stage.started("b").await?;
    stage.interrupt()?;
    stage.finishes("b").await?;
    stage.workload_that("a", "is asked again", is_asked_again).await?;
    stage.has_flavor("a", "on-demand").await?;
    stage.say("approve", "a", "-m fine").await?;
    stage.started("a").await?;
    let admitted = stage.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    ensure!(its_check(&admitted)["message"] == "fine", "{admitted}");
    stage.finishes("a").await
}

/// A check rejects: with a rule for that the next flavor is tried, without one the Workload is deactivated.
pub async fn rejected_check_falls_back_or_deactivates(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&TWO, &[]).await?;
    stage.check().await?;
    stage.queue(&Queue::of(&TWO).or_rejected("first").checked()).await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavor("a", "first").await?;
    stage.interrupt()?;
    stage.say("reject", "a", "-m no-money").await?;
    let second = stage.has_flavor("a", "second").await?;
    ensure!(stage.tried(&second, "first")["trigger"] == "AdmissionCheckRejected", "{second}");
    ensure!(stage.given_up(&second) == ["first"] && its_check(&second)["state"] == "Pending", "{second}");
    stage.is_told(&second, "AdmissionCheckRejected").await?;
    stage.interrupt()?;
    stage.say("reject", "a", "").await?;
    let off = stage.workload_has("a", ("Requeued", "False", "DeactivatedDueToAdmissionCheck")).await?;
    ensure!(off["spec"]["active"] == false, "{off}");
    let counted = json!([
        {"reason": "FlavorFallback", "underlyingCause": "AdmissionCheckRejected", "count": 1},
        {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1},
    ]);
    ensure!(*evictions(&off) == counted, "{off}");
    Ok(())
}

/// A check says nothing: the time of the flavor runs out all the same, and the check is asked about the next.
pub async fn check_that_stays_pending(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&TWO, &[]).await?;
    stage.check().await?;
    stage.queue(&Queue::of(&TWO).time("first", "3s").checked()).await?;
    stage.submit(Job::new("a")).await?;
    let asked = stage.has_flavor("a", "first").await?;
    ensure!(condition(&asked, "Admitted").is("False", "UnsatisfiedAdmissionChecks"), "{asked}");
    stage.interrupt()?;
    let second = stage.has_flavor("a", "second").await?;
    ensure!(stage.tried(&second, "first")["trigger"] == "TimeoutForPodsReadyExceeded", "{second}");
    ensure!(stage.used(&second, "first") >= 3 && its_check(&second)["state"] == "Pending", "{second}");
    stage.not_started("a").await?;
    stage.interrupt()?;
    stage.say("approve", "a", "").await?;
    let ready = stage.starts_on("a", "second").await?;
    ensure!(*evictions(&ready) == json!([timeouts(1)]), "{ready}");
    stage.finishes("a").await
}

/// A check asks to retry: the same flavor is tried again, and what it used up before counts.
pub async fn check_that_retries_while_time_runs(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&TWO, &[]).await?;
    stage.check().await?;
    let queue = |time: &str| Queue::of(&TWO).time("first", time).checked();
    // Nobody has to ask in time; when it has been asked, what is left is made short.
    stage.queue(&queue("1h")).await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavor("a", "first").await?;
    stage.time_passes(2).await?;
    stage.say("retry", "a", "").await?;
    let again = stage.workload_that("a", "is asked again", is_asked_again).await?;
    stage.has_flavor("a", "first").await?;
    let used = stage.used(&again, "first");
    ensure!(stage.given_up(&again).is_empty() && used >= 2, "{again}");
    stage.interrupt()?;
    stage.queue_becomes(&queue(&format!("{}s", used + 4))).await?;
    let second = stage.has_flavor("a", "second").await?;
    ensure!(stage.given_up(&second) == ["first"] && stage.used(&second, "first") >= used + 4, "{second}");
    let waited = changed_at(&second, "QuotaReserved")? - changed_at(&again, "QuotaReserved")?;
    ensure!(waited >= 4, "{waited} s, and {used} s before");
    let retried = json!({"reason": "AdmissionCheck", "underlyingCause": "", "count": 1});
    ensure!(*evictions(&second) == json!([retried, timeouts(1)]), "{second}");
    stage.say("approve", "a", "").await?;
    stage.starts_on("a", "second").await?;
    stage.finishes("a").await
}

/// A queue says which check nobody answers, and goes on when somebody does.
pub async fn queue_waits_for_its_check(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-on-demand").await?;
    let checks = "admissionChecksStrategy: {admissionChecks: [{name: SCENE-budget}]}";
    scene.cluster_queue(&[("SCENE-on-demand", "1")], checks).await?;
    scene.local_queue("main").await?;
    let inactive = ("Active", "False", "AdmissionCheckNotFound");
    let queue = scene.has_condition(CLUSTER_QUEUE, scene.name(), inactive).await?;
    ensure!(condition(&queue, "Active").message.contains(&scene.own("budget")), "{queue}");
    scene.submit(Job::new("a")).await?;
    scene.waits("a", "Suspended").await?;
    scene
        .create(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: AdmissionCheck\nmetadata: {name: SCENE-budget}\n\
             spec: {controllerName: gangway.dev/manual}\n",
        )
        .await?;
    scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "True", "Ready")).await?;
    scene.workload_has("a", ("QuotaReserved", "True", "QuotaReserved")).await.map(|_| ())
}

/// Rules that cannot be are refused, or make the queue inactive with a message that names them.
pub async fn rules_that_cannot_be_are_named(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-on-demand").await?;
    let quotas = [("SCENE-on-demand", "1")];
    let strategy = |rules: &str| format!("flavorFungibility: {{fallbackStrategy: {{rules: [{rules}]}}}}");
    for (rules, said) in [
        ("{name: SCENE-on-demand, trigger: AdmissionCheckRejected, timeout: 1m}", "has no timeout"),
        ("{name: SCENE-on-demand, timeout: 1m}, {name: SCENE-on-demand, timeout: 2m}", "must be unique"),
        ("{name: SCENE-on-demand, timeoutMinutes: 0}", "timeoutMinutes"),
    ] {
        let refused = refusal(scene.cluster_queue(&quotas, &strategy(rules)).await)?;
        ensure!(refused.contains(said), "{rules}: {refused}");
    }
    scene.cluster_queue(&quotas, &strategy("{name: SCENE-gone, timeout: 1m}")).await?;
    let queue = scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "False", "Unknown")).await?;
    let message = condition(&queue, "Active").message;
    ensure!(
        message.contains("rules[0].name") && message.contains("is no flavor of this ClusterQueue"),
        "{message}"
    );
    // Whoever dumps all queues gets one that can be replayed.
    scene.delete(CLUSTER_QUEUE, scene.name()).await
}
