//! Who leads, and whether another system is at work: by whether a Lease is renewed while we look, not by clocks.

use std::time::Duration;

use gangway_api::time::from_api;
use gangway_model::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use super::finding::{Area, Finding};
use super::fix::word;
use super::server::judge_leader_clock;
use super::unreadable;

/// The Lease of the system whose API this is.
const OTHER: &str = "c1f6bfd2.kueue.x-k8s.io";
/// The Leases of our controller and of our scheduler, where nothing else is configured.
const CONTROLLER: &str = "gangway-controller";
const SCHEDULERS: &[&str] = &["gangway-scheduler", "gangway"];

/// How often it is looked whether a Lease was renewed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// A Lease that says that it lasts for longer is not waited for.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// Whose a Lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Controller,
    Scheduler,
    Other,
}

/// What became of a Lease while we looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nobody holds it.
    Free,
    /// It was renewed.
    Renewed,
    /// It was not, for as long as it lasts.
    Stale,
}

/// The Leases of a cluster that say who is at work, as they were at first.
pub(super) struct Leases {
    api: Api<Lease>,
    /// The Lease of the configuration: namespace and name.
    configured: Option<(String, String)>,
    since: Instant,
    first: Result<Vec<(Owner, Lease)>, kube::Error>,
}

impl Leases {
    /// Looks for the first time.
    pub(super) async fn look(client: &Client, configured: Option<(String, String)>) -> Self {
        let api: Api<Lease> = Api::all(client.clone());
        let since = Instant::now();
        let first = list(&api, configured.as_ref()).await;
        Self { api, configured, since, first }
    }

    /// Goes on looking until it is clear of each whether it is renewed.
    pub(super) async fn examine(self) -> Vec<Finding> {
        let Self { api, configured, since, first } = self;
        let first = match first {
            Ok(first) => first,
            Err(error) => return vec![unreadable(Area::Election, "leases.coordination.k8s.io", &error)],
        };
        let mut standings: Vec<Option<Standing>> = first.iter().map(|(_, lease)| at_first(lease)).collect();
        while standings.contains(&None) {
            let elapsed = since.elapsed();
            let now = match list(&api, configured.as_ref()).await {
                Ok(now) => now,
                Err(error) => return vec![unreadable(Area::Election, "leases.coordination.k8s.io", &error)],
            };
            for ((_, lease), standing) in
                first.iter().zip(&mut standings).filter(|(_, standing)| standing.is_none())
            {
                let now = now.iter().map(|(_, now)| now).find(|now| now.uid() == lease.uid());
                *standing = later(lease, now, elapsed);
            }
            if standings.contains(&None) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        let looked_at: Vec<(Owner, Lease, Standing)> = first
            .into_iter()
            .zip(standings)
            .map(|((owner, lease), standing)| (owner, lease, standing.unwrap_or(Standing::Stale)))
            .collect();
        judge(&looked_at, configured.as_ref())
    }
}

async fn list(
    api: &Api<Lease>,
    configured: Option<&(String, String)>,
) -> Result<Vec<(Owner, Lease)>, kube::Error> {
    let listed = api.list(&ListParams::default()).await?;
    Ok(listed.items.into_iter().filter_map(|lease| Some((owner(&lease, configured)?, lease))).collect())
}

fn owner(lease: &Lease, configured: Option<&(String, String)>) -> Option<Owner> {
    let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
    let is_configured = configured.is_some_and(|(own, lease)| *own == namespace && *lease == name);
    match name.as_str() {
        _ if is_configured => Some(Owner::Controller),
        CONTROLLER => Some(Owner::Controller),
        OTHER => Some(Owner::Other),
        name if SCHEDULERS.contains(&name) => Some(Owner::Scheduler),
        _ => None,
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// How long a Lease lasts that is not renewed.
fn lasts(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    let told = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    if told.is_zero() { Duration::from_secs(15) } else { told.min(PATIENCE_MAX) }
}

fn at_first(lease: &Lease) -> Option<Standing> {
    holder(lease).is_empty().then_some(Standing::Free)
}

/// What is clear of a Lease after some time; none if it may still be renewed.
fn later(first: &Lease, now: Option<&Lease>, elapsed: Duration) -> Option<Standing> {
    match now {
        None => Some(Standing::Free),
        Some(now) if holder(now).is_empty() => Some(Standing::Free),
        Some(now) if now.resource_version() != first.resource_version() => Some(Standing::Renewed),
        Some(_) => (elapsed >= lasts(first)).then_some(Standing::Stale),
    }
}

fn judge(leases: &[(Owner, Lease, Standing)], configured: Option<&(String, String)>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = leases.iter().filter_map(judge_one).collect();
    let of = |wanted: Owner| leases.iter().filter(move |(owner, ..)| *owner == wanted);
    let at_work: Vec<String> = of(Owner::Controller)
        .filter(|(_, _, standing)| *standing == Standing::Renewed)
        .map(|(_, lease, _)| place(lease))
        .collect();
    if at_work.len() > 1 {
        let extra = of(Owner::Controller).filter(|(_, _, standing)| *standing == Standing::Renewed).nth(1);
        let namespace = extra.and_then(|(_, lease, _)| lease.namespace()).unwrap_or_default();
        let what = "several controllers admit by themselves";
        let finding = Finding::problem(
            Area::Election,
            at_work.join(", "),
            what,
            stop_deployment(&namespace, CONTROLLER),
        );
        findings.push(finding.because("They do not know of each other, and give the same quota twice."));
    }
    if of(Owner::Controller).next().is_none() {
        findings.push(match configured {
            Some((namespace, name)) => {
                let what = "does not exist: no controller has run with this configuration";
                let fix = format!("kubectl -n {} rollout status deployment {CONTROLLER}", word(namespace));
                Finding::problem(Area::Election, format!("Lease {namespace}/{name}"), what, fix)
                    .because("Nobody admits Jobs. The line tells how the pods of an installed controller fare.")
            }
            None => Finding::skipped(
                Area::Election,
                "there is no Lease of a controller: one that runs without leaderElection is seen by what its queues say",
            ),
        });
    }
    let clocks =
        leases.iter().filter(|(owner, _, standing)| *owner != Owner::Other && *standing == Standing::Renewed);
    findings
        .extend(clocks.filter_map(|(_, lease, _)| judge_leader_clock(holder(lease), seconds_ahead(lease)?)));
    findings
}

fn place(lease: &Lease) -> String {
    format!("Lease {}/{}", lease.namespace().unwrap_or_default(), lease.name_any())
}

fn stop_deployment(namespace: &str, name: &str) -> String {
    format!("kubectl -n {} scale deployment {name} --replicas=0", word(namespace))
}

fn judge_one((owner, lease, standing): &(Owner, Lease, Standing)) -> Option<Finding> {
    let holder = holder(lease);
    let namespace = lease.namespace().unwrap_or_default();
    let what = match owner {
        Owner::Controller => "controller",
        Owner::Scheduler => "scheduler",
        Owner::Other => {
            let fix = stop_deployment(&namespace, "kueue-controller-manager");
            let is_live = *standing == Standing::Renewed;
            return is_live.then(|| {
                let what = format!("another system is at work: {holder} renews it");
                Finding::problem(Area::Election, place(lease), what, fix)
                    .because("Two that admit to the same queues give the same quota twice. The line stops the other one.")
            });
        }
    };
    let restart = format!("kubectl -n {} rollout restart deployment gangway-{what}", word(&namespace));
    let consequence = match owner {
        Owner::Scheduler => "Pods with `schedulerName: gangway` wait.",
        Owner::Controller | Owner::Other => "Nobody admits Jobs.",
    };
    Some(match standing {
        Standing::Renewed => {
            Finding::ok(Area::Election, format!("{holder} leads as {what}, and renews {}", place(lease)))
        }
        Standing::Free => {
            let what = format!("is free: no {what} leads");
            Finding::problem(Area::Election, place(lease), what, restart).because(consequence)
        }
        Standing::Stale => {
            let what = format!("is held by {holder}, who did not renew it for {} s", lasts(lease).as_secs());
            Finding::problem(Area::Election, place(lease), what, restart)
                .because(format!("Who held it has died or cannot reach the API server. {consequence}"))
        }
    })
}

/// How far the clock of whoever renewed a Lease is ahead: the API server notes when each writer last changed what it owns.
fn seconds_ahead(lease: &Lease) -> Option<i64> {
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?;
    let renewed = Timestamp::from_seconds(renewed.0.as_second());
    let noted = lease
        .metadata
        .managed_fields
        .as_ref()?
        .iter()
        .filter_map(|entry| entry.time.as_ref())
        .map(from_api)
        .max()?;
    Some(renewed.as_seconds() - noted.as_seconds())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;

    fn lease(namespace: &str, name: &str, holder: &str, version: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": version,
                "managedFields": [{"manager": "m", "operation": "Update", "time": "2026-01-01T00:00:07Z"}]},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:10.500000Z"},
        }))
        .unwrap()
    }

    #[test]
    fn a_lease_is_judged_by_what_is_seen() {
        let first = lease("n", CONTROLLER, "a", "1");
        let renewed = lease("n", CONTROLLER, "a", "2");
        let given_back = lease("n", CONTROLLER, "", "2");
        let seconds = Duration::from_secs;
        let table = [
            ("the same after a while", Some(&first), seconds(14), None),
            ("the same for as long as it lasts", Some(&first), seconds(15), Some(Standing::Stale)),
            ("renewed", Some(&renewed), seconds(2), Some(Standing::Renewed)),
            ("given back", Some(&given_back), seconds(2), Some(Standing::Free)),
            ("deleted", None, seconds(2), Some(Standing::Free)),
        ];
        for (name, now, elapsed, expected) in table {
            assert_eq!(later(&first, now, elapsed), expected, "{name}");
        }
        assert_eq!((at_first(&first), at_first(&given_back)), (None, Some(Standing::Free)));
    }

    #[test]
    fn leases_are_known_by_name() {
        let configured = ("there".to_owned(), "mine".to_owned());
        let of = |namespace: &str, name: &str| owner(&lease(namespace, name, "a", "1"), Some(&configured));
        assert_eq!(of("there", "mine"), Some(Owner::Controller));
        assert_eq!(of("elsewhere", "mine"), None);
        assert_eq!(of("elsewhere", CONTROLLER), Some(Owner::Controller));
        assert_eq!(of("kube-system", "gangway-scheduler"), Some(Owner::Scheduler));
        assert_eq!(of("kueue-system", OTHER), Some(Owner::Other));
        assert_eq!(of("kube-system", "kube-scheduler"), None);
    }

    #[test]
    fn what_leases_mean() {
        use Standing::{Free, Renewed, Stale};
        let ours = |standing| (Owner::Controller, lease("n", CONTROLLER, "a", "1"), standing);
        let levels = |leases: &[(Owner, Lease, Standing)]| -> Vec<(Level, Area)> {
            judge(leases, None).iter().map(|finding| (finding.level, finding.area)).collect()
        };
        // The clock of the one that renews is 3 s ahead.
        let clock = (Level::Warning, Area::Clocks);
        assert_eq!(levels(&[ours(Renewed)]), [(Level::Ok, Area::Election), clock]);
        assert_eq!(levels(&[ours(Free)]), [(Level::Problem, Area::Election)]);
        assert_eq!(levels(&[ours(Stale)]), [(Level::Problem, Area::Election)]);
        let other = (Owner::Other, lease("kueue-system", OTHER, "b", "1"), Renewed);
        let told = judge(&[ours(Renewed), other], None);
        assert_eq!(told[1].what, "another system is at work: b renews it");
        let fix = "kubectl -n kueue-system scale deployment kueue-controller-manager --replicas=0";
        assert_eq!((told[1].level, told[1].fix.as_deref()), (Level::Problem, Some(fix)));
        let left_behind = (Owner::Other, lease("kueue-system", OTHER, "b", "1"), Stale);
        assert_eq!(levels(&[ours(Renewed), left_behind]).len(), 2, "nobody is at work there");
        let second = (Owner::Controller, lease("m", CONTROLLER, "b", "1"), Renewed);
        let several = judge(&[ours(Renewed), second], None);
        assert!(several.iter().any(|finding| finding.what == "several controllers admit by themselves"));
        assert_eq!(levels(&[]), [(Level::Skipped, Area::Election)]);
        let configured = ("n".to_owned(), "mine".to_owned());
        assert_eq!(judge(&[], Some(&configured))[0].level, Level::Problem);
    }
}
