//! The shim with real processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use gangway_node::shim::{ExitRecord, Order, ProcessSpec, Report};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::Test;
use crate::support::{eventually, own_program, processes_with};

pub const TESTS: &[Test] = &[
    ("shim::exit_codes_and_signals_are_recorded", exit_codes_and_signals_are_recorded),
    ("shim::both_outputs_are_appended_to_the_log", both_outputs_are_appended_to_the_log),
    ("shim::the_environment_is_exactly_what_was_given", the_environment_is_exactly_what_was_given),
    ("shim::what_cannot_start_says_why", what_cannot_start_says_why),
    ("shim::what_the_command_left_behind_is_killed", what_the_command_left_behind_is_killed),
    ("shim::terminate_lets_the_command_clean_up", terminate_lets_the_command_clean_up),
    ("shim::kill_ends_a_tree_that_ignores_sigterm", kill_ends_a_tree_that_ignores_sigterm),
    ("shim::a_killed_parent_takes_the_tree_with_it", a_killed_parent_takes_the_tree_with_it),
    ("shim::a_fork_bomb_is_caught", a_fork_bomb_is_caught),
];

/// A script that starts a grandchild in a session of its own, far from its process group, and another in the group.
const TREE: &str = "setsid sh -c 'sleep 1000 & setsid sleep 1000' & sleep 1000 & sleep 1000";

struct Bench {
    directory: TempDir,
    marker: String,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let marker = directory.path().to_str().unwrap().to_owned();
        Self { directory, marker }
    }

    fn spec(&self, command: &[&str]) -> ProcessSpec {
        ProcessSpec {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            env: BTreeMap::from([
                ("PATH".to_owned(), std::env::var("PATH").unwrap()),
                ("MARKER".to_owned(), self.marker.clone()),
            ]),
            working_directory: self.directory.path().to_owned(),
            log_file: Some(self.path("log")),
            exit_file: Some(self.path("c.exit")),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs to the end with the pipe held open.
    fn run(&self, spec: &ProcessSpec) -> (Report, ExitRecord) {
        let (mut child, stdin, report) = start(spec);
        child.wait().unwrap();
        drop(stdin);
        (report, ExitRecord::read(&self.path("c.exit")).unwrap())
    }

    fn alive(&self) -> usize {
        processes_with("MARKER", &self.marker).len()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

fn start(spec: &ProcessSpec) -> (Child, impl Write + use<>, Report) {
    let mut child = Command::new(own_program())
        .args(["shim", "test"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", serde_json::to_string(spec).unwrap()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, stdin, serde_json::from_str(&line).unwrap())
}

fn exit_codes_and_signals_are_recorded() {
    for (script, expected) in [
        ("exit 0", ExitRecord::exited(0)),
        ("exit 3", ExitRecord::exited(3)),
        ("kill -KILL $$", ExitRecord::signaled(9)),
        ("kill -TERM $$", ExitRecord::signaled(15)),
    ] {
        let bench = Bench::new();
        let (report, record) = bench.run(&bench.spec(&["sh", "-c", script]));
        assert!(matches!(report, Report::Started(_)));
        assert_eq!(record, expected, "{script}");
    }
}

fn both_outputs_are_appended_to_the_log() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.run(&bench.spec(&["sh", "-c", "echo out; echo err >&2"]));
    }
    assert_eq!(bench.log(), "out\nerr\nout\nerr\n");
}

fn the_environment_is_exactly_what_was_given() {
    let bench = Bench::new();
    let mut spec = bench.spec(&["/usr/bin/env"]);
    spec.env = BTreeMap::from([("ONLY".to_owned(), "this".to_owned())]);
    bench.run(&spec);
    assert_eq!(bench.log(), "ONLY=this\n");
}

fn what_cannot_start_says_why() {
    let bench = Bench::new();
    std::fs::write(bench.path("no-program"), "text").unwrap();
    let mut nowhere = bench.spec(&["true"]);
    nowhere.working_directory = bench.path("nowhere");
    for (spec, code, word) in [
        (bench.spec(&["no-such-command"]), 127, "no-such-command"),
        (bench.spec(&["./no-program"]), 126, "no-program"),
        (bench.spec(&[]), 127, "empty"),
        (nowhere, 128, "nowhere"),
    ] {
        let (report, record) = bench.run(&spec);
        assert_eq!(report, Report::NotStarted(record.clone()));
        assert_eq!(record.exit_code, code, "{record:?}");
        assert!(record.start_error.as_ref().is_some_and(|message| message.contains(word)), "{record:?}");
    }
}

fn what_the_command_left_behind_is_killed() {
    let bench = Bench::new();
    let script = "setsid sh -c 'touch grown; sleep 1000' & until [ -e grown ]; do sleep 0.01; done; exit 5";
    let (_, record) = bench.run(&bench.spec(&["sh", "-c", script]));
    assert_eq!(record, ExitRecord::exited(5));
    assert_eq!(bench.alive(), 0);
}

fn terminate_lets_the_command_clean_up() {
    let bench = Bench::new();
    let script = "trap 'echo cleaned; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done";
    let (mut child, mut stdin, _) = start(&bench.spec(&["sh", "-c", script]));
    eventually("the trap is set", || bench.log().contains("ready"));
    stdin.write_all(Order::Terminate.line().as_bytes()).unwrap();
    child.wait().unwrap();
    assert_eq!(ExitRecord::read(&bench.path("c.exit")).unwrap(), ExitRecord::exited(0));
    assert!(bench.log().contains("cleaned"));
    assert_eq!(bench.alive(), 0);
}

fn kill_ends_a_tree_that_ignores_sigterm() {
    let bench = Bench::new();
    let script = format!("trap '' TERM; {TREE}");
    let (mut child, mut stdin, _) = start(&bench.spec(&["sh", "-c", &script]));
    eventually("the tree is grown", || bench.alive() >= 5);
    stdin.write_all(Order::Terminate.line().as_bytes()).unwrap();
    stdin.write_all(Order::Kill.line().as_bytes()).unwrap();
    child.wait().unwrap();
    assert_eq!(ExitRecord::read(&bench.path("c.exit")).unwrap(), ExitRecord::signaled(9));
    assert_eq!(bench.alive(), 0);
}

fn a_killed_parent_takes_the_tree_with_it() {
    let bench = Bench::new();
    let spec = serde_json::to_string(&bench.spec(&["sh", "-c", TREE])).unwrap();
    let mut parent =
        Command::new(own_program()).args(["parent-of-a-shim", &spec]).stdin(Stdio::piped()).spawn().unwrap();
    eventually("the tree is grown", || bench.alive() >= 5);
    kill(Pid::from_raw(parent.id().cast_signed()), Signal::SIGKILL).unwrap();
    parent.wait().unwrap();
    eventually("the tree is gone", || bench.alive() == 0 && Path::new(&bench.path("c.exit")).exists());
}

/// The parent that is killed: it starts a shim and waits for ever.
pub fn parent_main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let spec: ProcessSpec = serde_json::from_str(arguments.next().unwrap().to_str().unwrap()).unwrap();
    let _shim = start(&spec);
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

fn a_fork_bomb_is_caught() {
    let bench = Bench::new();
    // Every generation starts the next one in a new session and ends, so no process is there for long.
    let script = "f() { n=$1; [ $n -gt 2000 ] && exit; setsid sh -c \"$S\" f $((n+1)) & }; f ${1:-0}";
    let mut spec = bench.spec(&["sh", "-c", "sh -c \"$S\" f 0; sleep 1000"]);
    spec.env.insert("S".to_owned(), script.to_owned());
    let (mut child, stdin, _) = start(&spec);
    eventually("it runs", || bench.alive() >= 2);
    drop(stdin);
    child.wait().unwrap();
    assert_eq!(bench.alive(), 0);
}
