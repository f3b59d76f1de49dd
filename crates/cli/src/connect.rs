//! A connection to a Kubernetes API: by kubeconfig, or from inside a cluster.

use std::path::PathBuf;

use http::{HeaderValue, header};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::exit::Failure;

/// Which Kubernetes API to speak to.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// The kubeconfig file; otherwise $KUBECONFIG, ~/.kube/config, or the service account of the pod.
    #[arg(long, value_name = "FILE", global = true, help_heading = "Connection")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig; otherwise its current one.
    #[arg(long, value_name = "NAME", global = true, help_heading = "Connection")]
    pub context: Option<String>,
}

impl Connection {
    /// A client that was seen to reach its API server. `role` ends up in the user agent.
    pub async fn client(&self, role: &str) -> Result<Client, Failure> {
        let config = self.config().await?;
        Self::reach(config, role).await
    }

    /// The same for a program that stays: nothing is tried again behind its back, since it counts what is refused and knows
    /// itself when to try again.
    pub async fn plain_client(&self, role: &str) -> Result<Client, Failure> {
        let mut config = self.config().await?;
        config.default_retry = false;
        Self::reach(config, role).await
    }

    async fn reach(mut config: Config, role: &str) -> Result<Client, Failure> {
        let agent = format!("gangway-{role}/{}", env!("CARGO_PKG_VERSION"));
        if let Ok(agent) = HeaderValue::from_str(&agent) {
            config.headers.push((header::USER_AGENT, agent));
        }
        let address = config.cluster_url.to_string();
        let unreachable = |error: kube::Error| {
            Failure::bad_input(format!("cannot reach the Kubernetes API at {address}: {}", causes(&error)))
                .try_this(
                    "check that the API server runs and that --kubeconfig and --context name the right one",
                )
        };
        let client = Client::try_from(config).map_err(unreachable)?;
        client.apiserver_version().await.map_err(unreachable)?;
        Ok(client)
    }

    async fn config(&self) -> Result<Config, Failure> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match &self.kubeconfig {
            Some(file) => {
                let wrong = |error| {
                    Failure::bad_input(format!(
                        "{}: not a usable kubeconfig: {}",
                        file.display(),
                        causes(&error)
                    ))
                };
                let kubeconfig = Kubeconfig::read_from(file).map_err(wrong)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(wrong)
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await.map_err(|error| {
                Failure::bad_input(format!("no usable kubeconfig: {}", causes(&error)))
                    .try_this("name one with --kubeconfig FILE")
            }),
            None => Config::infer().await.map_err(|error| {
                Failure::bad_input(format!("no Kubernetes API is configured: {}", causes(&error))).try_this(
                    "name a kubeconfig with --kubeconfig FILE, or use `gangway run`, which needs no cluster",
                )
            }),
        }
    }
}

/// An error and what caused it, in one line, without saying anything twice.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
