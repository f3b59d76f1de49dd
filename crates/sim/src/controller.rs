//! The controllers of a simulation: one, or two of which one is elected. They die, stand still and come back.

use std::sync::Arc;
use std::time::Duration;

use gangway_api::config::{Configuration, LeaderElection};
use gangway_apiserver::ApiServer;
use gangway_controller::election::{Candidate, Term};
use gangway_controller::workloads;
use gangway_model::planted::Planted;
use gangway_model::readiness::WaitForPodsReady;

use crate::clock::VirtualClock;
use crate::faults::Connection;
use crate::witness::{CONTROLLERS, LEASE, Witness};

/// How long a controller that died stays away.
const RESTART: Duration = Duration::from_secs(2);

/// The configuration of a simulated controller.
pub fn config(wait_for_pods_ready: Option<WaitForPodsReady>) -> Configuration {
    Configuration {
        requests_per_second: f64::MAX,
        request_burst: u32::MAX,
        wait_for_pods_ready,
        ..Configuration::default()
    }
}

/// One of the controllers, over all its lives.
pub struct Controller {
    /// Which.
    pub number: usize,
    /// It stands for election and acts only when it leads.
    pub is_elected: bool,
    /// A mistake that it makes.
    pub planted: Planted,
    /// When pods have to be ready.
    pub readiness: Option<WaitForPodsReady>,
    /// The API.
    pub api: ApiServer,
    /// Its clock, which may be wrong.
    pub clock: Arc<VirtualClock>,
    /// Says when it dies.
    pub witness: Arc<Witness>,
}

impl Controller {
    /// Lives, and lives again after each death.
    pub async fn run(self) {
        for life in 0.. {
            tokio::select! {
                biased;
                () = self.witness.crash[self.number].notified() => {}
                () = self.live(life) => self.witness.tell("the controller ended by itself"),
            }
            tokio::time::sleep(RESTART).await;
        }
    }

    async fn live(&self, life: u32) {
        let name = CONTROLLERS[self.number];
        let client = Connection::client(&self.api, name, &self.witness);
        let work = |client, term| {
            self.witness.begins_anew(name);
            let options = workloads::Options {
                config: config(self.readiness.clone()),
                planted: self.planted,
                term,
                onlooker: Some(self.witness.onlooker()),
                ..workloads::Options::default()
            };
            workloads::run(client, self.clock.clone(), options)
        };
        if self.is_elected {
            let identity = format!("{name}_{life}");
            let candidate = Candidate::new(client, self.clock.clone(), identity, terms(), self.planted);
            self.stand_still(candidate.lead(work, std::future::pending())).await;
        } else {
            self.stand_still(work(client, Term::default())).await;
        }
    }

    /// Goes on with the work unless it is told to stand still; then nothing of it moves until the time is over.
    async fn stand_still<W: Future>(&self, work: W) {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = self.witness.freeze[self.number].notified() => {
                    tokio::time::sleep(self.witness.frozen_for()).await;
                }
                _ = &mut work => return,
            }
        }
    }
}

/// Longer than by default: a simulation is not to spend its time on renewals.
fn terms() -> LeaderElection {
    LeaderElection {
        name: LEASE.to_owned(),
        lease_duration: Duration::from_secs(30),
        renew_deadline: Duration::from_secs(20),
        retry_period: Duration::from_secs(5),
        ..LeaderElection::in_namespace("default")
    }
}
