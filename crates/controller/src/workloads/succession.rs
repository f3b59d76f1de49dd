//! From listening to leading.
//!
//! Who may lead one day watches what the leader watches and keeps the objects. What the leader before wrote last may not have
//! come by watch when the turn comes, and whoever decided without it could give the same quota twice. So the versions of all
//! Workloads are read from the API server's store, and what is newer than what is kept is read as well. Only then the engine is
//! built, and decides. All other kinds may be as late as they may be for a leader.

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use gangway_api::kueue::Workload;
use gangway_model::Uid;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::objects::version_of;
use super::shell::Shell;
use crate::election::Term;
use crate::index::uid_of;
use crate::trouble::{Trouble, Waits};

/// Whether a controller leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Somebody else does, or may have until now.
    Listens,
    /// It takes in what it has kept.
    TakesOver,
    /// It does.
    Leads,
}

/// A Workload as the API server has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    uid: Uid,
    version: u64,
    namespace: String,
    name: String,
}

/// A step from listening to leading.
pub(super) enum Step {
    /// Its term has begun.
    Begins,
    /// These Workloads are there.
    Listed(Vec<Listed>),
    /// These are newer than what was kept.
    Read(Vec<Workload>),
}

enum Stage {
    Waiting,
    Asking(BoxFuture<'static, Step>),
}

/// What is left to do before it leads.
pub(super) struct Succession {
    term: Term,
    client: Client,
    stage: Stage,
}

impl Succession {
    pub(super) fn new(term: Term, client: Client) -> Self {
        Self { term, client, stage: Stage::Waiting }
    }

    /// The next step, when it is done.
    pub(super) async fn next(&mut self) -> Step {
        match &mut self.stage {
            Stage::Waiting => {
                self.term.begins().await;
                Step::Begins
            }
            Stage::Asking(step) => step.await,
        }
    }
}

impl Shell {
    /// Whether it knows enough for the next step to be worth while.
    pub(super) fn may_succeed(&self) -> bool {
        self.role == Role::Listens && self.has_first_lists()
    }

    pub(super) fn succeed(&mut self, step: Step) {
        let client = self.succession.client.clone();
        let next = match step {
            Step::Begins => async move { Step::Listed(list(&client).await) }.boxed(),
            Step::Listed(listed) => {
                let unseen =
                    listed.into_iter().filter(|found| !self.workloads.knows(&found.uid, found.version));
                let unseen: Vec<Listed> = unseen.collect();
                tracing::debug!(unseen = unseen.len(), "reads what it has not seen of the leader before");
                async move { Step::Read(read(&client, unseen).await) }.boxed()
            }
            Step::Read(found) => {
                for object in found {
                    self.workloads.take_answer(object);
                }
                return self.take_in_all();
            }
        };
        self.succession.stage = Stage::Asking(next);
    }
}

/// So many Workloads at once take a few megabytes.
const PAGE: u32 = 2000;
/// Workloads that are read at the same time.
const MOST_READS: usize = 16;

/// All Workloads, as the API server has them now: without a version to begin with, it asks its store.
async fn list(client: &Client) -> Vec<Listed> {
    let api: Api<Workload> = Api::all(client.clone());
    until_it_works("listing Workloads before it leads", || async {
        let mut listed = Vec::new();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let found = api.list_metadata(&page).await?;
            listed.extend(found.items.iter().map(|object| Listed {
                uid: uid_of(object),
                version: version_of(object),
                namespace: object.namespace().unwrap_or_default(),
                name: object.name_any(),
            }));
            match found.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(listed),
            }
        }
    })
    .await
}

/// These Workloads as they are now; those that are gone by now are left out, which the watch will say.
async fn read(client: &Client, unseen: Vec<Listed>) -> Vec<Workload> {
    let reads = unseen.into_iter().map(|Listed { namespace, name, .. }| {
        let api: Api<Workload> = Api::namespaced(client.clone(), &namespace);
        async move { until_it_works("reading a Workload before it leads", || api.get_opt(&name)).await }
    });
    stream::iter(reads).buffered(MOST_READS).filter_map(std::future::ready).collect().await
}

async fn until_it_works<T, F>(what: &'static str, ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut trouble = Trouble::with(what);
    let mut waits = Waits::default();
    loop {
        match ask().await {
            Ok(answer) => {
                trouble.worked();
                return answer;
            }
            Err(error) => trouble.failed(&error),
        }
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    }
}
