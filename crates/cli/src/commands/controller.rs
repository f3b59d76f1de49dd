//! `gangway controller`: admission on a cluster.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use gangway_api::config::{Configuration, Serving};
use gangway_controller::doctor::OLDEST_MINOR;
use gangway_controller::election::{Candidate, Term};
use gangway_controller::endpoints::{self, Site};
use gangway_controller::pace::Pace;
use gangway_controller::policies;
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
use crate::log::{self, LogArgs};

macro_rules! say {
    ($($text:tt)*) => {
        log::say("controller", &format!($($text)*))
    };
}

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
    /// Where metrics are served over HTTP, such as :8443 or 127.0.0.1:8443; 0 serves none. Otherwise the configuration says.
    #[arg(long, value_name = "ADDRESS")]
    metrics_bind_address: Option<String>,
    /// Where /healthz and /readyz are served over HTTP, such as :8081; 0 serves none. Otherwise the configuration says.
    #[arg(long, value_name = "ADDRESS")]
    health_probe_bind_address: Option<String>,
    #[command(flatten)]
    log: LogArgs,
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

impl ControllerArgs {
    /// The configuration that takes effect: what a flag says goes before what the file says.
    fn configuration(&self) -> Result<Configuration, Failure> {
        let mut configuration = config::load(self.config.as_deref())?;
        if let Some(address) = &self.metrics_bind_address {
            configuration.serving.metrics = address_of("--metrics-bind-address", address)?;
        }
        if let Some(address) = &self.health_probe_bind_address {
            configuration.serving.health = address_of("--health-probe-bind-address", address)?;
        }
        Ok(configuration)
    }
}

pub(super) fn address_of(flag: &str, text: &str) -> Result<Option<SocketAddr>, Failure> {
    Serving::address(text).map_err(|message| Failure::bad_input(format!("{flag}: {message}")))
}

/// What serves as long as it is kept.
type Servers = JoinSet<Infallible>;

/// Serves metrics and health where the configuration says.
async fn serve(serving: &Serving, counts: &Arc<RequestCounts>, pace: &Arc<Pace>) -> Result<Servers, Failure> {
    let mut servers = JoinSet::new();
    let places = [
        (serving.metrics, "metrics", "/metrics", "metrics.bindAddress", "--metrics-bind-address"),
        (
            serving.health,
            "health",
            serving.readiness.as_str(),
            "health.healthProbeBindAddress",
            "--health-probe-bind-address",
        ),
    ];
    for (address, what, path, setting, flag) in places {
        let Some(address) = address else { continue };
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::bad_input(format!("{setting}: cannot listen on {address}: {error}")).try_this(format!(
                "gangway controller {flag} 127.0.0.1:0    takes a free port; 0 alone serves no {what}"
            ))
        })?;
        let address = listener.local_addr().unwrap_or(address);
        say!("{what}: http://{address}{path}");
        let site = Site {
            readiness: serving.readiness.clone(),
            liveness: serving.liveness.clone(),
            set_log: Some(Arc::new(log::set)),
            ..Site::new(Arc::clone(counts), Arc::clone(pace))
        };
        servers.spawn(endpoints::serve(listener, site));
    }
    Ok(servers)
}

/// Looks after the admission policies from when it leads on: nobody else may write, and nobody else need say how they stand.
async fn keep_policies(client: kube::Client, configuration: Configuration, mut term: Term) -> Infallible {
    term.begins().await;
    policies::keep(client, configuration, |standing| say!("{standing}")).await
}

/// Admits until it is told to stop.
pub async fn run(args: ControllerArgs) -> Outcome {
    args.log.apply()?;
    let config = args.configuration()?;
    let client = args.connection.plain_client("controller").await?;
    check_version(&client).await?;
    say!("the configuration that takes effect:\n{}", config.show());
    let counts = Arc::new(RequestCounts::default());
    let pace = Arc::new(Pace::default());
    let _servers = serve(&config.serving, &counts, &pace).await?;
    say!(
        "sends at most {} writes per second and {} at once for decisions, and as many again to inform",
        config.requests_per_second,
        config.request_burst
    );
    let election = config.leader_election.clone();
    let options =
        workloads::Options { config, pace, counts: counts.clone(), ..workloads::Options::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let work = |client: kube::Client, term: Term| {
        let options = workloads::Options { term: term.clone(), ..options.clone() };
        let configuration = options.config.clone();
        let admission = workloads::run(client.clone(), clock.clone(), options);
        async move {
            tokio::select! {
                ended = admission => ended,
                never = keep_policies(client, configuration, term) => match never {},
            }
        }
    };
    let outcome = match election {
        Some(terms) => {
            say!("admits while it holds the Lease {}/{}", terms.namespace, terms.name);
            let identity = identity(clock.as_ref());
            let candidate = Candidate::new(client, clock.clone(), identity, terms, Planted::default());
            candidate.lead(work, interrupted()).await
        }
        None => tokio::select! {
            ended = work(client, Term::default()) => Some(ended),
            () = interrupted() => None,
        },
    };
    let requests = counts.snapshot();
    say!(
        "stopped after {} requests for decisions and {} for diagnostics",
        requests.decisions,
        requests.diagnostics
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
