use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{PODS, create, delete, get, pod, post, server};

fn binding(node: &str, uid: Option<&Value>) -> Value {
    let mut binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    if let Some(uid) = uid {
        binding["metadata"]["uid"] = uid.clone();
    }
    binding
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let client = server().client();
    let created = create(&client, PODS, &pod("a")).await;
    let path = format!("{PODS}/a/binding");
    let (status, _) = post(&client, &path, &binding("n", Some(&json!("other")))).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (status, answer) = post(&client, &path, &binding("n", Some(&created["metadata"]["uid"]))).await;
    assert_eq!((status, &answer["status"]), (StatusCode::CREATED, &json!("Success")));
    let (_, bound) = get(&client, &format!("{PODS}/a")).await;
    assert_eq!(bound["spec"]["nodeName"], "n");
    let scheduled = bound["status"]["conditions"].as_array().unwrap().iter();
    let scheduled = scheduled.filter(|condition| condition["type"] == "PodScheduled").collect::<Vec<_>>();
    assert_eq!((scheduled.len(), &scheduled[0]["status"]), (1, &json!("True")));
    let (status, answer) = post(&client, &path, &binding("m", None)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(answer["message"].as_str().unwrap().contains("already assigned to node \"n\""));
}

#[tokio::test]
async fn a_pod_that_is_gone_or_going_is_not_bound() {
    let client = server().client();
    let (status, _) = post(&client, &format!("{PODS}/a/binding"), &binding("n", None)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&client, PODS, &held).await;
    delete(&client, &format!("{PODS}/a"), &Value::Null).await;
    let (status, _) = post(&client, &format!("{PODS}/a/binding"), &binding("n", None)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (status, _) = post(&client, &format!("{PODS}/a/binding"), &json!({"target": {}})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}
