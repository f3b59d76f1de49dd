//! Each plugin by itself, in tables: which nodes it rules out, which it likes, and what wakes a pod that it rejected.

mod filters;
mod scores;
mod spreading;
mod wakes;
mod wakes_spreading;

use gangway_model::constraints::{
    HostPort, NodeSelectorTerm, Protocol, SpreadConstraint, Taint, TaintEffect, Toleration,
};
use gangway_model::scheduling::{ProfileSettings, SchedulerSettings};
use gangway_model::selector::{LabelSelector, Operator, Requirement};
use gangway_placement::{Event, NodeRecord, Options, PodRecord, Scheduler, State};

use crate::world::{at, demanding, run, synced};

pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// The node with this label too.
fn with_label(mut node: NodeRecord, key: &str, value: &str) -> NodeRecord {
    node.labels.insert(key.to_owned(), value.to_owned());
    node
}

/// A node in a zone, with its hostname.
fn in_zone(node: NodeRecord, zone: &str) -> NodeRecord {
    let name = node.name.to_string();
    with_label(with_label(node, "zone", zone), HOSTNAME, &name)
}

fn tainted(mut node: NodeRecord, key: &str, effect: TaintEffect) -> NodeRecord {
    node.taints.push(Taint { key: key.to_owned(), value: "v".to_owned(), effect });
    node
}

fn cordoned(node: NodeRecord) -> NodeRecord {
    NodeRecord { unschedulable: true, ..node }
}

fn tolerating(pod: PodRecord, key: &str, effect: Option<TaintEffect>) -> PodRecord {
    let toleration = Toleration {
        key: Some(key.to_owned()).filter(|key| !key.is_empty()),
        exists: true,
        value: String::new(),
        effect,
        seconds: None,
    };
    demanding(pod, |demands| demands.constraints.tolerations.push(toleration))
}

fn selecting(pod: PodRecord, key: &str, value: &str) -> PodRecord {
    let pair = (key.to_owned(), value.to_owned());
    demanding(pod, |demands| demands.constraints.node_selector.push(pair))
}

fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement { key: key.to_owned(), operator, values: values.iter().map(|v| (*v).to_owned()).collect() }
}

fn term(labels: &[Requirement], fields: &[Requirement]) -> NodeSelectorTerm {
    NodeSelectorTerm { labels: labels.to_vec(), fields: fields.to_vec() }
}

/// A pod that asks for a port of its node.
fn listening(pod: PodRecord, ip: &str, protocol: Protocol, port: i32) -> PodRecord {
    demanding(pod, |demands| demands.ports.push(HostPort { ip: ip.to_owned(), protocol, port }))
}

/// Spread pods of this app over the values of a label, none ahead by more than one.
fn over(key: &str, app: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        is_hard: true,
        selector: LabelSelector { requirements: vec![Requirement::equals("app", app)] },
        match_label_keys: Vec::new(),
        min_domains: None,
        node_affinity_honored: true,
        node_taints_honored: false,
    }
}

fn spread(pod: PodRecord, constraints: &[SpreadConstraint]) -> PodRecord {
    demanding(pod, |demands| demands.spread.extend_from_slice(constraints))
}

/// What a lone node says of the pod: `fits`, or why not.
fn verdict(node: NodeRecord, bound: Vec<PodRecord>, pod: PodRecord) -> String {
    let mut scheduler = synced(vec![node], bound.into_iter().chain([pod]).collect());
    let done = run(&mut scheduler, at(0));
    match (done.binds.as_slice(), done.reports.as_slice()) {
        ([_], []) => "fits".to_owned(),
        ([], [(_, told)]) => {
            let told = told.strip_prefix("0/1 nodes are available: 1 ").unwrap_or(told);
            told.split(". preemption:").next().unwrap_or(told).to_owned()
        }
        _ => panic!("one decision: {done:?}"),
    }
}

/// The nodes that could take the pod: asked one by one, with the others cordoned, which changes nothing else.
fn fitting(nodes: &[NodeRecord], bound: &[PodRecord], pod: &PodRecord) -> Vec<String> {
    let is_fitting = |chosen: &&NodeRecord| {
        let others = nodes.iter().map(|node| match node.name == chosen.name {
            true => node.clone(),
            false => cordoned(node.clone()),
        });
        let pods = bound.iter().chain([pod]).cloned().collect();
        !run(&mut synced(others.collect(), pods), at(0)).binds.is_empty()
    };
    nodes.iter().filter(is_fitting).map(|node| node.name.to_string()).collect()
}

/// The node that one scorer alone likes best; several where the choice depends on the seed.
fn liked_by(scorer: &str, nodes: &[NodeRecord], bound: &[PodRecord], pod: &PodRecord) -> Vec<String> {
    let chosen = (0..64).map(|seed| {
        let profile = ProfileSettings { score: vec![(scorer.to_owned(), 1)], ..ProfileSettings::default() };
        let settings = SchedulerSettings { profiles: vec![profile], ..SchedulerSettings::default() };
        let mut scheduler = Scheduler::new(Options { settings, seed });
        let nodes = nodes.iter().cloned().map(Event::NodeApplied);
        let pods = bound.iter().chain([pod]).cloned().map(Event::PodApplied);
        for event in nodes.chain(pods).chain([Event::Synced]) {
            scheduler.apply(event, at(0));
        }
        run(&mut scheduler, at(0)).binds.pop().map(|(_, node)| node).unwrap_or_default()
    });
    let chosen: std::collections::BTreeSet<String> = chosen.collect();
    chosen.into_iter().collect()
}

/// The pods that an event wakes, of those that wait since nothing takes them.
fn woken(nodes: &[NodeRecord], bound: &[PodRecord], waiting: &[PodRecord], event: Event) -> Vec<String> {
    let pods = bound.iter().chain(waiting).cloned().collect();
    let mut scheduler = synced(nodes.to_vec(), pods);
    let binds = run(&mut scheduler, at(0)).binds;
    assert!(binds.is_empty(), "all have to wait at first: {binds:?}");
    scheduler.apply(event, at(60));
    let is_parked = |pod: &&PodRecord| {
        matches!(scheduler.explain(&pod.uid).state, State::Unschedulable { .. } | State::Gated(_))
    };
    waiting.iter().filter(|pod| !is_parked(pod)).map(|pod| pod.uid.to_string()).collect()
}
