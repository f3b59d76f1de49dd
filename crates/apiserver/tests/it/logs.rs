use std::fs::{self, OpenOptions};
use std::io::Write;

use futures::AsyncReadExt;
use gangway_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use serde_json::json;

use crate::support::{PODS, create, merge, pod};

#[tokio::test]
async fn logs_are_read_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let server = ApiServer::builder().log_directory(directory.path().to_owned()).build();
    let client = server.client();
    let created = create(&client, PODS, &pod("a")).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert_eq!(pods.logs("a", &LogParams::default()).await.unwrap(), "");
    let folder = directory.path().join(format!("default_a_{}", created["metadata"]["uid"].as_str().unwrap()));
    fs::create_dir(&folder).unwrap();
    let file = folder.join("main.log");
    fs::write(&file, "one\ntwo\nthree\n").unwrap();
    assert_eq!(pods.logs("a", &LogParams::default()).await.unwrap(), "one\ntwo\nthree\n");
    let tail = LogParams { tail_lines: Some(2), ..LogParams::default() };
    assert_eq!(pods.logs("a", &tail).await.unwrap(), "two\nthree\n");
    let none = LogParams { tail_lines: Some(0), ..LogParams::default() };
    assert_eq!(pods.logs("a", &none).await.unwrap(), "");
    let wrong = LogParams { container: Some("other".into()), ..LogParams::default() };
    assert!(pods.logs("a", &wrong).await.is_err());
    let previous = LogParams { previous: true, ..LogParams::default() };
    assert!(pods.logs("a", &previous).await.is_err());
}

#[tokio::test]
async fn a_followed_log_ends_with_its_pod() {
    let directory = tempfile::tempdir().unwrap();
    let server = ApiServer::builder().log_directory(directory.path().to_owned()).build();
    let client = server.client();
    let created = create(&client, PODS, &pod("a")).await;
    let folder = directory.path().join(format!("default_a_{}", created["metadata"]["uid"].as_str().unwrap()));
    fs::create_dir(&folder).unwrap();
    let file = folder.join("main.log");
    fs::write(&file, "begin\n").unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut stream = pods.log_stream("a", &follow).await.unwrap();
    let mut begin = [0; 6];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"begin\n");
    OpenOptions::new().append(true).open(&file).unwrap().write_all(b"end\n").unwrap();
    merge(&client, &format!("{PODS}/a/status"), &json!({"status": {"phase": "Succeeded"}})).await;
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "end\n");
}
