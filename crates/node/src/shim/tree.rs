//! Everything below this process, and its end.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often [`kill_descendants`] looks for newcomers before it kills what it has found so far.
const FREEZE_ROUNDS: usize = 64;

/// Sends SIGKILL to every descendant of this process.
///
/// All are stopped first, until a look finds nobody new: a stopped process cannot fork, so a process that forks without
/// end is caught as well. The caller repeats this until it has no children left.
pub fn kill_descendants() {
    let mut stopped = HashSet::new();
    for _ in 0..FREEZE_ROUNDS {
        let newcomers: Vec<Pid> = descendants().into_iter().filter(|pid| stopped.insert(*pid)).collect();
        if newcomers.is_empty() {
            break;
        }
        for pid in newcomers {
            // A process that has ended meanwhile needs no signal.
            let _ = kill(pid, Signal::SIGSTOP);
        }
    }
    for pid in stopped {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

/// The processes below this one, in no order.
fn descendants() -> Vec<Pid> {
    let own = Pid::this();
    if Path::new("/proc/thread-self/children").exists() { walk(own, children) } else { scan(own) }
}

fn walk(root: Pid, children: impl Fn(Pid) -> Vec<Pid>) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        let below = children(pid);
        open.extend(&below);
        found.extend(below);
    }
    found
}

/// The children of a process; each of its threads has its own.
fn children(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| list.split_ascii_whitespace().filter_map(parse_pid).collect::<Vec<_>>())
        .collect()
}

/// The same from every process's parent, for kernels that do not list children.
fn scan(root: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let parents: Vec<(Pid, Pid)> = entries
        .flatten()
        .filter_map(|entry| parse_pid(entry.file_name().to_str()?))
        .filter_map(|pid| Some((pid, parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect();
    walk(root, |of| parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid).collect())
}

/// The parent in a line of `/proc/PID/stat`. The second field is the program's name in parentheses and may hold anything.
fn parent(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    parse_pid(after_name.split_ascii_whitespace().nth(1)?)
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().map(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_a_strange_name() {
        assert_eq!(parent("12 (a) b (c) S 7 12 12"), Some(Pid::from_raw(7)));
        assert_eq!(parent("nonsense"), None);
    }

    #[test]
    fn both_ways_to_look_find_a_child() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(walk(Pid::this(), children).contains(&pid));
        assert!(scan(Pid::this()).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
