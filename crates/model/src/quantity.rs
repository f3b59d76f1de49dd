//! Kubernetes quantities as integers: milli-units of cpu, base units of everything else.

use std::fmt;

use crate::names::ResourceName;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not a number with an optional suffix.
    #[error("{0:?} is not a quantity; write a number with an optional suffix, like 500m, 2, 1.5Gi or 1e3")]
    Malformed(String),
    /// A quantity below zero where none can be.
    #[error("{0:?} is negative; a quantity here must be 0 or more")]
    Negative(String),
}

/// An exact quantity in nano-units, saturating at the limits of `i128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nanos: i128,
}

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

impl Quantity {
    /// Reads a quantity as Kubernetes writes it. What is finer than a nano-unit is rounded up.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed(text.to_owned());
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let digits_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(digits_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let scale = Scale::parse(suffix).ok_or_else(malformed)?;
        let nanos = scale.apply(whole, fraction);
        Ok(Self { nanos: if negative { -nanos } else { nanos } })
    }

    /// Reads a quantity that may not be negative.
    pub fn parse_non_negative(text: &str) -> Result<Self, QuantityError> {
        let quantity = Self::parse(text)?;
        if quantity.nanos < 0 { Err(QuantityError::Negative(text.to_owned())) } else { Ok(quantity) }
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it has no fraction.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// In the unit in which `resource` is counted (milli for cpu), rounded up, clamped to `i64`.
    pub fn counted_as(self, resource: &str) -> i64 {
        let unit = if resource == "cpu" { NANOS_PER_MILLI } else { NANOS_PER_UNIT };
        clamp(divide_rounding_up(self.nanos, unit))
    }

    /// Whether it does not fit `i64` in the unit in which `resource` is counted.
    pub fn overflows(self, resource: &str) -> bool {
        let unit = if resource == "cpu" { NANOS_PER_MILLI } else { NANOS_PER_UNIT };
        divide_rounding_up(self.nanos, unit) > i128::from(i64::MAX)
    }
}

/// Rounds away from zero, as the reference does.
fn divide_rounding_up(nanos: i128, unit: i128) -> i128 {
    let (quotient, remainder) = (nanos / unit, nanos % unit);
    quotient + remainder.signum()
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

enum Scale {
    /// A power of ten, counted from one unit.
    Decimal(i32),
    /// A power of 1024.
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
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                let power = digits.parse::<i32>().unwrap_or(i32::MAX).min(1000);
                Self::Decimal(if exponent.starts_with('-') { -power } else { power })
            }
        })
    }

    /// The value of `whole.fraction` at this scale, in nano-units, rounded up.
    fn apply(&self, whole: &str, fraction: &str) -> i128 {
        match *self {
            Self::Decimal(power) => decimal_nanos(whole, fraction, power + 9),
            Self::Binary(power) => {
                let factor = 1024_i128.pow(power);
                let units = digits(whole).saturating_mul(factor).saturating_mul(NANOS_PER_UNIT);
                // 18 digits are exact for every binary suffix that fits; finer ones round up.
                let kept = &fraction[..fraction.len().min(18)];
                let lost = fraction[kept.len()..].bytes().any(|b| b != b'0');
                let denominator = 10_i128.pow(kept.len() as u32);
                let numerator = digits(kept).saturating_mul(factor);
                let part = match numerator.checked_mul(NANOS_PER_UNIT) {
                    Some(scaled) => divide_rounding_up(scaled, denominator),
                    None => (numerator / denominator).saturating_add(1).saturating_mul(NANOS_PER_UNIT),
                };
                units.saturating_add(part).saturating_add(i128::from(lost))
            }
        }
    }
}

/// `whole.fraction` times ten to the `power`, rounded up to an integer, saturating.
fn decimal_nanos(whole: &str, fraction: &str, power: i32) -> i128 {
    let mut value: i128 = 0;
    let mut lost = false;
    let point = whole.len() as i64 + i64::from(power);
    for (position, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        if (position as i64) < point {
            value = value.saturating_mul(10).saturating_add(i128::from(byte - b'0'));
        } else {
            lost |= byte != b'0';
        }
    }
    let missing = point - (whole.len() + fraction.len()) as i64;
    for _ in 0..missing.clamp(0, 60) {
        value = value.saturating_mul(10);
    }
    value.saturating_add(i128::from(lost))
}

fn digits(text: &str) -> i128 {
    text.bytes().fold(0, |value: i128, b| value.saturating_mul(10).saturating_add(i128::from(b - b'0')))
}

/// An amount of a resource in a quota: an integer, or unlimited. Arithmetic saturates.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than anybody can ask for.
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// A finite amount; `i64::MAX` is unlimited.
    pub const fn new(value: i64) -> Self {
        Self(value)
    }

    /// A quota of `resource`; what does not fit `i64` is unlimited.
    pub fn of_quota(quantity: Quantity, resource: &str) -> Self {
        if quantity.overflows(resource) { Self::UNLIMITED } else { Self(quantity.counted_as(resource)) }
    }

    /// The integer; `i64::MAX` if unlimited.
    pub const fn value(self) -> i64 {
        self.0
    }

    /// Whether there is no limit.
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// The sum; unlimited absorbs.
    pub const fn plus(self, other: Self) -> Self {
        if self.is_unlimited() || other.is_unlimited() {
            return Self::UNLIMITED;
        }
        Self(self.0.saturating_add(other.0))
    }

    /// The difference. Unlimited less anything finite stays unlimited, unlimited less unlimited is
    /// nothing, and a finite amount less unlimited is the most negative one.
    pub const fn minus(self, other: Self) -> Self {
        match (self.is_unlimited(), other.is_unlimited()) {
            (true, true) => Self::ZERO,
            (true, false) => Self::UNLIMITED,
            (false, true) => Self(i64::MIN),
            (false, false) => Self(self.0.saturating_sub(other.0)),
        }
    }
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() { f.write_str("unlimited") } else { write!(f, "{}", self.0) }
    }
}

/// An amount of a resource as people write it: cores for cpu, binary units where they come out even.
pub struct Shown<'a> {
    /// What is counted.
    pub resource: &'a ResourceName,
    /// How much of it, in the unit in which it is counted.
    pub amount: Amount,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(self.resource.as_str(), self.amount))
    }
}

fn show(resource: &str, amount: Amount) -> String {
    if amount.is_unlimited() {
        return "unlimited".to_owned();
    }
    to_quantity_text(resource, amount.value())
}

/// Writes a counted value as a Kubernetes quantity that reads back to the same value.
pub fn to_quantity_text(resource: &str, value: i64) -> String {
    if resource == "cpu" {
        return if value % 1000 == 0 { format!("{}", value / 1000) } else { format!("{value}m") };
    }
    for (suffix, shift) in [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
        let unit = 1_i64 << shift;
        if value != 0 && value % unit == 0 {
            return format!("{}{suffix}", value / unit);
        }
    }
    format!("{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(text: &str) -> i64 {
        Quantity::parse(text).unwrap().counted_as("cpu")
    }

    fn memory(text: &str) -> i64 {
        Quantity::parse(text).unwrap().counted_as("memory")
    }

    #[test]
    fn cpu_counts_in_milli_and_rounds_up() {
        for (text, milli) in [
            ("1", 1000),
            ("500m", 500),
            ("0.5", 500),
            (".5", 500),
            ("1.", 1000),
            ("1n", 1),
            ("1500u", 2),
            ("1e-3", 1),
            ("2k", 2_000_000),
            ("-1", -1000),
            ("+1", 1000),
        ] {
            assert_eq!(cpu(text), milli, "{text}");
        }
    }

    #[test]
    fn other_resources_count_in_units_and_round_up() {
        for (text, units) in [
            ("1Ki", 1024),
            ("1.5Gi", 1_610_612_736),
            ("1.5G", 1_500_000_000),
            ("1500m", 2),
            ("1e3", 1000),
            ("1E3", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("0.1Ki", 103),
            ("100000000000000000001n", 100_000_000_001),
            ("0", 0),
        ] {
            assert_eq!(memory(text), units, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_saturates() {
        assert_eq!(memory("9223372036854775808"), i64::MAX);
        assert_eq!(memory("1e999999999999"), i64::MAX);
        assert_eq!(memory("99999999999999999999999999999999999999999999Ei"), i64::MAX);
        assert_eq!(cpu("-1e30"), i64::MIN);
        assert_eq!(Amount::of_quantity_for_test("1e30"), Amount::UNLIMITED);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "-", "1 Gi", "Gi", "1gi", "1.2.3", "1e", "1e+", "0x10", "one", "1ki", "١"] {
            assert!(Quantity::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(Quantity::parse_non_negative("-1"), Err(QuantityError::Negative("-1".into())));
    }

    #[test]
    fn amounts_saturate_and_unlimited_absorbs() {
        let (one, all) = (Amount::new(1), Amount::UNLIMITED);
        assert_eq!(all.plus(one), all);
        assert_eq!(all.minus(one), all);
        assert_eq!(all.minus(all), Amount::ZERO);
        assert_eq!(one.minus(all), Amount::new(i64::MIN));
        assert_eq!(Amount::new(i64::MIN).minus(one), Amount::new(i64::MIN));
    }

    #[test]
    fn text_reads_back() {
        for (resource, value) in
            [("cpu", 1500), ("cpu", 2000), ("memory", 1 << 30), ("memory", 1000), ("pods", 0)]
        {
            let text = to_quantity_text(resource, value);
            assert_eq!(Quantity::parse(&text).unwrap().counted_as(resource), value, "{text}");
        }
    }

    impl Amount {
        fn of_quantity_for_test(text: &str) -> Self {
            Self::of_quota(Quantity::parse(text).unwrap(), "memory")
        }
    }
}
