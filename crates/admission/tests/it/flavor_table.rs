//! How a flavor is chosen, row by row.

use gangway_admission::{Action, Event, Verdict};
use gangway_model::queues::{Flavor, ResourceGroup};
use gangway_model::reasons::PendingReason::{self, ExceedsMaxQuota, NoMatchingFlavor, WaitingForQuota};
use gangway_model::selector::{Operator, Requirement};
use gangway_model::workload::{Assignment, PodSet, State, Workload};

use crate::build::*;
use crate::world::{Fate, World};

/// A world with one ClusterQueue `cq`, one LocalQueue `ns/lq`, and these flavors.
pub fn one_queue(flavors: Vec<Flavor>, groups: Vec<ResourceGroup>) -> World {
    let mut world = World::new();
    for flavor in flavors {
        world.administer(Event::Flavor(flavor));
    }
    world.administer(Event::Namespace(namespace("ns", &[])));
    world.administer(Event::ClusterQueue(Box::new(cluster_queue("cq", groups))));
    world.administer(Event::LocalQueue(local_queue("ns", "lq", "cq")));
    world.deliver_all();
    world
}

/// A world with `milli` cpu of one flavor.
pub fn cpu_queue(milli: i64) -> World {
    one_queue(vec![flavor("default")], vec![group(&["cpu"], &[("default", &[milli])])])
}

pub fn submit(world: &mut World, workload: Workload) {
    world.put(workload);
    world.deliver_all();
}

/// Decides, and carries everything out, until nothing is left to do.
pub fn run(world: &mut World) {
    world.settle();
    crate::invariants::check(world);
}

pub fn state<'w>(world: &'w World, uid: &str) -> &'w State {
    &world.store.workload(uid).state
}

pub fn waits_for(world: &World, uid: &str) -> PendingReason {
    match state(world, uid) {
        State::Pending(pending) => pending.waiting.as_ref().expect("it says why it waits").reason,
        other => panic!("{uid} does not wait: {other:?}"),
    }
}

pub fn waiting_message(world: &World, uid: &str) -> String {
    match state(world, uid) {
        State::Pending(pending) => {
            pending.waiting.as_ref().expect("it says why it waits").message.to_string()
        }
        other => panic!("{uid} does not wait: {other:?}"),
    }
}

pub fn assignments(world: &World, uid: &str) -> Vec<Assignment> {
    state(world, uid)
        .reservation()
        .unwrap_or_else(|| panic!("{uid} has no quota"))
        .admission
        .pod_sets
        .to_vec()
}

/// `podset: resource=flavor …` for each podSet.
fn shown(world: &World, uid: &str) -> Vec<String> {
    let one = |assignment: Assignment| {
        let flavors = assignment.flavors.iter().map(|(resource, flavor)| format!("{resource}={flavor}"));
        format!("{}: {}", assignment.name, flavors.collect::<Vec<_>>().join(" "))
    };
    assignments(world, uid).into_iter().map(one).collect()
}

fn decide_one(flavors: Vec<Flavor>, groups: Vec<ResourceGroup>, pod_sets: Vec<PodSet>) -> World {
    let mut world = one_queue(flavors, groups);
    submit(&mut world, workload("w", pod_sets));
    run(&mut world);
    world
}

fn two_flavors() -> Vec<Flavor> {
    vec![labelled("spot", "type", "spot"), labelled("steady", "type", "steady")]
}

fn two_quotas(first: i64, second: i64) -> Vec<ResourceGroup> {
    vec![group(&["cpu"], &[("spot", &[first]), ("steady", &[second])])]
}

fn one_cpu() -> PodSet {
    pod_set("main", 1, &[("cpu", 1)])
}

#[test]
fn the_first_flavor_that_suits_and_has_room_is_taken() {
    let not_spot = Requirement { key: "type".into(), operator: Operator::NotIn, values: vec!["spot".into()] };
    let elsewhere = Requirement::equals("zone", "a");
    let tainted_spot = vec![tainted("spot", "preemptible"), labelled("steady", "type", "steady")];
    let self_tolerating = vec![
        Flavor { tolerations: vec![tolerates("preemptible")], ..tainted("spot", "preemptible") },
        labelled("steady", "type", "steady"),
    ];
    type Quotas = (i64, i64);
    let table: [(&str, Vec<Flavor>, Quotas, PodSet, &str); 9] = [
        ("the first has room", two_flavors(), (1, 1), one_cpu(), "spot"),
        ("the first is too small", two_flavors(), (0, 1), one_cpu(), "steady"),
        (
            "a node selector",
            two_flavors(),
            (1, 1),
            constrained(one_cpu(), selects("type", "steady")),
            "steady",
        ),
        (
            "a selector on another key",
            two_flavors(),
            (1, 1),
            constrained(one_cpu(), selects("zone", "a")),
            "spot",
        ),
        (
            "affinity against the first",
            two_flavors(),
            (1, 1),
            constrained(one_cpu(), prefers_one_of(std::slice::from_ref(&not_spot))),
            "steady",
        ),
        (
            "affinity with an alternative that says nothing of flavors",
            two_flavors(),
            (1, 1),
            constrained(one_cpu(), prefers_one_of(&[not_spot, elsewhere])),
            "spot",
        ),
        ("a taint", tainted_spot.clone(), (1, 1), one_cpu(), "steady"),
        (
            "a taint that is tolerated",
            tainted_spot,
            (1, 1),
            constrained(one_cpu(), tolerating("preemptible")),
            "spot",
        ),
        ("a taint that the flavor itself tolerates", self_tolerating, (1, 1), one_cpu(), "spot"),
    ];
    for (case, flavors, (first, second), pod_set, expected) in table {
        let world = decide_one(flavors, two_quotas(first, second), vec![pod_set]);
        assert_eq!(shown(&world, "w"), [format!("main: cpu={expected}")], "{case}");
    }
}

#[test]
fn a_group_is_taken_from_one_flavor_and_groups_choose_apart() {
    let groups = || {
        vec![
            group(&["cpu", "memory"], &[("spot", &[4, 1]), ("steady", &[4, 8])]),
            group(&["gpu"], &[("a100", &[1]), ("t4", &[4])]),
        ]
    };
    let flavors = || [two_flavors(), vec![flavor("a100"), flavor("t4")]].concat();
    let pod_sets = vec![
        pod_set("driver", 1, &[("cpu", 1), ("memory", 2), ("gpu", 1)]),
        pod_set("worker", 2, &[("cpu", 1), ("gpu", 1)]),
    ];
    let world = decide_one(flavors(), groups(), pod_sets);
    assert_eq!(
        shown(&world, "w"),
        ["driver: cpu=steady gpu=a100 memory=steady", "worker: cpu=spot gpu=t4"],
        "memory pulls the driver's cpu along; the driver's gpu leaves none for the workers"
    );
    let usage: Vec<_> = assignments(&world, "w").iter().map(|a| (a.count, a.usage.clone())).collect();
    assert_eq!(
        usage,
        [(1, requests(&[("cpu", 1), ("gpu", 1), ("memory", 2)])), (2, requests(&[("cpu", 2), ("gpu", 2)]))]
    );
}

#[test]
fn pod_sets_of_one_workload_share_the_room() {
    let both = |count| vec![pod_set("a", 1, &[("cpu", 3)]), pod_set("b", count, &[("cpu", 1)])];
    let world = decide_one(vec![flavor("default")], vec![group(&["cpu"], &[("default", &[4])])], both(1));
    assert!(state(&world, "w").may_run());
    let world = decide_one(vec![flavor("default")], vec![group(&["cpu"], &[("default", &[4])])], both(2));
    assert_eq!(waits_for(&world, "w"), ExceedsMaxQuota, "together they are more than there is");
}

#[test]
fn pods_are_counted_where_the_queue_covers_them() {
    let groups = |pods| vec![group(&["cpu"], &[("default", &[9])]), group(&["pods"], &[("count", &[pods])])];
    let flavors = || vec![flavor("default"), flavor("count")];
    let pod_sets = || vec![pod_set("main", 3, &[("cpu", 1)])];
    let world = decide_one(flavors(), groups(3), pod_sets());
    assert_eq!(shown(&world, "w"), ["main: cpu=default pods=count"]);
    assert_eq!(assignments(&world, "w")[0].usage.get("pods"), 3);
    assert_eq!(waits_for(&decide_one(flavors(), groups(2), pod_sets()), "w"), ExceedsMaxQuota);
}

#[test]
fn a_resource_that_no_group_covers_matters_only_if_some_is_asked_for() {
    let groups = || vec![group(&["cpu"], &[("default", &[9])])];
    let world =
        decide_one(vec![flavor("default")], groups(), vec![pod_set("main", 1, &[("cpu", 1), ("gpu", 0)])]);
    assert_eq!(shown(&world, "w"), ["main: cpu=default"]);
    let world =
        decide_one(vec![flavor("default")], groups(), vec![pod_set("main", 1, &[("cpu", 1), ("gpu", 1)])]);
    assert_eq!(waits_for(&world, "w"), NoMatchingFlavor);
    assert_eq!(waiting_message(&world, "w"), "no resource group of ClusterQueue cq covers gpu");
}

#[test]
fn the_reason_is_the_best_flavor_of_the_worst_group() {
    let wants = |constraints| vec![constrained(pod_set("main", 1, &[("cpu", 2)]), constraints)];
    let table = [
        ("too large for one, busy in the other", (1, 2), wants(Default::default()), WaitingForQuota),
        ("too large for both", (1, 1), wants(Default::default()), ExceedsMaxQuota),
        (
            "one does not match, the other is too small",
            (9, 1),
            wants(selects("type", "steady")),
            ExceedsMaxQuota,
        ),
        ("one does not match, the other is busy", (9, 2), wants(selects("type", "steady")), WaitingForQuota),
        ("none matches", (9, 9), wants(selects("type", "gold")), NoMatchingFlavor),
    ];
    for (case, (first, second), pod_sets, expected) in table {
        let mut world = one_queue(two_flavors(), two_quotas(first, second));
        let filler = constrained(pod_set("main", 1, &[("cpu", 1)]), selects("type", "steady"));
        submit(&mut world, workload("filler", vec![filler]));
        run(&mut world);
        submit(&mut world, workload("w", pod_sets));
        run(&mut world);
        assert_eq!(waits_for(&world, "w"), expected, "{case}");
    }
}

#[test]
fn of_two_groups_the_worse_reason_counts() {
    let groups = vec![group(&["cpu"], &[("default", &[1])]), group(&["gpu"], &[("a100", &[1])])];
    let mut world = one_queue(vec![flavor("default"), flavor("a100")], groups);
    submit(&mut world, cpu_workload("filler", 1));
    run(&mut world);
    submit(&mut world, workload("w", vec![pod_set("main", 1, &[("cpu", 1), ("gpu", 2)])]));
    run(&mut world);
    assert_eq!(waits_for(&world, "w"), ExceedsMaxQuota);
    assert_eq!(waiting_message(&world, "w"), "gpu in flavor a100: 2 needed, the quota is 1");
}

#[test]
fn a_flavor_is_looked_at_once_per_pod_set_and_group() {
    let groups = vec![group(&["cpu", "memory"], &[("spot", &[1, 1]), ("steady", &[1, 1])])];
    let world = decide_one(two_flavors(), groups, vec![pod_set("main", 1, &[("cpu", 2), ("memory", 2)])]);
    let explanation = world.engine.explain(&"w".into()).expect("it is known");
    let looked_at: Vec<&str> = explanation.flavors.iter().map(|trace| trace.flavor.as_str()).collect();
    assert_eq!(looked_at, ["spot", "steady"]);
    assert!(explanation.flavors.iter().all(|trace| matches!(trace.verdict, Verdict::Exceeds(_))));
}

#[test]
fn huge_requests_never_wrap() {
    let huge = i64::MAX;
    let table: [(&str, i64, PodSet); 4] = [
        ("one pod", 10, pod_set("main", 1, &[("cpu", huge)])),
        ("many pods", 10, pod_set("main", i32::MAX, &[("cpu", huge / 2)])),
        ("no limit, one pod", huge, pod_set("main", 1, &[("cpu", huge)])),
        ("no limit, many pods", huge, pod_set("main", i32::MAX, &[("cpu", huge / 2)])),
    ];
    for (case, quota, pods) in table {
        let mut world = cpu_queue(quota);
        submit(&mut world, workload("w", vec![pods]));
        run(&mut world);
        assert_eq!(waits_for(&world, "w"), ExceedsMaxQuota, "{case}");
    }
}

#[test]
fn huge_admissions_give_back_exactly_what_they_took() {
    let mut world = cpu_queue(i64::MAX);
    for name in ["a", "b"] {
        submit(&mut world, cpu_workload(name, i64::MAX - 1));
        run(&mut world);
        assert!(state(&world, name).may_run(), "without a limit {name} fits");
    }
    for name in ["a", "b"] {
        world.delete(&name.into());
        run(&mut world);
    }
    let quota = cluster_queue("cq", vec![group(&["cpu"], &[("default", &[1])])]);
    world.administer(Event::ClusterQueue(Box::new(quota)));
    for name in ["c", "d"] {
        submit(&mut world, cpu_workload(name, 1));
        run(&mut world);
    }
    assert!(state(&world, "c").may_run());
    assert_eq!(waits_for(&world, "d"), WaitingForQuota, "nobody has credit left from before");
}

#[test]
fn a_decision_says_everything() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("w", 1));
    world.decide(1);
    let Action::Admit(admission) = &world.in_flight[0].action else { panic!("{:?}", world.in_flight) };
    let told = admission.clone();
    assert_eq!(world.in_flight[0].to_string(), "#0 ns/w admit in cq on default");
    world.execute(0, Fate::Lands);
    assert_eq!(state(&world, "w").reservation().expect("it has quota").admission, told);
}
