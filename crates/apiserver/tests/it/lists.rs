use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::support::{CONFIG_MAPS, PODS, config_map, create, create_config_map, get, pod, server};

async fn names(client: &Client, params: &ListParams) -> Vec<String> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let items = maps.list(params).await.unwrap().items;
    items.into_iter().filter_map(|map| map.metadata.name).collect()
}

#[tokio::test]
async fn label_selectors_select() {
    let client = server().client();
    for (name, tier, zone) in [("a", "front", "x"), ("b", "back", "x"), ("c", "back", "y")] {
        create(&client, CONFIG_MAPS, &config_map(name, json!({"tier": tier, "zone": zone}))).await;
    }
    create_config_map(&client, "d").await;
    let cases: [(&str, &[&str]); 7] = [
        ("tier=back", &["b", "c"]),
        ("tier!=back", &["a", "d"]),
        ("tier in (front, back),zone=x", &["a", "b"]),
        ("tier notin (back)", &["a", "d"]),
        ("tier", &["a", "b", "c"]),
        ("!tier", &["d"]),
        ("zone==y", &["c"]),
    ];
    for (selector, expected) in cases {
        assert_eq!(names(&client, &ListParams::default().labels(selector)).await, expected, "{selector}");
    }
    assert_eq!(names(&client, &ListParams::default().fields("metadata.name=c")).await, ["c"]);
    let (status, _) = get(&client, &format!("{CONFIG_MAPS}?fieldSelector=data.k%3Dv")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn pods_are_selected_by_node_and_phase() {
    let client = server().client();
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "")] {
        let mut object = pod(name);
        if !node.is_empty() {
            object["spec"]["nodeName"] = node.into();
        }
        create(&client, PODS, &object).await;
    }
    let pods: Api<Pod> = Api::all(client);
    let names = |selector: &'static str| {
        let pods = pods.clone();
        async move {
            let items = pods.list(&ListParams::default().fields(selector)).await.unwrap().items;
            items.into_iter().filter_map(|pod| pod.metadata.name).collect::<Vec<_>>()
        }
    };
    assert_eq!(names("spec.nodeName=n1").await, ["a"]);
    assert_eq!(names("spec.nodeName=").await, ["c"]);
    assert_eq!(names("spec.nodeName!=,metadata.namespace=default").await, ["a", "b"]);
    assert_eq!(names("status.phase=Running").await, Vec::<String>::new());
}

#[tokio::test]
async fn pages_together_are_the_list() {
    let client = server().client();
    for number in 0..25 {
        create_config_map(&client, &format!("m{number:02}")).await;
    }
    let maps: Api<ConfigMap> = Api::all(client.clone());
    let first = maps.list(&ListParams::default().limit(10)).await.unwrap();
    assert_eq!(first.items.len(), 10);
    create_config_map(&client, "later").await;
    let mut seen = first.items.len();
    let mut token = first.metadata.continue_.clone();
    while let Some(next) = token.filter(|token| !token.is_empty()) {
        let page = maps.list(&ListParams::default().limit(10).continue_token(&next)).await.unwrap();
        assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
        seen += page.items.len();
        token = page.metadata.continue_;
    }
    assert_eq!(seen, 25, "an object before the cursor is not in later pages");
    let (status, _) = get(&client, &format!("{CONFIG_MAPS}?continue=nonsense")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (_, list) = get(&client, "/api/v1/configmaps").await;
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(26));
    assert!(list["metadata"]["continue"] == Value::Null);
}
