use gangway_apiserver::ApiServer;
use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::support::{
    self, CONFIG_MAPS, PODS, config_map, create, create_config_map, get, pod, post, put, server,
};

#[tokio::test]
async fn a_typed_client_creates_reads_updates_and_deletes() {
    let client = server().client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let created = create_config_map(&client, "a").await;
    assert!(created.metadata.uid.is_some());
    assert_eq!(created.metadata.creation_timestamp.as_ref().unwrap().0.to_string(), "2026-01-01T00:00:00Z");
    let mut read = maps.get("a").await.unwrap();
    assert_eq!(read, created);
    read.data.as_mut().unwrap().insert("more".into(), "data".into());
    let updated = maps.replace("a", &PostParams::default(), &read).await.unwrap();
    assert_ne!(updated.metadata.resource_version, created.metadata.resource_version);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let gone = maps.get("a").await.unwrap_err();
    assert!(
        matches!(gone, kube::Error::Api(ref status) if status.reason == "NotFound" && status.code == 404)
    );
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn an_old_version_conflicts_and_no_version_overwrites() {
    let client = server().client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let first = create_config_map(&client, "a").await;
    let mut second = first.clone();
    second.data.as_mut().unwrap().insert("k".into(), "2".into());
    maps.replace("a", &PostParams::default(), &second).await.unwrap();
    let conflict = maps.replace("a", &PostParams::default(), &first).await.unwrap_err();
    assert!(
        matches!(conflict, kube::Error::Api(ref status) if status.reason == "Conflict" && status.code == 409)
    );
    let mut unconditional = first.clone();
    unconditional.metadata.resource_version = None;
    maps.replace("a", &PostParams::default(), &unconditional).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap().data.unwrap()["k"], "v");
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_version() {
    let client = server().client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let first = create_config_map(&client, "a").await;
    let same = maps.replace("a", &PostParams::default(), &first).await.unwrap();
    assert_eq!(same, first);
}

#[tokio::test]
async fn creating_twice_is_refused_and_names_are_generated() {
    let client = server().client();
    create_config_map(&client, "a").await;
    let (status, answer) = post(&client, CONFIG_MAPS, &config_map("a", json!({}))).await;
    assert_eq!((status, &answer["reason"]), (StatusCode::CONFLICT, &json!("AlreadyExists")));
    let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}});
    let one = create(&client, CONFIG_MAPS, &generated).await;
    let two = create(&client, CONFIG_MAPS, &generated).await;
    assert!(one["metadata"]["name"].as_str().unwrap().starts_with("gen-"));
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn bad_objects_are_refused_with_a_reason() {
    let client = server().client();
    let cases = [
        (json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Not_Good"}}), 422),
        (json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}), 422),
        (json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}), 400),
        (json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": 3}), 400),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "other"}}),
            400,
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "3"}}),
            400,
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"a b": "c"}}}),
            422,
        ),
        (json!([1]), 400),
    ];
    for (object, code) in cases {
        let (status, answer) = post(&client, CONFIG_MAPS, &object).await;
        assert_eq!(status.as_u16(), code, "{object}: {answer}");
        assert_eq!(answer["kind"], "Status");
        assert!(!answer["message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn unknown_fields_warn_or_are_refused_by_path() {
    let client = server().client();
    let mut object = pod("a");
    object["spec"]["containers"][0]["imgae"] = json!("x");
    let (status, answer) = post(&client, &format!("{PODS}?fieldValidation=Strict"), &object).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer["message"].as_str().unwrap().contains("unknown field \"spec.containers[0].imgae\""));
    let request = http::Request::post(PODS)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&object).unwrap().into());
    let response = client.send(request.unwrap()).await.unwrap();
    let warning = response.headers()["warning"].to_str().unwrap().to_owned();
    assert!(warning.starts_with("299 - ") && warning.contains("imgae"), "{warning}");
    let (_, stored) = get(&client, &format!("{PODS}/a")).await;
    assert!(stored["spec"]["containers"][0].get("imgae").is_none());
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let client = server().client();
    let mut object = pod("a");
    object["status"] = json!({"phase": "Running"});
    let created = create(&client, PODS, &object).await;
    assert_ne!(created["status"]["phase"], "Running");
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{PODS}/a");
    let mut changed = created.clone();
    changed["status"] = json!({"phase": "Failed"});
    changed["metadata"]["labels"] = json!({"x": "y"});
    let (status, main) = put(&client, &path, &changed).await;
    assert_eq!(status, StatusCode::OK, "{main}");
    assert_eq!(main["status"], created["status"]);
    assert_eq!(main["metadata"]["labels"]["x"], "y");
    assert_eq!(main["metadata"]["generation"], 1);
    let mut changed = main.clone();
    changed["status"]["phase"] = json!("Running");
    changed["spec"]["nodeName"] = json!("sneaky");
    changed["metadata"]["labels"] = json!({});
    let (status, answer) = put(&client, &format!("{path}/status"), &changed).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["status"]["phase"], "Running");
    assert!(answer["spec"].get("nodeName").is_none());
    assert_eq!(answer["metadata"]["labels"]["x"], "y");
    assert_eq!(answer["metadata"]["generation"], 1);
}

#[tokio::test]
async fn nodes_register_with_their_status() {
    let client = server().client();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"capacity": {"cpu": "4"}},
    });
    let created = create(&client, "/api/v1/nodes", &node).await;
    assert_eq!(created["status"]["capacity"]["cpu"], "4");
}

#[tokio::test]
async fn two_servers_know_nothing_of_each_other() {
    let (one, other) = (server().client(), server().client());
    create_config_map(&one, "a").await;
    assert!(Api::<ConfigMap>::default_namespaced(other).get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_seed_decides_uids() {
    let uid = || async {
        let client = ApiServer::builder().seed(7).build().client();
        create_config_map(&client, "a").await.metadata.uid
    };
    assert_eq!(uid().await, uid().await);
}

#[tokio::test]
async fn requests_are_counted_by_who_asks() {
    let server = support::server();
    let client = server.client_named("tester");
    create_config_map(&client, "a").await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.list(&ListParams::default()).await.unwrap();
    pods.list(&ListParams::default()).await.unwrap();
    let counts = server.request_counts();
    let count = |verb: &str, resource: &str| {
        let mine = counts.iter().filter(|(key, _)| key.user_agent == "tester");
        mine.filter(|(key, _)| key.verb == verb && key.resource == resource)
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    assert_eq!((count("create", "configmaps"), count("list", "pods")), (1, 2));
}

#[tokio::test]
async fn discovery_tells_what_is_served() {
    let client = server().client();
    assert_eq!(client.apiserver_version().await.unwrap().minor, "37");
    let discovery = kube::Discovery::new(client.clone()).run().await.unwrap();
    for kind in ["Pod", "Job", "Lease", "CustomResourceDefinition", "PriorityClass", "ServiceAccount"] {
        let found = discovery
            .groups()
            .any(|group| group.recommended_resources().iter().any(|(resource, _)| resource.kind == kind));
        assert!(found, "{kind}");
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let names: Vec<_> = namespaces.list(&ListParams::default()).await.unwrap().items;
    let names: Vec<_> = names.iter().map(|namespace| namespace.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["default", "kube-system"]);
    let (status, _) = get(&client, "/apis/nothing.example.com/v1/things").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}
