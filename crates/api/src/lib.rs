//! Kubernetes objects and records of the model; CRDs, configuration, validation.

pub mod config;
mod crds;
pub mod install;
pub mod interceptors;
pub mod kueue;
pub mod manifests;
pub mod names;
pub mod pods;
pub mod policies;
pub mod records;
pub mod scheduler_config;
mod strict;
pub mod time;
mod yaml;

pub use crds::{crds, crds_yaml, kept_kinds};
pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
