//! Quantities as written in manifests: `500m`, `1.5`, `2Gi`, `1e3`.

use std::borrow::Cow;
use std::fmt;

use gangway_model::Quantity;
use serde_json::Value;

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuantityError {
    Malformed,
    TooLarge,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "must be a quantity such as 500m, 1.5 or 2Gi",
            Self::TooLarge => "is larger than any quantity can be (9223372036854775807)",
        })
    }
}

/// Reads a quantity written as a string or as a JSON number.
pub(super) fn read(value: &Value) -> Result<Quantity, QuantityError> {
    written(value).map_or(Err(QuantityError::Malformed), |text| parse(&text))
}

fn parse(text: &str) -> Result<Quantity, QuantityError> {
    let quantity = Quantity::parse(text).map_err(|_| QuantityError::Malformed)?;
    if quantity.overflows("") { Err(QuantityError::TooLarge) } else { Ok(quantity) }
}

/// The text of a quantity: manifests may hold a bare number where the API speaks in strings.
pub(super) fn written(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_texts_are_refused() {
        for text in ["", ".", "-", "1.2.3", "1 Gi", "abc", "1Zi", "1e", "1e1.5", "0x1", "１"] {
            assert_eq!(parse(text), Err(QuantityError::Malformed), "{text}");
        }
        for text in [
            "9223372036854775808",
            "8Ei",
            "1e400",
            "1e2147483647",
            "99999999999999999999999999999999999999999E",
        ] {
            assert_eq!(parse(text), Err(QuantityError::TooLarge), "{text}");
        }
    }

    #[test]
    fn numbers_count_as_quantities() {
        assert_eq!(read(&serde_json::json!(2)), parse("2"));
        assert_eq!(read(&serde_json::json!(0.5)), parse("500m"));
        assert_eq!(read(&serde_json::json!([])), Err(QuantityError::Malformed));
    }
}
