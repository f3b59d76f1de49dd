//! Labels and what selects them.

use std::collections::BTreeMap;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// How a requirement compares the value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The label exists and its value is one of the values.
    In,
    /// The label does not exist, or its value is none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label is an integer greater than the one value.
    GreaterThan,
    /// The label is an integer less than the one value.
    LessThan,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// What it is compared with.
    pub values: Vec<String>,
}

impl Requirement {
    /// The label `key` must have exactly `value`.
    pub fn equals(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] }
    }

    /// Whether a label with this value, or an absent one, satisfies the requirement.
    pub fn allows(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.iter().any(|v| v == value)),
            Operator::NotIn => !value.is_some_and(|value| self.values.iter().any(|v| v == value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compares(value, |label, bound| label > bound),
            Operator::LessThan => self.compares(value, |label, bound| label < bound),
        }
    }

    fn compares(&self, value: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let label = value.and_then(|v| v.parse().ok());
        let bound = self.values.first().and_then(|v| v.parse().ok());
        matches!((label, bound), (Some(label), Some(bound)) if holds(label, bound))
    }
}

/// Selects objects by their labels: all requirements must hold. Without any it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelSelector {
    /// Conditions, all of which must hold.
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|r| r.allows(labels.get(&r.key).map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: "k".into(), operator, values: values.iter().map(|v| (*v).to_owned()).collect() }
    }

    #[test]
    fn operators() {
        use Operator::*;
        let table: &[(Operator, &[&str], Option<&str>, bool)] = &[
            (In, &["a", "b"], Some("b"), true),
            (In, &["a"], None, false),
            (NotIn, &["a"], None, true),
            (NotIn, &["a"], Some("a"), false),
            (Exists, &[], Some(""), true),
            (DoesNotExist, &[], Some("x"), false),
            (GreaterThan, &["5"], Some("6"), true),
            (GreaterThan, &["5"], Some("x"), false),
            (LessThan, &["5"], Some("4"), true),
            (LessThan, &["x"], Some("4"), false),
        ];
        for (operator, values, value, expected) in table {
            assert_eq!(
                requirement(*operator, values).allows(*value),
                *expected,
                "{operator:?} {values:?} {value:?}"
            );
        }
    }

    #[test]
    fn an_empty_selector_selects_everything() {
        assert!(LabelSelector::default().matches(&Labels::new()));
    }
}
