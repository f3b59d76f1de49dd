//! `gangway get`: tables of queues, Workloads and Jobs.

mod kinds;

use std::sync::Arc;

use clap::{Args, ValueEnum};
use futures::TryStreamExt;
use gangway_api::kueue::{ClusterQueue, Cohort, LocalQueue, Workload};
use gangway_model::{Clock, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

use self::kinds::Listed;
use super::{api_failure, output_failure, print};
use crate::clock::SystemClock;
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::render::palette::Palette;
use crate::render::table::Table;

/// Arguments of `gangway get`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway get queues -A               LocalQueues of all namespaces, with what waits in them
  gangway get workloads -n vision -w  Workloads, and every change from then on
  gangway get jobs -o name            names only, for scripts")]
pub struct GetArgs {
    /// What to list.
    #[arg(value_enum)]
    kind: Kind,
    /// The namespace; otherwise that of the context.
    #[arg(short, long, value_name = "NAME", conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
    /// Goes on with every change.
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    connection: Connection,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// LocalQueues: what people name in their Jobs.
    #[value(alias = "localqueues", alias = "localqueue", alias = "lq")]
    Queues,
    /// ClusterQueues: where the quota is.
    #[value(alias = "clusterqueue", alias = "cq")]
    Clusterqueues,
    /// Cohorts: quota that ClusterQueues share.
    #[value(alias = "cohort", alias = "co")]
    Cohorts,
    #[value(alias = "workload", alias = "wl")]
    Workloads,
    #[value(alias = "job")]
    Jobs,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Table,
    /// A table with more columns.
    Wide,
    Json,
    Yaml,
    Name,
}

/// Lists, and with `-w` goes on.
pub async fn run(args: GetArgs) -> Outcome {
    let client = args.connection.client("get").await?;
    match args.kind {
        Kind::Queues => list(namespaced::<LocalQueue>(&client, &args), &args).await,
        Kind::Clusterqueues => list(Api::<ClusterQueue>::all(client), &args).await,
        Kind::Cohorts => list(Api::<Cohort>::all(client), &args).await,
        Kind::Workloads => list(namespaced::<Workload>(&client, &args), &args).await,
        Kind::Jobs => list(namespaced::<Job>(&client, &args), &args).await,
    }
}

fn namespaced<K>(client: &Client, args: &GetArgs) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match (&args.namespace, args.all_namespaces) {
        (_, true) => Api::all(client.clone()),
        (Some(namespace), false) => Api::namespaced(client.clone(), namespace),
        (None, false) => Api::default_namespaced(client.clone()),
    }
}

async fn list<K: Listed>(api: Api<K>, args: &GetArgs) -> Outcome {
    let what = format!("list {}", K::plural(&()));
    let missing = |error: kube::Error| api_failure(&what, &error);
    let objects = api.list(&ListParams::default()).await.map_err(missing)?.items;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let view = View { form: args.output, with_namespace: args.all_namespaces && K::NAMESPACED };
    let table = view.show(&objects, clock.now(), args.watch)?;
    if args.watch {
        follow(api, &view, table, objects, clock).await?;
    }
    Ok(Exit::Success)
}

/// Prints a row for each change, aligned with the table above.
async fn follow<K: Listed>(
    api: Api<K>,
    view: &View,
    mut table: Table,
    shown: Vec<K>,
    clock: Arc<dyn Clock>,
) -> Result<(), Failure> {
    let version = |object: &K| (object.uid(), object.resource_version());
    let mut known: std::collections::HashSet<_> = shown.iter().map(version).collect();
    let mut changes =
        std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    let stop = crate::interrupt::interrupted();
    let mut stop = std::pin::pin!(stop);
    loop {
        let next = tokio::select! {
            next = changes.try_next() => next,
            () = &mut stop => return Ok(()),
        };
        match next {
            Ok(Some(object)) if known.remove(&version(&object)) => {}
            Ok(Some(object)) => table = view.show_change(&table, &object, clock.now())?,
            Ok(None) => return Ok(()),
            Err(error) => tracing::warn!(%error, "the watch broke and is opened again"),
        }
    }
}

struct View {
    form: Form,
    with_namespace: bool,
}

impl View {
    fn show<K: Listed>(&self, objects: &[K], now: Timestamp, watch: bool) -> Result<Table, Failure> {
        let mut table = self.table::<K>();
        for object in objects {
            table.row(self.row(object, now));
        }
        match self.form {
            Form::Table | Form::Wide if objects.is_empty() && !watch => eprintln!("nothing found"),
            Form::Table | Form::Wide => {
                for line in table.lines(Palette::of_stdout(), None) {
                    print(&format!("{line}\n"))?;
                }
            }
            Form::Name => objects.iter().try_for_each(|object| print(&format!("{}\n", name(object))))?,
            Form::Json if watch => objects.iter().try_for_each(print_json_line)?,
            Form::Json => print(&format!("{:#}\n", as_list(objects)))?,
            Form::Yaml => print(&yaml(&as_list(objects))?)?,
        }
        Ok(table)
    }

    fn show_change<K: Listed>(&self, before: &Table, object: &K, now: Timestamp) -> Result<Table, Failure> {
        let mut table = before.continued();
        table.row(self.row(object, now));
        match self.form {
            Form::Table | Form::Wide => {
                let lines = table.lines(Palette::of_stdout(), None);
                lines.iter().skip(1).try_for_each(|line| print(&format!("{line}\n")))?;
            }
            Form::Name => print(&format!("{}\n", name(object)))?,
            Form::Json => print_json_line(object)?,
            Form::Yaml => print(&format!("---\n{}", yaml(&typed(object))?))?,
        }
        std::io::Write::flush(&mut std::io::stdout()).map_err(output_failure)?;
        Ok(table)
    }

    fn table<K: Listed>(&self) -> Table {
        let mut headings = if self.with_namespace { vec!["NAMESPACE"] } else { Vec::new() };
        headings.push("NAME");
        headings.extend_from_slice(K::HEADINGS);
        if self.form == Form::Wide {
            headings.extend_from_slice(K::WIDE_HEADINGS);
        }
        Table::new(&headings)
    }

    fn row<K: Listed>(&self, object: &K, now: Timestamp) -> Vec<String> {
        let mut row = Vec::new();
        if self.with_namespace {
            row.push(object.namespace().unwrap_or_default());
        }
        row.push(object.name_any());
        row.extend(object.cells(now));
        if self.form == Form::Wide {
            row.extend(object.wide_cells());
        }
        row
    }
}

/// The object with its type, which typed lists leave out.
fn typed<K: Listed>(object: &K) -> serde_json::Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = json!(K::api_version(&()));
    value["kind"] = json!(K::kind(&()));
    value
}

fn as_list<K: Listed>(objects: &[K]) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "List", "items": objects.iter().map(typed).collect::<Vec<_>>()})
}

fn yaml(value: &serde_json::Value) -> Result<String, Failure> {
    serde_saphyr::to_string(value).map_err(|error| Failure::broken(format!("cannot write YAML: {error}")))
}

fn name<K: Listed>(object: &K) -> String {
    format!("{}.{}/{}", K::kind(&()).to_lowercase(), K::group(&()), object.name_any())
}

fn print_json_line<K: Listed>(object: &K) -> Result<(), Failure> {
    print(&format!("{}\n", typed(object)))
}
