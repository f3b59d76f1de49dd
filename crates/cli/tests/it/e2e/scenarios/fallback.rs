//! Machines that do not come: another flavor is tried, and that is remembered. And checks that have to agree first.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::commands::{answers, says};
use super::preemption::finishes;
use crate::e2e::kinds::{CLUSTER_QUEUE, WORKLOAD};
use crate::e2e::objects::{Job, assigned_flavor, condition, name};
use crate::e2e::scene::Scene;

/// Flavors whose machines are there, and one, `SCENE-spot`, that is out of stock.
async fn flavors(scene: &Scene, there: &[&str]) -> Result<()> {
    for flavor in there {
        scene.flavor(&format!("SCENE-{flavor}")).await?;
    }
    scene
        .create(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: SCENE-spot}\n\
             spec: {nodeLabels: {example.com/machine-that-does-not-come: SCENE}}\n",
        )
        .await
}

/// The queue `SCENE` with one CPU of each of these flavors, and this strategy.
async fn queue(scene: &Scene, flavors: &[&str], strategy: &str) -> Result<()> {
    let named: Vec<String> = flavors.iter().map(|flavor| format!("SCENE-{flavor}")).collect();
    let quotas: Vec<(&str, &str)> = named.iter().map(|flavor| (flavor.as_str(), "1")).collect();
    let strategy = format!("flavorFungibility: {{fallbackStrategy: {strategy}}}");
    scene.cluster_queue(&quotas, &strategy).await?;
    scene.local_queue("main").await
}

/// Waits until the Job has this flavor.
async fn has_flavor(scene: &Scene, job: &str, flavor: &str) -> Result<Value> {
    let wanted = scene.own(flavor);
    let has = |workload: &Value| assigned_flavor(workload, "cpu") == wanted;
    scene.workload_that(job, &format!("has flavor {wanted}"), has).await
}

/// Waits until the pods of a Job are ready on this flavor.
async fn starts_on(scene: &Scene, job: &str, flavor: &str) -> Result<Value> {
    has_flavor(scene, job, flavor).await?;
    let ready = scene.workload_has(job, ("PodsReady", "True", "Started")).await?;
    ensure!(assigned_flavor(&ready, "cpu") == scene.own(flavor), "{ready}");
    ensure!(ready["status"]["flavorAssignmentHistory"].as_array().is_none_or(Vec::is_empty), "{ready}");
    Ok(ready)
}

/// What is written down of a flavor.
fn tried<'w>(workload: &'w Value, flavor: &str) -> Option<&'w Value> {
    let history = workload["status"]["flavorAssignmentHistory"].as_array()?;
    history.iter().find(|entry| entry["resourceFlavor"] == flavor)
}

fn evictions(workload: &Value) -> &Value {
    &workload["status"]["schedulingStats"]["evictions"]
}

/// A flavor is out of stock: the next is tried at once, told with the reason, counted once, and forgotten when it has started.
pub async fn next_flavor_when_machines_do_not_come(scene: &Scene) -> Result<()> {
    flavors(scene, &["on-demand"]).await?;
    queue(scene, &["spot", "on-demand"], "{rules: [{name: SCENE-spot, timeout: 2s}]}").await?;
    scene.submit(Job::new("a").pods(1)).await?;
    let waits = has_flavor(scene, "a", "spot").await?;
    ensure!(tried(&waits, &scene.own("spot")).is_some_and(|spot| spot["exhausted"] == false), "{waits}");
    let told = answers(scene, "explain job/a").await?;
    let rung = &told["ladder"][0][0];
    ensure!(rung["running"] == true && rung["timeoutSeconds"] == 2, "{told}");

    let evicted = scene.workload_has("a", ("Evicted", "True", "FlavorFallback")).await?;
    let spot = tried(&evicted, &scene.own("spot")).cloned().unwrap_or_default();
    ensure!(spot["exhausted"] == true && spot["trigger"] == "TimeoutForPodsReadyExceeded", "{evicted}");
    ensure!(spot["accumulatedSeconds"].as_i64() >= Some(2), "{spot}");
    let once =
        json!([{"reason": "FlavorFallback", "underlyingCause": "TimeoutForPodsReadyExceeded", "count": 1}]);
    ensure!(*evictions(&evicted) == once, "{evicted}");
    ensure!(evicted["status"]["requeueState"].is_null(), "no backoff and no count: {evicted}");
    scene.event(WORKLOAD, name(&evicted), "EvictedDueToFlavorFallback").await?;

    let ready = starts_on(scene, "a", "on-demand").await?;
    ensure!(condition(&ready, "Requeued").is("True", "FlavorFallback"), "{ready}");
    let life = answers(scene, "trace job/a").await?;
    ensure!(life["timeline"].to_string().contains("EvictedDueToFlavorFallback"), "{life}");
    finishes(scene, "a").await
}

/// The document's first story: the reservation is full, spot is out of stock. Back to the reservation if it is free by then,
/// otherwise on to on-demand; never to spot again.
async fn reservation_spot_on_demand(scene: &Scene, is_freed: bool) -> Result<()> {
    flavors(scene, &["reservation", "on-demand"]).await?;
    queue(scene, &["reservation", "spot", "on-demand"], "{rules: [{name: SCENE-spot, timeout: 3s}]}").await?;
    scene.submit_and_start(Job::new("first")).await?;
    starts_on(scene, "first", "reservation").await?;
    scene.submit(Job::new("a")).await?;
    has_flavor(scene, "a", "spot").await?;
    if is_freed {
        finishes(scene, "first").await?;
    }
    starts_on(scene, "a", if is_freed { "reservation" } else { "on-demand" }).await?;
    finishes(scene, "a").await
}

pub async fn back_to_the_reservation(scene: &Scene) -> Result<()> {
    reservation_spot_on_demand(scene, true).await
}

pub async fn on_to_the_third_flavor(scene: &Scene) -> Result<()> {
    reservation_spot_on_demand(scene, false).await
}

/// Every flavor is given up: deactivated, and anew when somebody activates it.
pub async fn deactivated_when_every_flavor_failed(scene: &Scene) -> Result<()> {
    flavors(scene, &[]).await?;
    queue(scene, &["spot"], "{failurePolicy: DeactivateWorkload, rules: [{name: '*', timeout: 2s}]}").await?;
    scene.submit(Job::new("a")).await?;
    let reason = "DeactivatedDueToFlavorFallbackExhausted";
    let off = scene.workload_has("a", ("Requeued", "False", reason)).await?;
    ensure!(off["spec"]["active"] == false, "{off}");
    ensure!(condition(&off, "Evicted").is("True", reason), "{off}");
    ensure!(tried(&off, &scene.own("spot")).is_some_and(|spot| spot["exhausted"] == true), "{off}");
    let counted = json!([
        {"reason": "FlavorFallback", "underlyingCause": "TimeoutForPodsReadyExceeded", "count": 1},
        {"reason": "Deactivated", "underlyingCause": "FlavorFallbackExhausted", "count": 1},
    ]);
    ensure!(*evictions(&off) == counted, "{off}");
    scene.event(WORKLOAD, name(&off), &format!("EvictedDueTo{reason}")).await?;
    let told = answers(scene, "explain job/a").await?;
    ensure!(told["situation"] == "Deactivated", "{told}");

    scene.patch(WORKLOAD, name(&off), json!({ "spec": { "active": true } })).await?;
    let back = has_flavor(scene, "a", "spot").await?;
    ensure!(condition(&back, "Requeued").is("True", "Reactivated"), "{back}");
    let anew = tried(&back, &scene.own("spot")).cloned().unwrap_or_default();
    ensure!(anew["exhausted"] == false && anew["accumulatedSeconds"] == 0, "{back}");
    Ok(())
}

/// Every flavor is given up: all are tried again after a backoff, and again.
pub async fn all_flavors_again_and_again(scene: &Scene) -> Result<()> {
    flavors(scene, &[]).await?;
    queue(scene, &["spot"], "{rules: [{name: SCENE-spot, timeoutMinutes: 1}]}").await?;
    let rules = json!([{"name": scene.own("spot"), "timeout": "1s"}]);
    let strategy = json!({"spec": {"flavorFungibility": {"fallbackStrategy": {"rules": rules}}}});
    scene.submit(Job::new("a")).await?;
    has_flavor(scene, "a", "spot").await?;
    scene.patch(CLUSTER_QUEUE, scene.name(), strategy).await?;
    for round in 1..=2 {
        let rounds = |workload: &Value| {
            let spot = tried(workload, &scene.own("spot"));
            spot.is_some_and(|spot| spot["rounds"] == round && spot["exhausted"] == false)
                && condition(workload, "Requeued").is("False", "FlavorFallback")
        };
        let waits = scene.workload_that("a", &format!("waits for round {}", round + 1), rounds).await?;
        ensure!(waits["status"]["requeueState"]["requeueAt"].is_string(), "{waits}");
        has_flavor(scene, "a", "spot").await?;
    }
    Ok(())
}

/// Of two resource groups only one lacks machines: only its flavor changes.
pub async fn one_of_two_groups_falls_back(scene: &Scene) -> Result<()> {
    flavors(scene, &["processors", "on-demand"]).await?;
    scene
        .create(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: SCENE}\nspec:\n  namespaceSelector: {}\n  \
             resourceGroups:\n  - coveredResources: [cpu]\n    flavors: [\
             {name: SCENE-spot, resources: [{name: cpu, nominalQuota: 1}]}, {name: SCENE-on-demand, resources: [{name: cpu, nominalQuota: 1}]}]\n  \
             - coveredResources: [memory]\n    flavors: [{name: SCENE-processors, resources: [{name: memory, nominalQuota: 1Gi}]}]\n  \
             flavorFungibility: {fallbackStrategy: {rules: [{name: SCENE-spot, timeout: 2s}, {name: SCENE-processors, timeout: 1h}]}}\n",
        )
        .await?;
    scene.local_queue("main").await?;
    scene.submit(Job::new("a").request("memory", "1Mi")).await?;
    let waits = has_flavor(scene, "a", "spot").await?;
    ensure!(assigned_flavor(&waits, "memory") == scene.own("processors"), "{waits}");
    let ready = starts_on(scene, "a", "on-demand").await?;
    ensure!(assigned_flavor(&ready, "memory") == scene.own("processors"), "{ready}");
    finishes(scene, "a").await
}

/// The controller dies while a flavor is tried: what was given up before stays so, and the time goes on where it was.
pub async fn restart_while_a_flavor_is_tried(scene: &Scene) -> Result<()> {
    flavors(scene, &["on-demand"]).await?;
    scene
        .create(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: SCENE-other}\n\
             spec: {nodeLabels: {example.com/machine-that-does-not-come: SCENE-other}}\n",
        )
        .await?;
    let rules = "{rules: [{name: SCENE-spot, timeout: 2s}, {name: SCENE-other, timeout: 3s}]}";
    queue(scene, &["spot", "other", "on-demand"], rules).await?;
    scene.submit(Job::new("a")).await?;
    has_flavor(scene, "a", "spot").await?;
    scene.controller().restart()?;
    let second = has_flavor(scene, "a", "other").await?;
    ensure!(tried(&second, &scene.own("spot")).is_some_and(|spot| spot["exhausted"] == true), "{second}");
    scene.controller().restart()?;
    let ready = starts_on(scene, "a", "on-demand").await?;
    let twice =
        json!([{"reason": "FlavorFallback", "underlyingCause": "TimeoutForPodsReadyExceeded", "count": 2}]);
    ensure!(*evictions(&ready) == twice, "neither lost nor counted twice: {ready}");
    finishes(scene, "a").await
}

/// A queue `SCENE` that demands the check `SCENE-budget`, which people answer.
async fn checked_queue(scene: &Scene, flavors: &[&str], more: &str) -> Result<()> {
    scene
        .create(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: AdmissionCheck\nmetadata: {name: SCENE-budget}\n\
             spec: {controllerName: gangway.dev/manual}\n",
        )
        .await?;
    let named: Vec<String> = flavors.iter().map(|flavor| format!("SCENE-{flavor}")).collect();
    let quotas: Vec<(&str, &str)> = named.iter().map(|flavor| (flavor.as_str(), "1")).collect();
    let checks = "admissionChecksStrategy: {admissionChecks: [{name: SCENE-budget}]}";
    scene.cluster_queue(&quotas, &format!("{checks}\n  {more}")).await?;
    scene.local_queue("main").await
}

async fn say(scene: &Scene, verb: &str, job: &str, more: &str) -> Result<()> {
    let (check, namespace) = (scene.own("budget"), scene.name());
    says(scene, &format!("check {verb} job/{job} {check} -n {namespace} {more}")).await.map(|_| ())
}

/// Quota is reserved, and the Job starts when the check agrees. A check that asks to retry gives the quota back first.
pub async fn starts_when_the_check_agrees(scene: &Scene) -> Result<()> {
    flavors(scene, &["on-demand"]).await?;
    checked_queue(scene, &["on-demand"], "").await?;
    scene.submit(Job::new("a")).await?;
    let reserved = scene.workload_has("a", ("QuotaReserved", "True", "QuotaReserved")).await?;
    ensure!(condition(&reserved, "Admitted").is("False", "UnsatisfiedAdmissionChecks"), "{reserved}");
    ensure!(reserved["status"]["admissionChecks"][0]["state"] == "Pending", "{reserved}");
    scene.event(WORKLOAD, name(&reserved), "QuotaReserved").await?;
    let told = answers(scene, "explain job/a").await?;
    ensure!(told["situation"] == "QuotaReserved" && told["checks"][0]["state"] == "Pending", "{told}");
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.not_started("a").await?;

    say(scene, "retry", "a", "--after 1s").await?;
    let retried = |w: &Value| {
        w["status"]["admissionChecks"][0]["retryCount"] == 1 && condition(w, "QuotaReserved").status == "True"
    };
    scene.workload_that("b", "has the quota", |w| condition(w, "QuotaReserved").status == "True").await?;
    say(scene, "approve", "b", "").await?;
    scene.started("b").await?;
    finishes(scene, "b").await?;
    scene.workload_that("a", "is asked again", retried).await?;
    say(scene, "approve", "a", "-m fine").await?;
    scene.started("a").await?;
    let admitted = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    ensure!(admitted["status"]["admissionChecks"][0]["message"] == "fine", "{admitted}");
    finishes(scene, "a").await
}

/// A check rejects: with a rule for that the next flavor is tried, without one the Workload is deactivated.
pub async fn rejected_check_falls_back_or_deactivates(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-first").await?;
    scene.flavor("SCENE-second").await?;
    let rules = "[{name: SCENE-first, trigger: AdmissionCheckRejected}]";
    let strategy = format!("flavorFungibility: {{fallbackStrategy: {{rules: {rules}}}}}");
    checked_queue(scene, &["first", "second"], &strategy).await?;
    scene.submit(Job::new("a")).await?;
    has_flavor(scene, "a", "first").await?;
    say(scene, "reject", "a", "-m no-money").await?;
    let second = has_flavor(scene, "a", "second").await?;
    let first = tried(&second, &scene.own("first")).cloned().unwrap_or_default();
    ensure!(first["trigger"] == "AdmissionCheckRejected", "{second}");
    scene.event(WORKLOAD, name(&second), "AdmissionCheckRejected").await?;
    say(scene, "reject", "a", "").await?;
    let off = scene.workload_has("a", ("Requeued", "False", "DeactivatedDueToAdmissionCheck")).await?;
    ensure!(off["spec"]["active"] == false, "{off}");
    let counted = json!([
        {"reason": "FlavorFallback", "underlyingCause": "AdmissionCheckRejected", "count": 1},
        {"reason": "Deactivated", "underlyingCause": "AdmissionCheck", "count": 1},
    ]);
    ensure!(*evictions(&off) == counted, "{off}");
    Ok(())
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
        let refused = crate::e2e::scene::refusal(scene.cluster_queue(&quotas, &strategy(rules)).await)?;
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
