//! Other systems that use the same API: what speaks for one, and how it is taken over.

use std::time::Duration;

use gangway_api::CustomResourceDefinition;
use gangway_api::install::{CONTROLLER, Settings};
use gangway_api::kueue::GROUP;
use gangway_model::{Clock, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::super::api_failure;
use super::cluster::{Cluster, is_ours, kind};
use super::say;
use crate::exit::Failure;

/// The Lease by which Kueue chooses its controller.
const KUEUE_LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
/// By so much clocks of different machines may differ before a Lease is misjudged.
const CLOCK_DIFFERENCE_SECONDS: i64 = 60;
/// A Lease that says no duration is renewed at least this often.
const LEASE_SECONDS: i32 = 15;
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What of others is on a cluster.
pub struct Others {
    leases: Vec<Lease>,
    /// Their kind, and they themselves.
    webhooks: Vec<(ApiResource, DynamicObject)>,
    definitions: Vec<DynamicObject>,
    /// APIs that another system's pods serve.
    services: Vec<DynamicObject>,
}

fn definition_kind() -> ApiResource {
    kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
}

fn service_kind() -> ApiResource {
    kind("apiregistration.k8s.io/v1", "APIService")
}

impl Others {
    /// Looks for everything that speaks for another system.
    pub async fn look(cluster: &Cluster, settings: &Settings) -> Result<Self, Failure> {
        let all: Api<Lease> = Api::all(cluster.client.clone());
        let leases = all.list(&ListParams::default()).await;
        let leases = leases.map_err(|error| api_failure("list Leases", &error))?.items;
        let of_others = |lease: &Lease| {
            let elsewhere = lease.namespace().as_deref() != Some(settings.namespace.as_str());
            lease.name_any() == KUEUE_LEASE || (lease.name_any() == CONTROLLER && elsewhere)
        };
        let mut webhooks = Vec::new();
        for name in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let resource = kind("admissionregistration.k8s.io/v1", name);
            let found = cluster.list(&resource, &ListParams::default()).await?;
            webhooks.extend(found.into_iter().filter(is_webhook).map(|found| (resource.clone(), found)));
        }
        let definitions = cluster.list(&definition_kind(), &ListParams::default()).await?;
        let services = cluster.list(&service_kind(), &ListParams::default()).await?;
        let group_of =
            |object: &DynamicObject| object.data["spec"]["group"].as_str().unwrap_or("").to_owned();
        Ok(Self {
            leases: leases.into_iter().filter(of_others).collect(),
            webhooks,
            definitions: definitions
                .into_iter()
                .filter(|found| group_of(found) == GROUP && !is_ours(found) && !says_what_ours_says(found))
                .collect(),
            services: services
                .into_iter()
                .filter(|found| group_of(found).ends_with(GROUP) && !found.data["spec"]["service"].is_null())
                .collect(),
        })
    }

    /// Why nothing may be installed, and what to try.
    pub fn refusal(&self, clock: &dyn Clock) -> Option<Failure> {
        let live = self.leases.iter().find(|lease| is_live(lease, clock.now()));
        let names = |objects: &mut dyn Iterator<Item = &DynamicObject>| {
            objects.map(ResourceExt::name_any).collect::<Vec<_>>().join(", ")
        };
        if let Some(lease) = live {
            return Some(at_work(lease));
        }
        if !self.webhooks.is_empty() {
            let names = names(&mut self.webhooks.iter().map(|(_, object)| object));
            let message = format!(
                "webhooks of another system act on this API: {names}; without its pods they refuse Jobs and queues"
            );
            return Some(
                Failure::bad_input(message)
                    .try_this("uninstall that system, or `gangway install --take-over`, which removes them"),
            );
        }
        if self.definitions.is_empty() {
            return None;
        }
        let owners = owners(&self.definitions);
        let message = format!(
            "CustomResourceDefinitions of {GROUP} belong to another system{owners}: {}",
            names(&mut self.definitions.iter())
        );
        Some(Failure::bad_input(message).try_this(
            "`gangway install --take-over`, which makes them ours and leaves every queue, Workload and Job as it is",
        ))
    }

    /// Puts the other system out of the way. Its users' objects stay.
    pub async fn take_over(&self, cluster: &Cluster, clock: &dyn Clock) -> Result<(), Failure> {
        for lease in self.leases.iter().filter(|lease| is_live(lease, clock.now())) {
            await_end(cluster, lease).await?;
        }
        for (resource, object) in &self.webhooks {
            say(&take_webhooks_away(cluster, resource, object).await?)?;
        }
        for object in &self.services {
            say(&cluster.delete(&service_kind(), object).await?)?;
        }
        for object in &self.definitions {
            let conversion = &object.data["spec"]["conversion"];
            if conversion["strategy"] == "Webhook" {
                // A webhook that nobody answers keeps every object from being read.
                let patch = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
                cluster.merge(&definition_kind(), object, &patch).await?;
            }
            let done = if cluster.dry_run { "would be taken over" } else { "is taken over" };
            say(&format!("CustomResourceDefinition {} {done}", object.name_any()))?;
        }
        Ok(())
    }
}

/// Whether a webhook configuration is one of a system that manages this API.
fn is_webhook(object: &DynamicObject) -> bool {
    object.name_any().contains("kueue") || webhooks(object).any(touches)
}

fn webhooks(object: &DynamicObject) -> impl Iterator<Item = &Value> {
    object.data["webhooks"].as_array().into_iter().flatten()
}

/// Whether a webhook names our group; one for all groups is nobody's.
fn touches(webhook: &Value) -> bool {
    let rules = webhook["rules"].as_array().into_iter().flatten();
    let mut groups = rules.flat_map(|rule| rule["apiGroups"].as_array().into_iter().flatten());
    groups.any(|group| group == GROUP)
}

/// Deletes a configuration of webhooks, or where others stand in it too, only those that are about our API.
async fn take_webhooks_away(
    cluster: &Cluster,
    resource: &ApiResource,
    object: &DynamicObject,
) -> Result<String, Failure> {
    let rest: Vec<&Value> = webhooks(object).filter(|webhook| !touches(webhook)).collect();
    if object.name_any().contains("kueue") || rest.is_empty() {
        return cluster.delete(resource, object).await;
    }
    cluster.merge(resource, object, &json!({"webhooks": rest})).await?;
    Ok(format!("{} {}: its webhooks for {GROUP} are taken out", resource.kind, object.name_any()))
}

/// Definitions that somebody applied from `gangway crds` of this version are as good as ours.
fn says_what_ours_says(found: &DynamicObject) -> bool {
    let found: Option<CustomResourceDefinition> =
        serde_json::to_value(found).and_then(serde_json::from_value).ok();
    let is_same = |found: &CustomResourceDefinition| {
        let same = |ours: &CustomResourceDefinition| {
            ours.metadata.name == found.metadata.name && ours.spec.versions == found.spec.versions
        };
        gangway_api::crds().iter().any(same)
    };
    found.as_ref().is_some_and(is_same)
}

/// Who has written objects, as far as they say.
fn owners(objects: &[DynamicObject]) -> String {
    let mut owners: Vec<String> = objects
        .iter()
        .filter_map(|object| {
            object
                .labels()
                .get("app.kubernetes.io/managed-by")
                .or(object.labels().get("app.kubernetes.io/name"))
        })
        .cloned()
        .collect();
    owners.sort();
    owners.dedup();
    if owners.is_empty() { String::new() } else { format!(" ({})", owners.join(", ")) }
}

fn seconds_of(lease: &Lease) -> i32 {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.filter(|seconds| *seconds > 0).unwrap_or(LEASE_SECONDS)
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Whether somebody holds a Lease and may still be at work.
fn is_live(lease: &Lease, now: Timestamp) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let Some(renewed) = renewed.filter(|_| !holder(lease).is_empty()) else { return false };
    let renewed = Timestamp::from_seconds(renewed.0.as_second());
    now < renewed.plus_seconds(i64::from(seconds_of(lease)) + CLOCK_DIFFERENCE_SECONDS)
}

fn at_work(lease: &Lease) -> Failure {
    let namespace = lease.namespace().unwrap_or_default();
    let seconds = i64::from(seconds_of(lease)) + CLOCK_DIFFERENCE_SECONDS;
    Failure::bad_input(format!(
        "another controller is at work: {} holds the Lease {namespace}/{}, and two would give the same quota twice",
        holder(lease),
        lease.name_any()
    ))
    .try_this(format!(
        "kubectl -n {namespace} scale deployment --all --replicas=0    stops it; then the same command again after {seconds} s, \
         or at once with --take-over, which watches whether it has stopped"
    ))
}

/// Returns when a Lease was not renewed for as long as it lasts: by what is seen, not by clocks.
async fn await_end(cluster: &Cluster, lease: &Lease) -> Result<(), Failure> {
    let namespace = lease.namespace().unwrap_or_default();
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &namespace);
    let seconds = seconds_of(lease);
    say(&format!("Lease {namespace}/{}: watching for {seconds} s whether it is renewed", lease.name_any()))?;
    for _ in 0..=seconds {
        tokio::time::sleep(LOOK_AGAIN).await;
        let now = leases.get_opt(&lease.name_any()).await;
        match now.map_err(|error| api_failure("read the other system's Lease", &error))? {
            None => return Ok(()),
            Some(now) if holder(&now).is_empty() => return Ok(()),
            Some(now) if now.resource_version() != lease.resource_version() => return Err(at_work(&now)),
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

    fn lease(holder: &str, renewed_seconds_ago: i64, duration: i32) -> Lease {
        let time = gangway_api::time::to_api_micro(NOW.plus_seconds(-renewed_seconds_ago));
        serde_json::from_value(json!({
            "metadata": {"name": KUEUE_LEASE, "namespace": "kueue-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": duration, "renewTime": time},
        }))
        .unwrap()
    }

    #[test]
    fn who_renews_is_at_work() {
        let table = [
            ("fresh", lease("a", 1, 15), true),
            ("renewed by a clock that is ahead", lease("a", -30, 15), true),
            ("late by less than clocks differ", lease("a", 60, 15), true),
            ("late", lease("a", 75, 15), false),
            ("given back", lease("", 1, 15), false),
        ];
        for (name, lease, live) in table {
            assert_eq!(is_live(&lease, NOW), live, "{name}");
        }
        assert!(!is_live(&Lease::default(), NOW));
    }

    fn configuration(name: &str, groups: &[&[&str]]) -> DynamicObject {
        let webhooks: Vec<Value> = groups
            .iter()
            .map(|groups| json!({"name": groups.join("-"), "rules": [{"apiGroups": groups}]}))
            .collect();
        serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": webhooks})).unwrap()
    }

    #[test]
    fn webhooks_for_this_api_are_told_from_others() {
        assert!(is_webhook(&configuration("any", &[&["apps"], &[GROUP]])));
        assert!(is_webhook(&configuration("kueue-mutating-webhook-configuration", &[&["batch"]])));
        assert!(!is_webhook(&configuration("policy-engine", &[&["*"], &["apps"]])));
    }

    #[test]
    fn our_own_definitions_are_known_without_a_mark() {
        let of = |crd: &CustomResourceDefinition| -> DynamicObject {
            serde_json::from_value(serde_json::to_value(crd).unwrap()).unwrap()
        };
        let mut crd = gangway_api::crds().remove(0);
        assert!(says_what_ours_says(&of(&crd)));
        crd.spec.versions[0].served = false;
        assert!(!says_what_ours_says(&of(&crd)));
    }
}
