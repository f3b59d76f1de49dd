//! Flavors and the nodes that they describe: quota of machines that are not there starts nothing.

use std::collections::BTreeMap;

use gangway_model::FlavorName;
use gangway_model::constraints::{Constraints, Taint, TaintEffect, untolerated};
use gangway_model::queues::{ClusterQueue, Flavor, ResourceGroup};
use gangway_placement::NodeRecord;
use serde_json::json;

use super::finding::{Area, Finding, counted, first_of};
use super::fix;

/// What there is of a flavor's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Nodes {
    /// So many take its pods.
    There(usize),
    /// No node has its labels.
    NoLabels,
    /// The nodes with its labels keep its pods away: this one by this taint.
    Tainted(String, Taint),
    /// The nodes with its labels take no new pods: this one for example.
    Cordoned(String),
}

/// The nodes of a flavor. A node may have the taints that the flavor lists, which Workloads have to tolerate, and those that it
/// tolerates for them.
fn nodes_of(flavor: &Flavor, nodes: &[NodeRecord]) -> Nodes {
    let labels = flavor.node_labels.iter().map(|(key, value)| (key.clone(), value.clone()));
    let wanted = Constraints { node_selector: labels.collect(), ..Constraints::default() };
    let mut there = 0;
    let mut without = Nodes::NoLabels;
    for node in nodes.iter().filter(|node| wanted.accept_node(node.name.as_str(), &node.labels)) {
        let unlisted: Vec<Taint> =
            node.taints.iter().filter(|taint| !flavor.node_taints.contains(taint)).cloned().collect();
        match untolerated(&unlisted, flavor.tolerations.iter()) {
            _ if node.unschedulable => without = Nodes::Cordoned(node.name.to_string()),
            None => there += 1,
            Some(taint) if !matches!(without, Nodes::Cordoned(_)) => {
                without = Nodes::Tainted(node.name.to_string(), taint.clone());
            }
            Some(_) => {}
        }
    }
    if there > 0 { Nodes::There(there) } else { without }
}

/// Looks for the nodes of every flavor that a queue uses.
pub(super) fn examine(flavors: &[&Flavor], queues: &[&ClusterQueue], nodes: &[NodeRecord]) -> Vec<Finding> {
    if nodes.is_empty() {
        let fix = "gangway node --fake count=4,cpu=16,memory=64Gi";
        let finding = Finding::problem(Area::Flavors, "", "there is no node", fix);
        let why = "Jobs are admitted, and their pods wait. The line plays nodes that only pretend, to try things out.";
        return vec![finding.because(why)];
    }
    let known: BTreeMap<&FlavorName, (&Flavor, Nodes)> =
        flavors.iter().map(|flavor| (&flavor.name, (*flavor, nodes_of(flavor, nodes)))).collect();
    let mut findings = Vec::new();
    let mut told: Vec<&FlavorName> = Vec::new();
    for queue in queues {
        for group in &queue.resource_groups {
            let Some(without) = none_has_nodes(group, &known) else { continue };
            told.extend(without.iter().map(|(flavor, _)| &flavor.name));
            findings.push(dead_queue(queue, group, &without, nodes));
        }
    }
    for queue in queues {
        for quotas in queue.resource_groups.iter().flat_map(|group| &group.flavors) {
            if told.contains(&&quotas.flavor) {
                continue;
            }
            let Some((flavor, standing)) = known.get(&quotas.flavor) else { continue };
            if let Some(what) = lack(flavor, standing) {
                told.push(&flavor.name);
                let place = format!("ResourceFlavor {}", flavor.name);
                let finding = Finding::warning(Area::Flavors, place, what, mend(flavor, standing, nodes));
                findings.push(finding.because(format!(
                    "ClusterQueue {} gives quota of it; pods that start there wait until a node comes.",
                    queue.name
                )));
            }
        }
    }
    if findings.is_empty() {
        let used = queues.iter().flat_map(|queue| &queue.resource_groups).flat_map(|group| &group.flavors);
        let mut names: Vec<&FlavorName> = used.map(|quotas| &quotas.flavor).collect();
        names.sort();
        names.dedup();
        let of = counted(nodes.len(), "node");
        findings.push(Finding::ok(
            Area::Flavors,
            format!("{} in use, each with nodes among {of}", counted(names.len(), "flavor")),
        ));
    }
    findings
}

type Lacking<'f> = Vec<(&'f Flavor, &'f Nodes)>;

/// The flavors of a group if none of them has a node; those that do not exist are told elsewhere.
fn none_has_nodes<'f>(
    group: &ResourceGroup,
    known: &'f BTreeMap<&FlavorName, (&'f Flavor, Nodes)>,
) -> Option<Lacking<'f>> {
    let of_group = group.flavors.iter().map(|quotas| known.get(&quotas.flavor));
    let flavors: Lacking<'f> =
        of_group.map(|known| known.map(|(flavor, nodes)| (*flavor, nodes))).collect::<Option<_>>()?;
    let has_none = !flavors.is_empty() && flavors.iter().all(|(_, nodes)| !matches!(nodes, Nodes::There(_)));
    has_none.then_some(flavors)
}

fn dead_queue(
    queue: &ClusterQueue,
    group: &ResourceGroup,
    without: &Lacking<'_>,
    nodes: &[NodeRecord],
) -> Finding {
    let resources: Vec<String> = group.resources.iter().map(ToString::to_string).collect();
    let what = format!("no node suits any of its flavors for {}", first_of(&resources));
    let lacks: Vec<String> = without
        .iter()
        .filter_map(|(flavor, standing)| Some(format!("flavor {}: {}", flavor.name, lack(flavor, standing)?)))
        .collect();
    let fix = without.first().map(|(flavor, standing)| mend(flavor, standing, nodes)).unwrap_or_default();
    let why = format!(
        "{}. What is admitted there waits for nodes, unless something adds them when pods wait.",
        first_of(&lacks)
    );
    Finding::problem(Area::Flavors, format!("ClusterQueue {}", queue.name), what, fix).because(why)
}

/// What keeps a flavor without nodes, in words.
fn lack(flavor: &Flavor, standing: &Nodes) -> Option<String> {
    Some(match standing {
        Nodes::There(_) => return None,
        Nodes::NoLabels => {
            let labels: Vec<String> =
                flavor.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("no node has its labels {}", labels.join(","))
        }
        Nodes::Tainted(node, taint) => {
            format!(
                "its nodes have taints that it neither lists nor tolerates, {node} has {}",
                taint_text(taint)
            )
        }
        Nodes::Cordoned(node) => format!("its nodes take no new pods, {node} is cordoned"),
    })
}

const fn effect_text(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

fn taint_text(taint: &Taint) -> String {
    format!("{}={}:{}", taint.key, taint.value, effect_text(taint.effect))
}

/// A line that gives a flavor nodes.
fn mend(flavor: &Flavor, standing: &Nodes, nodes: &[NodeRecord]) -> String {
    match standing {
        Nodes::Cordoned(node) => format!("kubectl uncordon {}", fix::word(node)),
        Nodes::Tainted(_, taint) => {
            let toleration = json!({
                "key": taint.key, "operator": "Equal", "value": taint.value, "effect": effect_text(taint.effect),
            });
            let operation = match flavor.tolerations.is_empty() {
                true => json!({"op": "add", "path": "/spec/tolerations", "value": [toleration]}),
                false => json!({"op": "add", "path": "/spec/tolerations/-", "value": toleration}),
            };
            fix::change_fields("resourceflavor", flavor.name.as_str(), &json!([operation]))
        }
        Nodes::NoLabels | Nodes::There(_) => mend_labels(flavor, nodes),
    }
}

/// Where a node has labels of the same keys it is likely the flavor that is wrong, else the node.
fn mend_labels(flavor: &Flavor, nodes: &[NodeRecord]) -> String {
    let wanted = &flavor.node_labels;
    let alike = nodes.iter().find(|node| wanted.keys().all(|key| node.labels.contains_key(key)));
    if let Some(node) = alike {
        let labels: BTreeMap<&String, &String> =
            wanted.keys().filter_map(|key| node.labels.get_key_value(key)).collect();
        return fix::merge(
            "resourceflavor",
            flavor.name.as_str(),
            None,
            &json!({"spec": {"nodeLabels": labels}}),
        );
    }
    let labels: Vec<String> =
        wanted.iter().map(|(key, value)| fix::word(&format!("{key}={value}"))).collect();
    let node = nodes.first().map_or("NODE", |node| node.name.as_str());
    format!("kubectl label node {} --overwrite {}", fix::word(node), labels.join(" "))
}

#[cfg(test)]
mod tests {
    use gangway_model::Requests;
    use gangway_model::constraints::Toleration;
    use gangway_model::selector::Labels;

    use super::super::finding::Level;
    use super::super::queues::tests::queue;
    use super::*;

    fn labels(texts: &[&str]) -> Labels {
        let pair = |text: &&str| text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        texts.iter().filter_map(pair).collect()
    }

    fn taint(key: &str) -> Taint {
        Taint { key: key.to_owned(), value: "true".to_owned(), effect: TaintEffect::NoSchedule }
    }

    fn node(name: &str, texts: &[&str], taints: &[&str]) -> NodeRecord {
        NodeRecord {
            name: name.into(),
            labels: labels(texts),
            taints: taints.iter().map(|key| taint(key)).collect(),
            unschedulable: false,
            allocatable: Requests::new(),
        }
    }

    fn flavor(name: &str, texts: &[&str], listed: &[&str], tolerated: &[&str]) -> Flavor {
        let tolerated = tolerated.iter().map(|key| Toleration {
            key: Some((*key).to_owned()),
            exists: true,
            value: String::new(),
            effect: None,
            seconds: None,
        });
        Flavor {
            name: name.into(),
            node_labels: labels(texts),
            node_taints: listed.iter().map(|key| taint(key)).collect(),
            tolerations: tolerated.collect(),
            topology: None,
        }
    }

    #[test]
    fn labels_and_taints_decide_which_nodes_a_flavor_has() {
        let cordoned = NodeRecord { unschedulable: true, ..node("c", &["tier=spot"], &[]) };
        let spot = ["tier=spot"];
        let table = [
            ("any node", flavor("f", &[], &[], &[]), vec![node("a", &[], &[])], Nodes::There(1)),
            ("its labels", flavor("f", &spot, &[], &[]), vec![node("a", &spot, &[])], Nodes::There(1)),
            (
                "other labels",
                flavor("f", &spot, &[], &[]),
                vec![node("a", &["tier=big"], &[])],
                Nodes::NoLabels,
            ),
            (
                "a taint",
                flavor("f", &[], &[], &[]),
                vec![node("a", &[], &["x"])],
                Nodes::Tainted("a".into(), taint("x")),
            ),
            (
                "a taint that it lists",
                flavor("f", &[], &["x"], &[]),
                vec![node("a", &[], &["x"])],
                Nodes::There(1),
            ),
            (
                "one that it tolerates",
                flavor("f", &[], &[], &["x"]),
                vec![node("a", &[], &["x"])],
                Nodes::There(1),
            ),
            (
                "one of two",
                flavor("f", &[], &["x"], &[]),
                vec![node("a", &[], &["x", "y"]), node("b", &[], &[])],
                Nodes::There(1),
            ),
            ("cordoned", flavor("f", &spot, &[], &[]), vec![cordoned], Nodes::Cordoned("c".into())),
        ];
        for (name, flavor, nodes, expected) in table {
            assert_eq!(nodes_of(&flavor, &nodes), expected, "{name}");
        }
    }

    fn told(
        flavors: &[Flavor],
        quotas: &[(&str, i64)],
        nodes: &[NodeRecord],
    ) -> Vec<(Level, String, Option<String>)> {
        let queue = queue("team", quotas);
        let findings = examine(&flavors.iter().collect::<Vec<_>>(), &[&queue], nodes);
        findings.into_iter().map(|finding| (finding.level, finding.what, finding.fix)).collect()
    }

    #[test]
    fn a_queue_without_any_node_is_a_problem_and_a_flavor_a_warning() {
        let (spot, any) = (flavor("spot", &["tier=spot"], &[], &[]), flavor("any", &[], &[], &[]));
        let nodes = [node("a", &[], &[])];
        let alone = told(std::slice::from_ref(&spot), &[("spot", 1)], &nodes);
        let fix = "kubectl label node a --overwrite tier=spot";
        assert_eq!(
            alone,
            [(Level::Problem, "no node suits any of its flavors for cpu".into(), Some(fix.into()))]
        );
        let beside = told(&[spot.clone(), any.clone()], &[("spot", 1), ("any", 1)], &nodes);
        assert_eq!(beside, [(Level::Warning, "no node has its labels tier=spot".into(), Some(fix.into()))]);
        let unused = told(&[spot, any], &[("any", 1)], &nodes);
        assert_eq!(unused, [(Level::Ok, "1 flavor in use, each with nodes among 1 node".into(), None)]);
        assert_eq!(told(&[], &[], &[])[0].1, "there is no node");
    }

    #[test]
    fn what_mends_a_flavor() {
        let fix = |flavor: Flavor, node: NodeRecord| {
            let name = flavor.name.to_string();
            told(&[flavor], &[(&name, 1)], &[node]).remove(0).2.unwrap_or_default()
        };
        assert_eq!(
            fix(flavor("f", &["tier=spto"], &[], &[]), node("a", &["tier=spot", "zone=b"], &[])),
            r#"kubectl patch resourceflavor f --type=merge -p '{"spec":{"nodeLabels":{"tier":"spot"}}}'"#
        );
        let toleration = r#"{"effect":"NoSchedule","key":"x","operator":"Equal","value":"true"}"#;
        assert_eq!(
            fix(flavor("f", &[], &[], &[]), node("a", &[], &["x"])),
            format!(
                r#"kubectl patch resourceflavor f --type=json -p '[{{"op":"add","path":"/spec/tolerations","value":[{toleration}]}}]'"#
            )
        );
        assert!(fix(flavor("f", &[], &[], &["y"]), node("a", &[], &["x"])).contains("/spec/tolerations/-"));
        let cordoned = NodeRecord { unschedulable: true, ..node("a", &[], &[]) };
        assert_eq!(fix(flavor("f", &[], &[], &[]), cordoned), "kubectl uncordon a");
    }
}
