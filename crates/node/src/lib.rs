//! Runs bound pods on this machine, or pretends to.
//!
//! [`run_node`] registers this machine as a Node and runs the pods that are bound to it as processes, each container under
//! a [`shim`] of its own, so that nothing is left behind however the agent ends. [`fake`] plays nodes whose pods do what
//! their annotations say.
//!
//! **What a pod on this machine is, and is not.** Only `image: host` runs, unless the options allow any image. A process
//! sees the machine's file system and network; it gets `PATH`, `HOME`, `LANG` and the pod's own variables, and nothing else of
//! the agent's environment. Requests and limits are counted by the scheduler and **not enforced** here. What would change
//! the meaning of a pod and cannot be done is refused with a reason, see `refusal`; names, DNS and hardening settings that
//! have no meaning for a process are ignored.
//!
//! **Volumes.** emptyDir, ConfigMap and Secret volumes are directories below the state directory. A process has no mounts of
//! its own, and nothing is written elsewhere in the machine's file system, so a `mountPath` has to be relative. It is a link
//! in the container's own directory, where the container starts unless the spec or the options name another working
//! directory; on a cluster the same relative path is below `/`. `GANGWAY_VOLUME_<NAME>` holds the volume's directory in
//! any case. The API token that a cluster mounts into every pod is not provided.

mod agent;
mod environment;
pub mod fake;
mod options;
mod prepare;
mod probe;
mod prober;
mod process;
mod refusal;
mod registration;
pub mod shim;
mod state;
mod status;
mod step;
mod volumes;
mod worker;
mod writes;

pub use agent::run_node;
pub use options::NodeOptions;

/// Why a node could not be played to the end.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The machine's directory for pods cannot be used.
    #[error("the state directory {directory} cannot be used: {source}")]
    StateDirectory { directory: String, source: std::io::Error },
    /// The API server refused the Node.
    #[error("the Node {name} cannot be registered: {source}")]
    Registration { name: String, source: Box<kube::Error> },
}
