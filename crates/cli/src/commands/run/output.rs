//! What the Jobs wrote, and why those that never started did not.

use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt};

use super::picture::{JobPicture, State};
use crate::connect::causes;

/// Lines that are shown of a failed Job.
const FAILED_LINES: usize = 10;
/// With more Jobs than this their last lines are no longer collected: the table would not be read.
pub const JOBS_WITH_LAST_LINE_MAX: usize = 200;

/// What a Job wrote.
#[derive(Clone, Debug, Default)]
pub struct JobOutput {
    /// Lines to show below the table.
    pub shown: Vec<String>,
    /// What could be done about a Job that never started.
    pub advice: Vec<String>,
    /// What went wrong in a pod of a failed Job; empty if no pod says so.
    pub cause: String,
    last_line: String,
}

impl JobOutput {
    /// The last line that is not blank; empty if there is none.
    pub fn last_line(&self) -> &str {
        &self.last_line
    }
}

/// What `job` wrote. All of it is shown if `all`, the end of it if the Job failed, and nothing otherwise.
pub async fn of_job(client: &Client, job: &JobPicture, all: bool) -> JobOutput {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &job.key.namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={}", job.key.name));
    let list = match pods.list(&of_job).await {
        Ok(list) => list,
        Err(error) => return JobOutput { last_line: not_read("the pods", &error), ..JobOutput::default() },
    };
    let failed = job.state == State::Failed;
    let tail = (!all).then_some(FAILED_LINES as i64);
    let mut lines: Vec<String> = Vec::new();
    let mut last_line = String::new();
    let mut cause = String::new();
    for pod in &list.items {
        let spec = pod.spec.as_ref();
        for container in spec.into_iter().flat_map(|spec| &spec.containers) {
            let options = LogParams {
                container: Some(container.name.clone()),
                tail_lines: tail,
                ..LogParams::default()
            };
            let text = log(&pods, &pod.name_any(), &options).await;
            if let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) {
                line.clone_into(&mut last_line);
            }
            lines.extend(text.lines().map(str::to_owned));
        }
        if failed {
            let trouble = trouble(pod);
            if let (true, Some(first)) = (cause.is_empty(), trouble.first()) {
                cause.clone_from(first);
            }
            // The cause stands above the lines.
            lines.extend(trouble.into_iter().filter(|sentence| *sentence != cause));
        }
    }
    let shown = match (all, failed) {
        (true, _) => lines,
        (false, true) => lines.split_off(lines.len().saturating_sub(FAILED_LINES)),
        (false, false) => Vec::new(),
    };
    JobOutput { shown, advice: Vec::new(), cause, last_line }
}

/// What a container wrote. Programs write whatever bytes they like; those that are no text are replaced by marks.
async fn log(pods: &Api<Pod>, pod: &str, options: &LogParams) -> String {
    let mut bytes = Vec::new();
    let read = match pods.log_stream(pod, options).await {
        Ok(mut stream) => stream.read_to_end(&mut bytes).await.map(|_| ()).map_err(kube::Error::ReadEvents),
        // A container that never started has no log.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => Ok(()),
        Err(error) => Err(error),
    };
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if let Err(error) = read {
        text.push_str(&format!("\n{}", not_read(&format!("the output of pod {pod}"), &error)));
    }
    text
}

fn not_read(what: &str, error: &kube::Error) -> String {
    format!("({what} cannot be read: {})", causes(error))
}

/// Why a pod failed, where its status says so: an image that does not run here, a program that is not there.
fn trouble(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else { return Vec::new() };
    let mut sentences: Vec<String> = status.message.clone().into_iter().collect();
    for container in status.container_statuses.iter().flatten() {
        let state = container.state.clone().unwrap_or_default();
        if let Some(waiting) = state.waiting {
            sentences.extend(waiting.message);
        }
        if let Some(ended) = state.terminated.filter(|ended| ended.exit_code != 0) {
            let message = ended.message.map(|message| format!(": {message}")).unwrap_or_default();
            sentences
                .push(format!("container {} ended with code {}{message}", container.name, ended.exit_code));
        }
    }
    sentences
}
