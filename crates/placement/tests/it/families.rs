//! Pods that do not say how they want to be spread: those that belong together are spread as the profile says.

use std::collections::BTreeSet;

use gangway_model::ObjectName;
use gangway_model::scheduling::{ProfileSettings, SchedulerSettings, SpreadSettings};
use gangway_model::selector::{LabelSelector, Requirement};
use gangway_placement::{Event, Family, FamilyKind, NodeRecord, Options, Owner, PodRecord, Scheduler};

use crate::world::{at, bound, demanding, labelled, node, pod, run};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

fn host(name: &str, zone: Option<&str>, cpu: i64) -> NodeRecord {
    let mut node = node(name, cpu);
    node.labels.insert(HOSTNAME.to_owned(), name.to_owned());
    node.labels.extend(zone.map(|zone| (ZONE.to_owned(), zone.to_owned())));
    node
}

fn app(uid: &str) -> PodRecord {
    labelled(pod(uid, 100), &[("app", "a")])
}

fn owned(pod: PodRecord, kind: FamilyKind, name: &str) -> PodRecord {
    PodRecord { owner: Some(Owner { kind, name: name.into() }), ..pod }
}

fn family(kind: FamilyKind, namespace: &str, name: &str, labels: &[(&str, &str)]) -> Family {
    let requirements = labels.iter().map(|(key, value)| Requirement::equals(key, value)).collect();
    Family { kind, name: ObjectName::new(namespace, name), selector: LabelSelector { requirements } }
}

fn service(labels: &[(&str, &str)]) -> Family {
    family(FamilyKind::Service, "default", "s", labels)
}

/// As the system does it, but required of nodes that they have all labels.
fn listed() -> SpreadSettings {
    SpreadSettings { is_system: false, ..SpreadSettings::default() }
}

/// No zone may have more than one pod more than another.
fn hard() -> SpreadSettings {
    let mut constraint = SpreadSettings::default().default_constraints.remove(1);
    (constraint.is_hard, constraint.max_skew) = (true, 1);
    SpreadSettings { default_constraints: vec![constraint], is_system: false }
}

fn scheduler(spread: SpreadSettings, score: &[(&str, i64)], seed: u64) -> Scheduler {
    let score = score.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    let profile = ProfileSettings { spread, score, ..ProfileSettings::default() };
    let settings = SchedulerSettings { profiles: vec![profile], ..SchedulerSettings::default() };
    Scheduler::new(Options { settings, seed })
}

/// The nodes that spreading alone likes best.
fn liked(spread: &SpreadSettings, nodes: &[NodeRecord], families: &[Family], pod: &PodRecord) -> String {
    let chosen = (0..32).map(|seed| {
        let mut scheduler = scheduler(spread.clone(), &[("PodTopologySpread", 1)], seed);
        let mates = [bound(&app("mate"), "n1"), bound(&labelled(app("other"), &[("app", "b")]), "n2")];
        let nodes = nodes.iter().cloned().map(Event::NodeApplied);
        let pods = mates.iter().chain([pod]).cloned().map(Event::PodApplied);
        let families = families.iter().cloned().map(Event::FamilyApplied);
        for event in nodes.chain(pods).chain(families).chain([Event::Synced]) {
            scheduler.apply(event, at(0));
        }
        run(&mut scheduler, at(0)).binds.pop().map(|(_, node)| node).unwrap_or_default()
    });
    chosen.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
}

#[test]
fn who_belongs_together_is_spread() {
    let nodes = [host("n1", Some("a"), 1000), host("n2", Some("b"), 1000)];
    let set = |kind, name, labels: &[(&str, &str)]| family(kind, "default", name, labels);
    let own = demanding(app("p"), |demands| {
        let mut constraint = SpreadSettings::default().default_constraints.remove(0);
        constraint.selector.requirements.push(Requirement::equals("app", "b"));
        demands.spread.push(constraint);
    });
    use FamilyKind::{ReplicaSet, ReplicationController, StatefulSet};
    let table: Vec<(&str, Vec<Family>, PodRecord, &str)> = vec![
        ("nobody says who does", vec![], app("p"), "n1 n2"),
        ("a Service", vec![service(&[("app", "a")])], app("p"), "n2"),
        ("a Service for others", vec![service(&[("app", "b")])], app("p"), "n1 n2"),
        ("a Service without a selector", vec![service(&[])], app("p"), "n1 n2"),
        (
            "a Service elsewhere",
            vec![family(FamilyKind::Service, "other", "s", &[("app", "a")])],
            app("p"),
            "n1 n2",
        ),
        (
            "two Services: who is in both",
            vec![service(&[("app", "a")]), family(FamilyKind::Service, "default", "t", &[("tier", "x")])],
            labelled(app("p"), &[("app", "a"), ("tier", "x")]),
            "n1 n2",
        ),
        ("its owner", vec![set(ReplicaSet, "o", &[("app", "a")])], owned(app("p"), ReplicaSet, "o"), "n2"),
        (
            "its owner of another kind",
            vec![set(StatefulSet, "o", &[("app", "a")])],
            owned(app("p"), StatefulSet, "o"),
            "n2",
        ),
        (
            "its owner of an old kind",
            vec![set(ReplicationController, "o", &[("app", "a")])],
            owned(app("p"), ReplicationController, "o"),
            "n2",
        ),
        ("not its owner", vec![set(ReplicaSet, "o", &[("app", "a")])], app("p"), "n1 n2"),
        (
            "not its owner, but with that name",
            vec![set(StatefulSet, "o", &[("app", "a")])],
            owned(app("p"), ReplicaSet, "o"),
            "n1 n2",
        ),
        ("it says itself how", vec![service(&[("app", "a")])], own, "n1"),
    ];
    for (name, families, pod, expected) in table {
        assert_eq!(liked(&SpreadSettings::default(), &nodes, &families, &pod), expected, "{name}");
    }
}

#[test]
fn nodes_without_a_zone_are_ranked_by_the_defaults_of_the_system_alone() {
    let nodes = [host("n1", Some("a"), 1000), host("n2", None, 1000)];
    let families = [service(&[("app", "a")])];
    assert_eq!(liked(&SpreadSettings::default(), &nodes, &families, &app("p")), "n2");
    assert_eq!(liked(&listed(), &nodes, &families, &app("p")), "n1");
}

/// One zone is full and the other ahead.
fn kept_out(families: Vec<Family>, waits: PodRecord) -> Scheduler {
    let mut scheduler = scheduler(hard(), &[], 0);
    let nodes = [host("n1", Some("a"), 1000), host("n2", Some("b"), 0)].map(Event::NodeApplied);
    let pods = [bound(&app("mate"), "n1"), waits].map(Event::PodApplied);
    let families = families.into_iter().map(Event::FamilyApplied);
    for event in nodes.into_iter().chain(pods).chain(families).chain([Event::Synced]) {
        scheduler.apply(event, at(0));
    }
    scheduler
}

#[test]
fn a_listed_constraint_rules_nodes_out_until_nobody_says_that_they_belong_together() {
    let replicas = |labels: &[(&str, &str)]| family(FamilyKind::ReplicaSet, "default", "o", labels);
    let mine = || owned(app("p"), FamilyKind::ReplicaSet, "o");
    let name = ObjectName::new("default", "s");
    let b = &[("app", "b")];
    let table = [
        ("goes", service(&[("app", "a")]), app("p"), Event::FamilyDeleted(FamilyKind::Service, name)),
        ("is for others", service(&[("app", "a")]), app("p"), Event::FamilyApplied(service(b))),
        (
            "goes",
            replicas(&[("app", "a")]),
            mine(),
            Event::FamilyDeleted(FamilyKind::ReplicaSet, ObjectName::new("default", "o")),
        ),
        ("is for others", replicas(&[("app", "a")]), mine(), Event::FamilyApplied(replicas(b))),
    ];
    for (name, family, pod, event) in table {
        let mut scheduler = kept_out(vec![family.clone()], pod);
        let done = run(&mut scheduler, at(0));
        assert_eq!(done.binds, [], "{name}: {family:?}");
        assert_eq!(
            done.reports[0].1,
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread \
             constraints. preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, \
             1 Preemption is not helpful for scheduling."
        );
        let same = Event::FamilyApplied(family);
        assert!(!scheduler.apply(same, at(60)), "{name}: nothing is new");
        assert!(scheduler.apply(event, at(60)), "{name}: it may be tried again");
        assert_eq!(run(&mut scheduler, at(60)).bound_pods(), ["p"], "{name}");
    }
}

#[test]
fn a_family_that_comes_later_counts_for_who_waits_by_then() {
    let gated = PodRecord { gates: ["quota".to_owned()].into(), ..app("p") };
    let mut scheduler = kept_out(vec![], gated.clone());
    run(&mut scheduler, at(0));
    scheduler.apply(Event::FamilyApplied(service(&[("app", "a")])), at(1));
    scheduler.apply(Event::PodApplied(PodRecord { gates: Box::default(), ..gated }), at(2));
    assert_eq!(run(&mut scheduler, at(2)).binds, []);
    // And for those whose binding fails.
    let mut scheduler = kept_out(vec![], app("p"));
    let done = run(&mut scheduler, at(0));
    scheduler.apply(Event::FamilyApplied(service(&[("app", "a")])), at(1));
    scheduler.apply(Event::Outcome(done.ids[0], gangway_placement::Outcome::Rejected), at(1));
    assert_eq!(run(&mut scheduler, at(60)).binds, []);
}
