//! Where a Job's priority comes from.

use gangway_api::kueue::{PriorityClassRef, WorkloadPriorityClass};
use gangway_api::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;
use std::collections::BTreeMap;

/// The priority classes that exist, by name.
#[derive(Debug, Default)]
pub(in crate::workloads) struct Classes {
    pub(in crate::workloads) workload: BTreeMap<String, i32>,
    pub(in crate::workloads) pod: BTreeMap<String, PodPriority>,
}

/// A PriorityClass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::workloads) struct PodPriority {
    value: i32,
    global_default: bool,
}

impl From<&PriorityClass> for PodPriority {
    fn from(class: &PriorityClass) -> Self {
        Self { value: class.value.unwrap_or(0), global_default: class.global_default.unwrap_or(false) }
    }
}

/// A priority and the class that it comes from.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::workloads) struct Priority {
    pub(in crate::workloads) value: i32,
    pub(in crate::workloads) class: Option<PriorityClassRef>,
}

impl Classes {
    pub(in crate::workloads) fn set_workload_class(&mut self, class: &WorkloadPriorityClass) {
        self.workload.insert(class.name_any(), class.value);
    }

    /// The priority of a Job, or the name of the WorkloadPriorityClass that does not exist.
    ///
    /// The label decides; then the pods' own class, then the cluster's default class (the lowest if
    /// there are several), then 0.
    pub(in crate::workloads) fn of_job(&self, job: &Job) -> Result<Priority, String> {
        if let Some(name) = job.labels().get(names::PRIORITY_CLASS_LABEL) {
            let value = *self.workload.get(name).ok_or_else(|| name.clone())?;
            let class = class_ref("kueue.x-k8s.io", "WorkloadPriorityClass", name);
            return Ok(Priority { value, class: Some(class) });
        }
        let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let named = pod.and_then(|pod| pod.priority_class_name.as_ref());
        let found = match named {
            Some(name) => self.pod.get_key_value(name),
            None => {
                self.pod.iter().filter(|(_, class)| class.global_default).min_by_key(|(_, class)| class.value)
            }
        };
        Ok(match found {
            Some((name, class)) => Priority {
                value: class.value,
                class: Some(class_ref("scheduling.k8s.io", "PriorityClass", name)),
            },
            None => Priority { value: 0, class: None },
        })
    }
}

fn class_ref(group: &str, kind: &str, name: &str) -> PriorityClassRef {
    PriorityClassRef { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(labels: serde_json::Value, pod_class: Option<&str>) -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": "j", "labels": labels},
            "spec": {"template": {"spec": {"containers": [], "priorityClassName": pod_class}}},
        }))
        .unwrap()
    }

    fn classes() -> Classes {
        let pod = |value, global_default| PodPriority { value, global_default };
        Classes {
            workload: [("high".to_owned(), 100)].into(),
            pod: [
                ("p".to_owned(), pod(7, false)),
                ("a".to_owned(), pod(5, true)),
                ("b".to_owned(), pod(4, true)),
            ]
            .into(),
        }
    }

    #[test]
    fn the_label_beats_the_pods_class_beats_the_default() {
        let high = json!({names::PRIORITY_CLASS_LABEL: "high"});
        assert_eq!(classes().of_job(&job(high, Some("p"))).unwrap().value, 100);
        assert_eq!(classes().of_job(&job(json!({}), Some("p"))).unwrap().value, 7);
        let default = classes().of_job(&job(json!({}), None)).unwrap();
        assert_eq!((default.value, default.class.unwrap().name), (4, "b".to_owned()));
        assert_eq!(
            Classes::default().of_job(&job(json!({}), None)).unwrap(),
            Priority { value: 0, class: None }
        );
    }

    #[test]
    fn a_class_that_does_not_exist_is_named() {
        let missing = json!({names::PRIORITY_CLASS_LABEL: "none-such"});
        assert_eq!(classes().of_job(&job(missing, None)), Err("none-such".to_owned()));
    }
}
