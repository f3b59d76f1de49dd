//! `gangway explain`: why does a Job wait, or a pod?

mod answer;
mod next_try;
mod pod;
mod preemption;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use gangway_controller::pods;
use gangway_controller::workloads::{Explained, Snapshot};
use gangway_model::Clock;
use serde_json::json;

use self::answer::{as_json, lines};
use self::preemption::Preemption;
use super::jobs::{job_name, no_such_job, not_queued};
use super::{config, print};
use crate::clock::SystemClock;
use crate::connect::{Connection, causes};
use crate::exit::{Exit, Failure, Outcome};
use crate::render::palette::Palette;

/// Arguments of `gangway explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway explain job/train -n vision           why it waits and what would help
  gangway explain job/train -n vision -o json   for programs
  gangway explain pod/train-0 -n vision         which nodes each plugin rules out, what would wake it, and when it
                                                is tried next
  gangway explain pod/train-0 --config FILE     by the plugins of a scheduler with this configuration

It lists the objects and works the answer out anew, so it needs no controller to
be running. The reasons are in docs/reasons.md.")]
pub struct ExplainArgs {
    /// `job/NAME` or `pod/NAME`.
    #[arg(value_name = "job/NAME|pod/NAME")]
    target: String,
    /// The namespace; otherwise that of the context.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    /// The configuration file of the controller; for a pod, that of its scheduler (kind KubeSchedulerConfiguration).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Json,
}

/// Explains one Job or pod.
pub async fn run(args: ExplainArgs) -> Outcome {
    if let Some(name) = args.target.strip_prefix("pod/") {
        return explain_pod(&args, name).await;
    }
    let name = job_name("explain", &args.target)?;
    let config = config::load(args.config.as_deref())?;
    let client = args.connection.client("explain").await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let snapshot = Snapshot::read(client, clock, &config).await.map_err(|error| {
        Failure::bad_input(format!("cannot read the queues and Workloads: {}", causes(&error))).try_this(
            "gangway crds | kubectl apply --server-side -f -    if this cluster does not know the queues' kinds yet",
        )
    })?;
    let job = format!("Job {namespace}/{name}");
    let explanation = match snapshot.explain_job(&namespace, name) {
        Explained::NoSuchJob => return Err(no_such_job(&namespace, name)),
        Explained::NotQueued => return Err(not_queued(&namespace, name)),
        Explained::NoWorkload => {
            return Err(Failure::bad_input(format!("{job} is queued, but no Workload stands for it yet"))
                .try_this("check that `gangway controller` runs; `kubectl describe job` shows its Events"));
        }
        Explained::Refused { reason, message } => {
            let line = match args.output {
                Some(Form::Json) => {
                    format!("{:#}\n", json!({"job": job, "situation": reason.as_str(), "message": message}))
                }
                None => format!("{job} is not queued: {reason}\n  {message}\n"),
            };
            print(&line)?;
            return Ok(Exit::Success);
        }
        Explained::Workload(explanation) => explanation,
    };
    let preemption = Preemption::new(&explanation, &snapshot);
    match args.output {
        Some(Form::Json) => {
            let mut answer = as_json(&explanation);
            preemption.add_to(&mut answer);
            print(&format!("{answer:#}\n"))?;
        }
        None => {
            let palette = Palette::of_stdout();
            for line in lines(&job, &explanation, &preemption.lines(palette), palette) {
                print(&format!("{line}\n"))?;
            }
        }
    }
    Ok(Exit::Success)
}

async fn explain_pod(args: &ExplainArgs, name: &str) -> Outcome {
    let configuration = args.config.as_deref().map(config::load_scheduler).transpose()?;
    let settings = configuration.map(|configuration| configuration.settings);
    let client = args.connection.client("explain").await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let explained = pods::explain_pod(client, &SystemClock, settings.as_ref(), &namespace, name)
        .await
        .map_err(|error| Failure::bad_input(format!("cannot read the pods and nodes: {}", causes(&error))))?;
    let pod_name = format!("Pod {namespace}/{name}");
    let Some(explained) = explained else {
        return Err(Failure::bad_input(format!("there is no pod {namespace}/{name}"))
            .try_this(format!("kubectl get pods -n {namespace}")));
    };
    match args.output {
        Some(Form::Json) => print(&format!("{:#}\n", pod::as_json(&pod_name, &explained)))?,
        None => {
            for line in pod::lines(&pod_name, &explained, Palette::of_stdout()) {
                print(&format!("{line}\n"))?;
            }
        }
    }
    Ok(Exit::Success)
}
