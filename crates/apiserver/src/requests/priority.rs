//! The priority of a new pod: what its PriorityClass says.

use serde_json::{Value, json};

use crate::intercept::ReadView;

const GROUP: &str = "scheduling.k8s.io";
const PLURAL: &str = "priorityclasses";

/// Classes that every cluster has.
const BUILT_IN: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Fills in the priority, and whether the pod may preempt; the message if its class does not exist or says otherwise.
///
/// A priority that a pod without a class has of its own is left alone, where a cluster would refuse it: on one machine
/// nobody needs a class to say that something comes first.
pub(super) fn settle(view: &dyn ReadView, pod: &mut Value) -> Result<(), String> {
    let spec = &pod["spec"];
    let class = match spec["priorityClassName"].as_str().filter(|name| !name.is_empty()) {
        Some(name) => {
            Some(named(view, name).ok_or_else(|| format!("no PriorityClass with name {name} was found"))?)
        }
        None if spec["priority"].is_null() => default(view),
        None => None,
    };
    let Some(class) = class else { return Ok(()) };
    for (field, of_class) in [("priority", "value"), ("preemptionPolicy", "preemptionPolicy")] {
        let (given, computed) = (&pod["spec"][field], &class[of_class]);
        if !given.is_null() && given != computed {
            return Err(format!(
                "the {field} of a pod must not be provided where its PriorityClass says otherwise: {given} is not {computed}"
            ));
        }
    }
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    spec.insert("priority".into(), class["value"].clone());
    spec.insert("preemptionPolicy".into(), class["preemptionPolicy"].clone());
    spec.insert("priorityClassName".into(), class["metadata"]["name"].clone());
    Ok(())
}

fn named(view: &dyn ReadView, name: &str) -> Option<Value> {
    let built_in = BUILT_IN.iter().find(|(built_in, _)| *built_in == name);
    let built_in = built_in.map(|(name, value)| {
        json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"})
    });
    built_in.or_else(|| view.get(GROUP, PLURAL, "", name))
}

/// The class of pods that name none; where there are several, the one with the lowest value.
fn default(view: &dyn ReadView) -> Option<Value> {
    let classes = view.list(GROUP, PLURAL, None).into_iter();
    let defaults = classes.filter(|class| class["globalDefault"] == true);
    defaults.min_by_key(|class| class["value"].as_i64())
}
