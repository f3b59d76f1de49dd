//! Which fake nodes there are, and how a command line says it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;

use super::behaviour::parse_duration;

/// One node to pretend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FakeNode {
    /// The Node's name.
    pub name: String,
    /// Labels of the Node; `kubernetes.io/hostname`, `os` and `arch` are added where they are missing.
    pub labels: BTreeMap<String, String>,
    /// Taints of the Node.
    pub taints: Vec<Taint>,
    /// Capacity and allocatable by resource name.
    pub capacity: BTreeMap<String, String>,
    /// The Node is deleted, and answers no more, this long after its registration.
    pub vanish_after: Option<Duration>,
}

/// Why a description of fake nodes cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A part has no `=`.
    #[error("{0:?} is not of the form key=value")]
    NotKeyValue(String),
    /// The number of nodes is none.
    #[error("count={0} is not a number from 1 to 100000")]
    Count(String),
    /// A taint is not of the form that `kubectl taint` takes.
    #[error("taint {0:?} is not of the form key[=value]:NoSchedule, PreferNoSchedule or NoExecute")]
    Taint(String),
    /// A time cannot be read.
    #[error("vanish-after={0} is not a time such as 30s")]
    VanishAfter(String),
    /// An amount is empty or contains what no quantity can.
    #[error("{resource}={amount} is not an amount such as 8, 500m or 16Gi")]
    Amount {
        /// The resource's name.
        resource: String,
        /// What was given.
        amount: String,
    },
}

const MOST_NODES: usize = 100_000;
const DEFAULT_CAPACITY: [(&str, &str); 3] = [("cpu", "8"), ("memory", "32Gi"), ("pods", "110")];

impl FakeNode {
    /// The nodes of one description, such as
    /// `count=3,name=gpu,cpu=8,memory=16Gi,nvidia.com/gpu=2,label:zone=a,taint:spot=true:NoSchedule,vanish-after=30s`.
    ///
    /// A plain number is a count. Names are `<name>-0`, `<name>-1`, …, with `fake` for `name` unless it is given.
    pub fn parse(description: &str) -> Result<Vec<Self>, ParseError> {
        let mut base = "fake".to_owned();
        let mut count = 1;
        let mut node = Self {
            capacity: DEFAULT_CAPACITY.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Self::default()
        };
        for part in description.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            if let Some(taint) = part.strip_prefix("taint:") {
                node.taints.push(parse_taint(taint)?);
                continue;
            }
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                count = parse_count(part)?;
                continue;
            }
            let (key, value) =
                part.split_once('=').ok_or_else(|| ParseError::NotKeyValue(part.to_owned()))?;
            match key {
                "count" => count = parse_count(value)?,
                "name" => base = value.to_owned(),
                "vanish-after" => {
                    let time =
                        parse_duration(value).ok_or_else(|| ParseError::VanishAfter(value.to_owned()))?;
                    node.vanish_after = Some(time);
                }
                _ => match key.strip_prefix("label:") {
                    Some(label) => drop(node.labels.insert(label.to_owned(), value.to_owned())),
                    None => drop(node.capacity.insert(key.to_owned(), parse_amount(key, value)?)),
                },
            }
        }
        Ok((0..count).map(|index| Self { name: format!("{base}-{index}"), ..node.clone() }).collect())
    }
}

/// The nodes of several descriptions, separated by `;`. Names that occur twice are numbered on.
pub fn parse_nodes(descriptions: &str) -> Result<Vec<FakeNode>, ParseError> {
    let mut nodes: Vec<FakeNode> = Vec::new();
    let mut next_index: BTreeMap<String, usize> = BTreeMap::new();
    for description in descriptions.split(';').filter(|description| !description.trim().is_empty()) {
        for mut node in FakeNode::parse(description)? {
            let base = node.name.rsplit_once('-').map_or(node.name.as_str(), |(base, _)| base).to_owned();
            let index = next_index.entry(base.clone()).or_default();
            node.name = format!("{base}-{index}");
            *index += 1;
            nodes.push(node);
        }
    }
    Ok(nodes)
}

fn parse_count(text: &str) -> Result<usize, ParseError> {
    text.parse()
        .ok()
        .filter(|count| (1..=MOST_NODES).contains(count))
        .ok_or_else(|| ParseError::Count(text.to_owned()))
}

/// A first look only: the API server has the last word on quantities.
fn parse_amount(resource: &str, amount: &str) -> Result<String, ParseError> {
    let plausible = amount.starts_with(|c: char| c.is_ascii_digit())
        && amount.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-'));
    let error = || ParseError::Amount { resource: resource.to_owned(), amount: amount.to_owned() };
    plausible.then(|| amount.to_owned()).ok_or_else(error)
}

fn parse_taint(text: &str) -> Result<Taint, ParseError> {
    let error = || ParseError::Taint(text.to_owned());
    let (front, effect) = text.rsplit_once(':').ok_or_else(error)?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) || front.is_empty() {
        return Err(error());
    }
    let (key, value) = match front.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (front, None),
    };
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), ..Taint::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_description() {
        let text = "count=2,cpu=4,nvidia.com/gpu=2,label:zone=a,taint:spot=true:NoSchedule,taint:x:NoExecute,vanish-after=30s";
        let nodes = FakeNode::parse(text).unwrap();
        assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["fake-0", "fake-1"]);
        let node = &nodes[1];
        assert_eq!(node.capacity["cpu"], "4");
        assert_eq!(node.capacity["memory"], "32Gi");
        assert_eq!(node.capacity["nvidia.com/gpu"], "2");
        assert_eq!(node.labels["zone"], "a");
        assert_eq!(node.taints[0].value.as_deref(), Some("true"));
        assert_eq!((node.taints[1].key.as_str(), node.taints[1].effect.as_str()), ("x", "NoExecute"));
        assert_eq!(node.vanish_after, Some(Duration::from_secs(30)));
    }

    #[test]
    fn a_number_is_a_count_and_names_stay_unique() {
        let names = |text: &str| -> Vec<String> {
            parse_nodes(text).unwrap().into_iter().map(|node| node.name).collect()
        };
        assert_eq!(names("3"), ["fake-0", "fake-1", "fake-2"]);
        assert_eq!(names("1; 1,cpu=2; name=big,count=1"), ["fake-0", "fake-1", "big-0"]);
    }

    #[test]
    fn bad_descriptions_are_named() {
        for text in
            ["count=0", "count=x", "cpu", "cpu=", "cpu=-1", "taint:a", "taint:a=b:Never", "vanish-after=soon"]
        {
            let error = FakeNode::parse(text).unwrap_err().to_string();
            assert!(error.contains(text.rsplit([':', '=']).next().unwrap()), "{text}: {error}");
        }
    }
}
