//! No process is left behind after a run, however it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long processes may take to go after their run has ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// A run of one Job whose process has a child that left its session, all marked in their environment.
struct Run {
    child: Child,
    marker: String,
    _files: tempfile::TempDir,
}

impl Run {
    /// Starts it, and returns when both processes of the Job run.
    fn start(name: &str, command: &str, processes: usize) -> Self {
        let marker = format!("gangway-leftover-{name}-{}", std::process::id());
        let files = tempfile::tempdir().expect("a directory");
        let file = files.path().join("job.yaml");
        fs::write(&file, manifest(&marker, command)).expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_gangway"))
            .arg("run")
            .arg(&file)
            .args(["-o", "json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("gangway starts");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        std::thread::spawn(move || lines.lines().map_while(Result::ok).for_each(drop));
        let run = Self { child, marker, _files: files };
        run.wait_until("the Job's processes run", |found| found >= processes);
        run
    }

    fn wait_until(&self, what: &str, holds: impl Fn(usize) -> bool) {
        let began = Instant::now();
        while !holds(marked(&self.marker).len()) {
            assert!(began.elapsed() < PATIENCE, "not so: {what}; {:?}", marked(&self.marker));
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Sends a signal to the run itself, and waits for it to end and everything to be gone.
    fn end_by(mut self, signal: Signal) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("it is there");
        self.ended()
    }

    fn ended(&mut self) -> Option<i32> {
        let status = self.child.wait().expect("it ends");
        self.wait_until("every process of the Job is gone", |found| found == 0);
        status.code()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Both fail only if there is nothing left to end.
        let _ = self.child.kill();
        for pid in marked(&self.marker) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// The processes whose environment carries the marker.
fn marked(marker: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("a process list").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(marker.len()).any(|window| window == marker.as_bytes())
    };
    pids.filter(carries).collect()
}

fn manifest(marker: &str, command: &str) -> String {
    format!(
        r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: default}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: team}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: default, resources: [{{name: cpu, nominalQuota: 1}}]}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: main, namespace: default}}
spec: {{clusterQueue: team}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: long
  namespace: default
  labels: {{kueue.x-k8s.io/queue-name: main}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: host
        command: [sh, -c, '{command}']
        env: [{{name: MARKER, value: {marker}}}]
        resources: {{requests: {{cpu: 1}}}}
"#
    )
}

const LONG: &str = "setsid sleep 1000 & sleep 1000";

#[test]
fn a_run_that_is_interrupted_leaves_nothing() {
    let run = Run::start("interrupted", LONG, 3);
    assert_eq!(run.end_by(Signal::SIGINT), Some(130));
}

#[test]
fn a_run_that_is_killed_leaves_nothing() {
    let run = Run::start("killed", LONG, 3);
    assert_eq!(run.end_by(Signal::SIGKILL), None, "killed by a signal");
}

#[test]
fn a_run_that_ends_by_itself_leaves_nothing() {
    let mut run = Run::start("ended", "setsid sleep 1000 & sleep 1", 1);
    assert_eq!(run.ended(), Some(0));
}
