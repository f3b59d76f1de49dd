//! Lines for a shell. What stands in them comes from a cluster, so every word is quoted that needs it.

use serde_json::Value;

/// A word as a shell reads it back.
pub(super) fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A merge of `change` into an object.
pub(super) fn merge(kind: &str, name: &str, namespace: Option<&str>, change: &Value) -> String {
    patch(kind, name, namespace, "merge", change)
}

/// Changes of single fields of a cluster-wide object.
pub(super) fn change_fields(kind: &str, name: &str, operations: &Value) -> String {
    patch(kind, name, None, "json", operations)
}

fn patch(kind: &str, name: &str, namespace: Option<&str>, how: &str, change: &Value) -> String {
    let namespace = namespace.map(|namespace| format!(" -n {}", word(namespace))).unwrap_or_default();
    format!("kubectl patch {kind} {}{namespace} --type={how} -p {}", word(name), word(&change.to_string()))
}

/// The creation of an object.
pub(super) fn create(object: &Value) -> String {
    format!("echo {} | kubectl create -f -", word(&object.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_in_a_name_leaves_its_word() {
        assert_eq!(word("team-a"), "team-a");
        assert_eq!(word("example.com/tier=spot"), "example.com/tier=spot");
        assert_eq!(word(""), "''");
        assert_eq!(word("a b"), "'a b'");
        assert_eq!(word("$(rm -rf x)"), "'$(rm -rf x)'");
        assert_eq!(word("it's"), r"'it'\''s'");
    }

    #[test]
    fn patches_name_the_object_and_the_change() {
        let line = merge("localqueue", "main", Some("team"), &json!({"spec": {"stopPolicy": "None"}}));
        assert_eq!(
            line,
            r#"kubectl patch localqueue main -n team --type=merge -p '{"spec":{"stopPolicy":"None"}}'"#
        );
        assert_eq!(create(&json!({"kind": "A"})), r#"echo '{"kind":"A"}' | kubectl create -f -"#);
    }
}
