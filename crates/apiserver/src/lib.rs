//! A Kubernetes API in this process.
//!
//! [`ApiServer`] is a tower service: [`ApiServer::client`] puts a `kube::Client` on it without a
//! socket, [`ApiServer::serve`] puts the same service on a loopback port with TLS and a token.

mod builtins;
mod changes;
pub mod controllers;

mod counts;
mod decode;
mod error;
mod ids;
mod intercept;
mod names;
mod query;
mod registry;
mod requests;
mod route;
mod schema;
mod selectors;
mod serve;
mod service;
mod store;

pub use changes::{ChangeKind, Committed};
pub use counts::RequestKey;
pub use intercept::{Interceptor, ObjectRequest, ReadView, Rejection};
pub use serve::{ServeError, ServeOptions, Serving};
pub use service::{ApiServer, Builder, ResponseBody};
