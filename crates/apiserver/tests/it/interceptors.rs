use std::sync::Arc;

use gangway_apiserver::{ApiServer, Interceptor, ObjectRequest, ReadView, Rejection};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{CONFIG_MAPS, config_map, create, post};

/// Labels each ConfigMap with whether one called `first` exists; refuses those called `no`.
struct Labeller;

impl Interceptor for Labeller {
    fn before_create(
        &self,
        view: &dyn ReadView,
        request: &ObjectRequest<'_>,
        object: &mut Value,
    ) -> Result<(), Rejection> {
        if request.plural != "configmaps" {
            return Ok(());
        }
        if request.name == "no" {
            return Err(Rejection { message: "the name is no".into() });
        }
        let first = view.get("", "configmaps", request.namespace, "first");
        assert_eq!(first.is_some(), view.exists("", "configmaps", request.namespace, "first"));
        let count = view.list("", "configmaps", None).len();
        object["metadata"]["labels"] =
            json!({"after-first": first.is_some().to_string(), "count": count.to_string()});
        Ok(())
    }
}

#[tokio::test]
async fn interceptors_change_and_refuse_new_objects() {
    let client = ApiServer::builder().interceptor(Arc::new(Labeller)).build().client();
    let first = create(&client, CONFIG_MAPS, &config_map("first", json!({}))).await;
    assert_eq!(first["metadata"]["labels"], json!({"after-first": "false", "count": "0"}));
    let second = create(&client, CONFIG_MAPS, &config_map("second", json!({}))).await;
    assert_eq!(second["metadata"]["labels"], json!({"after-first": "true", "count": "1"}));
    let (status, answer) = post(&client, CONFIG_MAPS, &config_map("no", json!({}))).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(answer["message"].as_str().unwrap().ends_with("the name is no"));
}
