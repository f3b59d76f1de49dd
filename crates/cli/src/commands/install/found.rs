//! What of Gangway is on a cluster already.

use gangway_api::install::{COMPONENT_LABEL, CONFIGURATION_KEY, CONTROLLER, MANAGED_BY, SCHEDULER};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::super::api_failure;
use super::cluster::{Cluster, kind};
use crate::exit::Failure;

/// An installation.
#[derive(Debug, Default)]
pub struct Found {
    pub namespace: String,
    pub replicas: i32,
    image: String,
    pub scheduler: bool,
    pub service_monitor: bool,
    /// The configuration file.
    pub configuration: Option<String>,
}

impl Found {
    /// The installation of a cluster, if there is one.
    pub async fn look(cluster: &Cluster) -> Result<Option<Self>, Failure> {
        let marked = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
        let parts = ListParams::default().labels(&format!("{marked},{COMPONENT_LABEL}"));
        let all: Api<Deployment> = Api::all(cluster.client.clone());
        let parts = all.list(&parts).await.map_err(|error| api_failure("list Deployments", &error))?.items;
        let is_part = |deployment: &&Deployment, part: &str| deployment.name_any() == part;
        let Some(controller) = parts.iter().find(|part| is_part(part, CONTROLLER)) else { return Ok(None) };
        let namespace = controller.namespace().unwrap_or_default();
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &namespace);
        let map = maps.get_opt(CONTROLLER).await;
        let map = map.map_err(|error| api_failure("read the configuration that is there", &error))?;
        let spec = &controller.spec;
        let pod = spec.template.spec.as_ref();
        let image = pod.and_then(|pod| pod.containers.first()).and_then(|container| container.image.clone());
        let monitors = cluster.ours(&kind("monitoring.coreos.com/v1", "ServiceMonitor")).await?;
        Ok(Some(Self {
            replicas: spec.replicas.unwrap_or(1),
            image: image.unwrap_or_default(),
            scheduler: parts.iter().any(|part| is_part(&part, SCHEDULER)),
            service_monitor: !monitors.is_empty(),
            configuration: map.and_then(|map| map.data?.remove(CONFIGURATION_KEY)),
            namespace,
        }))
    }

    /// The image from where the present one is, in this version.
    pub fn image_of_this_version(&self) -> Result<String, Failure> {
        let unclear = || {
            Failure::bad_input(format!(
                "{} does not say what the image of another version is called",
                self.image
            ))
            .try_this("--image IMAGE")
        };
        let (repository, tag) = self.image.rsplit_once(':').ok_or_else(unclear)?;
        // A colon before the last slash is that of a port.
        if self.image.contains('@') || tag.contains('/') {
            return Err(unclear());
        }
        Ok(format!("{repository}:{}", env!("CARGO_PKG_VERSION")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_comes_from_the_same_place() {
        let image = |image: &str| {
            let found = Found { image: image.to_owned(), ..Found::default() };
            found.image_of_this_version().map_err(|failure| failure.advice)
        };
        let of = |repository: &str| Ok(format!("{repository}:{}", env!("CARGO_PKG_VERSION")));
        let unclear = Err("--image IMAGE".to_owned());
        assert_eq!(image("gangway:0.0.1"), of("gangway"));
        assert_eq!(image("registry.example:5000/gangway:1"), of("registry.example:5000/gangway"));
        assert_eq!(image("registry.example:5000/gangway"), unclear);
        assert_eq!(image("gangway"), unclear);
        assert_eq!(image("gangway@sha256:0123"), unclear);
    }
}
