//! How this machine presents itself as a Node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of [`crate::run_node`].
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The Node's name.
    pub name: String,
    /// Labels of the Node; `kubernetes.io/hostname`, `os` and `arch` are added where they are missing.
    pub labels: BTreeMap<String, String>,
    /// Capacity and allocatable by resource name; `cpu`, `memory` and `pods` are this machine's where they are missing.
    pub capacity: BTreeMap<String, String>,
    /// Logs, volumes and the shims' files live below this directory.
    pub state_directory: PathBuf,
    /// Started as `<shim_program> shim …`; it calls [`crate::shim::main`].
    pub shim_program: PathBuf,
    /// Run containers of any image as processes of this machine.
    pub any_image: bool,
    /// Where a container without `workingDir` starts; without this, in a directory of its own.
    pub working_directory: Option<PathBuf>,
    /// The longest time between SIGTERM and SIGKILL when the agent itself ends.
    pub shutdown_grace: Duration,
}

impl NodeOptions {
    /// A node of this machine's size.
    pub fn new(name: impl Into<String>, state_directory: PathBuf, shim_program: PathBuf) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            capacity: BTreeMap::new(),
            state_directory,
            shim_program,
            any_image: false,
            working_directory: None,
            shutdown_grace: Duration::from_secs(2),
        }
    }

    /// The directory that holds `<namespace>_<pod>_<uid>/<container>.log`.
    pub fn log_directory(&self) -> PathBuf {
        self.state_directory.join("logs")
    }

    /// Where the files of one pod live while it runs.
    pub(crate) fn pod_directory(&self, pod: &str) -> PathBuf {
        self.state_directory.join("pods").join(pod)
    }

    /// `capacity` with this machine's own size where nothing is said.
    pub(crate) fn full_capacity(&self) -> BTreeMap<String, String> {
        let mut capacity = self.capacity.clone();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        capacity.entry("cpu".to_owned()).or_insert_with(|| cpus.to_string());
        if let Some(memory) = machine_memory(Path::new("/proc/meminfo")) {
            capacity.entry("memory".to_owned()).or_insert(memory);
        }
        capacity.entry("pods".to_owned()).or_insert_with(|| "110".to_owned());
        capacity
    }
}

fn machine_memory(meminfo: &Path) -> Option<String> {
    let text = std::fs::read_to_string(meminfo).ok()?;
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix(" kB")?;
    Some(format!("{kibibytes}Ki"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_capacity_wins_over_the_machine() {
        let mut options = NodeOptions::new("n", PathBuf::new(), PathBuf::new());
        options.capacity.insert("cpu".to_owned(), "64".to_owned());
        let capacity = options.full_capacity();
        assert_eq!(capacity["cpu"], "64");
        assert!(capacity["memory"].ends_with("Ki"), "{capacity:?}");
    }
}
