//! `gangway trace`: the life of a Job's Workload, from what is stored.

mod answer;
mod life;
mod relations;

use std::fmt::Debug;

use clap::{Args, ValueEnum};
use gangway_admission::{Rung, ladder};
use gangway_api::kueue::{ClusterQueue, LocalQueue, Workload};
use gangway_api::records::{self, ResourceRules};
use gangway_model::Clock;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use self::life::Life;
use super::jobs::{is_of, job_name, names_queue, no_such_job, not_queued};
use super::{api_failure, print};
use crate::clock::SystemClock;
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::render::palette::Palette;

/// Arguments of `gangway trace`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway trace job/train -n vision           what happened to it, and when
  gangway trace job/train -n vision -o json   for programs

It shows what the Workload says of itself, and the Events of the Workload and the Job.
What is not stored any more, or never was, is called \"not recorded\": a condition keeps
the time of its last change only, and a cluster keeps Events for an hour or so.")]
pub struct TraceArgs {
    /// `job/NAME`.
    #[arg(value_name = "job/NAME")]
    target: String,
    /// The namespace; otherwise that of the context.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Json,
}

/// Traces one Job.
pub async fn run(args: TraceArgs) -> Outcome {
    let name = job_name("trace", &args.target)?;
    let client = args.connection.client("trace").await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    let found = jobs.get_opt(name).await.map_err(|error| api_failure("get the Job", &error))?;
    let job = found.ok_or_else(|| no_such_job(&namespace, name))?;
    // Those whom it displaced, or was displaced by, may be in any namespace.
    let everywhere = Api::<Workload>::all(client.clone());
    let workloads = list(everywhere, "list Workloads", &ListParams::default()).await?;
    let mut own: Vec<&Workload> = workloads.iter().filter(|workload| is_of(workload, &job)).collect();
    if own.is_empty() && !names_queue(&job) {
        return Err(not_queued(&namespace, name));
    }
    own.sort_by_key(|workload| workload.creation_timestamp());
    let mut events = events_of(&client, &job).await?;
    for workload in &own {
        events.extend(events_of(&client, *workload).await?);
    }
    let ladder = match own.last() {
        Some(workload) => ladder_of(&client, workload).await?,
        None => Vec::new(),
    };
    let life = Life { job: &job, own, all: &workloads, events: &events, ladder };
    match args.output {
        Some(Form::Json) => print(&format!("{:#}\n", answer::as_json(&life)))?,
        None => print(&format!("{}\n", answer::lines(&life, Palette::of_stdout()).join("\n")))?,
    }
    Ok(Exit::Success)
}

/// The flavors that a Workload falls back to; none if its queue gives up none, or is gone.
async fn ladder_of(client: &Client, workload: &Workload) -> Result<Vec<Vec<Rung>>, Failure> {
    let record = records::workload(workload, &ResourceRules::default()).record;
    let reserved = record.state.reservation().map(|held| held.admission.cluster_queue.to_string());
    let name = match reserved {
        Some(name) => Some(name),
        None => {
            let queues: Api<LocalQueue> = Api::namespaced(client.clone(), &record.name.namespace.to_string());
            let found = queues.get_opt(&record.queue).await;
            let queue = found.map_err(|error| api_failure("get the LocalQueue", &error))?;
            queue.and_then(|queue| queue.spec.cluster_queue)
        }
    };
    let Some(name) = name else { return Ok(Vec::new()) };
    let found = Api::<ClusterQueue>::all(client.clone()).get_opt(&name).await;
    let queue = found.map_err(|error| api_failure("get the ClusterQueue", &error))?;
    let queue = queue.map(|queue| records::cluster_queue(&queue).record);
    Ok(queue.map(|queue| ladder(&queue, &record, SystemClock.now())).unwrap_or_default())
}

async fn events_of<K: Resource>(client: &Client, object: &K) -> Result<Vec<Event>, Failure> {
    let (namespace, uid) = (object.namespace().unwrap_or_default(), object.uid().unwrap_or_default());
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    list(Api::namespaced(client.clone(), &namespace), "list Events", &about).await
}

async fn list<K>(api: Api<K>, what: &str, which: &ListParams) -> Result<Vec<K>, Failure>
where
    K: Clone + Debug + DeserializeOwned,
{
    let listed = api.list(which).await;
    listed.map(|list| list.items).map_err(|error| api_failure(what, &error))
}
