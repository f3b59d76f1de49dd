//! Quantities as written in manifests: `500m`, `1.5`, `2Gi`, `1e3`.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

/// A quantity, exact to a billionth; smaller parts round away from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity(i128);

const NANOS: i128 = 1_000_000_000;

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

impl Quantity {
    /// Reads a quantity written as a string or as a JSON number.
    pub(super) fn of(value: &Value) -> Result<Self, QuantityError> {
        written(value).map_or(Err(QuantityError::Malformed), |text| Self::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let scale = Scale::parse(suffix).ok_or(QuantityError::Malformed)?;
        let magnitude = scaled(number, scale)?;
        if magnitude > i128::from(i64::MAX) * NANOS {
            return Err(QuantityError::TooLarge);
        }
        Ok(Self(if negative { -magnitude } else { magnitude }))
    }

    pub(super) fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub(super) fn is_whole(self) -> bool {
        self.0 % NANOS == 0
    }
}

/// The text of a quantity: manifests may hold a bare number where the API speaks in strings.
pub(super) fn written(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Scale {
    Decimal(i32),
    Binary(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => Self::Decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

/// `number` times the scale, in billionths, rounded up.
fn scaled(number: &str, scale: Scale) -> Result<i128, QuantityError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(QuantityError::Malformed);
    }
    let digits: String = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    // More digits than this cannot be told apart, and would not fit the arithmetic below.
    let kept = &digits[..digits.len().min(30)];
    let dropped = (digits.len() - kept.len()) as i32;
    let mantissa: i128 = kept.parse().map_err(|_| QuantityError::Malformed)?;
    let (exponent, binary) = match scale {
        Scale::Decimal(exponent) => (exponent, 0),
        Scale::Binary(bits) => (0, bits),
    };
    let exponent = exponent.saturating_add(9 + dropped).saturating_sub(fraction.len() as i32);
    let too_large = QuantityError::TooLarge;
    let Some(power) = 10_i128.checked_pow(exponent.unsigned_abs()) else {
        return if exponent > 0 { Err(too_large) } else { Ok(1) };
    };
    if exponent >= 0 {
        let value = mantissa.checked_mul(power).ok_or(too_large)?;
        return value.checked_mul(1_i128 << binary).ok_or(too_large);
    }
    // Multiplying first keeps binary fractions such as 0.5Gi exact.
    match mantissa.checked_mul(1_i128 << binary) {
        Some(product) => Ok(product / power + i128::from(product % power != 0)),
        None => (mantissa / power).checked_mul(1_i128 << binary).ok_or(too_large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> i128 {
        Quantity::parse(text).unwrap().0
    }

    #[test]
    fn suffixes_and_fractions() {
        assert_eq!(nanos("1"), NANOS);
        assert_eq!(nanos("500m"), NANOS / 2);
        assert_eq!(nanos("0.5"), nanos("500m"));
        assert_eq!(nanos(".5Gi"), nanos("512Mi"));
        assert_eq!(nanos("1e3"), nanos("1k"));
        assert_eq!(nanos("1E-3"), nanos("1m"));
        assert_eq!(nanos("1E"), 1_000_000_000_000_000_000 * NANOS);
        assert_eq!(nanos("-3u"), -3_000);
        assert_eq!(nanos("0.0000000001"), 1, "rounds up");
        assert_eq!(nanos("1e-50"), 1);
        assert_eq!(nanos("000"), 0);
    }

    #[test]
    fn bad_texts_are_refused() {
        for text in ["", ".", "-", "1.2.3", "1 Gi", "abc", "1Zi", "1e", "1e1.5", "0x1", "１"] {
            assert_eq!(Quantity::parse(text), Err(QuantityError::Malformed), "{text}");
        }
        for text in [
            "9223372036854775808",
            "8Ei",
            "1e400",
            "1e2147483647",
            "99999999999999999999999999999999999999999E",
        ] {
            assert_eq!(Quantity::parse(text), Err(QuantityError::TooLarge), "{text}");
        }
    }

    #[test]
    fn numbers_count_as_quantities() {
        assert_eq!(Quantity::of(&serde_json::json!(2)), Quantity::parse("2"));
        assert_eq!(Quantity::of(&serde_json::json!(0.5)), Quantity::parse("500m"));
        assert_eq!(Quantity::of(&serde_json::json!([])), Err(QuantityError::Malformed));
    }
}
