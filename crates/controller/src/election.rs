//! Who of several acts: a Lease, and a fence that stops the writes of whoever has lost it.
//!
//! Nobody's wall clock is believed. A candidate takes a Lease over when it has not seen it change for as long as the Lease
//! lasts. The leader stops writing at its renew deadline, counted from the moment before its last renewal that landed was sent,
//! and gives each write less time than is left from there to the end of the Lease. So what it had in flight when it lost the
//! Lease has been given up before anybody else begins.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use gangway_api::config::LeaderElection;
use gangway_api::time::to_api_micro;
use gangway_model::Clock;
use gangway_model::planted::{Bug, Planted};
use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::PostParams;
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::trouble::Trouble;

/// How long a write may take: it must be over before the Lease is.
fn patience(terms: &LeaderElection) -> Duration {
    terms.lease_duration.saturating_sub(terms.renew_deadline).mul_f64(0.8)
}

/// Says when its holder leads. A term ends with the work that was given it.
#[derive(Clone, Debug)]
pub struct Term {
    leads: watch::Receiver<bool>,
    is_alone: bool,
}

impl Default for Term {
    /// The term of somebody who is alone: it has begun.
    fn default() -> Self {
        Self { leads: watch::channel(true).1, is_alone: true }
    }
}

impl Term {
    /// Whether it leads.
    pub fn has_begun(&self) -> bool {
        *self.leads.borrow()
    }

    /// Whether nobody else may lead.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Waits until it leads.
    pub async fn begins(&mut self) {
        if self.leads.wait_for(|leads| *leads).await.is_err() {
            // Nobody is there any more who could say so.
            std::future::pending().await
        }
    }
}

/// Somebody who would lead.
pub struct Candidate {
    client: Client,
    leases: Api<Lease>,
    clock: Arc<dyn Clock>,
    identity: String,
    terms: LeaderElection,
    fence: Fence,
    trouble: Trouble,
}

/// A Lease as somebody else left it, and since when.
struct Observed {
    version: Option<String>,
    since: Instant,
}

impl Candidate {
    /// Somebody who stands for election under a name that nobody else has.
    pub fn new(
        client: Client,
        clock: Arc<dyn Clock>,
        identity: String,
        terms: LeaderElection,
        planted: Planted,
    ) -> Self {
        let leases = Api::namespaced(client.clone(), &terms.namespace);
        let fence = Fence { open_until: Arc::default(), patience: patience(&terms), planted };
        Self { client, leases, clock, identity, terms, fence, trouble: Trouble::with("electing a leader") }
    }

    /// Begins the work on a client that writes only while it leads, and tells it when that is. So it can listen and read
    /// before its turn comes. It goes on until the work ends by itself or `stop` does. When the Lease is lost, work is dropped
    /// where it stands and begins anew.
    pub async fn lead<W: Future>(
        mut self,
        mut work: impl FnMut(Client, Term) -> W,
        stop: impl Future<Output = ()>,
    ) -> Option<W::Output> {
        let mut stop = std::pin::pin!(stop);
        loop {
            let mut observed = None;
            // Who leads from the beginning need not be told of it later.
            let first = tokio::select! {
                biased;
                () = &mut stop => return None,
                lease = self.attempt(&mut observed) => lease,
            };
            let (turn, term) = watch::channel(first.is_some());
            let term = Term { leads: term, is_alone: false };
            let mut work = std::pin::pin!(work(self.fence.client(&self.client), term));
            let lease = match first {
                Some(lease) => lease,
                None => tokio::select! {
                    biased;
                    () = &mut stop => return None,
                    lease = self.acquire(&mut observed) => lease,
                    output = &mut work => return Some(output),
                },
            };
            tracing::info!(identity = self.identity, "leads");
            turn.send_replace(true);
            let output = tokio::select! {
                biased;
                () = &mut stop => None,
                () = self.keep(lease) => {
                    tracing::warn!(identity = self.identity, "leads no longer");
                    continue;
                }
                output = &mut work => Some(output),
            };
            self.fence.close();
            self.release().await;
            return output;
        }
    }

    /// Waits until the Lease is ours. Whoever waits looks twice as often as the leader renews: a Lease that is given back
    /// does not lie about for long.
    async fn acquire(&mut self, observed: &mut Option<Observed>) -> Lease {
        loop {
            tokio::time::sleep(self.terms.retry_period / 2).await;
            if let Some(lease) = self.attempt(observed).await {
                return lease;
            }
        }
    }

    /// Takes the Lease if it can be had.
    async fn attempt(&mut self, observed: &mut Option<Observed>) -> Option<Lease> {
        let sent = Instant::now();
        match self.try_to_acquire(observed).await {
            Ok(lease) => {
                self.trouble.worked();
                if lease.is_some() {
                    self.fence.open(sent + self.terms.renew_deadline);
                }
                return lease;
            }
            // Somebody was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => self.trouble.failed(&error),
        }
        None
    }

    async fn try_to_acquire(&self, observed: &mut Option<Observed>) -> Result<Option<Lease>, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.terms.name).await? else {
            let mut lease = Lease::default();
            lease.metadata.name = Some(self.terms.name.clone());
            self.take(&mut lease);
            return self.leases.create(&PostParams::default(), &lease).await.map(Some);
        };
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if !holder.is_empty() && holder != self.identity && !self.is_over(&lease, observed) {
            return Ok(None);
        }
        self.take(&mut lease);
        self.replace(&lease).await.map(Some)
    }

    /// Whether a Lease has stayed as it is for as long as it lasts.
    fn is_over(&self, lease: &Lease, observed: &mut Option<Observed>) -> bool {
        let version = lease.resource_version();
        let Some(before) = observed.as_ref().filter(|before| before.version == version) else {
            *observed = Some(Observed { version, since: Instant::now() });
            return false;
        };
        let told = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        let told = Duration::from_secs(u64::try_from(told).unwrap_or(0));
        before.since.elapsed() >= told.max(self.terms.lease_duration)
    }

    /// Renews until that is no longer possible; returns when the Lease is lost.
    async fn keep(&mut self, mut lease: Lease) {
        loop {
            let next = Instant::now() + self.terms.retry_period;
            tokio::time::sleep_until(self.fence.limit().map_or(next, |limit| limit.min(next))).await;
            let Some(limit) = self.fence.limit().filter(|_| self.fence.is_open()) else { return };
            let sent = Instant::now();
            match tokio::time::timeout_at(limit.max(sent), self.renew(&mut lease)).await {
                Ok(Ok(true)) => {
                    self.trouble.worked();
                    self.fence.open(sent + self.terms.renew_deadline);
                }
                // Somebody else has it.
                Ok(Ok(false)) => return self.fence.close(),
                Ok(Err(error)) => self.trouble.failed(&error),
                Err(_) => self.trouble.failed(&"no answer before the renew deadline"),
            }
        }
    }

    /// Renews; false if the Lease is not ours any more.
    async fn renew(&self, lease: &mut Lease) -> Result<bool, kube::Error> {
        self.take(lease);
        match self.replace(lease).await {
            Ok(renewed) => {
                *lease = renewed;
                return Ok(true);
            }
            // It may have been a renewal of our own whose answer was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error),
        }
        let Some(found) = self.leases.get_opt(&self.terms.name).await? else { return Ok(false) };
        let holder = found.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref());
        if holder != Some(&self.identity) {
            return Ok(false);
        }
        *lease = found;
        self.take(lease);
        *lease = self.replace(lease).await?;
        Ok(true)
    }

    /// Writes our name into a Lease.
    fn take(&self, lease: &mut Lease) {
        let now = to_api_micro(self.clock.now());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(-1).saturating_add(1));
        }
        spec.renew_time = Some(now);
        let seconds = self.terms.lease_duration.as_secs_f64().ceil();
        spec.lease_duration_seconds = Some(seconds as i32);
    }

    /// Gives the Lease back, so that the next one need not wait. If that fails it does wait.
    async fn release(&mut self) {
        let given_back = async {
            let Some(mut lease) = self.leases.get_opt(&self.terms.name).await? else { return Ok(()) };
            let Some(spec) = &mut lease.spec else { return Ok(()) };
            if spec.holder_identity.as_ref() != Some(&self.identity) {
                return Ok(());
            }
            spec.holder_identity = None;
            spec.renew_time = Some(to_api_micro(self.clock.now()));
            self.replace(&lease).await.map(drop)
        };
        let result: Result<Result<(), kube::Error>, _> =
            tokio::time::timeout(patience(&self.terms), given_back).await;
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.trouble.failed(&error),
            Err(_) => self.trouble.failed(&"no answer while giving the Lease back"),
        }
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        self.leases.replace(&self.terms.name, &PostParams::default(), lease).await
    }
}

/// How much longer a leader believes in its Lease that makes the mistake to.
const STALE: Duration = Duration::from_secs(3600);

/// Lets writes through as long as the Lease is sure to be ours.
#[derive(Clone, Debug)]
struct Fence {
    open_until: Arc<Mutex<Option<Instant>>>,
    patience: Duration,
    planted: Planted,
}

impl Fence {
    fn limit(&self) -> Option<Instant> {
        *self.open_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, limit: Option<Instant>) {
        *self.open_until.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }

    fn open(&self, until: Instant) {
        let stale = if self.planted.is(Bug::StaleLeaderWrites) { STALE } else { Duration::ZERO };
        self.set(Some(until + stale));
    }

    fn close(&self) {
        self.set(None);
    }

    fn is_open(&self) -> bool {
        self.limit().is_some_and(|limit| Instant::now() < limit)
    }

    /// The same client, for reading at any time and for writing while the fence is open.
    fn client(&self, client: &Client) -> Client {
        let fenced = Fenced { client: client.clone(), fence: self.clone() };
        Client::new(fenced, client.default_namespace())
    }
}

/// A write was not sent, because somebody else may lead.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this process does not lead any more")]
struct Deposed;

/// A write was given up while the Lease was still ours.
#[derive(Debug, thiserror::Error)]
#[error("no answer in time")]
struct TooSlow;

/// A client behind a fence.
#[derive(Clone)]
struct Fenced {
    client: Client,
    fence: Fence,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl tower::Service<Request<Body>> for Fenced {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
        if is_write && !self.fence.is_open() {
            return futures::future::ready(Err(Deposed.into())).boxed();
        }
        let Self { client, fence } = self.clone();
        async move {
            let answer = client.send(request);
            if !is_write {
                return Ok(answer.await?);
            }
            match tokio::time::timeout(fence.patience, answer).await {
                Ok(answer) => Ok(answer?),
                Err(_) => Err(TooSlow.into()),
            }
        }
        .boxed()
    }
}
