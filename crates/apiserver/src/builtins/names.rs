//! The rules for names in words, and the syntax of data keys.

const MAX_DATA_KEY: usize = 253;

/// A key of ConfigMap or Secret data.
pub(super) fn is_data_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_DATA_KEY
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && key != "."
        && !key.starts_with("..")
}

/// What a DNS label looks like, for messages.
pub(super) const DNS_LABEL_RULE: &str = "must be a DNS label: at most 63 lower case letters, digits or '-', \
     beginning and ending with a letter or digit";

/// What a DNS subdomain looks like, for messages.
pub(super) const DNS_SUBDOMAIN_RULE: &str = "must be a DNS subdomain: at most 253 lower case letters, digits, \
     '-' or '.', each part beginning and ending with a letter or digit";

/// What a qualified name looks like, for messages.
pub(super) const QUALIFIED_NAME_RULE: &str = "must be a name of at most 63 letters, digits, '-', '_' or '.', \
     beginning and ending with a letter or digit, with an optional DNS subdomain and '/' before it";

/// What a label value looks like, for messages.
pub(super) const LABEL_VALUE_RULE: &str = "must be empty or at most 63 letters, digits, '-', '_' or '.', \
     beginning and ending with a letter or digit";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_keys_are_file_names() {
        assert!(is_data_key(".hidden") && is_data_key("a_b-c.d"));
        assert!(!is_data_key("") && !is_data_key("..x") && !is_data_key("a/b"));
    }
}
