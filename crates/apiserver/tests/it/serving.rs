use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures::{TryStreamExt, pin_mut};
use gangway_apiserver::{ServeError, ServeOptions, Serving};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::support::{create_config_map, server};

async fn serve(server: &gangway_apiserver::ApiServer, directory: &Path) -> Result<Serving, ServeError> {
    let options =
        ServeOptions { address: "127.0.0.1:0".parse().unwrap(), kubeconfig: directory.join("kubeconfig") };
    server.serve(options).await
}

async fn config(serving: &Serving) -> Config {
    let kubeconfig = Kubeconfig::read_from(&serving.kubeconfig).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

#[tokio::test]
async fn the_kubeconfig_lets_its_owner_in() {
    let directory = tempfile::tempdir().unwrap();
    let server = server();
    let serving = serve(&server, directory.path()).await.unwrap();
    let mode = std::fs::metadata(&serving.kubeconfig).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let client = Client::try_from(config(&serving).await).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let stream = maps.watch(&WatchParams::default(), "0").await.unwrap();
    pin_mut!(stream);
    create_config_map(&client, "a").await;
    let event = stream.try_next().await.unwrap().unwrap();
    assert!(matches!(event, WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("a")));
    let inside: Api<ConfigMap> = Api::default_namespaced(server.client());
    assert!(inside.get_opt("a").await.unwrap().is_some());
}

#[tokio::test]
async fn without_the_token_nobody_comes_in() {
    let directory = tempfile::tempdir().unwrap();
    let serving = serve(&server(), directory.path()).await.unwrap();
    let mut stranger = config(&serving).await;
    stranger.auth_info = AuthInfo::default();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(stranger).unwrap());
    let refused = maps.get("a").await.unwrap_err();
    assert!(
        matches!(refused, kube::Error::Api(ref status) if status.code == 401 && status.reason == "Unauthorized")
    );
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = server();
    let serving = serve(&server, directory.path()).await.unwrap();
    let options = ServeOptions { address: serving.address, kubeconfig: directory.path().join("other") };
    let error = server.serve(options).await.unwrap_err();
    assert!(error.to_string().contains(&serving.address.to_string()), "{error}");
    assert!(!directory.path().join("other").exists());
}

#[tokio::test]
async fn a_dropped_server_stops_listening() {
    let directory = tempfile::tempdir().unwrap();
    let serving = serve(&server(), directory.path()).await.unwrap();
    let address = serving.address;
    drop(serving);
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}
