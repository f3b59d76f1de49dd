//! Label selectors and field selectors of lists and watches.

use crate::error::ApiError;
use crate::names::{is_label_value, is_qualified_name};
use crate::registry::Resource;
use crate::store::{Key, Stored};

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelTerm {
    Exists(String),
    Missing(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// Position in the kind's selectable fields.
    Indexed(usize),
}

/// Which objects a list or watch wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<LabelTerm>,
    fields: Vec<(Field, bool, String)>,
}

impl Selector {
    pub(crate) fn parse(
        resource: &Resource,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, ApiError> {
        let labels = split_terms(labels.unwrap_or_default()).map(label_term).collect::<Result<_, _>>()?;
        let fields = fields
            .unwrap_or_default()
            .split(',')
            .filter(|term| !term.trim().is_empty())
            .map(|term| field_term(resource, term.trim()))
            .collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// Whether every object is wanted.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, key: &Key, object: &Stored) -> bool {
        self.labels.iter().all(|term| label_matches(term, object))
            && self.fields.iter().all(|(field, equal, wanted)| {
                let value = match field {
                    Field::Name => key.name.as_str(),
                    Field::Namespace => key.namespace.as_str(),
                    Field::Indexed(index) => object.header.fields.get(*index).map_or("", String::as_str),
                };
                (value == wanted) == *equal
            })
    }
}

fn label_matches(term: &LabelTerm, object: &Stored) -> bool {
    match term {
        LabelTerm::Exists(key) => object.header.label(key).is_some(),
        LabelTerm::Missing(key) => object.header.label(key).is_none(),
        LabelTerm::In(key, values) => {
            object.header.label(key).is_some_and(|value| values.iter().any(|wanted| wanted == value))
        }
        LabelTerm::NotIn(key, values) => {
            object.header.label(key).is_none_or(|value| values.iter().all(|unwanted| unwanted != value))
        }
    }
}

/// Splits at commas that are not inside parentheses.
fn split_terms(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|term| !term.is_empty())
}

fn label_term(term: &str) -> Result<LabelTerm, ApiError> {
    let bad = || ApiError::bad_request(format!("unable to parse requirement: {term:?}"));
    let parsed = if let Some((key, value)) = term.split_once("!=") {
        LabelTerm::NotIn(key.trim().to_owned(), vec![value.trim().to_owned()])
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        LabelTerm::In(key.trim().to_owned(), vec![value.trim().to_owned()])
    } else if let Some((head, values)) = term.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(bad)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => LabelTerm::In(key.to_owned(), values),
            [key, "notin"] => LabelTerm::NotIn(key.to_owned(), values),
            _ => return Err(bad()),
        }
    } else if let Some(key) = term.strip_prefix('!') {
        LabelTerm::Missing(key.trim().to_owned())
    } else {
        LabelTerm::Exists(term.to_owned())
    };
    let (key, values): (&String, &[String]) = match &parsed {
        LabelTerm::Exists(key) | LabelTerm::Missing(key) => (key, &[]),
        LabelTerm::In(key, values) | LabelTerm::NotIn(key, values) => (key, values),
    };
    let sound = is_qualified_name(key) && values.iter().all(|value| is_label_value(value));
    if sound { Ok(parsed) } else { Err(bad()) }
}

fn field_term(resource: &Resource, term: &str) -> Result<(Field, bool, String), ApiError> {
    let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
        (path, false, value)
    } else if let Some((path, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (path, true, value)
    } else {
        return Err(ApiError::bad_request(format!("invalid field selector: {term:?}")));
    };
    let path = path.trim();
    let field = match path {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        _ => {
            let position = resource.selectable.iter().position(|field| field.path == path);
            Field::Indexed(
                position
                    .ok_or_else(|| ApiError::bad_request(format!("field label not supported: {path}")))?,
            )
        }
    };
    Ok((field, equal, value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<LabelTerm> {
        split_terms(text).map(|term| label_term(term).unwrap()).collect()
    }

    #[test]
    fn label_selectors_in_all_their_forms() {
        let own = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            terms("a=b, c!=d,e in (f, g),h notin (i),j,!k"),
            [
                LabelTerm::In("a".into(), own(&["b"])),
                LabelTerm::NotIn("c".into(), own(&["d"])),
                LabelTerm::In("e".into(), own(&["f", "g"])),
                LabelTerm::NotIn("h".into(), own(&["i"])),
                LabelTerm::Exists("j".into()),
                LabelTerm::Missing("k".into()),
            ]
        );
        assert!(
            label_term("a in b").is_err() && label_term("a=b c").is_err() && label_term("x (y)").is_err()
        );
    }
}
