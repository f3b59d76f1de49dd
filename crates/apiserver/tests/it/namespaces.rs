use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{CONFIG_MAPS, config_map, create, delete, get, merge, post, server};

const NAMESPACES: &str = "/api/v1/namespaces";

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

#[tokio::test]
async fn objects_need_a_namespace_that_exists() {
    let client = server().client();
    let path = format!("{NAMESPACES}/team/configmaps");
    let (status, answer) = post(&client, &path, &config_map("a", json!({}))).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(answer["message"].as_str().unwrap().contains("namespaces \"team\" not found"));
    create(&client, NAMESPACES, &namespace("team")).await;
    create(&client, &path, &config_map("a", json!({}))).await;
}

#[tokio::test]
async fn a_namespace_takes_its_content_along() {
    let client = server().client();
    create(&client, NAMESPACES, &namespace("team")).await;
    create(&client, CONFIG_MAPS, &config_map("stays", json!({}))).await;
    create(&client, &format!("{NAMESPACES}/team/configmaps"), &config_map("a", json!({}))).await;
    let (status, _) = delete(&client, &format!("{NAMESPACES}/team"), &Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(get(&client, &format!("{NAMESPACES}/team")).await.0, StatusCode::NOT_FOUND);
    let (_, left) = get(&client, "/api/v1/configmaps").await;
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_namespace_waits_for_what_a_finalizer_holds() {
    let client = server().client();
    create(&client, NAMESPACES, &namespace("team")).await;
    let maps = format!("{NAMESPACES}/team/configmaps");
    let mut held = config_map("a", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&client, &maps, &held).await;
    let path = format!("{NAMESPACES}/team");
    let (_, terminating) = delete(&client, &path, &Value::Null).await;
    assert_eq!(terminating["status"]["phase"], "Terminating");
    let (status, answer) = post(&client, &maps, &config_map("b", json!({}))).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    assert!(get(&client, &format!("{maps}/a")).await.1["metadata"]["deletionTimestamp"].is_string());
    merge(&client, &format!("{maps}/a"), &json!({"metadata": {"finalizers": []}})).await;
    assert_eq!(get(&client, &path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_first_namespaces_stay() {
    let client = server().client();
    let (status, _) = delete(&client, &format!("{NAMESPACES}/default"), &Value::Null).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}
