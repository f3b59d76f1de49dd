//! The query string of a request.

use std::borrow::Cow;

use crate::error::ApiError;

/// Decoded parameters; the last of several with one name counts.
#[derive(Debug, Default)]
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(crate) fn parse(query: Option<&'a str>) -> Self {
        Self(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect())
    }

    /// A parameter that is present and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_ref()).filter(|value| !value.is_empty())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1" | "True"))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let bad = |text: &str| ApiError::bad_request(format!("invalid query parameter {name}: {text:?}"));
        self.get(name).map(|text| text.parse().map_err(|_| bad(text))).transpose()
    }

    /// Whether nothing is to be stored.
    pub(crate) fn dry_run(&self) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(ApiError::bad_request(format!("invalid dryRun: {other:?}: use \"All\""))),
        }
    }

    pub(crate) fn field_validation(&self) -> Result<FieldValidation, ApiError> {
        match self.get("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some(other) => Err(ApiError::bad_request(format!("invalid fieldValidation: {other:?}"))),
        }
    }
}

/// What happens to fields that a kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}
