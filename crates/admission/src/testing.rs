//! Records for unit tests.

use std::sync::Arc;

use gangway_model::workload::{PodSet, State, Workload};
use gangway_model::{ObjectName, Requests, Timestamp};

/// A Workload of one pod that asks for some cpu.
pub(crate) fn workload(name: &str, cpu: i64) -> Workload {
    let requests: Requests = [("cpu".into(), cpu)].into_iter().collect();
    Workload {
        uid: name.into(),
        name: ObjectName::new("ns", name),
        version: 1,
        generation: 1,
        created: Timestamp::EPOCH,
        queue: "lq".into(),
        priority: 0,
        active: true,
        pod_sets: [PodSet { name: "main".into(), count: 1, requests, constraints: Arc::default() }].into(),
        impediments: None,
        deleting: false,
        owner: None,
        timeouts: None,
        state: State::new(),
    }
}
