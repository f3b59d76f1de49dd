use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{PODS, create, pod, post, server};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

fn class(name: &str, value: i64, more: &Value) -> Value {
    let mut class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        class[field] = value.clone();
    }
    class
}

fn pod_with(name: &str, fields: &Value) -> Value {
    let mut pod = pod(name);
    for (field, value) in fields.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[tokio::test]
async fn a_pod_has_the_priority_of_its_class() {
    let client = server().client();
    create(&client, CLASSES, &class("high", 1000, &json!({"preemptionPolicy": "Never"}))).await;
    let created = create(&client, PODS, &pod_with("a", &json!({"priorityClassName": "high"}))).await;
    let spec = &created["spec"];
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(1000), &json!("Never")));
    let critical = pod_with("b", &json!({"priorityClassName": "system-node-critical"}));
    assert_eq!(create(&client, PODS, &critical).await["spec"]["priority"], 2_000_001_000);
    let plain = create(&client, PODS, &pod("c")).await;
    assert_eq!((&plain["spec"]["priority"], &plain["spec"]["priorityClassName"]), (&json!(0), &Value::Null));
    let own = create(&client, PODS, &pod_with("d", &json!({"priority": 7}))).await;
    assert_eq!(own["spec"]["priority"], 7);
}

#[tokio::test]
async fn a_class_that_is_missing_or_contradicted_is_named() {
    let client = server().client();
    create(&client, CLASSES, &class("high", 1000, &json!({}))).await;
    for (fields, message) in [
        (json!({"priorityClassName": "none"}), "no PriorityClass with name none was found"),
        (json!({"priorityClassName": "high", "priority": 5}), "5 is not 1000"),
    ] {
        let (status, answer) = post(&client, PODS, &pod_with("a", &fields)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(message), "{answer}");
    }
}

#[tokio::test]
async fn of_several_default_classes_the_lowest_counts() {
    let client = server().client();
    for (name, value) in [("b", 20), ("a", 30)] {
        create(&client, CLASSES, &class(name, value, &json!({"globalDefault": true}))).await;
    }
    let created = create(&client, PODS, &pod("p")).await;
    assert_eq!(
        (&created["spec"]["priority"], &created["spec"]["priorityClassName"]),
        (&json!(20), &json!("b"))
    );
}
