//! Who has to leave for whom: every policy against every kind of candidate, the order of candidates, and who is
//! spared.

use gangway_admission::Rules;
use gangway_model::queues::{
    BorrowWithinCohort, ClusterQueue, PreemptionPolicy, ReclaimWithinCohort, WithinClusterQueue,
};
use gangway_model::reasons::PendingReason;
use gangway_model::workload::Workload;

use crate::build::*;
use crate::scene::Scene;

pub const NOTHING: [&str; 0] = [];

pub fn queue(name: &str, amount: i64, preemption: PreemptionPolicy) -> ClusterQueue {
    ClusterQueue { preemption, ..member(name, "c", cpu_group(&[("f", quota(amount))])) }
}

pub fn never() -> PreemptionPolicy {
    PreemptionPolicy::default()
}

pub fn within_lower() -> PreemptionPolicy {
    PreemptionPolicy { within_cluster_queue: WithinClusterQueue::LowerPriority, ..never() }
}

pub fn reclaims(reclaim_within_cohort: ReclaimWithinCohort) -> PreemptionPolicy {
    PreemptionPolicy { reclaim_within_cohort, ..never() }
}

pub fn reclaims_any() -> PreemptionPolicy {
    reclaims(ReclaimWithinCohort::Any)
}

/// Lower priority everywhere, also while borrowing.
pub fn may_do_all() -> PreemptionPolicy {
    PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::LowerPriority,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { max_priority: None },
    }
}

// ---- Policies against candidates ------------------------------------------------------------------------

const WITHIN: [WithinClusterQueue; 3] = [
    WithinClusterQueue::Never,
    WithinClusterQueue::LowerPriority,
    WithinClusterQueue::LowerOrNewerEqualPriority,
];
const RECLAIM: [ReclaimWithinCohort; 3] =
    [ReclaimWithinCohort::Never, ReclaimWithinCohort::LowerPriority, ReclaimWithinCohort::Any];
const BORROW: [BorrowWithinCohort; 4] = [
    BorrowWithinCohort::Never,
    BorrowWithinCohort::LowerPriority { max_priority: None },
    BorrowWithinCohort::LowerPriority { max_priority: Some(0) },
    BorrowWithinCohort::LowerPriority { max_priority: Some(-1) },
];

/// The candidate's priority and age. The Workload that asks has priority 5 and was created at 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    Lower,
    EqualNewer,
    EqualOlder,
    Higher,
}

impl Rank {
    const ALL: [Self; 4] = [Self::Lower, Self::EqualNewer, Self::EqualOlder, Self::Higher];

    fn priority_and_age(self) -> (i32, i64) {
        match self {
            Self::Lower => (0, 50),
            Self::EqualNewer => (5, 200),
            Self::EqualOlder => (5, 50),
            Self::Higher => (9, 200),
        }
    }
}

/// Where the candidate is, and whether the Workload that asks would stay within its queue's own quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    OwnQueue,
    OwnQueueBorrowing,
    Borrower,
    BorrowerWhileBorrowing,
    Lender,
    BesideFullQueue,
}

impl Place {
    const ALL: [Self; 6] = [
        Self::OwnQueue,
        Self::OwnQueueBorrowing,
        Self::Borrower,
        Self::BorrowerWhileBorrowing,
        Self::Lender,
        Self::BesideFullQueue,
    ];

    /// Quota of `q`, which asks, of `other` and of `idle`; and where the candidate of 4 is.
    fn setting(self) -> ([i64; 3], &'static str) {
        match self {
            Self::OwnQueue => ([4, 0, 0], "q"),
            Self::OwnQueueBorrowing => ([0, 0, 4], "q"),
            Self::Borrower => ([4, 0, 0], "other"),
            Self::BorrowerWhileBorrowing => ([0, 2, 2], "other"),
            Self::Lender => ([0, 4, 0], "other"),
            // Its own quota is used by somebody out of reach, so it would have to take what is not lent.
            Self::BesideFullQueue => ([4, 4, 0], "other"),
        }
    }
}

/// The reason for which the candidate has to leave, if it has to: A§5.1 to A§5.3 for a single candidate.
fn expected(policy: PreemptionPolicy, place: Place, rank: Rank) -> Option<&'static str> {
    let lower = rank == Rank::Lower;
    let in_reach_within = match policy.within_cluster_queue {
        WithinClusterQueue::Never => false,
        WithinClusterQueue::LowerPriority => lower,
        WithinClusterQueue::LowerOrNewerEqualPriority => lower || rank == Rank::EqualNewer,
    };
    let in_reach_elsewhere = match policy.reclaim_within_cohort {
        ReclaimWithinCohort::Never => false,
        ReclaimWithinCohort::LowerPriority => lower,
        ReclaimWithinCohort::Any => true,
    };
    // Whether preemption is thought of at all by who has to borrow, and whom it may take then.
    let (may_borrow, below_threshold) = match policy.borrow_within_cohort {
        BorrowWithinCohort::Never => (false, false),
        BorrowWithinCohort::LowerPriority { max_priority } => {
            (true, lower && max_priority.is_none_or(|most| rank.priority_and_age().0 <= most))
        }
    };
    match place {
        Place::OwnQueue => in_reach_within.then_some("InClusterQueue"),
        Place::OwnQueueBorrowing => (may_borrow && in_reach_within).then_some("InClusterQueue"),
        Place::Borrower => in_reach_elsewhere.then_some("InCohortReclamation"),
        Place::BorrowerWhileBorrowing => {
            (below_threshold && in_reach_elsewhere).then_some("InCohortReclaimWhileBorrowing")
        }
        Place::Lender | Place::BesideFullQueue => None,
    }
}

#[test]
fn every_policy_against_every_candidate() {
    let mut combinations = 0;
    for within_cluster_queue in WITHIN {
        for reclaim_within_cohort in RECLAIM {
            for borrow_within_cohort in BORROW {
                let policy =
                    PreemptionPolicy { within_cluster_queue, reclaim_within_cohort, borrow_within_cohort };
                for place in Place::ALL {
                    for rank in Rank::ALL {
                        check_candidate(policy, place, rank);
                        combinations += 1;
                    }
                }
            }
        }
    }
    assert_eq!(combinations, 864);
}

fn check_candidate(policy: PreemptionPolicy, place: Place, rank: Rank) {
    let ([own, other, idle], home) = place.setting();
    let queues = vec![queue("q", own, policy), queue("other", other, never()), queue("idle", idle, never())];
    let mut scene = Scene::new(queues);
    if place == Place::BesideFullQueue {
        scene.submit("q", ranked("out-of-reach", 4, 9, 0));
        scene.run();
    }
    let (priority, created) = rank.priority_and_age();
    scene.submit(home, ranked("candidate", 4, priority, created));
    assert_eq!(scene.run(), ["candidate on f"]);
    scene.submit("q", ranked("w", 4, 5, 100));
    let case = format!("{policy:?}, {place:?}, {rank:?}");
    match expected(policy, place, rank) {
        Some(reason) => {
            let leaves = format!("candidate leaves for w: {reason}");
            assert_eq!(scene.run(), [leaves.as_str(), "w on f"], "{case}");
        }
        None => assert_eq!(scene.run(), NOTHING, "{case}"),
    }
}

#[test]
fn who_uses_none_of_what_is_missing_is_no_candidate() {
    let groups = cpu_group(&[("f", quota(2)), ("g", quota(2))]);
    let mut scene =
        Scene::new(vec![ClusterQueue { preemption: within_lower(), ..cluster_queue("q", groups) }]);
    scene.submit("q", pinned(ranked("on-f", 2, 4, 0), "f"));
    scene.submit("q", pinned(ranked("on-g", 2, 0, 0), "g"));
    scene.run();
    scene.submit("q", pinned(ranked("w", 2, 5, 1), "f"));
    assert_eq!(scene.run(), ["on-f leaves for w: InClusterQueue", "w on f"], "though on-g is less urgent");
}

// ---- Order, and who is spared ---------------------------------------------------------------------------

/// Each candidate uses 1; the Workload needs `need` of them gone. They are admitted in the order of the row.
#[test]
fn candidates_go_in_order() {
    type Candidates = &'static [(&'static str, &'static str, i32)];
    let table: [(&str, Candidates, i64, &[&str]); 6] = [
        ("the least urgent first", &[("q", "a", 2), ("q", "b", 1), ("q", "d", 3)], 1, &["b"]),
        ("then who came last", &[("q", "a", 1), ("q", "b", 1), ("q", "d", 1)], 1, &["d"]),
        ("priority counts before time", &[("q", "a", 1), ("q", "b", 2)], 1, &["a"]),
        ("other queues before the own", &[("q", "a", 0), ("other", "b", 4)], 1, &["b"]),
        ("then the own", &[("q", "a", 0), ("other", "b", 4), ("q", "d", 1)], 2, &["a", "b"]),
        (
            "in other queues the least urgent first",
            &[("other", "a", 3), ("third", "b", 2), ("other", "d", 2)],
            2,
            &["b", "d"],
        ),
    ];
    for (case, candidates, need, victims) in table {
        let quota = candidates.len() as i64;
        let queues =
            vec![queue("q", quota, may_do_all()), queue("other", 0, never()), queue("third", 0, never())];
        let mut scene = Scene::new(queues);
        for (home, name, priority) in candidates {
            scene.submit(home, ranked(name, 1, *priority, 0));
            scene.run();
        }
        scene.submit("q", ranked("w", need, 5, 100));
        assert_eq!(victims_of(&scene.run()), victims, "{case}");
    }
}

/// Who has to leave, by name.
pub fn victims_of(told: &[String]) -> Vec<&str> {
    let mut victims: Vec<&str> = told.iter().filter_map(|line| Some(line.split_once(" leaves")?.0)).collect();
    victims.sort_unstable();
    victims
}

#[test]
fn of_one_second_the_later_decision_goes_first() {
    let mut scene = Scene::new(vec![queue("q", 3, within_lower())]);
    for (name, created) in [("c", 1), ("a", 2), ("b", 3)] {
        scene.submit("q", ranked(name, 1, 0, created));
    }
    assert_eq!(scene.run(), ["c on f", "a on f", "b on f"], "by age, in one second");
    scene.submit("q", ranked("w", 1, 5, 100));
    assert_eq!(victims_of(&scene.run()), ["b"]);
}

#[test]
fn who_turns_out_not_to_be_needed_is_spared() {
    // In order: small, then large. Once large is gone small may stay.
    let mut scene = Scene::new(vec![queue("q", 5, within_lower())]);
    scene.submit("q", ranked("large", 4, 1, 0));
    scene.submit("q", ranked("small", 1, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 4, 5, 1));
    assert_eq!(scene.run(), ["large leaves for w: InClusterQueue", "w on f"]);
    assert!(scene.runs("small"));
    assert_eq!(scene.engine.work().spared, 1);
}

#[test]
fn the_last_removed_are_spared_first() {
    // Removed in order a(1), b(1), d(3); w needs 4 of 5. Without b, 1 + 3 are enough; so b stays and a goes.
    let mut scene = Scene::new(vec![queue("q", 5, within_lower())]);
    for (name, amount, priority) in [("a", 1, 0), ("b", 1, 1), ("d", 3, 2)] {
        scene.submit("q", ranked(name, amount, priority, 0));
    }
    scene.run();
    scene.submit("q", ranked("w", 4, 5, 1));
    assert_eq!(victims_of(&scene.run()), ["a", "d"]);
    assert!(scene.runs("b"));
}

#[test]
fn a_borrower_is_not_brought_below_its_own_quota() {
    // `other` has 2 and uses 4, `q` lends 2 and wants 4: taking back two is right, four is not.
    let mut scene = Scene::new(vec![queue("q", 2, reclaims_any()), queue("other", 2, never())]);
    for name in ["a", "b", "d", "e"] {
        scene.submit("other", ranked(name, 1, 0, 0));
        scene.run();
    }
    scene.submit("q", ranked("too-much", 4, 5, 1));
    assert_eq!(scene.run(), NOTHING);
    scene.delete("too-much");
    scene.submit("q", ranked("w", 2, 5, 1));
    assert_eq!(
        scene.run()[..2],
        ["e leaves for w: InCohortReclamation", "d leaves for w: InCohortReclamation"]
    );
    assert_eq!(scene.running(), ["a", "b", "w"]);
}

#[test]
fn if_there_is_no_way_nobody_leaves() {
    let mut scene = Scene::new(vec![queue("q", 4, within_lower())]);
    scene.submit("q", ranked("low", 2, 0, 0));
    scene.submit("q", ranked("high", 2, 9, 0));
    scene.run();
    scene.submit("q", ranked("w", 3, 5, 1));
    assert_eq!(scene.run(), NOTHING, "low alone is not enough");
    assert_eq!(scene.waits_for("w").0, PendingReason::WaitingForQuota);
}

#[test]
fn two_preemptors_of_one_cycle_have_victims_of_their_own() {
    let queues =
        vec![queue("a", 2, reclaims_any()), queue("b", 2, reclaims_any()), queue("other", 0, never())];
    let mut scene = Scene::new(queues);
    for name in ["v1", "v2"] {
        scene.submit("other", ranked(name, 2, 0, 0));
        scene.run();
    }
    scene.submit("a", ranked("wa", 2, 0, 1));
    scene.submit("b", ranked("wb", 2, 0, 2));
    let told = scene.run();
    assert_eq!(victims_of(&told), ["v1", "v2"]);
    assert_eq!(scene.running(), ["wa", "wb"]);
    assert_eq!(scene.engine.work().preemptions, 2);
}

// ---- Hierarchical cohorts -------------------------------------------------------------------------------

/// `root` has `left` with q (`own`) and near (`near`), and `right` with far.
fn tree(policy: PreemptionPolicy, own: i64, near: i64, far: i64) -> Scene {
    let place = |name: &str, side: &str, amount: i64, policy| ClusterQueue {
        cohort: Some(side.into()),
        ..queue(name, amount, policy)
    };
    let mut scene = Scene::new(vec![
        place("q", "left", own, policy),
        place("near", "left", near, never()),
        place("far", "right", far, never()),
    ]);
    for side in ["left", "right"] {
        scene.set_cohort(cohort(side, Some("root"), vec![]));
    }
    scene.run();
    scene
}

#[test]
fn a_cohort_takes_back_what_it_lent_to_another() {
    // The quota is near's, the Workload is q's: within `left` it has the better claim, whatever the priority.
    let mut scene = tree(reclaims_any(), 0, 4, 0);
    scene.submit("far", ranked("v", 4, 9, 0));
    scene.run();
    scene.submit("q", ranked("w", 4, 5, 1));
    assert_eq!(scene.run(), ["v leaves for w: InCohortReclamation", "w on f"]);
    // Far away nobody has a claim on it.
    scene.edit("v", |v| v.priority = 10);
    assert_eq!(scene.run(), NOTHING);
}

#[test]
fn beyond_the_quota_of_its_cohort_it_has_no_better_claim() {
    let mut scene = tree(reclaims_any(), 0, 2, 2);
    scene.submit("far", ranked("v", 4, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 3, 5, 1));
    assert_eq!(scene.run(), NOTHING, "left has but two of its own");
    scene.submit("q", ranked("small", 2, 5, 2));
    assert_eq!(scene.run(), ["v leaves for small: InCohortReclamation", "small on f"]);
}

#[test]
fn by_the_better_claim_before_others() {
    // w fits q's own quota, so both may be taken back; v-far is not less urgent, but neither is it nearer.
    let mut scene = tree(reclaims_any(), 4, 0, 0);
    scene.submit("near", ranked("v-near", 2, 1, 0));
    scene.submit("far", ranked("v-far", 2, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 2, 5, 1));
    assert_eq!(victims_of(&scene.run()), ["v-far"], "the less urgent one");
    // w2 does not fit q's own quota any more, but that of left: only far may be taken by the better claim.
    let mut scene = tree(may_do_all(), 0, 4, 0);
    scene.submit("near", ranked("v-near", 2, 0, 0));
    scene.submit("far", ranked("v-far", 2, 1, 0));
    scene.run();
    scene.submit("q", ranked("w", 2, 5, 1));
    assert_eq!(scene.run(), ["v-far leaves for w: InCohortReclamation", "w on f"]);
}

#[test]
fn a_cohort_that_is_within_its_quota_protects_all_below_it() {
    // far's neighbour lends to far within `right`: right as a whole borrows nothing.
    let mut scene = tree(reclaims_any(), 2, 0, 0);
    scene.add_queue(ClusterQueue { cohort: Some("right".into()), ..queue("lender", 2, never()) });
    scene.submit("far", ranked("v", 2, 0, 0));
    scene.submit("near", ranked("taken", 2, 9, 0));
    scene.run();
    scene.submit("q", ranked("w", 2, 5, 1));
    assert_eq!(victims_of(&scene.run()), ["taken"], "v borrows of its neighbour, not of q");
}

// ---- What the reference does ----------------------------------------------------------------------------

/// There a preemptor that fails keeps its place before all others, and holds up those who ask for the same.
#[test]
fn a_preemptor_of_the_reference_is_set_aside_with_its_equals() {
    let borrowing = PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::Any,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { max_priority: Some(1) },
    };
    let lends = member("lends", "root", cpu_group(&[("f", quota(3))]));
    let takes =
        ClusterQueue { preemption: borrowing, ..member("takes", "left", cpu_group(&[("f", quota(3))])) };
    let mut scene = Scene::with_rules(Rules::reference(), vec![lends, takes]);
    scene.set_cohort(cohort("left", Some("root"), vec![]));
    scene.set_cohort(cohort("right", Some("root"), cpu_group(&[("f", quota(1))])));
    for (name, amount, priority) in [("v1", 1, 0), ("v2", 4, 1)] {
        scene.submit("lends", ranked(name, amount, priority, 6 + amount));
        scene.run();
    }
    scene.submit("lends", ranked("next", 2, 1, 3));
    for (name, created) in [("first", 0), ("second", 4)] {
        let pod_sets = vec![pod_set("a", 1, &[("cpu", 3)]), pod_set("b", 1, &[("cpu", 4)])];
        scene.submit("takes", Workload { priority: 3, created: at(created), ..workload(name, pod_sets) });
    }
    scene.submit("takes", ranked("small", 1, 0, 5));
    let told = scene.run();
    assert_eq!(victims_of(&told), ["v1", "v2"]);
    // Were `second` tried apart from `first`, `v1` would start before `small`, only to leave for it.
    assert_eq!(told[2..], ["small on f", "next on f", "v2 on f"]);
}
