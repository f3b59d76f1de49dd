//! Where pods may run, and where they would rather: node selectors, node affinity, taints and tolerations, spreading, ports.

use crate::selector::{LabelSelector, Labels, Requirement};

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// New pods are kept away.
    NoSchedule,
    /// New pods are kept away if that can be avoided.
    PreferNoSchedule,
    /// New pods are kept away and running ones are removed.
    NoExecute,
}

/// A mark on a node that keeps pods away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value.
    pub value: String,
    /// What it does.
    pub effect: TaintEffect,
}

/// A pod's leave to ignore taints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The key of the taint; none together with `exists` tolerates every key.
    pub key: Option<String>,
    /// Whether any value will do.
    pub exists: bool,
    /// The value, unless `exists`.
    pub value: String,
    /// The effect; none tolerates every effect.
    pub effect: Option<TaintEffect>,
    /// For how long a NoExecute taint is tolerated; none is for ever.
    pub seconds: Option<i64>,
}

impl Toleration {
    /// Whether this toleration covers the taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let key = self.key.as_deref().unwrap_or("");
        (self.effect.is_none() || self.effect == Some(taint.effect))
            && (key.is_empty() && self.exists || key == taint.key)
            && (self.exists || self.value == taint.value)
    }
}

/// The first taint that keeps new pods with these tolerations away.
pub fn untolerated<'t>(
    taints: &'t [Taint],
    tolerations: impl Iterator<Item = &'t Toleration> + Clone,
) -> Option<&'t Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule)
        .find(|taint| !tolerations.clone().any(|toleration| toleration.tolerates(taint)))
}

/// One alternative of a required node affinity: all of its requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSelectorTerm {
    /// Conditions on the node's labels.
    pub labels: Vec<Requirement>,
    /// Conditions on the node's fields; only `metadata.name` exists.
    pub fields: Vec<Requirement>,
}

impl NodeSelectorTerm {
    /// Whether a node matches. A term without any requirement matches no node.
    pub fn matches(&self, node_name: &str, labels: &Labels) -> bool {
        let field = |r: &Requirement| r.key == "metadata.name" && r.allows(Some(node_name));
        let label = |r: &Requirement| r.allows(labels.get(&r.key).map(String::as_str));
        !(self.labels.is_empty() && self.fields.is_empty())
            && self.fields.iter().all(field)
            && self.labels.iter().all(label)
    }
}

/// What a pod demands of its node, apart from resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Constraints {
    /// Labels that the node must have.
    pub node_selector: Vec<(String, String)>,
    /// Required node affinity: one of the terms must match. None means no such demand.
    pub affinity: Option<Vec<NodeSelectorTerm>>,
    /// Taints that the pod puts up with.
    pub tolerations: Vec<Toleration>,
}

impl Constraints {
    /// Whether node selector and required node affinity accept the node; taints are a question apart.
    pub fn accept_node(&self, node_name: &str, labels: &Labels) -> bool {
        self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.affinity.as_ref().is_none_or(|terms| terms.iter().any(|t| t.matches(node_name, labels)))
    }

    /// Whether machines with exactly `flavor_labels` could do, judging only by the keys among them.
    ///
    /// A flavor describes some of the labels of its machines. Selectors on other keys cannot be
    /// judged and do not exclude it; a term that is left without requirements accepts anything.
    pub fn accept_flavor(&self, flavor_labels: &Labels) -> bool {
        let known = |key: &str| flavor_labels.contains_key(key);
        let selector = self
            .node_selector
            .iter()
            .filter(|(key, _)| known(key))
            .all(|(key, value)| flavor_labels.get(key) == Some(value));
        let affinity = self.affinity.as_ref().is_none_or(|terms| {
            terms.iter().any(|term| {
                let judged = term.labels.iter().filter(|r| known(&r.key));
                judged.clone().all(|r| r.allows(flavor_labels.get(&r.key).map(String::as_str)))
            })
        });
        selector && affinity
    }
}

/// A term of a preferred node affinity, and how much it counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreferredTerm {
    /// What a node that matches gains, 1 to 100.
    pub weight: i32,
    /// Which nodes match. A term without any requirement matches none.
    pub term: NodeSelectorTerm,
}

/// How evenly pods are to be spread over the values of a node label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadConstraint {
    /// By how many pods a domain may be ahead of the emptiest one; at least 1.
    pub max_skew: i32,
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// Whether nodes are ruled out (`DoNotSchedule`), or only ranked (`ScheduleAnyway`).
    pub is_hard: bool,
    /// Which pods of the same namespace count; an empty selector counts none, unless `match_label_keys` narrow it.
    pub selector: LabelSelector,
    /// Only pods with the same values of these labels as the pod itself count; keys that the pod lacks are left out.
    pub match_label_keys: Vec<String>,
    /// With fewer domains than this the emptiest one counts as empty; none is 1.
    pub min_domains: Option<i32>,
    /// Whether nodes that the pod's node selector and affinity exclude do not count.
    pub node_affinity_honored: bool,
    /// Whether nodes with taints that the pod does not tolerate do not count.
    pub node_taints_honored: bool,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of the node that a pod takes for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The address of the node on which it listens; `0.0.0.0` is all of them.
    pub ip: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port, never 0.
    pub port: i32,
}

impl HostPort {
    /// The address that stands for all addresses of a node.
    pub const ANY_IP: &str = "0.0.0.0";

    /// Whether both cannot be had on one node.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let same_ip = self.ip == other.ip || self.ip == Self::ANY_IP || other.ip == Self::ANY_IP;
        same_ip && self.protocol == other.protocol && self.port == other.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::Operator;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn taint(effect: TaintEffect) -> Taint {
        Taint { key: "spot".into(), value: "true".into(), effect }
    }

    fn toleration(key: Option<&str>, exists: bool, value: &str, effect: Option<TaintEffect>) -> Toleration {
        Toleration { key: key.map(Into::into), exists, value: value.into(), effect, seconds: None }
    }

    #[test]
    fn tolerations() {
        use TaintEffect::*;
        let table = [
            (toleration(Some("spot"), false, "true", Some(NoSchedule)), true),
            (toleration(Some("spot"), false, "true", None), true),
            (toleration(Some("spot"), true, "", None), true),
            (toleration(None, true, "", None), true),
            (toleration(None, false, "", None), false),
            (toleration(Some("spot"), false, "false", None), false),
            (toleration(Some("spot"), true, "", Some(NoExecute)), false),
            (toleration(Some("gpu"), true, "", None), false),
        ];
        for (toleration, expected) in table {
            assert_eq!(toleration.tolerates(&taint(NoSchedule)), expected, "{toleration:?}");
        }
    }

    #[test]
    fn prefer_no_schedule_keeps_nobody_away() {
        assert_eq!(untolerated(&[taint(TaintEffect::PreferNoSchedule)], [].iter()), None);
        assert!(untolerated(&[taint(TaintEffect::NoExecute)], [].iter()).is_some());
    }

    #[test]
    fn a_flavor_is_judged_only_by_its_own_label_keys() {
        let flavor = labels(&[("type", "spot")]);
        let wants = |key: &str, value: &str| Constraints {
            node_selector: vec![(key.into(), value.into())],
            ..Constraints::default()
        };
        assert!(wants("type", "spot").accept_flavor(&flavor));
        assert!(!wants("type", "on-demand").accept_flavor(&flavor));
        assert!(wants("zone", "a").accept_flavor(&flavor));
    }

    #[test]
    fn a_term_that_loses_all_requirements_accepts_any_flavor() {
        let not_spot =
            Requirement { key: "type".into(), operator: Operator::NotIn, values: vec!["spot".into()] };
        let in_zone = Requirement::equals("zone", "a");
        let term = |labels: Vec<Requirement>| NodeSelectorTerm { labels, fields: vec![] };
        let affinity = |terms| Constraints { affinity: Some(terms), ..Constraints::default() };
        let spot = labels(&[("type", "spot")]);
        assert!(!affinity(vec![term(vec![not_spot.clone()])]).accept_flavor(&spot));
        assert!(affinity(vec![term(vec![not_spot]), term(vec![in_zone])]).accept_flavor(&spot));
        assert!(!affinity(vec![]).accept_flavor(&spot), "no alternative at all accepts nothing");
    }

    #[test]
    fn a_node_needs_one_matching_term() {
        let term = NodeSelectorTerm { labels: vec![Requirement::equals("zone", "a")], fields: vec![] };
        let constraints =
            Constraints { affinity: Some(vec![term, NodeSelectorTerm::default()]), ..Default::default() };
        assert!(constraints.accept_node("n", &labels(&[("zone", "a")])));
        assert!(!constraints.accept_node("n", &labels(&[("zone", "b")])));
    }

    #[test]
    fn ports_clash_on_the_same_or_on_any_address() {
        let port = |ip: &str, protocol, port| HostPort { ip: ip.to_owned(), protocol, port };
        let taken = port("10.0.0.1", Protocol::Tcp, 80);
        let table = [
            (port("10.0.0.1", Protocol::Tcp, 80), true),
            (port(HostPort::ANY_IP, Protocol::Tcp, 80), true),
            (port("10.0.0.2", Protocol::Tcp, 80), false),
            (port("10.0.0.1", Protocol::Udp, 80), false),
            (port("10.0.0.1", Protocol::Tcp, 81), false),
        ];
        for (wanted, expected) in table {
            assert_eq!(wanted.conflicts_with(&taken), expected, "{wanted:?}");
            assert_eq!(taken.conflicts_with(&wanted), expected, "{wanted:?}, the other way round");
        }
    }
}
