use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{CONFIG_MAPS, PODS, config_map, create, delete, get, merge, pod, server};

#[tokio::test]
async fn finalizers_hold_an_object() {
    let client = server().client();
    let mut object = config_map("a", json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    create(&client, CONFIG_MAPS, &object).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (status, marked) = delete(&client, &path, &Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    let (_, again) = delete(&client, &path, &Value::Null).await;
    assert_eq!(again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
    let finalizers = |names: Value| json!({"metadata": {"finalizers": names}});
    let (status, answer) =
        merge(&client, &path, &finalizers(json!(["example.com/one", "example.com/new"]))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    let (status, _) = merge(&client, &path, &finalizers(json!(["example.com/two"]))).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(get(&client, &path).await.0, StatusCode::OK);
    let (status, _) = merge(&client, &path, &finalizers(Value::Null)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(get(&client, &path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn preconditions_are_kept() {
    let client = server().client();
    let created = create(&client, CONFIG_MAPS, &config_map("a", json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    for wrong in [json!({"uid": "x"}), json!({"resourceVersion": "1"})] {
        let (status, _) = delete(&client, &path, &json!({"preconditions": wrong})).await;
        assert_eq!(status, StatusCode::CONFLICT);
    }
    let right = json!({"preconditions": {"uid": created["metadata"]["uid"]}});
    assert_eq!(delete(&client, &path, &right).await.0, StatusCode::OK);
    assert_eq!(delete(&client, &path, &right).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn propagation_becomes_a_finalizer() {
    let client = server().client();
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        create(&client, CONFIG_MAPS, &config_map("a", json!({}))).await;
        let path = format!("{CONFIG_MAPS}/a");
        let (_, marked) = delete(&client, &path, &json!({"propagationPolicy": policy})).await;
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
        merge(&client, &path, &json!({"metadata": {"finalizers": null}})).await;
        assert_eq!(get(&client, &path).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_bound_pod_has_its_grace_period() {
    let client = server().client();
    let mut object = pod("a");
    object["spec"]["nodeName"] = json!("n");
    object["spec"]["terminationGracePeriodSeconds"] = json!(20);
    create(&client, PODS, &object).await;
    let path = format!("{PODS}/a");
    let (_, marked) = delete(&client, &path, &Value::Null).await;
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:20Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 20);
    let (_, longer) = delete(&client, &path, &json!({"gracePeriodSeconds": 60})).await;
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 20);
    let (_, shorter) = delete(&client, &path, &json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let (_, running) =
        merge(&client, &format!("{path}/status"), &json!({"status": {"phase": "Running"}})).await;
    assert_eq!(running["status"]["phase"], "Running", "{running}");
    let (status, _) = delete(&client, &path, &json!({"gracePeriodSeconds": 0})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(get(&client, &path).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn pods_that_run_nowhere_go_at_once() {
    let client = server().client();
    create(&client, PODS, &pod("unbound")).await;
    let mut finished = pod("finished");
    finished["spec"]["nodeName"] = json!("n");
    create(&client, PODS, &finished).await;
    merge(&client, &format!("{PODS}/finished/status"), &json!({"status": {"phase": "Succeeded"}})).await;
    for name in ["unbound", "finished"] {
        let (_, answer) = delete(&client, &format!("{PODS}/{name}"), &Value::Null).await;
        assert_eq!(answer["kind"], "Status", "{name}: {answer}");
        assert_eq!(get(&client, &format!("{PODS}/{name}")).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_selection_is_deleted_together() {
    let client = server().client();
    for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        create(&client, CONFIG_MAPS, &config_map(name, json!({"colour": colour}))).await;
    }
    let (status, deleted) =
        delete(&client, &format!("{CONFIG_MAPS}?labelSelector=colour%3Dred"), &Value::Null).await;
    assert_eq!((status, deleted["items"].as_array().map(Vec::len)), (StatusCode::OK, Some(2)));
    let (_, left) = get(&client, CONFIG_MAPS).await;
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let client = server().client();
    create(&client, &format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a", json!({}))).await;
    assert_eq!(get(&client, &format!("{CONFIG_MAPS}/a")).await.0, StatusCode::NOT_FOUND);
    create(&client, CONFIG_MAPS, &config_map("a", json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (_, patched) = merge(&client, &format!("{path}?dryRun=All"), &json!({"data": {"k": "new"}})).await;
    assert_eq!(patched["data"]["k"], "new");
    delete(&client, &format!("{path}?dryRun=All"), &Value::Null).await;
    assert_eq!(get(&client, &path).await.1["data"]["k"], "v");
}
