use futures::{TryStreamExt, pin_mut};
use http::StatusCode;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::support::{CRDS, create, delete, get, merge, post, put, server};

const QUEUES: &str = "/apis/example.com/v2/namespaces/default/queues";

fn schema() -> Value {
    json!({
        "type": "object", "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object", "required": ["size"],
                "x-kubernetes-validations": [
                    {"rule": "self.size <= self.limit", "message": "size exceeds the limit"},
                    {"rule": "self.name == oldSelf.name", "message": "name is immutable", "fieldPath": ".name"},
                ],
                "properties": {
                    "size": {"type": "integer", "format": "int32", "minimum": 0},
                    "limit": {"type": "integer", "default": 10},
                    "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "default": "x"},
                    "mode": {"type": "string", "enum": ["Fast", "Slow"]},
                    "quantity": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "since": {"type": "string", "format": "date-time", "nullable": true},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "parts": {
                        "type": "array", "maxItems": 3, "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object", "required": ["name"],
                            "x-kubernetes-validations": [
                                {"rule": "self.count >= oldSelf.count", "message": "count never falls"},
                            ],
                            "properties": {
                                "name": {"type": "string"}, "count": {"type": "integer", "default": 1},
                            },
                        },
                    },
                },
            },
            "status": {
                "type": "object",
                "properties": {"used": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.used >= 0", "message": "used is negative"}],
            },
        },
    })
}

fn crd() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema()}, "selectableFields": [{"jsonPath": ".spec.mode"}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "queues.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "queues", "kind": "Queue"},
            "versions": [version("v1", false), version("v2", true)],
        },
    })
}

fn queue(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

async fn with_crd() -> Client {
    let client = server().client();
    create(&client, CRDS, &crd()).await;
    client
}

#[tokio::test]
async fn a_definition_is_established_and_served_at_once() {
    let client = with_crd().await;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let wait = kube::runtime::wait::await_condition(
        crds,
        "queues.example.com",
        kube::runtime::conditions::is_crd_established(),
    );
    assert!(wait.await.unwrap().is_some());
    let (status, list) = get(&client, QUEUES).await;
    assert_eq!((status, &list["kind"]), (StatusCode::OK, &json!("QueueList")));
    let (_, resources) = get(&client, "/apis/example.com/v1").await;
    assert_eq!(resources["resources"][0]["kind"], "Queue");
    let (status, _) = post(&client, CRDS, &crd()).await;
    assert_eq!(status, StatusCode::CONFLICT);
}

#[tokio::test]
async fn versions_share_objects() {
    let client = with_crd().await;
    create(&client, QUEUES, &queue("a", json!({"size": 1}))).await;
    let path = "/apis/example.com/v1/namespaces/default/queues";
    let (_, old) = get(&client, &format!("{path}/a")).await;
    assert_eq!(old["apiVersion"], "example.com/v1");
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Queue");
    let api: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, "queues"));
    let stream = api.watch(&WatchParams::default(), "0").await.unwrap();
    pin_mut!(stream);
    let event = stream.try_next().await.unwrap().unwrap();
    assert!(
        matches!(event, WatchEvent::Added(object) if object.types.as_ref().unwrap().api_version == "example.com/v1")
    );
    let (status, patched) = merge(&client, &format!("{path}/a"), &json!({"spec": {"size": 2}})).await;
    assert_eq!((status, &patched["metadata"]["generation"]), (StatusCode::OK, &json!(2)));
    assert_eq!(get(&client, &format!("{QUEUES}/a")).await.1["spec"]["size"], 2);
}

#[tokio::test]
async fn defaults_are_filled_in_and_unknown_fields_pruned() {
    let client = with_crd().await;
    let spec = json!({
        "size": 1, "typo": true, "free": {"any": {"thing": 1}}, "since": null, "parts": [{"name": "p", "x": 1}],
    });
    let created = create(&client, QUEUES, &queue("a", spec.clone())).await;
    let expected = json!({
        "size": 1, "limit": 10, "name": "x", "free": {"any": {"thing": 1}}, "since": null,
        "parts": [{"name": "p", "count": 1}],
    });
    assert_eq!(created["spec"], expected);
    let (status, answer) =
        post(&client, &format!("{QUEUES}?fieldValidation=Strict"), &queue("b", spec)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("\"spec.typo\"") && message.contains("\"spec.parts[0].x\""), "{message}");
}

#[tokio::test]
async fn what_does_not_fit_the_schema_is_refused_by_field() {
    let client = with_crd().await;
    let cases = [
        (json!({}), "spec.size", "Required value"),
        (json!({"size": "one"}), "spec.size", "must be of type integer: \"string\""),
        (json!({"size": -1}), "spec.size", "should be greater than or equal to 0"),
        (json!({"size": 3_000_000_000_i64, "limit": 4_000_000_000_i64}), "spec.size", "int32"),
        (json!({"size": 1, "mode": "Other"}), "spec.mode", "supported values: \"Fast\", \"Slow\""),
        (json!({"size": 1, "name": "UP"}), "spec.name", "should match"),
        (json!({"size": 1, "name": "abcdef"}), "spec.name", "Too long"),
        (json!({"size": 1, "quantity": true}), "spec.quantity", "int-or-string"),
        (json!({"size": 1, "since": "yesterday"}), "spec.since", "date-time"),
        (json!({"size": 1, "parts": [{"name": "p"}, {"name": "p"}]}), "spec.parts[1]", "Duplicate value"),
        (
            json!({"size": 1, "parts": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}),
            "spec.parts",
            "Too many",
        ),
        (json!({"size": 11}), "spec", "size exceeds the limit"),
    ];
    for (spec, field, message) in cases {
        let (status, answer) = post(&client, QUEUES, &queue("a", spec.clone())).await;
        assert_eq!(
            (status, &answer["reason"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("Invalid")),
            "{spec}: {answer}"
        );
        let causes = answer["details"]["causes"].as_array().unwrap();
        let named = causes
            .iter()
            .any(|cause| cause["field"] == field && cause["message"].as_str().unwrap().contains(message));
        assert!(named, "{spec}: {answer}");
    }
    let (_, answer) = post(&client, QUEUES, &queue("a", json!({"size": 11}))).await;
    assert_eq!(
        answer["message"],
        "Queue.example.com \"a\" is invalid: spec: Invalid value: \"object\": size exceeds the limit"
    );
}

#[tokio::test]
async fn transition_rules_see_the_old_object() {
    let client = with_crd().await;
    let parts = |one: i64, two: i64| json!([{"name": "two", "count": two}, {"name": "one", "count": one}]);
    create(
        &client,
        QUEUES,
        &queue("a", json!({"size": 1, "name": "old", "parts": [{"name": "one", "count": 5}]})),
    )
    .await;
    let path = format!("{QUEUES}/a");
    let (status, answer) = merge(&client, &path, &json!({"spec": {"name": "new"}})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer["details"]["causes"][0]["field"], "spec.name");
    let (status, answer) = merge(&client, &path, &json!({"spec": {"parts": parts(4, 1)}})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert_eq!(answer["details"]["causes"][0]["field"], "spec.parts[1]");
    let (status, answer) = merge(&client, &path, &json!({"spec": {"parts": parts(6, 1)}})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test]
async fn an_old_sin_does_not_block_other_changes() {
    let client = with_crd().await;
    create(&client, QUEUES, &queue("a", json!({"size": 9, "name": "abc"}))).await;
    let mut stricter = crd();
    stricter["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["name"]
        ["maxLength"] = json!(2);
    let (status, answer) = put(&client, &format!("{CRDS}/queues.example.com"), &stricter).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (status, answer) = merge(&client, &format!("{QUEUES}/a"), &json!({"spec": {"size": 8}})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (status, _) = post(&client, QUEUES, &queue("b", json!({"size": 9, "name": "abc"}))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn the_status_has_its_own_door_and_rules() {
    let client = with_crd().await;
    let mut object = queue("a", json!({"size": 1}));
    object["status"] = json!({"used": 1});
    let created = create(&client, QUEUES, &object).await;
    assert!(created.get("status").is_none());
    let path = format!("{QUEUES}/a/status");
    let (status, answer) = merge(&client, &path, &json!({"status": {"used": -1}, "spec": {"size": 5}})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    let (status, patched) = merge(&client, &path, &json!({"status": {"used": 1}, "spec": {"size": 5}})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((&patched["status"]["used"], &patched["spec"]["size"]), (&json!(1), &json!(1)));
    assert_eq!(patched["metadata"]["generation"], 1);
    let (_, again) = merge(&client, &path, &json!({"status": {"used": 1}})).await;
    assert_eq!(again["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn custom_fields_select() {
    let client = with_crd().await;
    for (name, mode) in [("a", "Fast"), ("b", "Slow")] {
        create(&client, QUEUES, &queue(name, json!({"size": 1, "mode": mode}))).await;
    }
    let (_, list) = get(&client, &format!("{QUEUES}?fieldSelector=spec.mode%3DSlow")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["items"][0]["metadata"]["name"], "b");
    let mut changed = crd();
    for version in changed["spec"]["versions"].as_array_mut().unwrap() {
        version["selectableFields"] = json!([{"jsonPath": ".spec.name"}, {"jsonPath": ".spec.mode"}]);
    }
    put(&client, &format!("{CRDS}/queues.example.com"), &changed).await;
    let (_, list) = get(&client, &format!("{QUEUES}?fieldSelector=spec.mode%3DSlow,spec.name%3Dx")).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_definition_goes_with_its_objects() {
    let client = with_crd().await;
    create(&client, QUEUES, &queue("a", json!({"size": 1}))).await;
    let path = format!("{CRDS}/queues.example.com");
    let (status, _) = delete(&client, &path, &Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(get(&client, &path).await.0, StatusCode::NOT_FOUND);
    assert_eq!(get(&client, QUEUES).await.0, StatusCode::NOT_FOUND);
    create(&client, CRDS, &crd()).await;
    assert_eq!(get(&client, QUEUES).await.1["items"], json!([]));
}

#[tokio::test]
async fn a_definition_that_cannot_work_is_refused() {
    let client = server().client();
    let cases: [(&str, Value); 5] = [
        ("/metadata/name", json!("wrong.example.com")),
        ("/spec/scope", json!("Somewhere")),
        ("/spec/versions/0/storage", json!(true)),
        ("/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/name/pattern", json!("(")),
        (
            "/spec/versions/1/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations/0/rule",
            json!("self. >"),
        ),
    ];
    for (pointer, value) in cases {
        let mut bad = crd();
        *bad.pointer_mut(pointer).unwrap() = value;
        let (status, answer) = post(&client, CRDS, &bad).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{pointer}: {answer}");
    }
    assert_eq!(get(&client, QUEUES).await.0, StatusCode::NOT_FOUND);
}
