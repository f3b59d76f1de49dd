//! Tests of the whole: the rules of the repository and the end-to-end suite.

mod compare;
mod dashboards;
mod deploy;
mod docs;
mod e2e;
mod install;
mod leftovers;
mod replay;
mod runs;
mod sim;
mod tidy;
