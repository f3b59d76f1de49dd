//! One file per command, and the arguments that lead there.

mod bench;
mod check;
mod config;
mod controller;
mod crds;
mod doctor;
mod explain;
mod get;
mod install;
mod jobs;
mod ladder;
mod logs;
pub mod metrics;
mod node;
pub mod reasons;
mod replay;
pub mod rights;
mod run;
mod scheduler;
mod sim;
mod snapshot;
mod trace;

use std::io::Write;

use clap::{Parser, Subcommand};

use crate::connect::causes;
use crate::exit::{EXIT_CODES_HELP, Exit, Failure, Outcome};

/// Admits batch Jobs against quota, on a Kubernetes cluster or on this machine alone.
#[derive(Debug, Parser)]
#[command(name = "gangway", version, after_help = format!("{EXAMPLES}\n\n{EXIT_CODES_HELP}"))]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gangway run examples/quickstart.yaml                queues and Jobs, no cluster needed
  gangway install                                     on the cluster of your kubeconfig
  gangway explain job/train -n vision                 why does it wait?";

#[derive(Debug, Subcommand)]
enum Command {
    /// Applies files, runs their Jobs on this machine and ends when every Job has ended.
    Run(run::RunArgs),
    /// Installs Gangway on a cluster, or prints what that takes.
    Install(install::InstallArgs),
    /// Brings the Gangway of a cluster to this version, or to another configuration.
    Upgrade(install::UpgradeArgs),
    /// Takes Gangway off a cluster; Jobs and queues stay.
    Uninstall(install::UninstallArgs),
    /// Admits Jobs on a cluster.
    Controller(controller::ControllerArgs),
    /// Places pods on nodes: those that ask for the scheduler `gangway`.
    Scheduler(scheduler::SchedulerArgs),
    /// Makes this machine a node, or plays nodes that only pretend.
    Node(node::NodeArgs),
    /// Prints the CustomResourceDefinitions.
    Crds,
    /// Checks or shows a configuration file.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Looks for what keeps Jobs from starting on a cluster, and says what mends it.
    Doctor(doctor::DoctorArgs),
    /// Lists queues, Workloads or Jobs.
    Get(get::GetArgs),
    /// Says why a Job waits, with numbers.
    Explain(explain::ExplainArgs),
    /// Tells the life of a Job as a timeline: what happened, when, and who was preempted for whom.
    Trace(trace::TraceArgs),
    /// Answers an admission check of a Workload by hand.
    #[command(subcommand)]
    Check(check::CheckCommand),
    /// Writes queues and Workloads to a file that `replay` reads.
    Snapshot(snapshot::SnapshotArgs),
    /// Says what would be decided about queues and Workloads that stand in files.
    Replay(replay::ReplayArgs),
    /// Prints what pods wrote.
    Logs(logs::LogsArgs),
    /// Measures Gangway on this machine.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Plays the whole system in virtual time.
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Prints docs/reasons.md.
    #[command(hide = true)]
    Reasons,
    /// Prints docs/rights.md.
    #[command(hide = true)]
    Rights,
    /// Prints docs/metrics.md.
    #[command(hide = true)]
    Metrics,
}

impl Cli {
    /// Does what was asked.
    pub async fn run(self) -> Outcome {
        match self.command {
            Command::Run(args) => Box::pin(run::run(args)).await,
            Command::Install(args) => Box::pin(install::run(args)).await,
            Command::Upgrade(args) => Box::pin(install::upgrade(args)).await,
            Command::Uninstall(args) => Box::pin(install::uninstall(args)).await,
            Command::Controller(args) => Box::pin(controller::run(args)).await,
            Command::Scheduler(args) => Box::pin(scheduler::run(args)).await,
            Command::Node(args) => Box::pin(node::run(args)).await,
            Command::Crds => crds::run(),
            Command::Config(command) => config::run(command),
            Command::Doctor(args) => Box::pin(doctor::run(args)).await,
            Command::Get(args) => Box::pin(get::run(args)).await,
            Command::Explain(args) => Box::pin(explain::run(args)).await,
            Command::Trace(args) => Box::pin(trace::run(args)).await,
            Command::Check(command) => Box::pin(check::run(command)).await,
            Command::Snapshot(args) => Box::pin(snapshot::run(args)).await,
            Command::Replay(args) => replay::run(&args),
            Command::Logs(args) => Box::pin(logs::run(args)).await,
            Command::Bench(command) => Box::pin(bench::run(command)).await,
            Command::Sim(command) => sim::run(&command),
            Command::Reasons => reasons::run(),
            Command::Rights => rights::run(),
            Command::Metrics => metrics::run(),
        }
    }
}

/// Writes to standard output. A reader that went away (`| head`) ends the command without a complaint.
fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(output_failure)
}

fn output_failure(error: std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => {
            Failure { exit: Exit::Success, message: String::new(), advice: String::new() }
        }
        _ => Failure::bad_input(format!("cannot write the output: {error}")),
    }
}

/// A request that the API server did not fulfil.
fn api_failure(what: &str, error: &kube::Error) -> Failure {
    let said = match error {
        kube::Error::Api(status) => status.message.clone(),
        other => causes(other),
    };
    let failure = Failure::bad_input(format!("cannot {what}: {said}"));
    match error {
        kube::Error::Api(status)
            if status.code == 404
                && status.details.as_ref().is_none_or(|details| details.name.is_empty()) =>
        {
            failure.try_this(
                "gangway crds | kubectl apply --server-side -f -    if this cluster does not know the queues' kinds yet",
            )
        }
        kube::Error::Api(status) if status.code == 403 => {
            failure.try_this("ask for the permission that the message names")
        }
        _ => failure,
    }
}
