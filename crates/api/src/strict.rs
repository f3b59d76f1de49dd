//! Deserialization that forgives nothing and says where: unknown fields, with a guess at what was
//! meant, and values of the wrong type, each with its path.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// Something in a document that its type does not know or cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, such as `spec.resourceGroups[0].flavor`.
    pub path: String,
    /// What is wrong, in a few words.
    pub message: String,
}

/// Reads `value` as a `T`. Unknown fields are found too where the rest could be read.
pub fn deserialize<T: DeserializeOwned>(value: &Value) -> Result<T, Vec<Finding>> {
    deserialize_at(value, "", &[])
}

/// The same for a part of a document: paths begin with `path`, and `also_known` fields may stand at the top.
pub fn deserialize_at<T: DeserializeOwned>(
    value: &Value,
    path: &str,
    also_known: &[&str],
) -> Result<T, Vec<Finding>> {
    let findings = RefCell::new(Vec::new());
    let result = T::deserialize(Strict { value, path: path.to_owned(), findings: &findings, also_known });
    let mut findings = findings.into_inner();
    match result {
        Ok(read) if findings.is_empty() => Ok(read),
        Ok(_) => Err(findings),
        Err(failure) => {
            // A field that is missing is most often the one that was misspelt.
            if !failure.is_absence || findings.is_empty() {
                findings.push(Finding { path: failure.path.unwrap_or_default(), message: failure.message });
            }
            Err(findings)
        }
    }
}

/// `path` followed by a field, which is quoted if it is not a plain word.
pub fn field_path(path: &str, field: &str) -> String {
    let plain = !field.is_empty() && field.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    match (plain, path.is_empty()) {
        (true, true) => field.to_owned(),
        (true, false) => format!("{path}.{field}"),
        (false, _) => format!("{path}[{field:?}]"),
    }
}

/// `path` followed by the position in a list.
pub fn item_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// The message for an unknown field, with the closest of the known ones if it is close.
pub fn unknown_field(field: &str, known: &[&str]) -> String {
    match closest(field, known) {
        Some(known) => format!("unknown field; did you mean {known:?}?"),
        None => "unknown field".to_owned(),
    }
}

/// The word that `word` is most likely a misspelling of.
pub fn closest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let limit = (word.chars().count() / 3).clamp(1, 4);
    let lower = word.to_lowercase();
    let distances = known.iter().map(|known| (distance(&lower, &known.to_lowercase()), *known));
    distances.filter(|(distance, _)| *distance <= limit).min().map(|(_, known)| known)
}

/// How many letters have to be added, removed, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(row[j - 1] + 1).min(last[j] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// The error with which deserialization stops; the innermost value that fails gives it its path.
#[derive(Debug)]
struct Failure {
    path: Option<String>,
    message: String,
    /// Nothing stands there that is wrong: something does not stand there.
    is_absence: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl serde::de::Error for Failure {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { path: None, message: message.to_string(), is_absence: false }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { path: None, message: format!("the field {field} is missing"), is_absence: true }
    }
}

struct Strict<'v, 'f> {
    value: &'v Value,
    path: String,
    findings: &'f RefCell<Vec<Finding>>,
    also_known: &'f [&'f str],
}

impl<'v> Strict<'v, '_> {
    fn located<T>(path: String, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| Failure { path: failure.path.or(Some(path)), ..failure })
    }

    fn visit_object<V: Visitor<'v>>(
        self,
        map: &'v Map<String, Value>,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let path = self.path.clone();
        let fields = Fields { entries: map.iter(), pending: None, path: self.path, findings: self.findings };
        Self::located(path, visitor.visit_map(fields))
    }
}

impl<'de> Deserializer<'de> for Strict<'de, '_> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let path = self.path.clone();
        match self.value {
            Value::Object(map) => self.visit_object(map, visitor),
            Value::Array(items) => {
                let items =
                    Items { items: items.iter().enumerate(), path: self.path, findings: self.findings };
                Self::located(path, visitor.visit_seq(items))
            }
            scalar => Self::located(path, scalar.deserialize_any(visitor).map_err(Failure::custom)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let Value::Object(map) = self.value else { return self.deserialize_any(visitor) };
        for field in map.keys() {
            if !known.contains(&field.as_str()) && !self.also_known.contains(&field.as_str()) {
                let path = field_path(&self.path, field);
                self.findings.borrow_mut().push(Finding { path, message: unknown_field(field, known) });
            }
        }
        self.visit_object(map, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        Self::located(
            self.path,
            self.value.deserialize_enum(name, variants, visitor).map_err(Failure::custom),
        )
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

struct Fields<'v, 'f> {
    entries: serde_json::map::Iter<'v>,
    pending: Option<(&'v String, &'v Value)>,
    path: String,
    findings: &'f RefCell<Vec<Finding>>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        self.pending = self.entries.next();
        match self.pending {
            Some((key, _)) => seed.deserialize(StrDeserializer::new(key)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Failure> {
        let Some((key, value)) = self.pending.take() else {
            return Err(Failure::custom("a value was asked for before its key"));
        };
        let path = field_path(&self.path, key);
        seed.deserialize(Strict { value, path, findings: self.findings, also_known: &[] })
    }
}

struct Items<'v, 'f> {
    items: std::iter::Enumerate<std::slice::Iter<'v, Value>>,
    path: String,
    findings: &'f RefCell<Vec<Finding>>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Failure> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        let path = item_path(&self.path, index);
        seed.deserialize(Strict { value, path, findings: self.findings, also_known: &[] }).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    fn findings(value: Value) -> Vec<(String, String)> {
        let found = deserialize::<Job>(&value).err().unwrap_or_default();
        found.into_iter().map(|finding| (finding.path, finding.message)).collect()
    }

    #[test]
    fn unknown_fields_are_found_with_their_path_and_a_guess() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"paralelism": 2, "template": {"spec": {"containers": [{"name": "c"}, {"name": "d", "colour": 1}]}}}});
        let expected = [
            ("spec.paralelism", "unknown field; did you mean \"parallelism\"?"),
            ("spec.template.spec.containers[1].colour", "unknown field"),
        ];
        let expected: Vec<_> = expected.iter().map(|(p, m)| ((*p).to_owned(), (*m).to_owned())).collect();
        assert_eq!(findings(job), expected);
    }

    #[test]
    fn a_wrong_type_is_found_with_its_path() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
            "spec": {"parallelism": "two", "template": {}}});
        let found = findings(job);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "spec.parallelism");
        assert!(found[0].1.contains("expected i32"), "{found:?}");
    }

    #[test]
    fn numbers_are_quantities_too() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 1, "x/y": "2"}}}]}}}});
        assert_eq!(findings(job), vec![]);
    }
}
