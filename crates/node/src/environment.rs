//! The environment of a container: what it is made of, and `$(NAME)` in it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, EnvVarSource, Pod, Secret};

/// What of the agent's own environment a process gets.
pub const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// Variables in the order in which they were defined; a later one wins.
pub type Variables = BTreeMap<String, String>;

/// The ConfigMaps and Secrets that a container refers to, as far as they exist.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub config_maps: BTreeMap<String, ConfigMap>,
    pub secrets: BTreeMap<String, Secret>,
}

impl Sources {
    /// One value of a ConfigMap.
    pub fn config_value(&self, name: &str, key: &str) -> Option<Vec<u8>> {
        let map = self.config_maps.get(name)?;
        let text = map.data.as_ref().and_then(|data| data.get(key)).map(|text| text.clone().into_bytes());
        text.or_else(|| Some(map.binary_data.as_ref()?.get(key)?.0.clone()))
    }

    /// One value of a Secret.
    pub fn secret_value(&self, name: &str, key: &str) -> Option<Vec<u8>> {
        Some(self.secrets.get(name)?.data.as_ref()?.get(key)?.0.clone())
    }

    /// All values of a ConfigMap.
    pub fn config_values(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let map = self.config_maps.get(name)?;
        let texts = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let binaries = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
        Some(texts.chain(binaries).collect())
    }

    /// All values of a Secret.
    pub fn secret_values(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let data = self.secrets.get(name)?.data.iter().flatten();
        Some(data.map(|(key, value)| (key.clone(), value.0.clone())).collect())
    }
}

/// The variables that the pod gives to a container, or a sentence about what is missing.
pub fn variables(pod: &Pod, container: &Container, sources: &Sources) -> Result<Variables, String> {
    let mut variables = Variables::new();
    for from in container.env_from.iter().flatten() {
        let (values, kind, name, optional) = if let Some(reference) = &from.config_map_ref {
            (sources.config_values(&reference.name), "ConfigMap", &reference.name, reference.optional)
        } else if let Some(reference) = &from.secret_ref {
            (sources.secret_values(&reference.name), "Secret", &reference.name, reference.optional)
        } else {
            continue;
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        match values {
            Some(values) => variables.extend(values.into_iter().filter_map(|(key, value)| {
                Some((
                    format!("{prefix}{key}"),
                    String::from_utf8(value).ok().filter(|text| !text.contains('\0'))?,
                ))
            })),
            None if optional == Some(true) => {}
            None => return Err(format!("{kind} {name} does not exist.")),
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(pod, variable, sources, &variables)? {
            if value.contains('\0') {
                return Err(format!("Variable {} contains a NUL character.", variable.name));
            }
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

fn value(
    pod: &Pod,
    variable: &EnvVar,
    sources: &Sources,
    defined: &Variables,
) -> Result<Option<String>, String> {
    match &variable.value_from {
        None => Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), defined))),
        Some(source) => value_from(pod, source, sources)
            .map_err(|problem| format!("Variable {}: {problem}", variable.name)),
    }
}

fn value_from(pod: &Pod, source: &EnvVarSource, sources: &Sources) -> Result<Option<String>, String> {
    let (value, what, optional) = if let Some(reference) = &source.config_map_key_ref {
        let what = format!("key {} of ConfigMap {}", reference.key, reference.name);
        (sources.config_value(&reference.name, &reference.key), what, reference.optional)
    } else if let Some(reference) = &source.secret_key_ref {
        let what = format!("key {} of Secret {}", reference.key, reference.name);
        (sources.secret_value(&reference.name, &reference.key), what, reference.optional)
    } else if let Some(reference) = &source.field_ref {
        let path = &reference.field_path;
        return field(pod, path).map(Some).ok_or_else(|| format!("field {path} is not known."));
    } else {
        return Err(
            "only configMapKeyRef, secretKeyRef and fieldRef are supported on this machine.".to_owned()
        );
    };
    match value {
        Some(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| format!("{what} is not text.")),
        None if optional == Some(true) => Ok(None),
        None => Err(format!("{what} does not exist.")),
    }
}

/// A field of the pod by its path.
fn field(pod: &Pod, path: &str) -> Option<String> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let subscript = |prefix: &str| Some(path.strip_prefix(prefix)?.strip_suffix("']")?.to_owned());
    if let Some(key) = subscript("metadata.labels['") {
        return Some(meta.labels.as_ref().and_then(|labels| labels.get(&key)).cloned().unwrap_or_default());
    }
    if let Some(key) = subscript("metadata.annotations['") {
        return Some(meta.annotations.as_ref().and_then(|all| all.get(&key)).cloned().unwrap_or_default());
    }
    match path {
        "metadata.name" => Some(meta.name.clone().unwrap_or_default()),
        "metadata.namespace" => Some(meta.namespace.clone().unwrap_or_default()),
        "metadata.uid" => Some(meta.uid.clone().unwrap_or_default()),
        "spec.nodeName" => Some(spec?.node_name.clone().unwrap_or_default()),
        "spec.serviceAccountName" => Some(spec?.service_account_name.clone().unwrap_or_default()),
        "status.podIP" | "status.hostIP" | "status.podIPs" | "status.hostIPs" => Some("127.0.0.1".to_owned()),
        _ => None,
    }
}

/// Replaces `$(NAME)` by the variable of that name. An unknown name stays as it is, and `$$` stands for `$`.
pub fn expand(text: &str, variables: &Variables) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            result.push('$');
            rest = tail;
            continue;
        }
        let reference = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match reference.and_then(|(name, tail)| Some((variables.get(name)?, tail))) {
            Some((value, tail)) => {
                result.push_str(value);
                rest = tail;
            }
            None => {
                result.push('$');
                rest = after;
            }
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expansion() {
        let variables =
            Variables::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "$(A)".to_owned())]);
        let cases = [
            ("$(A)-$(B)", "1-$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(C)", "$(C)"),
            ("$(A", "$(A"),
            ("cost: 5$", "cost: 5$"),
            ("$HOME", "$HOME"),
            ("ä$(A)ö", "ä1ö"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    #[test]
    fn variables_come_from_everywhere() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "annotations": {"batch.kubernetes.io/job-completion-index": "4"}},
        }))
        .unwrap();
        let container: Container = serde_json::from_value(json!({"name": "c",
            "envFrom": [{"configMapRef": {"name": "m"}, "prefix": "M_"}, {"secretRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "INDEX", "valueFrom": {"fieldRef": {
                    "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}},
                {"name": "TEXT", "value": "$(M_k):$(INDEX)"},
                {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
            ]}))
        .unwrap();
        let map = serde_json::from_value(json!({"data": {"k": "v"}})).unwrap();
        let sources = Sources { config_maps: [("m".to_owned(), map)].into(), ..Sources::default() };
        let found = variables(&pod, &container, &sources).unwrap();
        let expected = [("INDEX", "4"), ("KEY", "v"), ("M_k", "v"), ("TEXT", "v:4")];
        assert_eq!(found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
        let problem = variables(&pod, &container, &Sources::default()).unwrap_err();
        assert_eq!(problem, "ConfigMap m does not exist.");
    }
}
