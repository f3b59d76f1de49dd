//! What the Jobs wrote, and why those that never started did not.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, Client, ResourceExt};

use super::picture::{JobPicture, State};

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
    let Ok(list) = pods.list(&of_job).await else { return JobOutput::default() };
    let failed = job.state == State::Failed;
    let tail = (!all).then_some(FAILED_LINES as i64);
    let mut lines: Vec<String> = Vec::new();
    let mut last_line = String::new();
    for pod in &list.items {
        let spec = pod.spec.as_ref();
        for container in spec.into_iter().flat_map(|spec| &spec.containers) {
            let options = LogParams {
                container: Some(container.name.clone()),
                tail_lines: tail,
                ..LogParams::default()
            };
            // A pod that never started has no log.
            let text = pods.logs(&pod.name_any(), &options).await.unwrap_or_default();
            if let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) {
                line.clone_into(&mut last_line);
            }
            lines.extend(text.lines().map(str::to_owned));
        }
        if failed {
            lines.extend(trouble(pod));
        }
    }
    let shown = match (all, failed) {
        (true, _) => lines,
        (false, true) => lines.split_off(lines.len().saturating_sub(FAILED_LINES)),
        (false, false) => Vec::new(),
    };
    JobOutput { shown, advice: Vec::new(), last_line }
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
