//! Sentences that hold for every sequence of events.
//!
//! A small world plays the API: it keeps nodes and pods, carries decisions out or loses them, and judges
//! every binding by its own arithmetic, which shares nothing with the scheduler's.

use std::collections::BTreeMap;

use gangway_model::constraints::{Constraints, Taint, TaintEffect, Toleration};
use gangway_model::scheduling::SchedulerSettings;
use gangway_model::{NodeName, Timestamp, Uid};
use gangway_placement::{
    Decision, DecisionId, Event, NodeRecord, Options, Outcome, PodRecord, PodRef, Scheduler, State,
};
use proptest::prelude::*;

use crate::world::{at, bound, demanding, node, pod, requests};

#[derive(Clone, Debug)]
enum Step {
    ApplyNode { name: u8, cpu: i64, pods: i64, ssd: bool, tainted: bool, cordoned: bool },
    DeleteNode(u8),
    CreatePod { cpu: i64, priority: i32, wants_ssd: bool, tolerates: bool, gated: bool },
    OpenGates(usize),
    BeginDeletion(usize),
    DeletePod(usize),
    FinishPod(usize),
    BindByOthers(usize, u8),
    NominateByOthers(usize, Option<u8>),
    Resize(usize, i64),
    Answer(usize, Outcome),
    ObserveBinding(usize),
    Decide(usize),
    Preempt(bool),
    PassSeconds(i64),
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Landed),
        1 => Just(Outcome::Rejected),
        1 => Just(Outcome::Conflict),
        1 => Just(Outcome::Unknown),
    ];
    let any_pod = 0..40_usize;
    prop_oneof![
        3 => (0..4_u8, 0..8_i64, 1..4_i64, any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.1))
            .prop_map(|(name, cpu, pods, ssd, tainted, cordoned)| {
                Step::ApplyNode { name, cpu: cpu * 500, pods, ssd, tainted, cordoned }
            }),
        1 => (0..4_u8).prop_map(Step::DeleteNode),
        6 => (0..5_i64, 0..3_i32, prop::bool::weighted(0.3), prop::bool::weighted(0.3), prop::bool::weighted(0.1))
            .prop_map(|(cpu, priority, wants_ssd, tolerates, gated)| {
                Step::CreatePod { cpu: cpu * 400, priority, wants_ssd, tolerates, gated }
            }),
        1 => any_pod.clone().prop_map(Step::OpenGates),
        1 => any_pod.clone().prop_map(Step::BeginDeletion),
        2 => any_pod.clone().prop_map(Step::DeletePod),
        2 => any_pod.clone().prop_map(Step::FinishPod),
        1 => (any_pod.clone(), 0..5_u8).prop_map(|(pod, node)| Step::BindByOthers(pod, node)),
        2 => (any_pod.clone(), prop::option::of(0..4_u8))
            .prop_map(|(pod, node)| Step::NominateByOthers(pod, node)),
        1 => (any_pod.clone(), 0..5_i64).prop_map(|(pod, cpu)| Step::Resize(pod, cpu * 400)),
        4 => (any_pod.clone(), outcome).prop_map(|(pod, outcome)| Step::Answer(pod, outcome)),
        4 => any_pod.prop_map(Step::ObserveBinding),
        4 => (0..4_usize).prop_map(Step::Decide),
        2 => prop::bool::weighted(0.8).prop_map(Step::Preempt),
        2 => prop_oneof![9 => 0..5_i64, 1 => Just(400)].prop_map(Step::PassSeconds),
    ]
}

/// What a binding in flight looks like from outside.
struct Flight {
    id: DecisionId,
    node: NodeName,
    landed: bool,
}

struct World {
    scheduler: Scheduler,
    now: Timestamp,
    nodes: BTreeMap<NodeName, NodeRecord>,
    pods: BTreeMap<Uid, PodRecord>,
    flights: BTreeMap<Uid, Flight>,
    created: usize,
    preemptions: Vec<(DecisionId, Vec<Uid>)>,
    log: Vec<Decision>,
}

impl World {
    fn new(pop_from_backoff: bool) -> Self {
        let settings = SchedulerSettings { pop_from_backoff, ..SchedulerSettings::default() };
        let mut scheduler = Scheduler::new(Options { settings, seed: 7 });
        scheduler.apply(Event::Synced, at(0));
        let (nodes, pods, flights) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            scheduler,
            now: at(0),
            nodes,
            pods,
            flights,
            created: 0,
            preemptions: Vec::new(),
            log: Vec::new(),
        }
    }

    fn tell(&mut self, event: Event) {
        self.scheduler.apply(event, self.now);
    }

    fn nth_pod(&self, n: usize) -> Option<PodRecord> {
        self.pods.values().nth(n % self.pods.len().max(1)).cloned()
    }

    fn observe(&mut self, record: PodRecord) {
        self.pods.insert(record.uid.clone(), record.clone());
        self.tell(Event::PodApplied(record));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::ApplyNode { name, cpu, pods, ssd, tainted, cordoned } => {
                self.apply_node(name, cpu, pods, ssd, tainted, cordoned);
            }
            Step::DeleteNode(name) => {
                let name: NodeName = format!("n{name}").into();
                self.nodes.remove(&name);
                self.tell(Event::NodeDeleted(name));
            }
            Step::CreatePod { cpu, priority, wants_ssd, tolerates, gated } => {
                self.create_pod(cpu, priority, wants_ssd, tolerates, gated);
            }
            Step::Decide(budget) => {
                self.decide(budget);
            }
            Step::Preempt(works) => self.carry_out_preemption(works),
            Step::PassSeconds(seconds) => self.pass(seconds),
            Step::OpenGates(n)
            | Step::BeginDeletion(n)
            | Step::DeletePod(n)
            | Step::FinishPod(n)
            | Step::BindByOthers(n, _)
            | Step::NominateByOthers(n, _)
            | Step::Resize(n, _)
            | Step::Answer(n, _)
            | Step::ObserveBinding(n) => {
                if let Some(pod) = self.nth_pod(n) {
                    self.change_pod(&step, pod);
                }
            }
        }
    }

    /// After a long time whoever was looked at for that alone is tried before anything else happens.
    fn pass(&mut self, seconds: i64) {
        self.now = self.now.plus_seconds(seconds);
        if seconds > 60 {
            self.decide(1);
            while self.scheduler.has_work() {
                self.decide(1);
            }
        }
    }

    fn apply_node(&mut self, name: u8, cpu: i64, pods: i64, ssd: bool, tainted: bool, cordoned: bool) {
        let mut record = node(&format!("n{name}"), cpu);
        record.allocatable = requests(&[("cpu", cpu), ("memory", 1 << 30), ("pods", pods)]);
        record.labels.extend(ssd.then(|| ("disk".to_owned(), "ssd".to_owned())));
        let taint = Taint { key: "spot".into(), value: String::new(), effect: TaintEffect::NoSchedule };
        record.taints.extend(tainted.then_some(taint));
        record.unschedulable = cordoned;
        self.nodes.insert(record.name.clone(), record.clone());
        self.tell(Event::NodeApplied(record));
    }

    fn create_pod(&mut self, cpu: i64, priority: i32, wants_ssd: bool, tolerates: bool, gated: bool) {
        self.created += 1;
        let toleration = Toleration {
            key: Some("spot".into()),
            exists: true,
            value: String::new(),
            effect: None,
            seconds: None,
        };
        let constraints = Constraints {
            node_selector: wants_ssd.then(|| ("disk".into(), "ssd".into())).into_iter().collect(),
            affinity: None,
            tolerations: tolerates.then_some(toleration).into_iter().collect(),
        };
        let gates = gated.then(|| "quota".to_owned()).into_iter().collect();
        let record = demanding(pod(&format!("p{}", self.created), cpu), |d| d.constraints = constraints);
        self.observe(PodRecord { priority, created_at: self.now, gates, ..record });
    }

    fn change_pod(&mut self, step: &Step, pod: PodRecord) {
        let flying = self.flights.contains_key(&pod.uid);
        let landed = self.flights.get(&pod.uid).is_some_and(|flight| flight.landed);
        match step {
            Step::OpenGates(_) => self.observe(PodRecord { gates: Box::default(), ..pod }),
            Step::BeginDeletion(_) if !landed => self.observe(PodRecord { deleting: true, ..pod }),
            Step::DeletePod(_) => {
                self.pods.remove(&pod.uid);
                self.tell(Event::PodDeleted(pod.uid));
            }
            Step::FinishPod(_) => {
                self.pods.remove(&pod.uid);
                self.tell(Event::PodApplied(PodRecord { finished: true, ..pod }));
            }
            Step::BindByOthers(_, name) if pod.node.is_none() && !flying && pod.gates.is_empty() => {
                self.observe(bound(&pod, &format!("n{name}")));
            }
            Step::NominateByOthers(_, name) if pod.node.is_none() && !flying => {
                let nominated_node = name.map(|name| format!("n{name}").into());
                self.observe(PodRecord { nominated_node, ..pod });
            }
            Step::Resize(_, cpu) if pod.node.is_none() && !flying => {
                self.observe(demanding(pod, |demands| demands.requests = requests(&[("cpu", *cpu)])));
            }
            Step::Answer(_, outcome) if flying && !landed => self.answer(&pod.uid, *outcome),
            Step::ObserveBinding(_) if landed => {
                if let Some(flight) = self.flights.remove(&pod.uid) {
                    self.observe(bound(&pod, flight.node.as_str()));
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, uid: &Uid, outcome: Outcome) {
        let Some(flight) = self.flights.get_mut(uid) else { return };
        let id = flight.id;
        match outcome {
            Outcome::Landed => flight.landed = true,
            Outcome::Rejected | Outcome::Conflict => {
                self.flights.remove(uid);
            }
            Outcome::Unknown => {}
        }
        self.tell(Event::Outcome(id, outcome));
    }

    /// One by one, so that each is judged by the state that it was made in.
    fn decide(&mut self, budget: usize) {
        (0..budget).for_each(|_| self.decide_once());
    }

    fn decide_once(&mut self) {
        let decisions = self.scheduler.next(self.now, 1);
        assert!(decisions.len() <= 1);
        for decision in &decisions {
            match decision {
                Decision::Bind { id, pod, node } => {
                    self.judge_binding(&pod.uid, node);
                    let flight = Flight { id: *id, node: node.clone(), landed: false };
                    self.flights.insert(pod.uid.clone(), flight);
                }
                Decision::Preempt { id, preemptor, node, victims, .. } => {
                    self.judge_preemption(&preemptor.uid, node, victims);
                    self.preemptions.push((*id, victims.iter().map(|victim| victim.uid.clone()).collect()));
                }
                Decision::Report { .. } => {}
            }
        }
        self.log.extend(decisions);
    }

    /// Victims matter less, are on the node, and make room.
    fn judge_preemption(&self, uid: &Uid, node: &NodeName, victims: &[PodRef]) {
        let pod = &self.pods[uid];
        assert!(!victims.is_empty());
        for victim in victims {
            let victim = &self.pods[&victim.uid];
            let is_there = victim.node.as_ref() == Some(node)
                || self.flying(&victim.uid) && self.flights[&victim.uid].node == *node;
            assert!(is_there && victim.priority < pod.priority, "{uid} removes {victim:?}");
        }
        let stays = |other: &Uid| !victims.iter().any(|victim| victim.uid == *other);
        assert!(self.fits_among(pod, &self.nodes[node], stays), "{uid} would not fit on {node} without them");
        // Room that is made there for others counts too, and the world does not know of it.
        let is_made_here = |other: &Uid| self.scheduler.explain(other).nominated_node.as_ref() == Some(node);
        if self.pods.keys().any(|other| other != uid && is_made_here(other)) {
            return;
        }
        for spared in victims {
            let stays = |other: &Uid| stays(other) || *other == spared.uid;
            let fits = self.fits_among(pod, &self.nodes[node], stays);
            assert!(!fits, "{uid} would have fitted with {spared:?} too");
        }
    }

    /// Those who have to go begin to, or one cannot be removed.
    fn carry_out_preemption(&mut self, works: bool) {
        if self.preemptions.is_empty() {
            return;
        }
        let (id, victims) = self.preemptions.remove(0);
        for uid in &victims {
            let Some(mut victim) = self.pods.get(uid).cloned().filter(|_| works) else { continue };
            if self.flights.get(uid).is_some_and(|flight| flight.landed) {
                victim.node = self.flights.remove(uid).map(|flight| flight.node);
            }
            self.observe(PodRecord { deleting: true, preempted: true, ..victim });
        }
        self.tell(Event::Outcome(id, if works { Outcome::Landed } else { Outcome::Rejected }));
    }

    fn judge_binding(&self, uid: &Uid, node: &NodeName) {
        let pod = &self.pods[uid];
        assert!(pod.node.is_none() && !self.flying(uid), "{uid} is bound twice");
        assert!(pod.gates.is_empty() && !pod.deleting);
        assert!(self.fits(pod, &self.nodes[node]), "{uid} does not fit on {node}");
    }

    /// A binding of a pod that is gone or on its way out counts no more: it cannot land.
    fn flying(&self, uid: &Uid) -> bool {
        self.flights.contains_key(uid) && self.pods.get(uid).is_some_and(|pod| !pod.deleting)
    }

    fn fits(&self, pod: &PodRecord, node: &NodeRecord) -> bool {
        self.fits_among(pod, node, |_| true)
    }

    fn fits_among(&self, pod: &PodRecord, node: &NodeRecord, stays: impl Fn(&Uid) -> bool) -> bool {
        let here = |other: &&PodRecord| {
            stays(&other.uid)
                && (other.node.as_ref() == Some(&node.name)
                    || self.flying(&other.uid) && self.flights[&other.uid].node == node.name)
        };
        let others: Vec<_> = self.pods.values().filter(here).collect();
        let taken: i64 = others.iter().map(|other| other.demands.requests.get("cpu")).sum();
        let cpu = pod.demands.requests.get("cpu");
        (cpu == 0 || taken + cpu <= node.allocatable.get("cpu"))
            && (others.len() as i64) < node.allocatable.get("pods")
            && !node.unschedulable
            && (node.taints.is_empty() || !pod.demands.constraints.tolerations.is_empty())
            && (pod.demands.constraints.node_selector.is_empty() || node.labels.contains_key("disk"))
    }

    /// Whether room is kept there for somebody with a gate: nobody knows how long.
    fn is_kept_from(&self, pod: &PodRecord, node: &NodeRecord) -> bool {
        let waits = |other: &&PodRecord| !other.gates.is_empty() && other.priority >= pod.priority;
        let mut kept_for = self.pods.values().filter(waits).map(|other| self.scheduler.explain(&other.uid));
        kept_for.any(|other| other.nominated_node.as_ref() == Some(&node.name))
    }

    /// Every pod is somewhere, and where it is agrees with what the world knows.
    fn everybody_is_accounted_for(&self) {
        self.scheduler.check().expect("every invariant holds");
        for (uid, pod) in &self.pods {
            let explanation = self.scheduler.explain(uid);
            let as_expected = match &explanation.state {
                State::Bound(node) => pod.node.as_ref() == Some(node),
                State::Assumed(node) => self.flying(uid) && self.flights[uid].node == *node,
                State::Gated(_) => !pod.gates.is_empty(),
                State::Active
                | State::BackingOff(_)
                | State::BackingOffAfterError(_)
                | State::Preempting(_) => pod.node.is_none() && !self.flying(uid),
                State::Unschedulable { .. } => {
                    explanation.diagnosis.is_some_and(|d| d.nodes == self.nodes.len())
                }
                State::Unknown => pod.deleting && pod.node.is_none(),
                State::Unsupported(_) => false,
            };
            assert!(as_expected, "{uid} is {:?}", explanation.state);
        }
    }

    /// Lets everything happen that happens by itself, and demands that nobody waits in vain.
    fn settle(&mut self) {
        loop {
            while self.scheduler.has_work() {
                self.decide(3);
            }
            let leaving = |pod: &&PodRecord| pod.deleting && (pod.node.is_some() || pod.preempted);
            let gone: Vec<Uid> = self.pods.values().filter(leaving).map(|pod| pod.uid.clone()).collect();
            if !self.preemptions.is_empty() {
                self.carry_out_preemption(true);
            } else if let Some(uid) = gone.first() {
                self.pods.remove(uid);
                self.tell(Event::PodDeleted(uid.clone()));
            } else {
                // Nobody may depend on being looked at every five minutes.
                let soon = self.now.plus_seconds(60);
                let Some(deadline) = self.scheduler.next_deadline().filter(|at| *at < soon) else { break };
                self.now = self.now.max(deadline);
                self.decide(3);
            }
        }
        for (uid, pod) in &self.pods {
            if pod.node.is_none() && !self.flying(uid) && pod.gates.is_empty() && !pod.deleting {
                let node =
                    self.nodes.values().find(|node| self.fits(pod, node) && !self.is_kept_from(pod, node));
                assert!(node.is_none(), "{uid} waits, but fits on {:?}", node.map(|node| &node.name));
            }
        }
    }
}

fn play(pop_from_backoff: bool, steps: &[Step]) -> Vec<Decision> {
    let mut world = World::new(pop_from_backoff);
    for step in steps {
        world.take(step.clone());
        world.everybody_is_accounted_for();
    }
    world.settle();
    assert_eq!(world.scheduler.queue().counts().rescued_by_flush, 0, "an event was missed");
    world.log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_node_is_overfull_no_pod_bound_twice_none_forgotten_none_waits_in_vain(
        gate in any::<bool>(), steps in prop::collection::vec(step(), 1..120)
    ) {
        play(gate, &steps);
    }

    #[test]
    fn equal_events_give_equal_decisions(
        gate in any::<bool>(), steps in prop::collection::vec(step(), 1..80)
    ) {
        prop_assert_eq!(play(gate, &steps), play(gate, &steps));
    }
}
