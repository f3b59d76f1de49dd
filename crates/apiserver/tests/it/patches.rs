use http::{Method, StatusCode};
use serde_json::json;

use crate::support::{CONFIG_MAPS, PODS, config_map, create, merge, pod, raw, server};

#[tokio::test]
async fn merge_patches_merge() {
    let client = server().client();
    let created = create(&client, CONFIG_MAPS, &config_map("a", json!({"x": "1", "y": "2"}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let (status, patched) =
        merge(&client, &path, &json!({"metadata": {"labels": {"x": null}}, "data": {"n": "1"}})).await;
    assert_eq!(status, StatusCode::OK, "{patched}");
    assert_eq!(patched["metadata"]["labels"], json!({"y": "2"}));
    assert_eq!(patched["data"], json!({"k": "v", "n": "1"}));
    let (status, same) = merge(&client, &path, &json!({"data": {"n": "1"}})).await;
    assert_eq!((status, same), (StatusCode::OK, patched.clone()));
    let old = &created["metadata"]["resourceVersion"];
    let (status, answer) =
        merge(&client, &path, &json!({"metadata": {"resourceVersion": old}, "data": {}})).await;
    assert_eq!((status, &answer["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
    let (status, _) = merge(&client, &path, &json!({"metadata": {"uid": "other"}, "data": {}})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let current = &patched["metadata"]["resourceVersion"];
    let (status, _) =
        merge(&client, &path, &json!({"metadata": {"resourceVersion": current}, "data": {"n": "2"}})).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = merge(&client, &format!("{CONFIG_MAPS}/none"), &json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = merge(&client, &path, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn json_patches_test_and_replace() {
    let client = server().client();
    create(&client, CONFIG_MAPS, &config_map("a", json!({}))).await;
    let path = format!("{CONFIG_MAPS}/a");
    let patch = json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "w"}]);
    let media = "application/json-patch+json";
    let (status, patched) = raw(&client, Method::PATCH, &path, media, &patch).await;
    assert_eq!((status, &patched["data"]["k"]), (StatusCode::OK, &json!("w")));
    let (status, answer) = raw(&client, Method::PATCH, &path, media, &patch).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
}

#[tokio::test]
async fn other_patches_are_refused_clearly() {
    let client = server().client();
    create(&client, CONFIG_MAPS, &config_map("a", json!({}))).await;
    for media in ["application/strategic-merge-patch+json", "application/apply-patch+yaml"] {
        let (status, answer) =
            raw(&client, Method::PATCH, &format!("{CONFIG_MAPS}/a"), media, &json!({})).await;
        assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert!(answer["message"].as_str().unwrap().contains("merge-patch+json"));
    }
}

#[tokio::test]
async fn a_status_patch_changes_the_status_only() {
    let client = server().client();
    let created = create(&client, PODS, &pod("a")).await;
    let patch = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    let (status, patched) = merge(&client, &format!("{PODS}/a/status"), &patch).await;
    assert_eq!(status, StatusCode::OK, "{patched}");
    assert_eq!(patched["status"]["phase"], "Running");
    assert_eq!(patched["spec"], created["spec"]);
    assert!(patched["metadata"].get("labels").is_none());
}
