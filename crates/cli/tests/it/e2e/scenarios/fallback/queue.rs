//! The ClusterQueue of a play about fallback.

use serde_json::{Map, Value, json};

use super::stage::Stage;

/// A ClusterQueue with CPUs of some flavors and times for them. Where there are two groups it has memory of two more flavors.
#[derive(Clone, Default)]
pub struct Queue {
    flavors: Vec<&'static str>,
    cpus: u32,
    /// The flavor, `*` for every other, and what else a rule says.
    rules: Vec<(&'static str, Value)>,
    of_memory: [&'static str; 2],
    memory_time: Option<&'static str>,
    is_deactivating: bool,
    is_checked: bool,
    more: Map<String, Value>,
}

impl Queue {
    /// One CPU of each of these flavors, which are tried in this order.
    pub fn of(flavors: &[&'static str]) -> Self {
        let of_memory = ["memory", "more-memory"];
        Self { flavors: flavors.to_vec(), cpus: 1, of_memory, memory_time: Some("1h"), ..Self::default() }
    }

    /// So many CPUs of each flavor.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// A flavor is given up after this time.
    pub fn time(mut self, flavor: &'static str, time: &str) -> Self {
        self.rules.push((flavor, json!({ "timeout": time })));
        self
    }

    /// A flavor is given up when the check rejects it.
    pub fn or_rejected(mut self, flavor: &'static str) -> Self {
        self.rules.push((flavor, json!({ "trigger": "AdmissionCheckRejected" })));
        self
    }

    /// The flavors of the other group, where there is one.
    pub fn of_memory(mut self, flavors: [&'static str; 2]) -> Self {
        self.of_memory = flavors;
        self
    }

    /// The time of the first flavor of the other group, where there is one; an hour unless told.
    pub fn memory_time(mut self, time: Option<&'static str>) -> Self {
        self.memory_time = time;
        self
    }

    /// Who gave up every flavor is deactivated.
    pub fn deactivating(mut self) -> Self {
        self.is_deactivating = true;
        self
    }

    /// The check `SCENE-budget` has to agree to these flavors.
    pub fn checked(mut self) -> Self {
        self.is_checked = true;
        self
    }

    /// One more field of the spec.
    pub fn with(mut self, field: &str, value: Value) -> Self {
        self.more.insert(field.to_owned(), value);
        self
    }

    pub fn spec(&self, stage: &Stage<'_>) -> Value {
        let mut groups = vec![group("cpu", self.flavors.iter().map(|f| stage.own(f)), &json!(self.cpus))];
        let memory_time = self.memory_time.filter(|_| stage.variant.two_groups);
        if stage.variant.two_groups {
            groups.push(group("memory", self.of_memory.map(|f| stage.own(f)), &json!("1Gi")));
        }
        let mut spec = json!({ "namespaceSelector": {}, "resourceGroups": groups });
        if !self.rules.is_empty() {
            let of_memory = memory_time.map(|time| (self.of_memory[0], json!({ "timeout": time })));
            let rules = self.rules.iter().cloned().chain(of_memory).map(|(flavor, mut rule)| {
                rule["name"] = if flavor == "*" { json!("*") } else { json!(stage.own(flavor)) };
                rule
            });
            let policy = if self.is_deactivating { "DeactivateWorkload" } else { "RetryAllFlavors" };
            let strategy = json!({ "failurePolicy": policy, "rules": rules.collect::<Vec<Value>>() });
            spec["flavorFungibility"] = json!({ "fallbackStrategy": strategy });
        }
        if self.is_checked {
            let mut check = json!({ "name": stage.own("budget") });
            if stage.variant.two_groups {
                let own: Vec<String> = self.flavors.iter().map(|flavor| stage.own(flavor)).collect();
                check["onFlavors"] = json!(own);
            }
            spec["admissionChecksStrategy"] = json!({ "admissionChecks": [check] });
        }
        self.more.iter().for_each(|(field, value)| spec[field] = value.clone());
        spec
    }
}

fn group(resource: &str, flavors: impl IntoIterator<Item = String>, quota: &Value) -> Value {
    let quotas = json!([{ "name": resource, "nominalQuota": quota }]);
    let flavors: Vec<Value> =
        flavors.into_iter().map(|flavor| json!({ "name": flavor, "resources": quotas })).collect();
    json!({ "coveredResources": [resource], "flavors": flavors })
}
