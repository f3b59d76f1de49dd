//! `gangway scheduler`: placement on a cluster.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use gangway_api::config::LeaderElection;
use gangway_api::scheduler_config::{FeatureGates, SchedulerConfiguration};
use gangway_controller::election::{Candidate, Term};
use gangway_controller::endpoints::{self, Site};
use gangway_controller::pace::Pace;
use gangway_controller::pods::{self, BindCounts};
use gangway_model::Clock;
use gangway_model::planted::Planted;
use gangway_model::scheduling::ProfileSettings;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{config, controller};
use crate::clock::SystemClock;
use crate::connect::{Connection, causes};
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt::interrupted;
use crate::log::{self, LogArgs};

macro_rules! say {
    ($($text:tt)*) => {
        log::say("scheduler", &format!($($text)*))
    };
}

/// Arguments of `gangway scheduler`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway scheduler                              pods with `schedulerName: gangway`
  gangway scheduler --name default-scheduler     on a cluster without another scheduler
  gangway scheduler --config scheduler.yaml      with a KubeSchedulerConfiguration")]
pub struct SchedulerArgs {
    /// The configuration file (kind KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The scheduler name that pods ask for, in place of the default profile; may be given more than once.
    #[arg(long = "name", value_name = "NAME", conflicts_with = "config")]
    names: Vec<String>,
    /// Features to turn on or off, as in SchedulerPopFromBackoffQ=false.
    #[arg(long, value_name = "NAME=BOOL,...", default_value = "", hide_default_value = true)]
    feature_gates: String,
    /// Whether one of several schedulers is chosen by a Lease; otherwise the configuration says, and by default one is.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// Where metrics, /healthz and /readyz are served over HTTP, such as 127.0.0.1:10259; nowhere by default.
    #[arg(long, value_name = "ADDRESS")]
    metrics_bind_address: Option<SocketAddr>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    connection: Connection,
}

/// The Lease of schedulers that no file configures.
fn own_lease() -> LeaderElection {
    LeaderElection {
        namespace: "kube-system".to_owned(),
        name: "gangway-scheduler".to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

impl SchedulerArgs {
    /// The configuration that takes effect.
    fn configuration(&self) -> Result<SchedulerConfiguration, Failure> {
        let mut configuration = match &self.config {
            Some(file) => config::load_scheduler(file)?,
            None => SchedulerConfiguration {
                leader_election: Some(own_lease()),
                ..SchedulerConfiguration::default()
            },
        };
        if !self.names.is_empty() {
            let profiles = self.names.iter().map(|name| ProfileSettings::named(name));
            configuration.settings.profiles = profiles.collect();
        }
        match self.leader_elect {
            Some(false) => configuration.leader_election = None,
            Some(true) => {
                configuration.leader_election.get_or_insert_with(own_lease);
            }
            None => {}
        }
        let gates = FeatureGates::parse(&self.feature_gates)
            .map_err(|problem| Failure::bad_input(format!("--feature-gates: {problem}")))?;
        configuration.settings.pop_from_backoff = gates.pop_from_backoff;
        Ok(configuration)
    }
}

/// Serves metrics as long as what it returns is kept.
async fn serve(
    address: Option<SocketAddr>,
    counts: &Arc<BindCounts>,
    pace: &Arc<Pace>,
) -> Result<Option<JoinSet<Infallible>>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::bad_input(format!("--metrics-bind-address: cannot listen on {address}: {error}"))
    })?;
    let address = listener.local_addr().unwrap_or(address);
    say!("metrics are at http://{address}/metrics");
    let mut serving = JoinSet::new();
    let site = Site { set_log: Some(Arc::new(log::set)), ..Site::new(Arc::clone(counts), Arc::clone(pace)) };
    serving.spawn(endpoints::serve(listener, site));
    Ok(Some(serving))
}

/// Places pods until it is told to stop.
pub async fn run(args: SchedulerArgs) -> Outcome {
    args.log.apply()?;
    let configuration = args.configuration()?;
    let mut connection = args.connection;
    if connection.kubeconfig.is_none() {
        connection.kubeconfig.clone_from(&configuration.kubeconfig);
    }
    let client = connection.plain_client("scheduler").await?;
    let pace = Arc::new(Pace::new(configuration.requests_per_second, configuration.request_burst));
    let SchedulerConfiguration { settings, leader_election, .. } = configuration.clone();
    say!(
        "sends at most {} writes per second and {} at once for decisions, and as many again to inform",
        configuration.requests_per_second,
        configuration.request_burst
    );
    let names: Vec<&str> = settings.profiles.iter().map(|p| p.scheduler_name.as_str()).collect();
    say!("places pods that ask for {}", names.join(" or "));
    say!("the configuration that takes effect:\n{}", configuration.show());
    let counts: Arc<BindCounts> = Arc::default();
    let _metrics = serve(args.metrics_bind_address, &counts, &pace).await?;
    let options = pods::Options { settings, counts: Arc::clone(&counts), ..pods::Options::default() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let work = |client, mut term: Term| {
        let placing = Box::pin(pods::run(pace.sorting_client(&client), clock.clone(), options.clone()));
        async move {
            term.begins().await;
            placing.await
        }
    };
    let outcome = match leader_election {
        Some(terms) => {
            say!("places while it holds the Lease {}/{}", terms.namespace, terms.name);
            let identity = controller::identity(clock.as_ref());
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
        "stopped after {} requests for decisions and {} for diagnostics, which waited {:.1} s for \
         the request rate",
        requests.decision_requests(),
        requests.diagnostic_requests(),
        pace.waited().as_secs_f64()
    );
    match outcome {
        Some(Err(error)) => {
            Err(Failure::bad_input(format!("the scheduler cannot go on: {}", causes(&error))))
        }
        Some(Ok(())) => Err(Failure::broken("the scheduler ended by itself")),
        None => Ok(Exit::Success),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SchedulerArgs,
    }

    fn configured(flags: &[&str]) -> Result<SchedulerConfiguration, String> {
        let line = std::iter::once(&"scheduler").chain(flags);
        let line = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        line.args.configuration().map_err(|failure| failure.message)
    }

    #[test]
    fn flags_change_the_configuration() {
        let names = |flags: &[&str]| -> Vec<String> {
            let profiles = configured(flags).unwrap().settings.profiles;
            profiles.into_iter().map(|profile| profile.scheduler_name).collect()
        };
        assert_eq!(names(&[]), ["gangway"]);
        assert_eq!(names(&["--name", "a", "--name", "b"]), ["a", "b"]);
        let election = |flags: &[&str]| configured(flags).unwrap().leader_election;
        assert_eq!(election(&[]), Some(own_lease()));
        assert_eq!(election(&["--leader-elect"]), Some(own_lease()));
        assert_eq!(election(&["--leader-elect=false"]), None);
        let pops = |flags: &[&str]| configured(flags).unwrap().settings.pop_from_backoff;
        assert!(pops(&[]) && !pops(&["--feature-gates", "SchedulerPopFromBackoffQ=false"]));
        let error = configured(&["--feature-gates", "Never=true"]).unwrap_err();
        assert!(error.starts_with("--feature-gates: unknown feature gate"), "{error}");
        assert!(configured(&["--config", "f.yaml", "--name", "a"]).is_err(), "the file names the profiles");
    }

    #[test]
    fn a_file_says_who_is_elected_unless_the_command_line_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("scheduler.yaml");
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                    podMaxBackoffSeconds: 20\nleaderElection: {resourceName: other}\n";
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let configuration = configured(&["--config", file]).unwrap();
        assert_eq!(configuration.settings.max_backoff, Duration::from_secs(20));
        assert_eq!(configuration.leader_election.unwrap().name, "other");
        assert_eq!(configured(&["--config", file, "--leader-elect=false"]).unwrap().leader_election, None);
    }
}
