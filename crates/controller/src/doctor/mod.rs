//! What keeps Jobs from starting on a cluster, and the line that mends it.
//!
//! | question | file |
//! |---|---|
//! | what is a finding, and how bad? | `finding.rs`; the lines that mend: `fix.rs` |
//! | how old is the API server, and what time is it there? | `server.rs` |
//! | are our kinds there, with all their fields? | `definitions.rs` |
//! | what may our accounts do? | `rights.rs` |
//! | who suspends Jobs on their way in? | `policies.rs` |
//! | who leads, and is another system at work? | `leases.rs` |
//! | which flavors have nodes? | `flavors.rs` |
//! | which queues cannot work? | `queues.rs` |
//! | who waits in vain, who should have left? | `waiting.rs` |
//!
//! Nothing is written, apart from reviews of rights, which an API server answers and forgets. What cannot be looked at is told.

mod definitions;
mod finding;
mod fix;
mod flavors;
mod leases;
mod policies;
mod queues;
mod rights;
mod server;
mod waiting;

use std::fmt::Debug;
use std::sync::Arc;

use gangway_api::config::Configuration;
use gangway_api::install::SCHEDULER;
use gangway_api::kueue;
use gangway_model::Clock;
use gangway_model::queues::{ClusterQueue, Flavor};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use self::leases::Leases;
use self::server::Server;
use crate::pods::node_record;
use crate::workloads::{self, Snapshot};
pub use finding::{Area, Finding, Level};
pub use rights::{Right, rights};
pub use server::OLDEST_MINOR;

/// What is known beside the cluster.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration of the controller.
    pub config: Configuration,
    /// The file that it comes from, if it comes from one.
    pub config_file: Option<String>,
    /// Whose rights are looked at; without a name, those of whoever asks.
    pub account: Option<String>,
}

/// Looks at a cluster.
///
/// # Errors
///
/// If the API server does not answer at all.
pub async fn examine(
    client: &Client,
    clock: Arc<dyn Clock>,
    options: &Options,
) -> Result<Vec<Finding>, kube::Error> {
    let config = &options.config;
    let server = Server::new(&client.apiserver_version().await?);
    let lease = config.leader_election.as_ref().map(|terms| (terms.namespace.clone(), terms.name.clone()));
    // Looked at now and again at the end: what happens in between is what counts.
    let leases = Leases::look(client, lease.clone()).await;
    let mut findings = vec![server.version(), server::clock(client, clock.as_ref()).await];
    findings.extend(definitions::examine(client).await);
    let scheduler_lease = scheduler_lease(options.account.as_deref());
    let needed = rights(server.minor, lease.as_ref(), Some(&scheduler_lease));
    findings.extend(rights::examine(client, options.account.as_deref(), &needed).await);
    findings.push(policies::examine(client, &server).await);
    findings.extend(configuration(options));
    findings.extend(of_queues(client, clock, config).await);
    findings.extend(leases.examine().await);
    Ok(findings)
}

/// The Lease of the scheduler: an installed one has it in its own namespace, which the name of its account tells.
fn scheduler_lease(account: Option<&str>) -> rights::LeaseName {
    let name = account.and_then(|account| account.strip_prefix("system:serviceaccount:")?.split_once(':'));
    let namespace =
        name.filter(|(_, name)| *name == SCHEDULER).map_or("kube-system", |(namespace, _)| namespace);
    (namespace.to_owned(), SCHEDULER.to_owned())
}

/// What is dangerous about the configuration file.
fn configuration(options: &Options) -> Vec<Finding> {
    let Some(file) = &options.config_file else {
        return vec![Finding::skipped(
            Area::Configuration,
            "no configuration file was given with --config: the defaults are taken",
        )];
    };
    let fix = format!("${{EDITOR:-vi}} {0} && gangway config check {0}", fix::word(file));
    let warned = options.config.warnings().into_iter();
    let findings: Vec<Finding> = warned
        .map(|(setting, warning)| Finding::warning(Area::Configuration, setting, warning, fix.as_str()))
        .collect();
    match findings.is_empty() {
        true => vec![Finding::ok(Area::Configuration, format!("{file} has nothing dangerous"))],
        false => findings,
    }
}

/// Flavors, queues, checks and Workloads.
async fn of_queues(client: &Client, clock: Arc<dyn Clock>, config: &Configuration) -> Vec<Finding> {
    let now = clock.now();
    let snapshot = match Snapshot::read(client.clone(), clock, config).await {
        Ok(snapshot) => snapshot,
        Err(workloads::Error::List { source, .. }) if is_not_served(&source) => {
            return vec![Finding::skipped(
                Area::Queues,
                "there can be no queues and Workloads without their definitions",
            )];
        }
        Err(workloads::Error::List { what, source }) => return vec![unreadable(Area::Queues, what, &source)],
        Err(error) => {
            let fix = "gangway get clusterqueues";
            return vec![Finding::problem(Area::Queues, "", error.to_string(), fix)];
        }
    };
    let durable = snapshot.durable();
    let queues: Vec<&ClusterQueue> = durable.cluster_queues().collect();
    let flavors: Vec<&Flavor> = durable.flavors().collect();
    let mut findings = match list::<Node>(client).await {
        Ok(nodes) => flavors::examine(&flavors, &queues, &nodes.iter().map(node_record).collect::<Vec<_>>()),
        Err(error) => vec![unreadable(Area::Flavors, "nodes", &error)],
    };
    let mut of_queues = queues::inactive(snapshot.engine());
    of_queues.extend(queues::dangerous_order(&queues, config.wait_for_pods_ready.as_ref()));
    match list::<kueue::ClusterQueue>(client).await {
        Ok(objects) => of_queues.extend(queues::unanswered(&objects, &config.namespace)),
        Err(error) => of_queues.push(unreadable(Area::Queues, "clusterqueues", &error)),
    }
    if of_queues.is_empty() {
        of_queues.push(Finding::ok(Area::Queues, queues::all_well(durable)));
    }
    findings.extend(of_queues);
    match list::<kueue::AdmissionCheck>(client).await {
        Ok(objects) => findings.extend(queues::checks(&objects, &queues)),
        Err(error) => findings.push(unreadable(Area::Checks, "admissionchecks", &error)),
    }
    findings.extend(waiting::examine(&snapshot, now, config.eviction_report_seconds));
    findings
}

async fn list<K>(client: &Client) -> Result<Vec<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Ok(Api::<K>::all(client.clone()).list(&ListParams::default()).await?.items)
}

/// Whether the API server does not know a kind.
fn is_not_served(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Something that could not be looked at.
fn unreadable(area: Area, what: &str, error: &kube::Error) -> Finding {
    let said = match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    };
    let fix = format!("kubectl get {what} -A");
    Finding::problem(area, "", format!("cannot be looked at: {said}"), fix)
        .because("Without it nothing can be said of them. Whoever runs this needs to see all namespaces.")
}
