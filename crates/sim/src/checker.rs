//! Whoever answers admission checks: it agrees, asks for a retry, rejects, thinks again, or never says anything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use gangway_api::kueue::{AdmissionCheckState, Workload};
use gangway_api::time::to_api;
use gangway_model::conditions::ConditionType;
use gangway_model::reasons::CheckState;
use gangway_model::{Clock, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;

use crate::clock::VirtualClock;
use crate::scenario::Dice;
use crate::witness::Witness;

/// A check that a Workload with quota waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The Workload's name.
    pub workload: String,
    /// Its uid.
    pub uid: String,
    /// The check.
    pub check: String,
    /// Since when it was asked, as the object says.
    pub since: Timestamp,
    /// When it got the quota for which it is asked.
    pub reserved_at: Timestamp,
}

/// How long a second thought takes at least, and what was never answered is answered in the end.
const SECOND_THOUGHT: Duration = Duration::from_secs(10);
/// Until it is said again what met a conflict.
const AGAIN: Duration = Duration::from_millis(300);
/// How often.
const ATTEMPTS: usize = 8;

/// What is said.
#[derive(Clone, Copy, Debug)]
struct Word {
    state: CheckState,
    after_seconds: Option<i32>,
}

/// What becomes of a question.
#[derive(Clone, Copy, Debug)]
struct Fate {
    late: Duration,
    /// None if nothing is ever said.
    word: Option<Word>,
    /// What is said when it has agreed and thinks again.
    second_thought: Option<Word>,
}

impl Dice {
    fn refusal(&mut self) -> Word {
        if self.0.bool() {
            Word { state: CheckState::Rejected, after_seconds: None }
        } else {
            let after_seconds = self.in_a_thousand(700).then(|| self.0.i32(1..60));
            Word { state: CheckState::Retry, after_seconds }
        }
    }

    fn fate_of_question(&mut self) -> Fate {
        let late = Duration::from_millis(self.0.u64(100..10_000));
        let agrees = Some(Word { state: CheckState::Ready, after_seconds: None });
        let (word, second_thought) = match self.0.u32(0..20) {
            0..11 => (agrees, None),
            11 => (agrees, Some(self.refusal())),
            12..18 => (Some(self.refusal()), None),
            _ => (None, None),
        };
        Fate { late, word, second_thought }
    }
}

/// The one who answers.
pub struct Checker {
    /// Its way to the API.
    pub client: Client,
    /// The time that it is.
    pub clock: Arc<VirtualClock>,
    /// Tells it of questions.
    pub witness: Arc<Witness>,
    /// The end of all trouble: from then on it agrees to everything.
    pub agrees: watch::Receiver<bool>,
    /// From which its answers follow.
    pub seed: u64,
}

impl Checker {
    /// Answers.
    pub async fn run(self) {
        let mut dice = Dice(fastrand::Rng::with_seed(self.seed ^ 0xc4ec));
        let mut known = BTreeSet::new();
        let mut errands = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = self.witness.asked.notified() => {
                    for question in self.witness.questions() {
                        if known.insert(question.clone()) {
                            errands.push(self.answer(question, dice.fate_of_question()));
                        }
                    }
                }
                Some(()) = errands.next() => {}
            }
        }
    }

    async fn answer(&self, question: Question, fate: Fate) {
        let agrees = Word { state: CheckState::Ready, after_seconds: None };
        let mut end = self.agrees.clone();
        tokio::time::sleep(fate.late).await;
        let word = match fate.word {
            Some(word) if !*end.borrow() => word,
            // Where nobody ever agrees in the end, this waits for ever.
            _ => match end.wait_for(|agrees| *agrees).await {
                Ok(_) => agrees,
                Err(_) => return,
            },
        };
        self.say(&question, CheckState::Pending, word).await;
        if let Some(word) = fate.second_thought {
            tokio::time::sleep(SECOND_THOUGHT + fate.late).await;
            if !*end.borrow() {
                self.say(&question, CheckState::Ready, word).await;
            }
        }
    }

    /// Says it, if the Workload has still the quota for which it was asked, and nothing else was said since.
    async fn say(&self, question: &Question, known: CheckState, word: Word) {
        let api: Api<Workload> = Api::default_namespaced(self.client.clone());
        for _ in 0..ATTEMPTS {
            let Ok(Some(workload)) = api.get_opt(&question.workload).await else { return };
            let Some(list) = answered(&workload, question, known, word, self.clock.now()) else { return };
            let patch = json!({
                "metadata": {"uid": workload.uid(), "resourceVersion": workload.resource_version()},
                "status": {"admissionChecks": list},
            });
            match api.patch_status(&question.workload, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => tokio::time::sleep(AGAIN).await,
                _ => return,
            }
        }
    }
}

/// The list of a Workload's checks with a word in it; none if nobody waits for that any more.
fn answered(
    workload: &Workload,
    question: &Question,
    known: CheckState,
    word: Word,
    now: Timestamp,
) -> Option<Vec<AdmissionCheckState>> {
    let status = workload.status.as_ref()?;
    let is_true = |kind: ConditionType| {
        let mut all = status.conditions.iter();
        all.any(|condition| condition.type_ == kind.as_str() && condition.status == "True")
    };
    let is_asked = is_true(ConditionType::QuotaReserved) && !is_true(ConditionType::Evicted);
    if !is_asked || workload.uid().as_deref() != Some(question.uid.as_str()) {
        return None;
    }
    let mut list = status.admission_checks.clone();
    let check = list.iter_mut().find(|check| check.name == question.check)?;
    if check.state != known.as_str() {
        return None;
    }
    *check = AdmissionCheckState {
        state: word.state.as_str().to_owned(),
        message: "so it is".to_owned(),
        last_transition_time: Some(to_api(now)),
        requeue_after_seconds: word.after_seconds,
        ..check.clone()
    };
    Some(list)
}
