//! What happens to objects on their way into the embedded API, as pure functions.
//!
//! On a cluster, admission policies do the same.

use serde_json::{Value, json};

use crate::names::{DEFAULT_NAME, QUEUE_NAME_LABEL};

/// What a Job goes through when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// It named its queue and is suspended until it is admitted.
    ByName,
    /// It was given the namespace's `default` queue and is suspended.
    ByDefault,
    /// It has no queue: nobody will hold it back.
    NoQueue,
    /// It belongs to an object that is itself queued, which speaks for it.
    OwnerIsQueued,
}

/// What the interceptor knows about the world around a new Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether its namespace has a LocalQueue called `default`.
    pub default_queue_exists: bool,
    /// Whether its controller, or one further up, has a queue.
    pub owner_is_queued: bool,
}

/// Suspends a new Job that has a queue, and gives it the `default` one where it has none.
pub fn queue_job(job: &mut Value, surroundings: Surroundings) -> Queued {
    if surroundings.owner_is_queued {
        return Queued::OwnerIsQueued;
    }
    let named = queue_name(job).is_some();
    if !named && !surroundings.default_queue_exists {
        return Queued::NoQueue;
    }
    if !named {
        set(job, &["metadata", "labels", QUEUE_NAME_LABEL], json!(DEFAULT_NAME));
    }
    set(job, &["spec", "suspend"], json!(true));
    if named { Queued::ByName } else { Queued::ByDefault }
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

    fn queued(mut job: Value, default_queue_exists: bool, owner_is_queued: bool) -> (Queued, Value) {
        let outcome = queue_job(&mut job, Surroundings { default_queue_exists, owner_is_queued });
        (outcome, job)
    }

    #[test]
    fn a_job_with_a_queue_is_suspended() {
        let job = json!({"metadata": {"labels": {QUEUE_NAME_LABEL: "a"}}, "spec": {"suspend": false}});
        let expected = json!({"metadata": {"labels": {QUEUE_NAME_LABEL: "a"}}, "spec": {"suspend": true}});
        assert_eq!(queued(job, true, false), (Queued::ByName, expected));
    }

    #[test]
    fn a_job_without_a_queue_gets_the_default_one_where_there_is_one() {
        let job = json!({"metadata": {"name": "j"}, "spec": {}});
        assert_eq!(queued(job.clone(), false, false), (Queued::NoQueue, job.clone()));
        let (outcome, changed) = queued(job, true, false);
        assert_eq!((outcome, queue_name(&changed)), (Queued::ByDefault, Some("default")));
        assert_eq!(changed["spec"]["suspend"], json!(true));
    }

    #[test]
    fn the_job_of_a_queued_owner_is_left_alone() {
        let job = json!({"metadata": {"labels": {QUEUE_NAME_LABEL: "a"}}, "spec": {}});
        assert_eq!(queued(job.clone(), true, true), (Queued::OwnerIsQueued, job));
    }

    #[test]
    fn strange_objects_do_no_harm() {
        for job in [json!(null), json!([]), json!({"metadata": 1, "spec": "x"})] {
            let (outcome, changed) = queued(job, true, false);
            assert_eq!((outcome, &changed["spec"]["suspend"]), (Queued::ByDefault, &json!(true)));
        }
    }
}
