//! A measured figure, with what it was measured on.

use serde_json::{Value, json};

use crate::render::span::fine;
use crate::render::table::Table;

/// How this program was compiled.
pub const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// What a figure counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    PerSecond,
    PerJob,
    Bytes,
    FewBytes,
}

impl Unit {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::PerSecond => "1/s",
            Self::PerJob => "1/Job",
            Self::Bytes | Self::FewBytes => "bytes",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds => fine(value as i64),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::PerJob => format!("{value:.2}"),
            Self::Bytes => format!("{:.1} MiB", value / f64::from(1 << 20)),
            Self::FewBytes => format!("{value:.0} bytes"),
        }
    }
}

/// A measured figure.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub input: String,
    /// How often the whole was measured.
    pub repetitions: usize,
    /// How much was done in all.
    pub count: u64,
    pub unit: Unit,
    /// Labelled values: `median`, `p50`, …
    pub values: Vec<(&'static str, f64)>,
}

impl Figure {
    /// Rates of several repetitions.
    pub fn rates(name: &'static str, input: String, count: u64, mut rates: Vec<f64>) -> Self {
        rates.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&rates, share);
        let values = vec![("median", at(0.5)), ("min", at(0.0)), ("max", at(1.0))];
        Self { name, input, repetitions: rates.len(), count, unit: Unit::PerSecond, values }
    }

    /// Spans of time, one for each of many occurrences.
    pub fn spans(name: &'static str, input: String, repetitions: usize, nanos: &[i64]) -> Self {
        let mut sorted: Vec<f64> = nanos.iter().map(|nanos| *nanos as f64).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&sorted, share);
        let values = vec![("p50", at(0.5)), ("p99", at(0.99)), ("max", at(1.0))];
        Self { name, input, repetitions, count: sorted.len() as u64, unit: Unit::Nanoseconds, values }
    }

    /// One value.
    pub fn single(name: &'static str, input: String, count: u64, unit: Unit, value: f64) -> Self {
        Self { name, input, repetitions: 1, count, unit, values: vec![("value", value)] }
    }
}

/// The value below which `share` of the sorted values are, by nearest rank; 0 if there are none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// The figures for people.
pub fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new(&["FIGURE", "RESULT", ">REPETITIONS", ">COUNT", "INPUT"]);
    for figure in figures {
        let values: Vec<String> = figure
            .values
            .iter()
            .map(|(label, value)| match *label {
                "value" => figure.unit.show(*value),
                label => format!("{label} {}", figure.unit.show(*value)),
            })
            .collect();
        table.row([
            figure.name.to_owned(),
            values.join(", "),
            figure.repetitions.to_string(),
            figure.count.to_string(),
            figure.input.clone(),
        ]);
    }
    table
}

/// The figures for programs.
pub fn as_json(figures: &[Figure]) -> Value {
    let figures = figures.iter().map(|figure| {
        let values: serde_json::Map<String, Value> =
            figure.values.iter().map(|(label, value)| ((*label).to_owned(), json!(value))).collect();
        json!({
            "name": figure.name,
            "input": figure.input,
            "repetitions": figure.repetitions,
            "count": figure.count,
            "unit": figure.unit.as_str(),
            "values": values,
        })
    });
    json!({"build": BUILD, "figures": figures.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (quantile(&sorted, 0.5), quantile(&sorted, 0.99), quantile(&sorted, 1.0)),
            (50.0, 99.0, 100.0)
        );
        assert_eq!((quantile(&sorted, 0.0), quantile(&[], 0.5)), (1.0, 0.0));
    }
}
