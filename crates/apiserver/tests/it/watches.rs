use std::time::Duration;

use futures::{StreamExt, TryStreamExt, pin_mut};
use gangway_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

use crate::support::{PODS, create, create_config_map, pod, server};

/// The next `count` events as short texts.
async fn events(client: &Client, params: &WatchParams, version: &str, count: usize) -> Vec<String> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let stream = maps.watch(params, version).await.unwrap();
    stream.take(count).map_ok(|event| text(&event)).try_collect().await.unwrap()
}

fn text(event: &WatchEvent<ConfigMap>) -> String {
    let name = |map: &ConfigMap| map.metadata.name.clone().unwrap_or_default();
    match event {
        WatchEvent::Added(map) => format!("added {}", name(map)),
        WatchEvent::Modified(map) => format!("modified {}", name(map)),
        WatchEvent::Deleted(map) => format!("deleted {}", name(map)),
        WatchEvent::Bookmark(mark) => format!("bookmark {:?}", mark.metadata.annotations),
        WatchEvent::Error(status) => format!("error {} {}", status.code, status.reason),
    }
}

async fn label(client: &Client, name: &str, labels: serde_json::Value) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let patch = json!({"metadata": {"labels": labels}});
    maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn a_watch_from_a_version_tells_all_changes_since() {
    let client = server().client();
    let first = create_config_map(&client, "a").await;
    create_config_map(&client, "b").await;
    label(&client, "a", json!({"x": "y"})).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    let version = first.metadata.resource_version.unwrap();
    let seen = events(&client, &WatchParams::default(), &version, 3).await;
    assert_eq!(seen, ["added b", "modified a", "deleted b"]);
}

#[tokio::test]
async fn a_watch_from_zero_begins_with_what_is_there() {
    let client = server().client();
    create_config_map(&client, "a").await;
    create_config_map(&client, "b").await;
    let seen = events(&client, &WatchParams::default(), "0", 2).await;
    assert_eq!(seen, ["added a", "added b"]);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let client = server().client();
    create_config_map(&client, "a").await;
    let params = WatchParams { send_initial_events: true, bookmarks: true, ..WatchParams::default() };
    let seen = events(&client, &params, "", 2).await;
    assert_eq!(seen[0], "added a");
    assert!(seen[1].starts_with("bookmark") && seen[1].contains("k8s.io/initial-events-end"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_time_is_up() {
    let client = server().client();
    let params = WatchParams::default().timeout(5).disable_bookmarks();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let version = maps.list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    let seen: Vec<_> = maps.watch(&params, &version).await.unwrap().collect().await;
    assert!(seen.is_empty(), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_bookmarks() {
    let client = server().client();
    let params = WatchParams::default().timeout(290);
    let seen = events(&client, &params, "1", 1).await;
    assert!(seen.iter().all(|event| event.starts_with("bookmark") || event.starts_with("added")), "{seen:?}");
}

#[tokio::test]
async fn a_version_that_is_forgotten_is_gone() {
    let client = ApiServer::builder().watch_log_capacity(2).build().client();
    for name in ["a", "b", "c", "d"] {
        create_config_map(&client, name).await;
    }
    assert_eq!(events(&client, &WatchParams::default(), "2", 1).await, ["error 410 Expired"]);
    assert_eq!(events(&client, &WatchParams::default(), "999999", 1).await, ["error 410 Expired"]);
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let client = server().client();
    let first = create_config_map(&client, "a").await;
    label(&client, "a", json!({"in": "yes"})).await;
    label(&client, "a", json!({"in": "yes", "more": "1"})).await;
    label(&client, "a", json!({"in": null})).await;
    label(&client, "a", json!({"more": "2"})).await;
    label(&client, "a", json!({"in": "yes"})).await;
    let version = first.metadata.resource_version.unwrap();
    let seen = events(&client, &WatchParams::default().labels("in=yes"), &version, 4).await;
    assert_eq!(seen, ["added a", "modified a", "deleted a", "added a"]);
}

#[tokio::test]
async fn a_live_watch_hears_of_later_changes_in_its_namespace_only() {
    let client = server().client();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let stream = pods.watch(&WatchParams::default(), "0").await.unwrap();
    pin_mut!(stream);
    create(&client, "/api/v1/namespaces/kube-system/pods", &pod("elsewhere")).await;
    create(&client, PODS, &pod("here")).await;
    let event = stream.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Added(pod) if pod.metadata.name.as_deref() == Some("here")));
}

async fn runtime_watcher(config: watcher::Config) {
    let client = server().client();
    create_config_map(&client, "a").await;
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let stream = watcher(maps.clone(), config).applied_objects();
    pin_mut!(stream);
    let name = |map: ConfigMap| map.metadata.name.unwrap();
    assert_eq!(name(stream.try_next().await.unwrap().unwrap()), "a");
    create_config_map(&client, "b").await;
    let next = tokio::time::timeout(Duration::from_secs(10), stream.try_next()).await;
    assert_eq!(name(next.unwrap().unwrap().unwrap()), "b");
}

#[tokio::test]
async fn the_runtime_watcher_lists_and_watches() {
    runtime_watcher(watcher::Config::default()).await;
}

#[tokio::test]
async fn the_runtime_watcher_streams_lists() {
    runtime_watcher(watcher::Config::default().streaming_lists()).await;
}
