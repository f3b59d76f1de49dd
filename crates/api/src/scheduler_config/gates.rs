//! Feature gates, which the reference takes as a flag: `--feature-gates NAME=true,NAME=false`.

use crate::strict::closest;

/// The gate that lets pods be tried before their backoff is over, and the name that its design document had for it.
const POP_FROM_BACKOFF: [&str; 2] = ["SchedulerPopFromBackoffQ", "PopBackoffQWhenEmptyActiveQ"];

/// What the gates say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// Whether pods whose backoff is not over are tried when there is nobody else to try.
    pub pop_from_backoff: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self { pop_from_backoff: true }
    }
}

impl FeatureGates {
    /// Reads the flag; else what is wrong with it. An empty text leaves everything as it is.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut said: Option<(&str, bool)> = None;
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let Some((gate, value)) = entry.split_once('=') else {
                return Err(format!("{entry:?} has no value; write {entry}=true or {entry}=false"));
            };
            let (gate, value) = (gate.trim(), value.trim());
            if !POP_FROM_BACKOFF.contains(&gate) {
                return Err(unknown(gate));
            }
            let value = match value.to_ascii_lowercase().as_str() {
                "true" | "t" | "1" => true,
                "false" | "f" | "0" => false,
                _ => return Err(format!("{gate}: {value:?} is neither true nor false")),
            };
            match said {
                Some((before, other)) if other != value => {
                    return Err(format!("{gate}: is {value} here and {other} as {before} before"));
                }
                _ => said = Some((gate, value)),
            }
        }
        Ok(said.map_or_else(Self::default, |(_, pop_from_backoff)| Self { pop_from_backoff }))
    }
}

fn unknown(gate: &str) -> String {
    match closest(gate, &POP_FROM_BACKOFF) {
        Some(known) => format!("unknown feature gate {gate:?}; did you mean {known:?}?"),
        None => format!(
            "unknown feature gate {gate:?}, or one that is not supported yet; there is {}",
            POP_FROM_BACKOFF[0]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates() {
        let table = [
            ("", Ok(true)),
            ("SchedulerPopFromBackoffQ=true", Ok(true)),
            ("SchedulerPopFromBackoffQ=false", Ok(false)),
            (" PopBackoffQWhenEmptyActiveQ = False ,", Ok(false)),
            ("SchedulerPopFromBackoffQ=false,PopBackoffQWhenEmptyActiveQ=false", Ok(false)),
            (
                "SchedulerPopFromBackoffQ=false,PopBackoffQWhenEmptyActiveQ=true",
                Err("PopBackoffQWhenEmptyActiveQ: is true here and false as SchedulerPopFromBackoffQ before"),
            ),
            (
                "SchedulerPopFromBackoffQ=no",
                Err("SchedulerPopFromBackoffQ: \"no\" is neither true nor false"),
            ),
            (
                "SchedulerPopFromBackoffQ",
                Err("\"SchedulerPopFromBackoffQ\" has no value; write SchedulerPopFromBackoffQ=true or \
                     SchedulerPopFromBackoffQ=false"),
            ),
            (
                "SchedulerPopFromBackofQ=true",
                Err(
                    "unknown feature gate \"SchedulerPopFromBackofQ\"; did you mean \"SchedulerPopFromBackoffQ\"?",
                ),
            ),
            (
                "GenericWorkload=true",
                Err("unknown feature gate \"GenericWorkload\", or one that is not supported yet; there is \
                     SchedulerPopFromBackoffQ"),
            ),
        ];
        for (text, expected) in table {
            let read = FeatureGates::parse(text).map(|gates| gates.pop_from_backoff);
            assert_eq!(read, expected.map_err(str::to_owned), "{text}");
        }
    }
}
