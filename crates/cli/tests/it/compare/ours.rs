//! Gangway's scheduler, given the same state.

use std::collections::BTreeSet;

use gangway_controller::pods::{budget_record, family_record, node_record, pod_record};
use gangway_model::Timestamp;
use gangway_model::scheduling::{ProfileSettings, SchedulerSettings};
use gangway_placement::{Decision, Event, Options, PodRef, Scheduler};
use k8s_openapi::api::core::v1::Pod;

use super::reference::{Preemption, State};

/// The plugins of which some rule out nodes, and some rank them.
pub const FILTERS: [&str; 6] = [
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
];

/// What it decides.
#[derive(Debug)]
pub enum Decided {
    /// The pod gets this node.
    Bind(String),
    /// Others have to go first; with what the pod is told.
    Preempt(Preemption, String),
    /// The pod waits, and is told why.
    Wait(String),
}

/// What it decides for a pod, without the plugins that are left out.
pub fn decide(state: &State, pod: &Pod, left_out: Option<&str>) -> Result<Decided, String> {
    let mut profile = ProfileSettings::named("default-scheduler");
    profile.filter.retain(|name| Some(name.as_str()) != left_out);
    let settings = SchedulerSettings { profiles: vec![profile], ..SchedulerSettings::default() };
    let mut scheduler = Scheduler::new(Options { settings, seed: 0 });
    let now = Timestamp::from_seconds(0);
    let nodes = state.nodes.iter().map(|node| Event::NodeApplied(node_record(node)));
    let budgets = state.budgets.iter().map(|budget| Event::BudgetApplied(budget_record(budget)));
    let families = state.families.iter();
    let families = families.map(|(kind, object)| Event::FamilyApplied(family_record(*kind, object)));
    let pods = state.bound.iter().chain([pod]).map(|pod| Event::PodApplied(pod_record(pod)));
    for event in nodes.chain(budgets).chain(families).chain(pods).chain([Event::Synced]) {
        scheduler.apply(event, now);
    }
    let decision = scheduler.next(now, 1).pop();
    scheduler.check().map_err(|violation| format!("its state is not sound: {violation:?}"))?;
    Ok(match decision.ok_or("it decides nothing")? {
        Decision::Bind { node, .. } => Decided::Bind(node.to_string()),
        Decision::Preempt { node, victims, reason, .. } => {
            let victims = victims.iter().map(name_of).collect::<BTreeSet<_>>();
            Decided::Preempt(Preemption { node: node.to_string(), victims }, reason.to_string())
        }
        Decision::Report { reason, .. } => Decided::Wait(reason.to_string()),
    })
}

fn name_of(pod: &PodRef) -> String {
    pod.name.to_string()
}
