//! What the tests share.

use std::sync::Arc;

use gangway_apiserver::ApiServer;
use gangway_model::{ManualClock, Timestamp};
use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// A server whose clock stands at 2026-01-01.
pub fn server() -> ApiServer {
    ApiServer::builder().clock(clock()).build()
}

pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_seconds(1_767_225_600)))
}

/// Sends a request as it is; the status code and the JSON of the answer.
pub async fn raw(
    client: &Client,
    method: Method,
    path: &str,
    media: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request = Request::builder().method(method).uri(path).header("content-type", media).body(body.into());
    let response = client.send(request.unwrap()).await.unwrap();
    let status = response.status();
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

pub async fn post(client: &Client, path: &str, body: &Value) -> (StatusCode, Value) {
    raw(client, Method::POST, path, "application/json", body).await
}

pub async fn put(client: &Client, path: &str, body: &Value) -> (StatusCode, Value) {
    raw(client, Method::PUT, path, "application/json", body).await
}

pub async fn merge(client: &Client, path: &str, body: &Value) -> (StatusCode, Value) {
    raw(client, Method::PATCH, path, "application/merge-patch+json", body).await
}

pub async fn get(client: &Client, path: &str) -> (StatusCode, Value) {
    raw(client, Method::GET, path, "application/json", &Value::Null).await
}

pub async fn delete(client: &Client, path: &str, options: &Value) -> (StatusCode, Value) {
    raw(client, Method::DELETE, path, "application/json", options).await
}

/// Creates, and says what came of it; anything but success ends the test.
pub async fn create(client: &Client, path: &str, body: &Value) -> Value {
    let (status, created) = post(client, path, body).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    created
}

pub fn config_map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"k": "v"}})
}

pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}

pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub async fn create_config_map(client: &Client, name: &str) -> ConfigMap {
    let object: ConfigMap = serde_json::from_value(config_map(name, json!({}))).unwrap();
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &object).await.unwrap()
}
