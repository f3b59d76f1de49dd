//! `gangway controller`: admission on a cluster.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use gangway_controller::doctor::OLDEST_MINOR;
use gangway_controller::election::Candidate;
use gangway_controller::endpoints;
use gangway_controller::workloads::{self, RequestCounts};
use gangway_model::Clock;
use gangway_model::planted::Planted;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::config;
use crate::clock::SystemClock;
use crate::connect::{Connection, causes};
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt::interrupted;

/// Arguments of `gangway controller`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway controller                            the cluster of your kubeconfig, default configuration
  gangway controller --config gangway.yaml      with a configuration file
  gangway controller --kubeconfig admin.conf    another cluster

The CustomResourceDefinitions have to be there: gangway crds | kubectl apply --server-side -f -")]
pub struct ControllerArgs {
    /// The configuration file (kind Configuration of config.kueue.x-k8s.io).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

/// Refuses clusters whose Jobs may not say all that is needed, such as which pods are terminating. One that does not answer is waited for.
async fn check_version(client: &kube::Client) -> Result<(), Failure> {
    let Ok(version) = client.apiserver_version().await else { return Ok(()) };
    let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    match minor.parse::<u32>() {
        Ok(minor) if version.major == "1" && minor < OLDEST_MINOR => Err(Failure::unsupported(format!(
            "this is Kubernetes {}; the controller needs 1.{OLDEST_MINOR} or later",
            version.git_version
        ))
        .try_this("gangway run FILE    works on one machine without a cluster")),
        _ => Ok(()),
    }
}

/// A name that no other process has or had: the machine's, the process' and when it began.
pub(super) fn identity(clock: &dyn Clock) -> String {
    let machine = nix::unistd::gethostname().unwrap_or_else(|_| "gangway".into());
    format!("{}_{}_{:x}", machine.to_string_lossy(), std::process::id(), clock.now().as_nanos())
}

/// Serves metrics as long as what it returns is kept.
async fn serve_metrics(
    address: Option<SocketAddr>,
    counts: &Arc<RequestCounts>,
) -> Result<Option<JoinSet<Infallible>>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::bad_input(format!("metrics.bindAddress: cannot listen on {address}: {error}"))
    })?;
    let address = listener.local_addr().unwrap_or(address);
    eprintln!("gangway controller: metrics are at http://{address}/metrics");
    let mut serving = JoinSet::new();
    serving.spawn(endpoints::serve(listener, counts.clone()));
    Ok(Some(serving))
}

/// Admits until it is told to stop.
pub async fn run(args: ControllerArgs) -> Outcome {
    let config = config::load(args.config.as_deref())?;
    let client = args.connection.client("controller").await?;
    check_version(&client).await?;
    eprintln!(
        "gangway controller: there are no admission policies yet, so queued Jobs that were created without \
         `suspend: true` are suspended as soon as they are seen (the degraded way)"
    );
    eprintln!("gangway controller: the configuration that takes effect:\n{}", config.show());
    let counts = Arc::new(RequestCounts::default());
    let _metrics = serve_metrics(config.metrics_address, &counts).await?;
    let election = config.leader_election.clone();
    let options = workloads::Options { config, counts: counts.clone(), ..workloads::Options::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let work = |client| workloads::run(client, clock.clone(), options.clone());
    let outcome = match election {
        Some(terms) => {
            eprintln!(
                "gangway controller: admits while it holds the Lease {}/{}",
                terms.namespace, terms.name
            );
            let identity = identity(clock.as_ref());
            let candidate = Candidate::new(client, clock.clone(), identity, terms, Planted::default());
            candidate.lead(work, interrupted()).await
        }
        None => tokio::select! {
            ended = work(client) => Some(ended),
            () = interrupted() => None,
        },
    };
    let requests = counts.snapshot();
    eprintln!(
        "gangway controller: stopped after {} requests for decisions and {} for diagnostics",
        requests.decisions, requests.diagnostics
    );
    match outcome {
        Some(Err(error)) => {
            Err(Failure::bad_input(format!("the controller cannot go on: {}", causes(&error))).try_this(
                "gangway crds | kubectl apply --server-side -f -    if this cluster does not know the queues' kinds yet",
            ))
        }
        Some(Ok(())) => Err(Failure::broken("the controller ended by itself")),
        None => Ok(Exit::Success),
    }
}
