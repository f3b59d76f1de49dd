//! `gangway check`: answers an admission check of a Workload by hand.

use clap::{Args, Subcommand};
use gangway_api::kueue::{AdmissionCheckState, Workload};
use gangway_api::time::{seconds_of, to_api};
use gangway_model::Clock;
use gangway_model::conditions::ConditionType;
use gangway_model::reasons::CheckState;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::jobs::full_name;
use super::{api_failure, print};
use crate::clock::SystemClock;
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};

/// What to say.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  gangway check approve job/train budget -n vision            it may start
  gangway check reject job/train budget -n vision -m 'no money left'
  gangway check retry job/train budget -n vision --after 10m  give the quota back, try again later

Any check can be answered like this, in place of its controller. One that nobody else answers has
the controllerName gangway.dev/manual.")]
pub enum CheckCommand {
    /// The check agrees.
    Approve(AnswerArgs),
    /// The check does not agree: the Workload is deactivated, or falls back to another flavor.
    Reject(AnswerArgs),
    /// The Workload gives its quota back and is tried again.
    Retry {
        /// Not before so long.
        #[arg(long, value_name = "TIME")]
        after: Option<String>,
        #[command(flatten)]
        args: AnswerArgs,
    },
}

/// Which check of which Workload.
#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The Workload, as its own name or as `job/NAME` of its Job.
    workload: String,
    /// The AdmissionCheck.
    check: String,
    /// The namespace; otherwise that of the context.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// What to tell people.
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Answers.
pub async fn run(command: CheckCommand) -> Outcome {
    let (state, after, args) = match command {
        CheckCommand::Approve(args) => (CheckState::Ready, None, args),
        CheckCommand::Reject(args) => (CheckState::Rejected, None, args),
        CheckCommand::Retry { after, args } => (CheckState::Retry, after, args),
    };
    let after = after.map(|text| seconds_of(&text)).transpose();
    let after = after.map_err(|message| Failure::bad_input(format!("--after: {message}")))?;
    let client = args.connection.client("check").await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let api: Api<Workload> = Api::namespaced(client, &namespace);
    let workload = find(&api, &args.workload, &namespace).await?;
    let list = answered(&workload, &args, state, after)?;
    let patch = json!({
        "metadata": {"uid": workload.uid(), "resourceVersion": workload.resource_version()},
        "status": {"admissionChecks": list},
    });
    let name = workload.name_any();
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(
        |error| match error {
            kube::Error::Api(status) if status.code == 409 => {
                Failure::bad_input(format!("Workload {} has just changed", full_name(&workload)))
                    .try_this("say it again")
            }
            error => api_failure(&format!("answer for Workload {}", full_name(&workload)), &error),
        },
    )?;
    print(&format!("Workload {}: check {} says {state}\n", full_name(&workload), args.check))?;
    Ok(Exit::Success)
}

async fn find(api: &Api<Workload>, name: &str, namespace: &str) -> Result<Workload, Failure> {
    let missing = || {
        Failure::bad_input(format!("there is no Workload of {name} in namespace {namespace}"))
            .try_this("gangway get workloads -A")
    };
    let Some(job) = name.strip_prefix("job/").or_else(|| name.strip_prefix("jobs/")) else {
        let found = api.get_opt(name.strip_prefix("workload/").unwrap_or(name)).await;
        return found.map_err(|error| api_failure("read the Workload", &error))?.ok_or_else(missing);
    };
    let listed = api.list(&ListParams::default()).await;
    let all = listed.map_err(|error| api_failure("list Workloads", &error))?;
    let is_of_job = |workload: &Workload| {
        workload.owner_references().iter().any(|owner| owner.kind == "Job" && owner.name == job)
    };
    // A Job that was made again may have a Workload that has ended besides the one that waits.
    let has_ended = |workload: &Workload| {
        let conditions = workload.status.iter().flat_map(|status| &status.conditions);
        let finished = ConditionType::Finished.as_str();
        conditions.into_iter().any(|condition| condition.type_ == finished && condition.status == "True")
    };
    all.into_iter().filter(is_of_job).min_by_key(has_ended).ok_or_else(missing)
}

/// The list of the Workload's checks with this answer in it.
fn answered(
    workload: &Workload,
    args: &AnswerArgs,
    state: CheckState,
    after: Option<i64>,
) -> Result<Vec<AdmissionCheckState>, Failure> {
    let name = full_name(workload);
    let status = workload.status.clone().unwrap_or_default();
    let is_true = |kind: ConditionType| {
        status
            .conditions
            .iter()
            .any(|condition| condition.type_ == kind.as_str() && condition.status == "True")
    };
    if !is_true(ConditionType::QuotaReserved) || is_true(ConditionType::Evicted) {
        return Err(Failure::bad_input(format!(
            "Workload {name} has no quota: its checks are not asked now"
        ))
        .try_this("gangway get workloads -A -w    and answer when it says QuotaReserved"));
    }
    let mut list = status.admission_checks;
    let names: Vec<String> = list.iter().map(|check| check.name.clone()).collect();
    let Some(check) = list.iter_mut().find(|check| check.name == args.check) else {
        let asked = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(Failure::bad_input(format!(
            "Workload {name} does not wait for check {}; it waits for: {asked}",
            args.check
        )));
    };
    let by_hand = || format!("{state} by hand");
    *check = AdmissionCheckState {
        state: state.as_str().to_owned(),
        message: args.message.clone().unwrap_or_else(by_hand),
        last_transition_time: Some(to_api(SystemClock.now())),
        requeue_after_seconds: after.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
        ..check.clone()
    };
    Ok(list)
}
