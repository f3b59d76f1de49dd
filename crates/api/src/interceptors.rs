//! What happens to objects on their way into the embedded API, as pure functions.
//!
//! On a cluster, admission policies do the same.

use serde_json::{Value, json};

use crate::names::{DEFAULT_NAME, QUEUE_NAME_LABEL};
use crate::policies;

/// What a Job goes through when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// It named its queue and is suspended until it is admitted.
    ByName,
    /// It was given the namespace's `default` queue and is suspended.
    ByDefault,
    /// It has no queue: nobody will hold it back.
    NoQueue,
    /// It has no queue, and is suspended until it names one.
    Unnamed,
    /// It belongs to another Job, which speaks for it.
    OwnerIsManaged,
    /// Jobs of its namespace are none of our business.
    NotManaged,
}

/// What the interceptor knows about the world around a new Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether its namespace has a LocalQueue called `default`.
    pub default_queue_exists: bool,
    /// Whether Jobs of its namespace are managed.
    pub namespace_is_managed: bool,
    /// Whether Jobs that name no queue are managed too.
    pub manages_unnamed: bool,
}

/// Suspends a new Job that has a queue, and gives it the `default` one where it has none.
pub fn queue_job(job: &mut Value, surroundings: Surroundings) -> Queued {
    if !surroundings.namespace_is_managed {
        return Queued::NotManaged;
    }
    if let Some(("batch/v1", "Job", _)) = controller(job) {
        return Queued::OwnerIsManaged;
    }
    let queued = match queue_name(job) {
        Some(_) => Queued::ByName,
        None if surroundings.default_queue_exists => Queued::ByDefault,
        None if surroundings.manages_unnamed => Queued::Unnamed,
        None => return Queued::NoQueue,
    };
    if queued == Queued::ByDefault {
        set(job, &["metadata", "labels", QUEUE_NAME_LABEL], json!(DEFAULT_NAME));
    }
    set(job, &["spec", "suspend"], json!(true));
    queued
}

/// Why a Job may not be created so, or changed so, if it may not.
pub fn refuse_job(old: Option<&Value>, new: &Value, namespace_is_managed: bool) -> Option<&'static str> {
    policies::broken(&policies::Change { old, new }).filter(|_| namespace_is_managed)
}

/// The queue that an object names, if it names one.
pub fn queue_name(object: &Value) -> Option<&str> {
    let labels = object.get("metadata")?.get("labels")?;
    labels.get(QUEUE_NAME_LABEL)?.as_str().filter(|name| !name.is_empty())
}

/// The owner that controls an object, as apiVersion, kind, name.
pub fn controller(object: &Value) -> Option<(&str, &str, &str)> {
    let owners = object.get("metadata")?.get("ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    let field = |name: &str| owner.get(name).and_then(Value::as_str);
    Some((field("apiVersion")?, field("kind")?, field("name")?))
}

/// Sets a field; objects on the way to it are made, and anything else there is replaced.
fn set(object: &mut Value, path: &[&str], value: Value) {
    let mut place = object;
    for field in path {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[*field];
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(mut job: Value, default_queue_exists: bool) -> (Queued, Value) {
        let around =
            Surroundings { default_queue_exists, namespace_is_managed: true, manages_unnamed: false };
        let outcome = queue_job(&mut job, around);
        (outcome, job)
    }

    #[test]
    fn a_job_with_a_queue_is_suspended() {
        let job = json!({"metadata": {"labels": {QUEUE_NAME_LABEL: "a"}}, "spec": {"suspend": false}});
        let expected = json!({"metadata": {"labels": {QUEUE_NAME_LABEL: "a"}}, "spec": {"suspend": true}});
        assert_eq!(queued(job, true), (Queued::ByName, expected));
    }

    #[test]
    fn a_job_without_a_queue_gets_the_default_one_where_there_is_one() {
        let job = json!({"metadata": {"name": "j"}, "spec": {}});
        assert_eq!(queued(job.clone(), false), (Queued::NoQueue, job.clone()));
        let (outcome, changed) = queued(job, true);
        assert_eq!((outcome, queue_name(&changed)), (Queued::ByDefault, Some("default")));
        assert_eq!(changed["spec"]["suspend"], json!(true));
    }

    #[test]
    fn the_job_of_a_job_is_left_alone() {
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "o", "controller": true}]);
        let labels = json!({QUEUE_NAME_LABEL: "a"});
        let job = json!({"metadata": {"labels": labels, "ownerReferences": owner}, "spec": {}});
        assert_eq!(queued(job.clone(), true), (Queued::OwnerIsManaged, job));
    }

    #[test]
    fn where_it_is_depends_on_the_configuration() {
        let job = json!({"metadata": {"name": "j"}, "spec": {}});
        let around =
            Surroundings { default_queue_exists: false, namespace_is_managed: true, manages_unnamed: true };
        let mut suspended = job.clone();
        assert_eq!(queue_job(&mut suspended, around), Queued::Unnamed);
        assert_eq!(suspended, json!({"metadata": {"name": "j"}, "spec": {"suspend": true}}));
        let elsewhere = Surroundings { namespace_is_managed: false, ..around };
        let mut same = job.clone();
        assert_eq!((queue_job(&mut same, elsewhere), same), (Queued::NotManaged, job));
    }

    #[test]
    fn strange_objects_do_no_harm() {
        for job in [json!(null), json!([]), json!({"metadata": 1, "spec": "x"})] {
            let (outcome, changed) = queued(job, true);
            assert_eq!((outcome, &changed["spec"]["suspend"]), (Queued::ByDefault, &json!(true)));
        }
    }
}
