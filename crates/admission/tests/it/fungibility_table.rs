//! Which flavor is chosen: the whole space of policies and of what two flavors offer, against the text of
//! the rule written down once more, and cases by hand.

use std::cmp::Reverse;

use gangway_admission::{Event, Rules};
use gangway_model::queues::{
    BorrowWithinCohort, ClusterQueue, Fungibility, FungibilityPolicy, FungibilityPreference,
    PreemptionPolicy, ReclaimWithinCohort, WithinClusterQueue,
};
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{PodSet, Workload};

use crate::build::*;
use crate::scene::Scene;

use FungibilityPolicy::{MayStopSearch, TryNextFlavor};
use FungibilityPreference::{BorrowingOverPreemption, PreemptionOverBorrowing};

const POLICIES: [FungibilityPolicy; 2] = [MayStopSearch, TryNextFlavor];
const PREFERENCES: [FungibilityPreference; 2] = [BorrowingOverPreemption, PreemptionOverBorrowing];

/// What a flavor offers to a Workload of 4 cpu and priority 5 in queue `q`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    Fits,
    FitsBorrowing,
    PreemptsOwn,
    PreemptsOwnBorrowing,
    Reclaims,
    ReclaimsBorrowing,
    NoCandidates,
    TooLarge,
}

const OFFERS: [Offer; 8] = [
    Offer::Fits,
    Offer::FitsBorrowing,
    Offer::PreemptsOwn,
    Offer::PreemptsOwnBorrowing,
    Offer::Reclaims,
    Offer::ReclaimsBorrowing,
    Offer::NoCandidates,
    Offer::TooLarge,
];

impl Offer {
    /// Nominal quota of `q`, of its neighbour and of a lender; then who uses it: the queue and the priority.
    fn setting(self) -> ([i64; 3], Option<(&'static str, i32)>) {
        match self {
            Self::Fits => ([4, 0, 0], None),
            Self::FitsBorrowing => ([0, 0, 4], None),
            Self::PreemptsOwn => ([4, 0, 0], Some(("q", 0))),
            Self::PreemptsOwnBorrowing => ([0, 0, 4], Some(("q", 0))),
            Self::Reclaims => ([4, 0, 0], Some(("neighbour", 0))),
            Self::ReclaimsBorrowing => ([0, 2, 2], Some(("neighbour", 0))),
            Self::NoCandidates => ([4, 0, 0], Some(("q", 9))),
            Self::TooLarge => ([1, 1, 1], None),
        }
    }

    /// The internal order of modes: noFit, noPreemptionCandidates, preempt, reclaim, fit.
    fn mode(self) -> u8 {
        match self {
            Self::TooLarge => 0,
            Self::NoCandidates => 1,
            Self::PreemptsOwn | Self::PreemptsOwnBorrowing => 2,
            Self::Reclaims | Self::ReclaimsBorrowing => 3,
            Self::Fits | Self::FitsBorrowing => 4,
        }
    }

    fn borrows(self) -> bool {
        matches!(self, Self::FitsBorrowing | Self::PreemptsOwnBorrowing | Self::ReclaimsBorrowing)
    }

    fn serves(self) -> bool {
        self.mode() >= 2
    }
}

/// The rule: which of two flavors is taken, if any.
fn expected(fungibility: Fungibility, offers: [Offer; 2]) -> Option<usize> {
    let goes_on = |offer: Offer| {
        !offer.serves()
            || (offer.mode() < 4 && fungibility.when_can_preempt == TryNextFlavor)
            || (offer.borrows() && fungibility.when_can_borrow == TryNextFlavor)
    };
    let stops_at = (0..2).find(|index| !goes_on(offers[*index]));
    if stops_at.is_some() {
        return stops_at;
    }
    // The list has ended: the best of those seen, the earlier one of two that are equal.
    let serving = (0..2).filter(|index| offers[*index].serves());
    serving.max_by_key(|index| {
        let (mode, is_own) = (offers[*index].mode(), u8::from(!offers[*index].borrows()));
        let by_preference = match fungibility.preference {
            BorrowingOverPreemption => (mode, is_own),
            PreemptionOverBorrowing => (is_own, mode),
        };
        (by_preference, Reverse(*index))
    })
}

fn may_preempt() -> PreemptionPolicy {
    PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::LowerPriority,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { max_priority: None },
    }
}

/// Queues `q`, `neighbour` and `lender` with flavors `f1` and `f2`, used as the offers say.
fn two_offers(fungibility: Fungibility, offers: [Offer; 2]) -> Scene {
    let settings = offers.map(Offer::setting);
    let groups =
        |owner: usize| cpu_group(&[("f1", quota(settings[0].0[owner])), ("f2", quota(settings[1].0[owner]))]);
    let q = ClusterQueue { fungibility, preemption: may_preempt(), ..member("q", "c", groups(0)) };
    let mut scene =
        Scene::new(vec![q, member("neighbour", "c", groups(1)), member("lender", "c", groups(2))]);
    for (flavor, (_, user)) in ["f1", "f2"].into_iter().zip(settings) {
        if let Some((queue, priority)) = user {
            scene.submit(queue, pinned(ranked(&format!("uses-{flavor}"), 4, priority, 0), flavor));
        }
    }
    let users = settings.iter().filter(|(_, user)| user.is_some()).count();
    assert_eq!(scene.run().len(), users, "{offers:?}: the users are there");
    scene
}

/// What is decided for the Workload, in the words of [`Scene::run`].
fn decisions(offers: [Offer; 2], chosen: Option<usize>) -> Vec<String> {
    let Some(index) = chosen else { return vec![] };
    let flavor = ["f1", "f2"][index];
    let reason = match offers[index] {
        Offer::PreemptsOwn | Offer::PreemptsOwnBorrowing => Some("InClusterQueue"),
        Offer::Reclaims => Some("InCohortReclamation"),
        Offer::ReclaimsBorrowing => Some("InCohortReclaimWhileBorrowing"),
        _ => None,
    };
    let leaves = reason.map(|reason| format!("uses-{flavor} leaves for w: {reason}"));
    leaves.into_iter().chain([format!("w on {flavor}")]).collect()
}

#[test]
fn every_policy_with_every_pair_of_offers() {
    let mut combinations = 0;
    for when_can_borrow in POLICIES {
        for when_can_preempt in POLICIES {
            for preference in PREFERENCES {
                let fungibility = Fungibility { when_can_borrow, when_can_preempt, preference };
                for first in OFFERS {
                    for second in OFFERS {
                        check_pair(fungibility, [first, second]);
                        combinations += 1;
                    }
                }
            }
        }
    }
    assert_eq!(combinations, 512);
}

fn check_pair(fungibility: Fungibility, offers: [Offer; 2]) {
    let mut scene = two_offers(fungibility, offers);
    scene.submit("q", ranked("w", 4, 5, 1));
    let chosen = expected(fungibility, offers);
    assert_eq!(scene.run(), decisions(offers, chosen), "{fungibility:?}, {offers:?}");
    if chosen.is_none() {
        let too_large = offers == [Offer::TooLarge; 2];
        let reason = if too_large { PendingReason::ExceedsMaxQuota } else { PendingReason::WaitingForQuota };
        assert_eq!(scene.waits_for("w").0, reason, "{offers:?}");
    }
}

fn fungibility(
    when_can_borrow: FungibilityPolicy,
    when_can_preempt: FungibilityPolicy,
    preference: FungibilityPreference,
) -> Fungibility {
    Fungibility { when_can_borrow, when_can_preempt, preference }
}

/// The rows that people ask about, written by hand.
#[test]
fn pairs_by_hand() {
    use Offer::*;
    let usual = Fungibility::default();
    let patient = fungibility(TryNextFlavor, TryNextFlavor, BorrowingOverPreemption);
    let frugal = fungibility(TryNextFlavor, TryNextFlavor, PreemptionOverBorrowing);
    let hasty = fungibility(MayStopSearch, MayStopSearch, BorrowingOverPreemption);
    let no_loans = fungibility(TryNextFlavor, MayStopSearch, BorrowingOverPreemption);
    let table = [
        ("by default a loan ends the search", usual, [FitsBorrowing, Fits], Some(0)),
        ("by default preemption does not", usual, [PreemptsOwn, Fits], Some(1)),
        ("by default preemption goes on to a loan", usual, [PreemptsOwn, FitsBorrowing], Some(1)),
        ("a loan may be avoided", patient, [FitsBorrowing, Fits], Some(1)),
        ("rather borrow than preempt", patient, [PreemptsOwn, FitsBorrowing], Some(1)),
        ("rather borrow than take back", patient, [FitsBorrowing, Reclaims], Some(0)),
        ("rather preempt than borrow", frugal, [FitsBorrowing, PreemptsOwn], Some(1)),
        ("taking back is better than preempting the own", patient, [PreemptsOwn, Reclaims], Some(1)),
        ("also where loans are avoided", frugal, [PreemptsOwn, Reclaims], Some(1)),
        (
            "a loan without preemption, if it must be one",
            frugal,
            [PreemptsOwnBorrowing, FitsBorrowing],
            Some(1),
        ),
        ("of equals the first", patient, [Reclaims, Reclaims], Some(0)),
        ("preemption ends the search where it may", hasty, [PreemptsOwn, Fits], Some(0)),
        (
            "but not preemption that also borrows where loans do not",
            no_loans,
            [PreemptsOwnBorrowing, Fits],
            Some(1),
        ),
        (
            "a later flavor that ends the search wins over a better one",
            no_loans,
            [FitsBorrowing, PreemptsOwn],
            Some(1),
        ),
        ("nobody to preempt is no reason to stop", hasty, [NoCandidates, PreemptsOwn], Some(1)),
        ("too little quota is no reason to stop", hasty, [TooLarge, FitsBorrowing], Some(1)),
        ("nobody to preempt anywhere", hasty, [NoCandidates, NoCandidates], None),
        ("what is left over is taken", frugal, [PreemptsOwnBorrowing, TooLarge], Some(0)),
    ];
    for (case, fungibility, offers, chosen) in table {
        assert_eq!(expected(fungibility, offers), chosen, "{case}: the rule");
        let mut scene = two_offers(fungibility, offers);
        scene.submit("q", ranked("w", 4, 5, 1));
        assert_eq!(scene.run(), decisions(offers, chosen), "{case}");
    }
}

/// A cohort with `q` and `lender`, each with two flavors; `q` prefers as said.
fn lending(fungibility: Fungibility, own: [i64; 2], lent: [i64; 2]) -> Scene {
    let groups = |amounts: [i64; 2]| cpu_group(&[("f1", quota(amounts[0])), ("f2", quota(amounts[1]))]);
    let q = ClusterQueue { fungibility, ..member("q", "c", groups(own)) };
    Scene::new(vec![q, member("lender", "c", groups(lent))])
}

fn pods(name: &str, amount: i64) -> PodSet {
    pod_set(name, 1, &[("cpu", amount)])
}

/// `podSet=flavor` of an admitted Workload.
fn flavors(scene: &Scene, uid: &str) -> Vec<String> {
    let reservation = scene.store.workload(uid).state.reservation().expect("it has quota");
    let pod_sets = reservation.admission.pod_sets.iter();
    pod_sets
        .flat_map(|set| set.flavors.iter().map(move |(_, flavor)| format!("{}={flavor}", set.name)))
        .collect()
}

#[test]
fn a_later_pod_set_counts_what_the_earlier_ones_take() {
    let mut scene = lending(Fungibility::default(), [3, 3], [0, 0]);
    scene.submit("q", workload("w", vec![pods("a", 2), pods("b", 2), pods("d", 1)]));
    scene.run();
    assert_eq!(flavors(&scene, "w"), ["a=f1", "b=f2", "d=f1"]);
}

#[test]
fn a_later_pod_set_borrows_because_of_the_earlier_one() {
    let patient = fungibility(TryNextFlavor, TryNextFlavor, BorrowingOverPreemption);
    let mut scene = lending(patient, [3, 2], [9, 9]);
    scene.submit("q", workload("w", vec![pods("a", 2), pods("b", 2)]));
    scene.run();
    assert_eq!(flavors(&scene, "w"), ["a=f1", "b=f2"], "in f1 together they would borrow one");
    let mut scene = lending(Fungibility::default(), [3, 2], [9, 9]);
    scene.submit("q", workload("w", vec![pods("a", 2), pods("b", 2)]));
    scene.run();
    assert_eq!(flavors(&scene, "w"), ["a=f1", "b=f1"], "which is no reason to go on by default");
}

#[test]
fn pod_sets_that_are_picky_choose_apart() {
    let mut scene = lending(Fungibility::default(), [4, 4], [0, 0]);
    let picky = constrained(pods("picky", 4), selects("flavor", "f2"));
    scene.submit("q", workload("w", vec![picky, pods("any", 4)]));
    scene.run();
    assert_eq!(flavors(&scene, "w"), ["picky=f2", "any=f1"]);
}

#[test]
fn one_pod_set_that_finds_nothing_keeps_all_of_them_out() {
    let mut scene = lending(Fungibility::default(), [4, 4], [0, 0]);
    scene.submit("q", workload("w", vec![pods("a", 1), pods("b", 9)]));
    scene.submit("q", workload("next", vec![pods("main", 4)]));
    assert_eq!(scene.run(), ["next on f1"], "what the first podSet found is not kept for it");
    assert_eq!(scene.waits_for("w").0, PendingReason::ExceedsMaxQuota);
}

#[test]
fn the_worst_resource_of_a_group_decides_about_its_flavor() {
    let groups =
        |amounts: [[i64; 2]; 2]| vec![group(&["cpu", "memory"], &[("f1", &amounts[0]), ("f2", &amounts[1])])];
    let wants = || workload("w", vec![pod_set("main", 1, &[("cpu", 2), ("memory", 2)])]);
    let patient = fungibility(TryNextFlavor, TryNextFlavor, BorrowingOverPreemption);
    let table = [
        ("both fit", [[2, 2], [2, 2]], "f1"),
        ("memory of f1 would be borrowed", [[2, 0], [2, 2]], "f2"),
        ("cpu of f1 would be borrowed", [[0, 2], [2, 2]], "f2"),
        ("one of each would be borrowed", [[0, 2], [2, 0]], "f1"),
    ];
    for (case, own, chosen) in table {
        let q = ClusterQueue { fungibility: patient, ..member("q", "c", groups(own)) };
        let mut scene = Scene::new(vec![q, member("lender", "c", groups([[9, 9], [9, 9]]))]);
        scene.submit("q", wants());
        assert_eq!(scene.run(), [format!("w on {chosen}")], "{case}");
    }
}

#[test]
fn two_groups_choose_apart_and_the_worst_of_them_decides_what_is_done() {
    let groups = || {
        vec![group(&["cpu"], &[("f1", &[4]), ("f2", &[4])]), group(&["gpu"], &[("g1", &[1]), ("g2", &[1])])]
    };
    let q = ClusterQueue { preemption: may_preempt(), ..cluster_queue("q", groups()) };
    let mut scene = Scene::new(vec![q]);
    let gpu =
        |name: &str, flavor: &str| pinned(workload(name, vec![pod_set("main", 1, &[("gpu", 1)])]), flavor);
    scene.submit("q", gpu("uses-g1", "g1"));
    scene.submit("q", gpu("uses-g2", "g2"));
    scene.submit("q", pinned(cpu_workload("uses-f1", 4), "f1"));
    scene.run();
    let both = workload("w", vec![pod_set("main", 1, &[("cpu", 4), ("gpu", 1)])]);
    scene.submit("q", Workload { priority: 5, ..both });
    // cpu fits in f2, gpu needs preemption: only the one gpu has to be freed.
    assert_eq!(scene.run(), ["uses-g1 leaves for w: InClusterQueue", "w on f2, g1"]);
}

/// A queue with two cpu of f1, and one of three left of f2.
fn scan_memory_scene() -> Scene {
    let hasty = fungibility(MayStopSearch, MayStopSearch, BorrowingOverPreemption);
    let mut scene = lending(hasty, [2, 3], [0, 0]);
    scene.submit("q", pinned(cpu_workload("fills-f2", 2), "f2"));
    scene.run();
    scene
}

/// The first podSet stops at f1, which leaves nothing for the second; begun behind f1, both find something.
#[test]
fn the_search_goes_on_behind_a_flavor_that_led_nowhere() {
    let mut scene = scan_memory_scene();
    let second = constrained(pods("second", 2), selects("flavor", "f1"));
    scene.submit("q", workload("w", vec![pods("first", 1), second]));
    assert_eq!(scene.run(), ["w on f2, f1"]);
}

#[test]
fn a_search_that_led_nowhere_holds_nobody_up_and_ends() {
    let mut scene = scan_memory_scene();
    let second = constrained(pods("second", 2), selects("flavor", "f1"));
    scene.submit("q", Workload { created: at(1), ..workload("w", vec![pods("first", 2), second]) });
    scene.submit("q", ranked("next", 1, 0, 2));
    let before = scene.engine.work().evaluations;
    assert_eq!(scene.run(), ["next on f1"]);
    assert!(scene.engine.work().evaluations - before <= 6, "each position once, then it is over");
    scene.delete("next");
    scene.delete("fills-f2");
    assert_eq!(scene.run(), ["w on f2, f1"], "the search goes on again once there is room");
}

/// Alone it would be admitted, so it waits for others and not for more quota.
#[test]
fn what_a_search_finds_behind_the_first_flavor_is_not_too_large() {
    let mut scene = scan_memory_scene();
    let second = constrained(pods("second", 2), selects("flavor", "f1"));
    scene.submit("q", workload("w", vec![pods("first", 2), second]));
    scene.run();
    assert_eq!(scene.waits_for("w").0, PendingReason::WaitingForQuota);
}

#[test]
fn what_was_learned_of_a_search_is_forgotten_when_room_is_freed() {
    let mut scene = scan_memory_scene();
    scene.submit("q", pinned(cpu_workload("fills-f1", 2), "f1"));
    scene.run();
    scene.submit("q", workload("w", vec![pods("first", 1), pods("second", 2)]));
    assert_eq!(scene.run(), [] as [&str; 0]);
    scene.delete("fills-f1");
    assert_eq!(scene.run(), ["w on f2, f1"], "f1 has room for the second, f2 for the first");
    scene.delete("w");
    scene.delete("fills-f2");
    scene.submit("q", workload("again", vec![pods("first", 1), pods("second", 2)]));
    assert_eq!(scene.run(), ["again on f1, f2"], "from the first flavor again");
}

#[test]
fn a_search_begins_anew_when_the_quota_changes() {
    let mut scene = scan_memory_scene();
    let second = constrained(pods("second", 2), selects("flavor", "f1"));
    scene.submit("q", workload("w", vec![pods("first", 2), second]));
    assert_eq!(scene.run(), [] as [&str; 0]);
    scene.edit_queue("q", |q| q.resource_groups = cpu_group(&[("f1", quota(4)), ("f2", quota(3))]));
    scene.run();
    assert_eq!(flavors(&scene, "w"), ["first=f1", "second=f1"]);
}

#[test]
fn a_flavor_that_appears_or_changes_is_looked_at() {
    let mut scene = lending(Fungibility::default(), [0, 4], [0, 0]);
    scene.tell(Event::Flavor(tainted("f2", "spot")));
    scene.submit("q", cpu_workload("w", 4));
    assert_eq!(scene.run(), [] as [&str; 0]);
    assert_eq!(scene.waits_for("w").0, PendingReason::ExceedsMaxQuota, "of f1, since f2 does not suit");
    scene.tell(Event::Flavor(flavor("f2")));
    assert_eq!(scene.run(), ["w on f2"]);
}

/// In a queue that would rather preempt than borrow, cpu fits by a loan and memory only by preemption. All
/// of it has to fit.
#[test]
fn a_loan_for_one_resource_does_not_hide_that_another_needs_preemption() {
    let frugal = fungibility(TryNextFlavor, TryNextFlavor, PreemptionOverBorrowing);
    let groups = |cpu: i64, memory: i64| vec![group(&["cpu", "memory"], &[("f1", &[cpu, memory])])];
    let q = ClusterQueue { fungibility: frugal, preemption: may_preempt(), ..member("q", "c", groups(0, 2)) };
    let mut scene = Scene::with_rules(Rules::gangway(), vec![q, member("lender", "c", groups(2, 0))]);
    scene.submit("q", workload("uses", vec![pod_set("main", 1, &[("memory", 2)])]));
    scene.run();
    let wants = workload("w", vec![pod_set("main", 1, &[("cpu", 2), ("memory", 2)])]);
    scene.submit("q", Workload { priority: 5, ..wants });
    assert_eq!(scene.run(), ["uses leaves for w: InClusterQueue", "w on f1"]);
}

/// Three flavors that fit at different heights of the tree: the lowest wins where loans are avoided.
#[test]
fn a_loan_from_nearby_is_better_than_one_from_far_away() {
    let patient = fungibility(TryNextFlavor, TryNextFlavor, BorrowingOverPreemption);
    let groups = |amounts: [i64; 2]| cpu_group(&[("far", quota(amounts[0])), ("near", quota(amounts[1]))]);
    let q = ClusterQueue { fungibility: patient, ..member("q", "left", groups([0, 0])) };
    let mut scene =
        Scene::new(vec![q, member("near", "left", groups([0, 2])), member("far", "right", groups([2, 0]))]);
    for side in ["left", "right"] {
        scene.set_cohort(cohort(side, Some("root"), vec![]));
    }
    scene.submit("q", cpu_workload("w", 2));
    assert_eq!(scene.run(), ["w on near"]);
}
