//! `gangway logs`: what the pods of a Job, or one pod, wrote.

use std::io::Write;

use clap::Args;
use futures::AsyncBufReadExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt};

use super::{api_failure, output_failure};
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};

/// Arguments of `gangway logs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway logs job/train -n vision            all pods of a Job
  gangway logs pod/train-x7k2p -n vision -f   follow one pod until it ends")]
pub struct LogsArgs {
    /// `job/NAME` or `pod/NAME`.
    #[arg(value_name = "KIND/NAME")]
    target: String,
    /// The namespace; otherwise that of the context.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Goes on until the pod ends.
    #[arg(short, long)]
    follow: bool,
    /// The container; otherwise the first.
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Only the last lines.
    #[arg(long, value_name = "LINES")]
    tail: Option<i64>,
    #[command(flatten)]
    connection: Connection,
}

/// Prints the logs.
pub async fn run(args: LogsArgs) -> Outcome {
    let client = args.connection.client("logs").await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let names = match args.target.split_once('/') {
        Some(("pod" | "pods", name)) => vec![name.to_owned()],
        Some(("job" | "jobs", name)) => pods_of(&client, &namespace, name).await?,
        _ => {
            return Err(Failure::bad_input(format!("{:?} is neither job/NAME nor pod/NAME", args.target))
                .try_this(format!("gangway logs job/{}", args.target)));
        }
    };
    let options = LogParams {
        follow: args.follow,
        container: args.container.clone(),
        tail_lines: args.tail,
        ..LogParams::default()
    };
    if names.len() > 1 {
        let streams = names.iter().map(|name| stream(&pods, name, &options, true));
        futures::future::try_join_all(streams).await?;
    } else if let Some(name) = names.first() {
        stream(&pods, name, &options, false).await?;
    }
    Ok(Exit::Success)
}

async fn pods_of(client: &Client, namespace: &str, job: &str) -> Result<Vec<String>, Failure> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let known = jobs.get_opt(job).await.map_err(|error| api_failure("get the Job", &error))?;
    if known.is_none() {
        return Err(Failure::bad_input(format!("there is no Job {job} in namespace {namespace}"))
            .try_this("gangway get jobs -A"));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    let list = pods.list(&of_job).await.map_err(|error| api_failure("list pods", &error))?;
    if list.items.is_empty() {
        return Err(Failure::bad_input(format!("Job {namespace}/{job} has no pods yet"))
            .try_this(format!("gangway explain job/{job} -n {namespace}")));
    }
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

async fn stream(pods: &Api<Pod>, name: &str, options: &LogParams, with_name: bool) -> Result<(), Failure> {
    let what = format!("read the log of pod {name}");
    let mut log = pods.log_stream(name, options).await.map_err(|error| api_failure(&what, &error))?;
    // Programs write whatever bytes they like, and all of them are passed on.
    let prefix = if with_name { format!("{name}  ") } else { String::new() };
    let mut line = prefix.clone().into_bytes();
    loop {
        line.truncate(prefix.len());
        let read = log.read_until(b'\n', &mut line).await;
        if read.map_err(|error| Failure::bad_input(format!("cannot {what}: {error}")))? == 0 {
            break;
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        std::io::stdout().lock().write_all(&line).map_err(output_failure)?;
    }
    std::io::stdout().flush().map_err(output_failure)
}
