//! The embedded API alone.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use gangway_api::kueue::Workload;
use gangway_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Form;
use super::figure::Figure;
use crate::clock::SystemClock;
use crate::commands::api_failure;
use crate::embedded::apply_crds;
use crate::exit::Failure;

/// Arguments of `gangway bench api`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cargo run --release -- bench api")]
pub struct ApiArgs {
    /// ConfigMaps per repetition.
    #[arg(long, default_value_t = 20_000)]
    configmaps: usize,
    /// Workloads per repetition.
    #[arg(long, default_value_t = 5_000)]
    workloads: usize,
    /// Requests in flight.
    #[arg(long, default_value_t = 64)]
    in_flight: usize,
    /// How often each is measured, on a fresh API each time.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Form>,
}

/// Occurrences for the latency of watches, per repetition.
const WATCH_SAMPLES: usize = 1_000;

/// Measures the API in this process.
pub async fn measure(args: &ApiArgs) -> Result<Vec<Figure>, Failure> {
    let in_flight = args.in_flight.max(1);
    let mut configmap_rates = Vec::new();
    let mut workload_rates = Vec::new();
    let mut latencies = Vec::new();
    for _ in 0..args.repetitions.max(1) {
        let client = fresh_api().await?;
        let configmaps: Vec<ConfigMap> = (0..args.configmaps).map(configmap).collect::<Result<_, _>>()?;
        configmap_rates.push(creates_per_second(&client, &configmaps, in_flight).await?);
        let client = fresh_api().await?;
        let workloads: Vec<Workload> = (0..args.workloads).map(workload).collect::<Result<_, _>>()?;
        workload_rates.push(creates_per_second(&client, &workloads, in_flight).await?);
        watch_latencies(&fresh_api().await?, &mut latencies).await?;
    }
    let repetitions = args.repetitions.max(1) as u64;
    let bytes = serde_json::to_vec(&configmap(0)?).map_or(0, |bytes| bytes.len());
    let workload_bytes = serde_json::to_vec(&workload(0)?).map_or(0, |bytes| bytes.len());
    Ok(vec![
        Figure::rates(
            "ConfigMap creates",
            format!("{} of {bytes} bytes, {in_flight} in flight", args.configmaps),
            args.configmaps as u64 * repetitions,
            configmap_rates,
        ),
        Figure::rates(
            "Workload creates",
            format!("{} of {workload_bytes} bytes with CEL rules, {in_flight} in flight", args.workloads),
            args.workloads as u64 * repetitions,
            workload_rates,
        ),
        Figure::spans(
            "create → watch event",
            format!("ConfigMap of {bytes} bytes, one at a time, one watcher"),
            args.repetitions.max(1),
            &latencies,
        ),
    ])
}

async fn fresh_api() -> Result<Client, Failure> {
    let api = ApiServer::builder().clock(Arc::new(SystemClock)).build();
    let client = api.client();
    apply_crds(&client).await?;
    Ok(client)
}

async fn creates_per_second<K>(client: &Client, objects: &[K], in_flight: usize) -> Result<f64, Failure>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    let options = PostParams::default();
    let began = Instant::now();
    stream::iter(objects)
        .map(|object| api.create(&options, object))
        .buffer_unordered(in_flight)
        .try_for_each(|_| async { Ok(()) })
        .await
        .map_err(|error| api_failure("create the objects of the benchmark", &error))?;
    Ok(objects.len() as f64 / began.elapsed().as_secs_f64())
}

async fn watch_latencies(client: &Client, nanos: &mut Vec<i64>) -> Result<(), Failure> {
    let failed = |error: kube::Error| api_failure("watch the objects of the benchmark", &error);
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut events = pin!(api.watch(&WatchParams::default(), "0").await.map_err(failed)?);
    for index in 0..WATCH_SAMPLES {
        let object = configmap(index)?;
        let name = object.name_any();
        let began = Instant::now();
        let options = PostParams::default();
        let seen = async {
            while let Some(event) = events.try_next().await? {
                if matches!(&event, WatchEvent::Added(object) if object.name_any() == name) {
                    return Ok(began.elapsed());
                }
            }
            Ok(began.elapsed())
        };
        let (created, seen) = futures::join!(api.create(&options, &object), seen);
        created.map_err(failed)?;
        nanos.push(seen.map_err(failed)?.as_nanos() as i64);
    }
    Ok(())
}

fn configmap(index: usize) -> Result<ConfigMap, Failure> {
    read(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("bench-{index:06}"), "labels": {"app": "bench"}},
        "data": {"text": "x".repeat(360)},
    }))
}

fn workload(index: usize) -> Result<Workload, Failure> {
    read(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": format!("bench-{index:06}")},
        "spec": {
            "queueName": "main", "priority": 0, "active": true,
            "podSets": [{
                "name": "main", "count": 1,
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main", "image": "host", "command": ["true"],
                        "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
                    }],
                }},
            }],
        },
    }))
}

fn read<K: DeserializeOwned>(value: serde_json::Value) -> Result<K, Failure> {
    serde_json::from_value(value).map_err(|error| Failure::broken(format!("the benchmark's object: {error}")))
}
